/* Moments of Wallenius' law, as integrals over the log time u of draw n + 1, as in
   `_wallenius/moments.py`: averages over the density of u, by the trapezoid rule. */

#include "race.h"

#include <stdlib.h>

#define DEPTH 64.0 /* nats below the peak at which the density is cut off */
/* The first distance of two nodes, in standard deviations of the density at its peak: for a normal
   density the error of the rule is e^-22, and that of twice the nodes e^-87. Densities of few draws
   are skewed, like e^(nu - e^u) of deviation n^-½, and need one that is shorter by `skewness` times
   the deviation. */
#define FIRST_STEP 0.95
#define AGREEMENT 1e-8 /* of the averages on all nodes and on half of them, relative */
#define NEGLIGIBLE 1e-20 /* averages that need not agree, relative to the largest */
#define LARGEST_BEND 6.0
#define BEND_MATTERS 28.0 /* nats below the peak */
#define SIDE 1024         /* the most nodes on each side of the peak at first */
#define MOST_NODES_OF_TIME (1 << 13)
#define NEAR_PEAK 0.3 /* standard deviations */
#define MOST_STEPS 60 /* to the peak */

/* What is averaged: a function of the race writes `number` values of one time. The rule has enough
   nodes once the values from `checked` on agree, and the total mass if that is asked for. */
typedef struct Integrand {
    void (*values_of)(const struct Integrand *self, const Race *race, double *values);
    int64_t number, checked;
    int mass;
    double skewness;
    const double *vector;
    double *space, *centre; /* the centre becomes E[X | S = n] at the peak */
} Integrand;

/* Sums over nodes of densities relative to that of the first node. */
typedef struct {
    int64_t number;
    double peak, step, reference, total;
    double *value; /* the log-density on the nodes, in ascending order */
    double *sums, *before, *values;
} Average;

/* -------------------------------------------------------------------------------------------------
   The peak
   ---------------------------------------------------------------------------------------------- */

typedef struct {
    double low, high, typical, deviation;
} Bracket;

/* Log times between which the slope of the race changes its sign, and about the time of draw n + 1:
   that by which n + ½ arrivals are expected. */
static Bracket bracket(const Race *race) {
    double heaviest = -INF, slowest = INF, rate = 0.0, balls = 0.0;
    for (int64_t j = 0; j < race->groups; j++) {
        if (!(race->group_sizes[j] > 0.0)) continue;
        double weight = race->log_weights[j];
        if (weight > heaviest) heaviest = weight;
        if (weight < slowest) slowest = weight;
        balls += race->group_sizes[j];
    }
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec size = load_first(race->group_sizes + j, number, 0.0);
        vec weight = load_first(race->log_weights + j, number, 0.0) - heaviest;
        rate += sum(where(size > 0.0, size * vexp(weight), all(0.0)));
    }
    Bracket found = {-(heaviest + log_of(rate)), log_of(1.0 + race->draws) - slowest, 0.0, 1.0};
    double low = found.low, high = found.high, u = low + log_of(1.0 + race->draws);
    double smallest = root(all(1.0 / (2.0 * race->draws + 2.0)))[0];
    for (int64_t i = 0; i < 2 * MOST_STEPS; i++) {
        if (!(u > low && u < high)) u = 0.5 * (low + high);
        vec left = all(0.0), pace = all(0.0), variance = all(0.0);
        for (int64_t j = 0; j < race->groups; j += LANES) {
            int64_t number = race->groups - j;
            vec size = load_first(race->group_sizes + j, number, 0.0);
            vec y = arrived(load_first(race->log_weights + j, number, 0.0) + u);
            vec waiting = size * vexp(-y);
            left += waiting;
            pace += where(waiting > 0.0, waiting * y, all(0.0));
            variance -= waiting * vexpm1(-y);
        }
        double excess = (balls - sum(left)) - (race->draws + 0.5), slope = sum(pace);
        double wide = root(all(sum(variance) + 0.25))[0];
        if (excess > 0.0)
            high = u;
        else
            low = u;
        found.typical = u;
        found.deviation = wide / slope;
        if (excess * excess < 0.01 * wide * wide) break;
        u = i % 4 == 3 ? 0.5 * (low + high) : u - excess / slope;
    }
    if (!(found.deviation > smallest)) found.deviation = smallest;
    if (!(found.deviation < 1.5)) found.deviation = 1.5;
    return found;
}

double peak_of_race(Race *race, double *deviation) {
    Bracket found = bracket(race);
    double low = found.low, high = found.high, u = found.typical, before = 0.0, slope_before = 0.0;
    double smallest = root(all(1.0 / (2.0 * race->draws + 2.0)))[0];
    *deviation = found.deviation;
    for (int64_t i = 0; i < MOST_STEPS; i++) {
        if (!(u > low && u < high)) u = 0.5 * (low + high);
        run_race(race, u);
        double slope = race->slope;
        if (i) {
            double curvature = (slope_before - slope) / (u - before);
            if (curvature > 0.0) {
                double apart = root(all(1.0 / curvature))[0];
                *deviation = apart < smallest ? smallest : apart > 1.5 ? 1.5 : apart;
            }
        }
        double distance = slope * *deviation;
        if (!(distance * distance > NEAR_PEAK * NEAR_PEAK)) break; /* also for NaN */
        if (slope > 0.0)
            low = u;
        else
            high = u;
        before = u, slope_before = slope;
        u = i % 4 == 3 ? 0.5 * (low + high) : u + distance * *deviation;
    }
    return u;
}

/* -------------------------------------------------------------------------------------------------
   Averages
   ---------------------------------------------------------------------------------------------- */

/* Adds a node at which the race has been run, and returns its log-density. */
static double add(Average *average, const Integrand *integrand, const Race *race) {
    double value = race->log_mass + log_of(race->rate) - average->reference;
    double weight = exp_of(value < 700.0 ? value : 700.0);
    if (weight > 0.0 || value != value) {
        integrand->values_of(integrand, race, average->values);
        for (int64_t i = 0; i < integrand->number; i++)
            average->sums[i] += weight * average->values[i];
    }
    average->total += weight;
    return value;
}

/* Nodes from the peak outwards to both sides, until the density is negligible. */
static void spread(Average *average, const Integrand *integrand, Race *race, double deviation) {
    double shorter = integrand->skewness * (deviation < 1.0 ? deviation : 1.0), highest = 0.0;
    double step = (FIRST_STEP - shorter) * deviation;
    int64_t reach[2] = {0, 0};
    average->step = step;
    average->reference = race->log_mass + log_of(race->rate);
    average->total = 0.0;
    for (int64_t i = 0; i < integrand->number; i++) average->sums[i] = 0.0;
    average->value[SIDE] = add(average, integrand, race);
    for (int side = 0; side < 2; side++) {
        int64_t sign = side ? 1 : -1;
        double value = 0.0;
        while (value > highest - DEPTH && reach[side] < SIDE - 1) { /* not for NaN */
            int64_t k = sign * ++reach[side];
            run_race(race, average->peak + (double)k * step);
            average->value[SIDE + k] = value = add(average, integrand, race);
            if (value > highest) highest = value;
        }
    }
    average->number = reach[0] + reach[1] + 1;
    average->peak -= (double)reach[0] * step; /* from here on the first node */
    memmove(average->value, average->value + SIDE - reach[0],
            average->number * sizeof *average->value);
}

/* Whether nodes are too far apart for a steep edge, where they may agree by chance. */
static int is_unresolved(const Average *average) {
    double highest = -INF;
    for (int64_t k = 0; k < average->number; k++)
        if (average->value[k] > highest) highest = average->value[k];
    for (int64_t k = 1; k + 1 < average->number; k++) {
        const double *value = average->value + k;
        double bend = 2.0 * value[0] - value[-1] - value[1];
        if (value[0] > highest - BEND_MATTERS && (bend > LARGEST_BEND || bend < -LARGEST_BEND))
            return 1;
    }
    return 0;
}

INLINE double magnitude(double x) {
    return x < 0.0 ? -x : x;
}

/* Puts nodes half way between all others, and says whether the averages have changed. */
static int halve(Average *average, const Integrand *integrand, Race *race) {
    int64_t number = average->number;
    double total = average->total;
    memcpy(average->before, average->sums, integrand->number * sizeof *average->sums);
    for (int64_t k = number; k-- > 0;) average->value[2 * k] = average->value[k];
    average->step *= 0.5;
    for (int64_t k = 1; k < 2 * number - 1; k += 2) {
        run_race(race, average->peak + (double)k * average->step);
        average->value[k] = add(average, integrand, race);
    }
    average->number = 2 * number - 1;
    double largest = 0.0, doubled = average->total / total;
    if (integrand->mass && magnitude(doubled - 2.0) > AGREEMENT) return 1;
    for (int64_t i = integrand->checked; i < integrand->number; i++)
        if (magnitude(average->sums[i]) > largest) largest = magnitude(average->sums[i]);
    for (int64_t i = integrand->checked; i < integrand->number; i++) {
        double fine = average->sums[i], apart = magnitude(fine - doubled * average->before[i]);
        if (apart > AGREEMENT * magnitude(fine) && magnitude(fine) > NEGLIGIBLE * largest) return 1;
    }
    return is_unresolved(average);
}

/* Averages of an integrand over the density of u, in `average->values`. */
static void integrate(Average *average, const Integrand *integrand, Race *race) {
    double deviation;
    average->peak = peak_of_race(race, &deviation);
    if (integrand->centre)
        memcpy(integrand->centre, race->drawn, race->groups * sizeof *race->drawn);
    spread(average, integrand, race, deviation);
    while (2 * average->number <= MOST_NODES_OF_TIME && halve(average, integrand, race)) {}
    for (int64_t i = 0; i < integrand->number; i++)
        average->values[i] = average->sums[i] / average->total;
}

/* -------------------------------------------------------------------------------------------------
   Integrands
   ---------------------------------------------------------------------------------------------- */

/* Products of Cov[X | S = n] with the columns of a matrix. */
static void products(const Race *race, const double *matrix, int columns, double *values) {
    Urn urn = {race->log_odds, race->group_sizes, race->groups, race->centre};
    Tile tile = {.first = -1};
    covariance_products_at(&urn, &race->nodes, race->draws, &tile, matrix, columns, values);
}

/* E[X] just before draw n + 1, given its time: μ - Cov[X] y / E[D s]. */
static void counts_before(const Integrand *self, const Race *race, double *values) {
    (void)self;
    products(race, race->arrivals, 1, values);
    for (int64_t j = 0; j < race->groups; j++)
        values[j] = race->drawn[j] - values[j] / race->rate;
}

/* The product of a vector v with the Jacobian of the mean, Σ_j y_i E[L_i L_j] y_j (v_i - v_j) / E[D s]
   for balls left L, followed by the same sums without differences of v. Differences from the group of
   the largest rate keep its large terms out of the sums. */
static void flow(const Integrand *self, const Race *race, double *values) {
    int64_t groups = race->groups, largest = 0;
    double *of_one = values + groups, *matrix = self->space, *product = matrix + 2 * groups;
    double most = -INF, total[2] = {0.0, 0.0};
    for (int64_t j = 0; j < groups; j++) {
        double rate = race->left[j] * race->arrivals[j];
        if (rate > most) most = rate, largest = j;
    }
    for (int64_t j = 0; j < groups; j++) {
        matrix[2 * j] = race->arrivals[j] * (self->vector[j] - self->vector[largest]);
        matrix[2 * j + 1] = race->arrivals[j];
        for (int a = 0; a < 2; a++) total[a] += race->left[j] * matrix[2 * j + a];
    }
    products(race, matrix, 2, product);
    for (int64_t j = 0; j < groups; j++) {
        double v = self->vector[j] - self->vector[largest], y = race->arrivals[j] / race->rate;
        of_one[j] = y * (race->left[j] * total[1] + product[2 * j + 1]);
        values[j] = v * of_one[j] - y * (race->left[j] * total[0] + product[2 * j]);
    }
}

/* E[X] and E[X Xᵀ] for counts relative to the centre, and its diagonal once more. Given the time and
   the group of draw n + 1, they are those of Fisher's law of the urn without that ball. */
static void second_moments(const Integrand *self, const Race *race, double *values) {
    int64_t groups = race->groups;
    double sizes[MOST_IN_MATRIX], mean[MOST_IN_MATRIX];
    double *matrix = values + groups, *covariance = self->space;
    for (int64_t i = 0; i < groups * (groups + 1); i++) values[i] = 0.0;
    for (int64_t k = 0; k < groups; k++) {
        double share = race->left[k] * race->arrivals[k] / race->rate;
        if (!(share > 0.0)) continue;
        for (int64_t j = 0; j < groups; j++) sizes[j] = race->group_sizes[j] - (j == k);
        covariance_matrix_of(race->log_odds, sizes, race->draws, race->centre, groups, covariance,
                             mean);
        for (int64_t j = 0; j < groups; j++) mean[j] -= self->centre[j];
        for (int64_t i = 0; i < groups; i++) {
            values[i] += share * mean[i];
            for (int64_t j = 0; j < groups; j++)
                matrix[i * groups + j] += share * (covariance[i * groups + j] + mean[i] * mean[j]);
        }
    }
    for (int64_t i = 0; i < groups; i++)
        values[groups * (groups + 1) + i] = matrix[i * groups + i];
}

/* Space for the averages of `number` values and for a race of `groups`. */
static double *reserve(Average *average, Race *race, int64_t groups, int64_t number) {
    double *space = malloc((MOST_NODES_OF_TIME + 3 * number + 4 * groups + 1) * sizeof *space);
    if (!space) return 0;
    average->value = space;
    average->sums = space + MOST_NODES_OF_TIME;
    average->before = average->sums + number;
    average->values = average->before + number;
    race->log_odds = average->values + number;
    race->arrivals = race->log_odds + groups;
    race->drawn = race->arrivals + groups;
    race->left = race->drawn + groups;
    return space;
}

static int is_nan(const Race *race) {
    int nan = race->draws != race->draws;
    for (int64_t j = 0; j < race->groups; j++)
        nan |= race->log_weights[j] != race->log_weights[j];
    return nan;
}

/* Averages of the `number` first values, for each urn. */
static void averages_of_urns(Integrand integrand, const double *log_weights,
                             const double *group_sizes, const double *draws, const double *vectors,
                             double *values, int64_t groups, int64_t number, int64_t first,
                             int64_t last) {
    Race race;
    Average average;
    double *space = reserve(&average, &race, groups, integrand.number);
    for (int64_t i = first; i < last; i++) {
        race.groups = groups;
        race.log_weights = log_weights + i * groups;
        race.group_sizes = group_sizes + i * groups;
        race.draws = draws[i];
        integrand.vector = vectors ? vectors + i * groups : 0;
        int fails = !space || is_nan(&race);
        if (!fails) integrate(&average, &integrand, &race);
        for (int64_t j = 0; j < number; j++)
            values[i * number + j] = fails ? NOT_A_NUMBER : average.values[j];
    }
    free(space);
}

/* E[X] of urns of which a ball is left. */
EXPORT void race_means(const double *log_weights, const double *group_sizes, const double *draws,
                       double *values, int64_t groups, int64_t first, int64_t last) {
    Integrand integrand = {.values_of = counts_before, .number = groups, .skewness = 0.5};
    averages_of_urns(integrand, log_weights, group_sizes, draws, 0, values, groups, groups, first,
                     last);
}

/* Products of vectors with the Jacobian of E[X]; `draws` has one ball less. */
EXPORT void race_flows(const double *log_weights, const double *group_sizes, const double *draws,
                       const double *vectors, double *values, int64_t groups, int64_t first,
                       int64_t last) {
    double *space = malloc((4 * groups + 1) * sizeof *space);
    Integrand integrand = {flow, 2 * groups, groups, 1, 0.7, 0, space, 0};
    if (space)
        averages_of_urns(integrand, log_weights, group_sizes, draws, vectors, values, groups,
                         groups, first, last);
    else
        for (int64_t i = first * groups; i < last * groups; i++) values[i] = NOT_A_NUMBER;
    free(space);
}

/* E[X] and Cov[X] of at most MOST_IN_MATRIX groups, in rows of c (1 + c) numbers. */
EXPORT void race_covariances(const double *log_weights, const double *group_sizes,
                             const double *draws, double *values, int64_t groups, int64_t first,
                             int64_t last) {
    double covariance[MOST_IN_MATRIX * MOST_IN_MATRIX], centre[MOST_IN_MATRIX];
    int64_t number = groups * (1 + groups);
    Integrand integrand = {second_moments, number + groups, number, 0, 0.6, 0, covariance, centre};
    for (int64_t i = first; i < last; i++) {
        double *mean = values + i * number, *matrix = mean + groups;
        averages_of_urns(integrand, log_weights, group_sizes, draws, 0, values, groups, number, i,
                         i + 1);
        for (int64_t j = 0; j < groups; j++)
            for (int64_t k = 0; k < groups; k++) matrix[j * groups + k] -= mean[j] * mean[k];
        for (int64_t j = 0; j < groups; j++) mean[j] += centre[j];
    }
}
