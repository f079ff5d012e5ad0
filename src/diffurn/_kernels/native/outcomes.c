/* Probabilities of Wallenius' law and their derivatives, as integrals over the log time of a race, as
   in `_wallenius/probabilities.py`. Groups of which nothing is drawn matter only by the sum of their
   rates. */

#include "race.h"

#include <stdlib.h>

#define DEPTH 40.0 /* nats below the peak at which the integrand is cut off */
/* The first distance of two nodes, in standard deviations of the integrand at its peak: for a normal
   integrand the error of the rule is e^-55, and that of twice the nodes e^-219. */
#define FIRST_STEP 0.6
#define AGREEMENT 1e-10 /* of the rule and the one with half the nodes */
#define LARGEST_BEND 6.0
#define BEND_MATTERS 28.0 /* nats below the peak */
#define SIDE 512          /* the most nodes on each side of the peak at first */
#define MOST_NODES_OF_TIME (1 << 13)
#define MOST_STEPS 100 /* to the peak */

/* A state x of the race. Lists have an entry for each group of which balls are drawn, and are padded
   with x = 0. */
typedef struct {
    int64_t drawn;
    double draws, log_rate; /* n, and log D */
    double *counts, *group_sizes, *log_weights;
    double *log_time, *time, *inverse, *log_share; /* at the peak: y, 1 / (e^y - 1), log(1 - e^-y) */
    double peak, deviation;
} State;

/* Nodes of u, relative to the peak, in ascending order, and the log-integrand on them. */
typedef struct {
    int64_t number;
    double step, total; /* Σ e^value */
    double *distance, *value, *share;
} Nodes;

/* Reads a state: 1, or 0 if P(x) = 1 since no ball, every ball or only one group is drawn, or -1 for
   NaN. */
static int read_state(State *state, const double *log_weights, const double *group_sizes,
                      const double *counts, int64_t groups) {
    double heaviest = -INF, draws = 0.0, rate = 0.0;
    int64_t drawn = 0, filled = 0;
    int nan = 0;
    for (int64_t j = 0; j < groups; j++) {
        double weight = log_weights[j], size = group_sizes[j], x = counts[j];
        nan |= weight != weight || size != size;
        filled += size > 0.0;
        draws += x;
        if (size > x && weight > heaviest) heaviest = weight;
        if (x > 0.0) {
            state->counts[drawn] = x;
            state->group_sizes[drawn] = size;
            state->log_weights[drawn++] = weight;
        }
    }
    if (nan || draws != draws) return -1;
    state->drawn = drawn;
    state->draws = draws;
    for (int64_t j = drawn; j % LANES; j++)
        state->counts[j] = state->group_sizes[j] = state->log_weights[j] = 0.0;
    if (draws == 0.0 || heaviest == -INF || filled < 2) return 0;
    for (int64_t j = 0; j < groups; j += LANES) {
        vec left = load_first(group_sizes + j, groups - j, 0.0) -
                   load_first(counts + j, groups - j, 0.0);
        vec weight = vexp(load_first(log_weights + j, groups - j, 0.0) - heaviest);
        rate += sum(where(left > 0.0, left * weight, all(0.0)));
    }
    state->log_rate = heaviest + log_of(rate);
    return 1;
}

/* The peak of the log-integrand, where D s = 1 + Σ x b(y) with 0 < b < 1. Newton's method solves the
   logarithm of this equation. */
static void find_peak(State *state) {
    double low = -state->log_rate, high = log_of(1.0 + state->draws) + low, u = high;
    double deviation = 1.0;
    for (int64_t i = 0; i < MOST_STEPS; i++) {
        vec full = all(0.0), fall = all(0.0);
        for (int64_t j = 0; j < state->drawn; j += LANES) {
            vec y = arrived(load(state->log_weights + j) + u);
            vec b = saturation(y), x = load(state->counts + j);
            full += x * b;
            vec within = smaller(y, all(LOG_LARGEST)); /* for which b is computed */
            fall += x * b * larger(within + b - 1.0, all(0.0));
        }
        double target = 1.0 + sum(full), slope = sum(fall);
        double excess = u + state->log_rate - log_of(target);
        if (excess > 0.0)
            high = u;
        else
            low = u;
        deviation = root(all(1.0 / (target + slope)))[0];
        double next = u - excess / (1.0 + slope / target);
        if (i % 4 == 3 || !(next >= low && next <= high)) next = 0.5 * (low + high);
        double moved = next > u ? next - u : u - next;
        u = next;
        if (!(moved > 0.02 * deviation)) break;
    }
    state->peak = u;
    state->deviation = deviation;
    for (int64_t j = 0; j < state->drawn; j += LANES) {
        vec log_y = load(state->log_weights + j) + u, y = arrived(log_y);
        store(state->log_time + j, log_y);
        store(state->time + j, y);
        store(state->inverse + j, 1.0 / vexpm1(smaller(y, all(50.0))));
        store(state->log_share + j, log_share_arrived(log_y));
    }
}

/* The log-integrand at eight distances from the peak, minus that at the peak. Groups of which few
   balls are missing at the peak, and nodes far from it, are computed by subtraction. */
static void log_densities(const State *state, const double *distances, double *values) {
    double rate = exp_of(state->log_rate + state->peak);
    for (int64_t k = 0; k < 8; k += LANES) {
        vec distance = load(distances + k), change = vexpm1(distance);
        vec value = distance - rate * change;
        ivec far = absolute(distance) >= 0.5;
        int some_far = any(far), all_far = some_far && !any(~far);
        for (int64_t j = 0; j < state->drawn; j++) {
            double y = state->time[j], x = state->counts[j];
            vec gain = all(0.0);
            int saturated = !(y < 50.0);
            if (!saturated && !all_far)
                gain = vlog1p(larger(-vexpm1(-y * change) * state->inverse[j], all(-0.5)));
            if (saturated || some_far) {
                vec apart = log_share_arrived(state->log_time[j] + distance) - state->log_share[j];
                gain = saturated ? apart : where(far, apart, gain);
            }
            value += x * gain;
        }
        store(values + k, value);
    }
}

/* Evenly spaced nodes from the peak outwards to both sides, until the integrand is negligible. */
static void spread(const State *state, Nodes *nodes) {
    double step = FIRST_STEP * state->deviation;
    for (int64_t tries = 0; tries < 10; tries++, step *= 2.0) {
        int64_t reach[2], complete = 1;
        for (int side = 0; side < 2; side++) {
            double sign = side ? step : -step, distances[8], values[8];
            int64_t k = 0, going = 1;
            while (going && k < SIDE) {
                for (int i = 0; i < 8; i++) distances[i] = sign * (double)(k + i + side);
                log_densities(state, distances, values);
                for (int i = 0; i < 8 && going; i++, k++) {
                    int64_t place = side ? SIDE + k : SIDE - 1 - k;
                    nodes->distance[place] = distances[i];
                    nodes->value[place] = values[i];
                    going = values[i] >= -DEPTH; /* not for NaN */
                }
            }
            reach[side] = k;
            complete &= !going;
        }
        nodes->number = reach[0] + reach[1];
        nodes->step = step;
        memmove(nodes->distance, nodes->distance + SIDE - reach[0],
                nodes->number * sizeof *nodes->distance);
        memmove(nodes->value, nodes->value + SIDE - reach[0],
                nodes->number * sizeof *nodes->value);
        if (complete) return;
    }
}

static double sum_of_exponentials(const double *values, int64_t number) {
    vec total = all(0.0);
    for (int64_t k = 0; k < number; k += LANES)
        total += vexp(load_first(values + k, number - k, -INF));
    return sum(total);
}

/* Puts nodes half way between all others, and says whether the rule has changed. Nodes too far apart
   for a steep edge may agree by chance. */
static int halve(const State *state, Nodes *nodes) {
    int64_t number = nodes->number;
    for (int64_t k = number; k-- > 0;) {
        nodes->distance[2 * k] = nodes->distance[k];
        nodes->value[2 * k] = nodes->value[k];
    }
    double distances[8], values[8], before = nodes->total, added = 0.0;
    for (int64_t first = 0; first < number - 1; first += 8) {
        int64_t count = number - 1 - first < 8 ? number - 1 - first : 8;
        for (int64_t i = 0; i < 8; i++)
            distances[i] =
                nodes->distance[2 * (first + (i < count ? i : count - 1))] + 0.5 * nodes->step;
        log_densities(state, distances, values);
        for (int64_t i = 0; i < count; i++) {
            nodes->distance[2 * (first + i) + 1] = distances[i];
            nodes->value[2 * (first + i) + 1] = values[i];
        }
        added += sum_of_exponentials(values, count);
    }
    nodes->number = 2 * number - 1;
    nodes->step *= 0.5;
    nodes->total = before + added;
    double change = 2.0 * before - nodes->total;
    if (change > AGREEMENT * nodes->total || -change > AGREEMENT * nodes->total) return 1;
    double highest = 0.0;
    for (int64_t k = 0; k < nodes->number; k++)
        if (nodes->value[k] > highest) highest = nodes->value[k];
    for (int64_t k = 1; k + 1 < nodes->number; k++) {
        const double *value = nodes->value + k;
        double bend = 2.0 * value[0] - value[-1] - value[1];
        if (value[0] > highest - BEND_MATTERS && bend > LARGEST_BEND) return 1;
    }
    return 0;
}

static void integrate(State *state, Nodes *nodes) {
    find_peak(state);
    spread(state, nodes);
    nodes->total = sum_of_exponentials(nodes->value, nodes->number);
    while (2 * nodes->number <= MOST_NODES_OF_TIME && halve(state, nodes)) {}
}

/* log P(x): the log-mass at the peak and the integral relative to it. */
static double log_probability(const State *state, const Nodes *nodes, const double *log_weights,
                              const double *group_sizes, const double *counts, int64_t groups) {
    double value = state->log_rate + state->peak + log_of(nodes->step * nodes->total);
    double log_odds[LANES], masses[LANES];
    for (int64_t j = 0; j < state->drawn; j += LANES) {
        store(log_odds, log_odds_of_arrival(load(state->log_time + j)));
        binomial_log_masses(state->counts + j, state->group_sizes + j, log_odds, masses, LANES);
        value += sum(load(masses)); /* groups without balls have the mass one */
    }
    for (int64_t j = 0; j < groups; j += LANES) {
        vec size = load_first(group_sizes + j, groups - j, 0.0);
        vec y = arrived(load_first(log_weights + j, groups - j, 0.0) + state->peak);
        ivec apart = (load_first(counts + j, groups - j, 1.0) > 0.0) | (size <= 0.0);
        value -= sum(where(apart, all(0.0), size * y));
    }
    return value > 0.0 ? 0.0 : value;
}

/* The normalised integrand on the nodes, padded with zeros. */
static void normalise(Nodes *nodes) {
    int64_t number = nodes->number;
    for (int64_t k = number; k % LANES; k++) nodes->distance[k] = 0.0, nodes->value[k] = -INF;
    for (int64_t k = 0; k < number; k += LANES)
        store(nodes->share + k, vexp(load(nodes->value + k)) / nodes->total);
}

/* The derivative of log P(x) in log ω: x_j E b(y_j) - w_j Σ_i x_i E b(y_i), where w = ω (m - x) / D,
   since the log-integrand has the average slope zero. */
static void score_of(const State *state, const Nodes *nodes, const double *log_weights,
                     const double *group_sizes, const double *counts, int64_t groups,
                     double *score) {
    double total = 0.0;
    for (int64_t j = 0, i = 0; j < groups; j++) {
        score[j] = 0.0;
        if (!(counts[j] > 0.0)) continue;
        vec average = all(0.0);
        double y = state->time[i++];
        for (int64_t k = 0; k < nodes->number; k += LANES)
            average += load(nodes->share + k) * saturation(y * vexp(load(nodes->distance + k)));
        score[j] = counts[j] * sum(average);
        total += score[j];
    }
    for (int64_t j = 0; j < groups; j += LANES) {
        int64_t number = groups - j;
        vec left = load_first(group_sizes + j, number, 0.0) - load_first(counts + j, number, 0.0);
        vec rate = vexp(load_first(log_weights + j, number, 0.0) - state->log_rate);
        vec share = where(left > 0.0, left * rate, all(0.0));
        store_first(score + j, load_first(score + j, number, 0.0) - total * share, number);
    }
}

/* Space for one state: lists of groups, and lists of nodes. */
static double *reserve(State *state, Nodes *nodes, int64_t groups) {
    int64_t entries = (groups + LANES) & -LANES, times = MOST_NODES_OF_TIME;
    double *space = malloc((7 * entries + 3 * times) * sizeof *space);
    if (!space) return 0;
    double **lists[] = {&state->counts, &state->group_sizes, &state->log_weights, &state->log_time,
                        &state->time,   &state->inverse,     &state->log_share};
    for (int i = 0; i < 7; i++) *lists[i] = space + i * entries;
    nodes->distance = space + 7 * entries;
    nodes->value = nodes->distance + times;
    nodes->share = nodes->value + times;
    return space;
}

/* log P(x) of each row, or with `scores` its derivative in log ω. */
EXPORT void outcomes(const double *log_weights, const double *group_sizes, const double *counts,
                     double *values, double *scores, int64_t groups, int64_t first, int64_t last) {
    State state;
    Nodes nodes;
    double *space = reserve(&state, &nodes, groups);
    for (int64_t i = first; i < last; i++) {
        const double *weights = log_weights + i * groups, *sizes = group_sizes + i * groups;
        const double *x = counts + i * groups;
        int kind = space ? read_state(&state, weights, sizes, x, groups) : -1;
        double constant = kind < 0 ? NOT_A_NUMBER : 0.0;
        if (kind > 0) integrate(&state, &nodes);
        if (values)
            values[i] = kind > 0 ? log_probability(&state, &nodes, weights, sizes, x, groups)
                                 : constant;
        if (!scores) continue;
        if (kind > 0) {
            normalise(&nodes);
            score_of(&state, &nodes, weights, sizes, x, groups, scores + i * groups);
        } else
            for (int64_t j = 0; j < groups; j++) scores[i * groups + j] = constant;
    }
    free(space);
}
