/* Many draws from Wallenius' law of an urn, as from a mixture of Fisher's laws.

   As in `_wallenius/moments.py`, P(X = x) is an integral over the log time u of draw n + 1. Given the
   time and the group of that draw, a ball of the group is left, and the counts follow Fisher's law of
   the urn without it. The trapezoid rule makes the integral a sum, whose error is rounding. */

#include "race.h"
#include "strips.h"

#include <stdlib.h>

/* For a normal density of information I in u the error of the rule is e^-46 if nodes are STEP / √I
   apart. Time is known best if the counts are, which the rule is made for. Densities of few draws are
   skewed, and need a shorter step. */
#define STEP 0.65
#define FAR 6.0    /* standard deviations, between which the information is looked at */
#define DEPTH 40.0 /* nats below the peak at which the density is cut off */
/* The most by which sums over even and over odd nodes may differ, relative to both. The error of all
   nodes is its fourth power. */
#define DISAGREEMENT 1e-4
#define MOST_ROWS (1 << 18) /* that are sorted at once */

/* -------------------------------------------------------------------------------------------------
   The components of the mixture
   ---------------------------------------------------------------------------------------------- */

/* Nodes, each with the tilted log-odds of the groups and the weights of its components: one for each
   group of the next draw. */
typedef struct {
    int64_t number, most;
    double *nodes;
} Mixture;

/* √I of the time given the counts, which are the expected ones of log time u, and twice the rate of
   the groups that are informative. */
static double sharpness(const Race *race, double u) {
    vec information = all(1e-300), rate = all(0.0);
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec y = arrived(load_first(race->log_weights + j, number, 0.0) + u);
        vec some = load_first(race->group_sizes + j, number, 0.0) * y * saturation(y);
        information += some;
        rate += some * larger(y, all(1.0));
    }
    double total = sum(information);
    return root(all(total))[0] + 2.0 * sum(rate) / total;
}

/* Adds the node at which the race has been run, and returns the log of its weight. */
static double add(Mixture *mixture, const Race *race, double reference) {
    int64_t groups = race->groups;
    double *log_odds = mixture->nodes + mixture->number++ * 2 * groups, *weights = log_odds + groups;
    double value = race->log_mass + log_of(race->rate) - reference;
    double scale = exp_of(value < 700.0 ? value : 700.0) / race->rate;
    for (int64_t j = 0; j < groups; j++) {
        double rate = race->left[j] * race->arrivals[j];
        log_odds[j] = race->log_odds[j] + race->centre;
        weights[j] = rate > 0.0 && race->group_sizes[j] >= 1.0 ? scale * rate : 0.0;
    }
    return value;
}

/* Whether the mixture is as accurate as rounding. */
static int find_mixture(Mixture *mixture, Race *race) {
    double deviation, peak = peak_of_race(race, &deviation), sums[2] = {0.0, 0.0}, sharpest = 0.0;
    double reference = race->log_mass + log_of(race->rate), highest = 0.0;
    for (int side = -1; side <= 1; side++) {
        double found = sharpness(race, peak + side * FAR * deviation);
        if (found > sharpest) sharpest = found;
    }
    mixture->number = 0;
    sums[0] = exp_of(add(mixture, race, reference));
    for (int side = -1; side <= 1; side += 2) {
        double value = 0.0;
        for (int64_t k = 1; value > highest - DEPTH; k++) {
            if (mixture->number == mixture->most) return 0;
            run_race(race, peak + side * (double)k * (STEP / sharpest));
            value = add(mixture, race, reference);
            sums[k % 2] += exp_of(value);
            if (value > highest) highest = value;
        }
        if (value != value) return 0;
    }
    double apart = sums[0] - sums[1], both = sums[0] + sums[1];
    return apart < DISAGREEMENT * both && -apart < DISAGREEMENT * both;
}

/* Mixtures of urns of which a ball is left, of at most `most` nodes. Nodes that are not needed have
   weights of zero; `failed` becomes one if a mixture is not found. */
EXPORT void race_mixtures(const double *log_weights, const double *group_sizes, const double *draws,
                          double *nodes, int64_t *failed, int64_t groups, int64_t most,
                          int64_t first, int64_t last) {
    double *space = malloc((4 * groups + 1) * sizeof *space);
    for (int64_t i = first; i < last; i++) {
        Race race = {.groups = groups, .log_weights = log_weights + i * groups,
                     .group_sizes = group_sizes + i * groups, .draws = draws[i],
                     .log_odds = space, .arrivals = space + groups, .drawn = space + 2 * groups,
                     .left = space + 3 * groups};
        Mixture mixture = {.most = most, .nodes = nodes + i * most * 2 * groups};
        if (!space || draws[i] != draws[i] || !find_mixture(&mixture, &race)) {
            *failed = 1;
            break;
        }
        int64_t filled = mixture.number * 2 * groups;
        memset(mixture.nodes + filled, 0, (most * 2 * groups - filled) * sizeof *nodes);
    }
    free(space);
}

/* -------------------------------------------------------------------------------------------------
   Draws
   ---------------------------------------------------------------------------------------------- */

/* An alias table of `components`, and space for draws of one urn. */
typedef struct {
    int64_t components;
    double *weights, *limits, *sizes; /* the group sizes of one component */
    int64_t *others, *starts, *component, *order;
    Strips *strips;
} Space;

static int reserve(Space *space, int64_t groups, int64_t components, int64_t rows) {
    space->weights = malloc((2 * components + groups) * sizeof(double));
    space->others = malloc((2 * components + 1 + 2 * rows) * sizeof(int64_t));
    space->strips = malloc(groups * sizeof(Strips));
    space->limits = space->weights + components;
    space->sizes = space->limits + components;
    space->starts = space->others + components;
    space->component = space->starts + components + 1;
    space->order = space->component + rows;
    return space->weights && space->others && space->strips;
}

static void release(Space *space) {
    free(space->weights);
    free(space->others);
    free(space->strips);
}

/* Tabulates the components of a mixture of at most `most` nodes, and returns their total weight. */
static double tabulate(Space *space, const double *nodes, int64_t groups, int64_t most) {
    double total = 0.0;
    space->components = 0;
    for (int64_t i = 0; i < most * groups; i++) {
        double weight = nodes[(i / groups * 2 + 1) * groups + i % groups];
        space->weights[i] = weight;
        total += weight;
        if (weight > 0.0) space->components = i + 1;
    }
    alias(space->weights, space->components, space->limits, space->others, space->starts);
    return total;
}

/* Chooses a component for each row, and sorts the rows by components. */
static void choose(Space *space, uint64_t seed, int64_t first, int64_t last) {
    memset(space->starts, 0, (space->components + 1) * sizeof *space->starts);
    for (int64_t row = first; row < last; row++) {
        double target = uniform_of_row(seed, (uint64_t)row) * (double)space->components;
        int64_t place = (int64_t)target;
        if (target - (double)place >= space->limits[place]) place = space->others[place];
        space->component[row - first] = place;
        space->starts[place]++;
    }
    for (int64_t i = 0; i < space->components; i++) space->starts[i + 1] += space->starts[i];
    for (int64_t row = last; row-- > first;) /* the end of each becomes its start */
        space->order[--space->starts[space->component[row - first]]] = row;
}

/* Draws `samples` times from the mixture of each urn, into counts (samples, urns, groups). Rows are
   numbered by urns first. `failed` becomes one if nothing was accepted. */
EXPORT void mixture_draws(const double *nodes, const double *group_sizes, const double *draws,
                          double *counts, int64_t *failed, int64_t groups, int64_t most,
                          int64_t urns, int64_t samples, int64_t rounds, int64_t seed,
                          int64_t first, int64_t last) {
    Space space;
    Groups urn;
    int64_t rows = last - first < MOST_ROWS ? last - first : MOST_ROWS;
    if (!reserve(&space, groups, most * groups, rows)) {
        *failed = 1;
        last = first;
    }
    while (first < last) {
        int64_t i = first / samples, end = first + rows < last ? first + rows : last;
        if (end > (i + 1) * samples) end = (i + 1) * samples;
        const double *own = nodes + i * most * 2 * groups;
        double total = tabulate(&space, own, groups, most);
        choose(&space, (uint64_t)seed, first, end);
        for (int64_t k = 0; k < space.components; k++) {
            int64_t begin = space.starts[k], stop = space.starts[k + 1];
            if (begin == stop) continue;
            const double *log_odds = own + k / groups * 2 * groups;
            memcpy(space.sizes, group_sizes + i * groups, groups * sizeof *space.sizes);
            space.sizes[k % groups] -= 1.0;
            prepare_groups(&urn, log_odds, space.sizes, groups);
            double expected = (double)samples * log_odds[groups + k % groups] / total;
            Strips *strips = expected < FEWEST_FOR_STRIPS ? 0 : space.strips;
            if (strips && !prepare_strips_of_urn(strips, &urn, draws[i], expected)) strips = 0;
            for (int64_t at = begin; at < stop; at++) {
                int64_t row = space.order[at];
                Random random = stream((uint64_t)seed, (uint64_t)row);
                double *drawn = counts + ((row % samples) * urns + i) * groups;
                if (!draw_urn(&urn, strips, draws[i], rounds, &random, drawn)) *failed = 1;
            }
        }
        first = end;
    }
    release(&space);
}
