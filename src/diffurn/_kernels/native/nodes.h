/* An urn and its nodes, for kernels that compute more than one mass. */

#ifndef DIFFURN_NODES_H
#define DIFFURN_NODES_H

#include "kernels.h"

#define MOST_NODES 24 /* beside the one at θ = 0, in blocks */
#define TILE 32       /* groups whose probabilities are kept */
#define MOST_IN_MATRIX 64 /* groups */
/* If Σ m p q is larger, counts of balls drawn and of balls left are accurate at one tilt. */
#define WIDE 1.0

typedef struct {
    const double *log_odds, *group_sizes;
    int64_t groups;
    double tilt; /* added to all log-odds */
} Urn;

/* Some groups of an urn; groups that do not exist have size zero. */
typedef struct {
    int64_t first, number; /* none is loaded yet if `first` is -1 */
    double p[TILE], q[TILE], size[TILE];
} Tile;

/* The nodes, and the measure ζ on them. Its part at θ = 0 is 1 - Σ re. */
typedef struct {
    int64_t number;
    double mass, balls;
    double sine[MOST_NODES], half_sine_squared[MOST_NODES];
    double real[MOST_NODES], imaginary[MOST_NODES];
} Measure;

INLINE void load_tile(const Urn *urn, int64_t first, Tile *tile) {
    if (tile->first == first) return;
    int64_t left = urn->groups - first;
    tile->first = first;
    tile->number = left < TILE ? left : TILE;
    for (int64_t j = 0; j < tile->number; j += LANES) {
        vec rarer, commoner;
        vec x = load_first(urn->log_odds + first + j, left - j, 0.0) + urn->tilt;
        probabilities(x, &rarer, &commoner);
        ivec often = x > 0.0;
        store(tile->p + j, where(often, commoner, rarer));
        store(tile->q + j, where(often, rarer, commoner));
        store(tile->size + j, load_first(urn->group_sizes + first + j, left - j, 0.0));
    }
}

/* The nodes for P(S = draws), and their measure. */
void measure(const Urn *urn, double draws, Tile *tile, Measure *found);
/* Products of Cov[X] with the columns of a matrix (groups, columns), from the nodes of an urn whose
   tilt is close to n. */
void covariance_products_at(const Urn *urn, const Measure *found, double draws, Tile *tile,
                            const double *matrix, int columns, double *values);
void centre(Urn *urn, double draws, const double *tilt, Tile *tile);
void covariance_matrix_at(const Urn *urn, const Measure *found, double draws, Tile *tile,
                          double *values, double *means);
void covariance_matrix_of(const double *log_odds, const double *group_sizes, double draws,
                          double tilt, int64_t groups, double *values, double *means);

#endif
