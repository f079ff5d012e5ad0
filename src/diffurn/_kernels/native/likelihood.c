/* log P(x) of urns, with its first two derivatives in log ω. */

#include "nodes.h"

#define PIECE 64 /* binomial masses at once */

typedef struct {
    const double *log_weights, *group_sizes, *draws, *counts;
    int64_t groups;
} Rows;

/* E[X] and Cov[X] of a row at the tilt of its nodes, or at another one that is accurate. */
static void derivatives_of(Urn *urn, Measure *found, double draws, Tile *tile, const double *counts,
                           double *score, double *information) {
    double tilt = urn->tilt;
    centre(urn, draws, 0, tile);
    if (urn->tilt != tilt) measure(urn, draws, tile, found);
    covariance_matrix_at(urn, found, draws, tile, information, score);
    for (int64_t j = 0; j < urn->groups; j++) score[j] = counts[j] - score[j];
}

/* Σ_j log Bin(x_j; m_j, p_j) - log P(S = n), from log-weights of any tilt. With `scores`, also the
   derivatives x - E[X] and Cov[X]; then all are zero for rows with one outcome. */
static void evaluate(const Rows *urns, double *values, double *scores, double *informations,
                     int64_t first, int64_t last) {
    /* Binomial masses of short rows are computed together, those of long ones in pieces. */
    double log_odds[PIECE], masses[PIECE], tilts[PIECE];
    int64_t groups = urns->groups, rows_at_once = groups && groups < PIECE ? PIECE / groups : 1;
    for (int64_t start = first; start < last; start += rows_at_once) {
        int64_t rows = last - start < rows_at_once ? last - start : rows_at_once;
        int64_t end = (start + rows) * groups;
        for (int64_t i = 0; i < rows; i++) {
            int64_t row = start + i;
            const double *weights = urns->log_weights + row * groups;
            const double *sizes = urns->group_sizes + row * groups;
            tilts[i] = log_tilt_of(weights, sizes, urns->draws[row], groups);
            Urn urn = {weights, sizes, groups, tilts[i]};
            Tile tile = {.first = -1};
            Measure found;
            measure(&urn, urns->draws[row], &tile, &found);
            values[row] = -log_of(found.mass);
            if (scores)
                derivatives_of(&urn, &found, urns->draws[row], &tile, urns->counts + row * groups,
                               scores + row * groups, informations + row * groups * groups);
        }
        for (int64_t j = start * groups; j < end; j += PIECE) {
            int64_t number = end - j < PIECE ? end - j : PIECE;
            int64_t row = j / groups, next = (row + 1) * groups;
            for (int64_t k = 0; k < number; k++) {
                if (j + k == next) row++, next += groups;
                log_odds[k] = urns->log_weights[j + k] + tilts[row - start];
            }
            binomial_log_masses(urns->counts + j, urns->group_sizes + j, log_odds, masses, number);
            row = j / groups, next = (row + 1) * groups;
            for (int64_t k = 0; k < number; k++) {
                if (j + k == next) row++, next += groups;
                values[row] += masses[k];
            }
        }
        for (int64_t i = 0; i < rows; i++) { /* the tilt adds nothing to counts that sum to n */
            int64_t row = start + i;
            double left = urns->draws[row], balls = 0.0;
            for (int64_t j = row * groups; j < (row + 1) * groups; j++)
                left -= urns->counts[j], balls += urns->group_sizes[j];
            values[row] += left * tilts[i];
            if (!scores || !(urns->draws[row] <= 0.0 || urns->draws[row] >= balls)) continue;
            values[row] = 0.0;
            for (int64_t j = row * groups; j < (row + 1) * groups; j++) scores[j] = 0.0;
        }
    }
}

EXPORT void log_probs(const double *log_weights, const double *group_sizes, const double *draws,
                      const double *counts, double *values, int64_t groups, int64_t first,
                      int64_t last) {
    Rows urns = {log_weights, group_sizes, draws, counts, groups};
    evaluate(&urns, values, 0, 0, first, last);
}

/* Of at most MOST_IN_MATRIX groups. */
EXPORT void log_probs_and_derivatives(const double *log_weights, const double *group_sizes,
                                      const double *draws, const double *counts, double *values,
                                      double *scores, double *informations, int64_t groups,
                                      int64_t first, int64_t last) {
    Rows urns = {log_weights, group_sizes, draws, counts, groups};
    evaluate(&urns, values, scores, informations, first, last);
}
