/* One exact draw of each urn of a few groups, by the method of `_fisher/sampling/rejection.py`. */

#include "counts.h"

/* From log-weights of any tilt. */
static void prepare(Groups *urn, const double *log_weights, const double *group_sizes,
                    double draws, int64_t groups) {
    double log_odds[MOST_GROUPS], tilt = log_tilt_of(log_weights, group_sizes, draws, groups);
    for (int64_t j = 0; j < groups; j++) log_odds[j] = log_weights[j] + tilt;
    prepare_groups(urn, log_odds, group_sizes, groups);
}

/* Whether a proposal was accepted within the rounds. */
static int draw(const Groups *urn, double draws, int64_t rounds, Random *random, double *counts) {
    int64_t widest = urn->widest;
    for (int64_t i = 0; i < rounds; i++) {
        double left = draws;
        for (int64_t j = 0; j < urn->groups; j++) {
            if (j == widest) continue;
            double k = urn->size[j] > 0.0 ? binomial(urn, j, random) : 0.0;
            counts[j] = urn->common[j] ? urn->size[j] - k : k;
            left -= counts[j];
        }
        double accepted = uniform(random);
        if (!(left >= 0.0 && left <= urn->size[widest])) continue;
        double rarer = urn->common[widest] ? urn->size[widest] - left : left;
        if (accepted < relative_mass(urn, widest, rarer)) {
            counts[widest] = left;
            return 1;
        }
    }
    return 0;
}

/* Draws `samples` times from each urn, into counts (samples, urns, groups). Rows are numbered by
   urns first. A row of draws NaN becomes NaN; `failed` becomes an urn for which nothing was
   accepted. */
EXPORT void draw_each(const double *log_weights, const double *group_sizes, const double *draws,
                      double *counts, int64_t *failed, int64_t groups, int64_t urns,
                      int64_t samples, int64_t rounds, int64_t seed, int64_t first, int64_t last) {
    Groups urn;
    int64_t prepared = -1;
    for (int64_t row = first; row < last; row++) {
        int64_t i = row / samples;
        double *drawn = counts + ((row % samples) * urns + i) * groups;
        if (prepared != i)
            prepare(&urn, log_weights + i * groups, group_sizes + i * groups, draws[i], groups);
        prepared = i;
        Random random = stream((uint64_t)seed, (uint64_t)row);
        if (draws[i] == draws[i] && draw(&urn, draws[i], rounds, &random, drawn)) continue;
        if (draws[i] == draws[i]) *failed = i;
        for (int64_t j = 0; j < groups; j++) drawn[j] = NOT_A_NUMBER;
    }
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
