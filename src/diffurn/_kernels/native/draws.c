/* Exact draws of urns of a few groups, by the method of `_fisher/sampling/rejection.py`. */

#include "strips.h"

#include <stdlib.h>

/* From log-weights of any tilt. */
static void prepare(Groups *urn, const double *log_weights, const double *group_sizes,
                    double draws, int64_t groups) {
    double log_odds[MOST_GROUPS], tilt = log_tilt_of(log_weights, group_sizes, draws, groups);
    for (int64_t j = 0; j < groups; j++) log_odds[j] = log_weights[j] + tilt;
    prepare_groups(urn, log_odds, group_sizes, groups);
}

/* A count of the rarer outcome in group j. */
INLINE double rarer_count(const Groups *urn, const Strips *strips, int64_t j, Random *random) {
    if (!(urn->size[j] > 0.0)) return 0.0;
    return strips ? count_from_strips(strips + j, random) : binomial(urn, j, random);
}

int draw_urn(const Groups *urn, const Strips *strips, double draws, int64_t rounds, Random *random,
             double *counts) {
    int64_t widest = urn->widest;
    if (strips && strips->is_pair) {
        counts[0] = count_from_strips(strips, random);
        counts[1] = draws - counts[0];
        return counts[0] == counts[0];
    }
    for (int64_t i = 0; i < rounds; i++) {
        double left = draws;
        for (int64_t j = 0; j < urn->groups; j++) {
            if (j == widest) continue;
            double k = rarer_count(urn, strips, j, random);
            counts[j] = urn->common[j] ? urn->size[j] - k : k;
            left -= counts[j];
        }
        double accepted = uniform(random);
        if (!(left >= 0.0 && left <= urn->size[widest])) continue;
        double rarer = urn->common[widest] ? urn->size[widest] - left : left;
        if (strips ? is_below_mass(strips + widest, rarer, accepted)
                   : accepted < relative_mass(urn, widest, rarer)) {
            counts[widest] = left;
            return 1;
        }
    }
    return 0;
}

int prepare_strips_of_urn(Strips *strips, const Groups *urn, double draws, double expected) {
    if (urn->groups == 2) return prepare_strips_of_pair(strips, urn, draws, expected);
    for (int64_t j = 0; j < urn->groups; j++)
        if (!prepare_strips(strips + j, urn, j, expected)) return 0;
    return 1;
}

/* Draws `samples` times from each urn, into counts (samples, urns, groups). Rows are numbered by
   urns first. A row of draws NaN becomes NaN; `failed` becomes an urn for which nothing was
   accepted. */
EXPORT void draw_each(const double *log_weights, const double *group_sizes, const double *draws,
                      double *counts, int64_t *failed, int64_t groups, int64_t urns,
                      int64_t samples, int64_t rounds, int64_t seed, int64_t first, int64_t last) {
    Groups urn;
    Strips *space = samples < FEWEST_FOR_STRIPS ? 0 : malloc(groups * sizeof *space), *strips = 0;
    int64_t prepared = -1;
    for (int64_t row = first; row < last; row++) {
        int64_t i = row / samples;
        double *drawn = counts + ((row % samples) * urns + i) * groups;
        int known = draws[i] == draws[i];
        if (known && prepared != i) {
            prepare(&urn, log_weights + i * groups, group_sizes + i * groups, draws[i], groups);
            strips = space;
            if (space && !prepare_strips_of_urn(space, &urn, draws[i], (double)samples)) strips = 0;
            prepared = i;
        }
        Random random = stream((uint64_t)seed, (uint64_t)row);
        if (known && draw_urn(&urn, strips, draws[i], rounds, &random, drawn)) continue;
        if (known) *failed = i;
        for (int64_t j = 0; j < groups; j++) drawn[j] = NOT_A_NUMBER;
    }
    free(space);
}

/* Draws from a table of outcomes (outcomes, groups) and their masses, into counts (samples, groups). */
EXPORT void table_draws(const double *outcomes, const double *masses, double *counts,
                        int64_t groups, int64_t number, int64_t seed, int64_t first,
                        int64_t last) {
    double *limits = malloc(2 * number * sizeof *limits), *areas = limits + number;
    int64_t *others = malloc(2 * number * sizeof *others);
    int prepared = limits && others;
    if (prepared) {
        memcpy(areas, masses, number * sizeof *areas);
        alias(areas, number, limits, others, others + number);
    }
    for (int64_t row = first; row < last; row++) {
        Random random = stream((uint64_t)seed, (uint64_t)row);
        double target = uniform(&random) * (double)number;
        int64_t place = (int64_t)target;
        if (prepared && target - (double)place >= limits[place]) place = others[place];
        const double *drawn = outcomes + place * groups;
        for (int64_t j = 0; j < groups; j++)
            counts[row * groups + j] = prepared ? drawn[j] : NOT_A_NUMBER;
    }
    free(limits);
    free(others);
}

/* The first column of cumulative masses that reaches a target; target i belongs to row i % rows. */
EXPORT void first_reached(const double *cumulative, const double *targets, int64_t *places,
                          int64_t columns, int64_t rows, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        const double *row = cumulative + (i % rows) * columns;
        double target = targets[i];
        int64_t low = 0, length = columns;
        while (length > 0) { /* entries before `low` are below the target */
            int64_t half = length / 2;
            int below = row[low + half] < target;
            low += below ? half + 1 : 0;
            length = below ? length - half - 1 : half;
        }
        places[i] = low;
    }
}
