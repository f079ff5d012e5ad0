/* Products with the covariance of one urn, in O(c), as in `Nodes.covariance_product`.

   A constant that is subtracted from a vector does not change its product. So vectors are centred by
   their averages under v = m p q. Then Σ_{j≠i} v_j δ_j (u_j - u_i) is accurate as a sum over all
   groups less the multiple of u_i, even if one group is wider than all others together. */

#include "nodes.h"

#include <stdlib.h>

#define COLUMNS 4 /* vectors whose sums are computed at once */

/* Vectors with an entry for each group: the columns of a matrix from the first column on. */
typedef struct {
    const double *entries;
    int64_t stride, columns;
} Vectors;

/* Weights (f, g) at the nodes, with which Re Σ ζ z δ = Σ ((p - q) f - g) / (1 - 4pq h); here
   δ = (e^{iθ} - 1) / (q + p e^{iθ}) = ((p - q) 2h + i sin θ) / (1 - 4pq h), and h = sin²(θ/2). */
typedef struct {
    double f[MOST_NODES], g[MOST_NODES];
} Weights;

/* Sums over the groups at each node, Σ v δ u. */
typedef struct {
    double real[MOST_NODES], imaginary[MOST_NODES];
} Sums;

/* The weights of z. */
static Weights weights_of(const Measure *found, const Sums *z) {
    Weights weights;
    for (int64_t k = 0; k < found->number; k++) {
        double x = found->real[k] * z->real[k] - found->imaginary[k] * z->imaginary[k];
        double y = found->real[k] * z->imaginary[k] + found->imaginary[k] * z->real[k];
        weights.f[k] = 2.0 * found->half_sine_squared[k] * x;
        weights.g[k] = found->sine[k] * y;
    }
    return weights;
}

/* Re Σ ζ z */
static double average(const Measure *found, const Sums *z) {
    double total = 0.0;
    for (int64_t k = 0; k < found->number; k++)
        total += found->real[k] * z->real[k] - found->imaginary[k] * z->imaginary[k];
    return total;
}

/* The weights of z less its average, which give the covariance of z and δ under ζ. */
static Weights centred_weights_of(const Measure *found, const Sums *z) {
    Sums centred = *z;
    double mean = average(found, z);
    for (int64_t k = 0; k < found->number; k++) centred.real[k] -= mean;
    return weights_of(found, &centred);
}

/* Σ ((p - q) (f - u f') - (g - u g')) / (1 - 4pq h) for a vector of groups, times v. */
INLINE vec sum_at(const Measure *found, const Weights *all_u, const Weights *one, vec u, vec p,
                  vec q, vec size) {
    vec pq = p * q, difference = p - q, total = all(0.0);
    for (int64_t k = 0; k < found->number; k++) {
        vec f = all_u->f[k] - u * one->f[k], g = all_u->g[k] - u * one->g[k];
        total += (difference * f - g) / (1.0 - (4.0 * found->half_sine_squared[k]) * pq);
    }
    return size * pq * total;
}

/* Groups up to the last one that has any balls. */
static int64_t occupied(const double *group_sizes, int64_t groups) {
    while (groups > 0 && group_sizes[groups - 1] == 0.0) groups--;
    return groups;
}

static void averages_of(const Urn *urn, Vectors vectors, Tile *tile, double *averages) {
    double total = 0.0;
    for (int64_t a = 0; a < vectors.columns; a++) averages[a] = 0.0;
    for (int64_t first = 0; first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t j = 0; j < tile->number; j++) {
            double v = tile->size[j] * tile->p[j] * tile->q[j];
            const double *row = vectors.entries + (first + j) * vectors.stride;
            total += v;
            for (int64_t a = 0; a < vectors.columns; a++) averages[a] += v * row[a];
        }
    }
    for (int64_t a = 0; a < vectors.columns; a++)
        averages[a] = total > 0.0 ? averages[a] / total : 0.0;
}

/* Adds v δ u of all groups to the sums of each centred column u; to `ones`, if any, those of u = 1. */
INLINE void add_columns(const Measure *found, const Urn *urn, Vectors vectors,
                        const double *averages, const int columns, Tile *tile, Sums *ones,
                        Sums *sums) {
    double pq[TILE], v[TILE], skewed[TILE], u[COLUMNS][TILE];
    for (int64_t first = 0; first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t j = 0; j < tile->number; j++) {
            const double *row = vectors.entries + (first + j) * vectors.stride;
            pq[j] = tile->p[j] * tile->q[j];
            v[j] = tile->size[j] * pq[j];
            skewed[j] = v[j] * (tile->p[j] - tile->q[j]);
            for (int a = 0; a < columns; a++) u[a][j] = row[a] - averages[a];
        }
        for (int64_t k = 0; k < found->number; k += LANES) {
            vec h = load(found->half_sine_squared + k), sine = load(found->sine + k);
            vec real[1 + COLUMNS], imaginary[1 + COLUMNS];
            for (int a = 0; a <= columns; a++) real[a] = imaginary[a] = all(0.0);
            for (int64_t j = 0; j < tile->number; j++) {
                vec scale = 1.0 / (1.0 - (4.0 * pq[j]) * h), x = skewed[j] * scale, y = v[j] * scale;
                for (int a = 0; a < columns; a++) {
                    real[a] += u[a][j] * x;
                    imaginary[a] += u[a][j] * y;
                }
                real[columns] += x;
                imaginary[columns] += y;
            }
            for (int a = 0; a <= columns; a++) {
                Sums *to = a < columns ? sums + a : ones;
                if (!to) continue;
                store(to->real + k, load(to->real + k) + 2.0 * h * real[a]);
                store(to->imaginary + k, load(to->imaginary + k) + sine * imaginary[a]);
            }
        }
    }
}

/* Products with one column or two. */
INLINE void products(const Measure *found, const Urn *urn, Vectors vectors, const int columns,
                     Tile *tile, double *values) {
    Sums one = {0}, sums[2] = {0};
    Weights weights[2], own;
    double mean[2], entries[2][TILE] = {{0.0}};
    averages_of(urn, vectors, tile, mean);
    add_columns(found, urn, vectors, mean, columns, tile, &one, sums);
    own = centred_weights_of(found, &one);
    for (int a = 0; a < columns; a++) weights[a] = centred_weights_of(found, sums + a);
    for (int64_t first = 0; first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        const double *rows = vectors.entries + first * vectors.stride;
        for (int64_t j = 0; j < tile->number; j++)
            for (int a = 0; a < columns; a++) entries[a][j] = rows[j * columns + a] - mean[a];
        for (int64_t j = 0; j < tile->number; j += LANES) {
            vec p = load(tile->p + j), q = load(tile->q + j), pq = p * q, difference = p - q;
            vec total[2] = {all(0.0), all(0.0)};
            for (int64_t k = 0; k < found->number; k++) {
                vec scale = 1.0 / (1.0 - (4.0 * found->half_sine_squared[k]) * pq);
                for (int a = 0; a < columns; a++) {
                    vec u = load(entries[a] + j);
                    vec f = weights[a].f[k] - u * own.f[k], g = weights[a].g[k] - u * own.g[k];
                    total[a] += (difference * f - g) * scale;
                }
            }
            vec v = load(tile->size + j) * pq;
            for (int a = 0; a < columns; a++) store(entries[a] + j, v * total[a]);
        }
        for (int64_t j = 0; j < tile->number; j++)
            for (int a = 0; a < columns; a++) values[(first + j) * columns + a] = entries[a][j];
    }
}

void covariance_products_at(const Urn *urn, const Measure *found, double draws, Tile *tile,
                            const double *matrix, int columns, double *values) {
    Vectors vectors = {matrix, columns, columns};
    if (draws <= 0.0 || draws >= found->balls)
        for (int64_t i = 0; i < urn->groups * columns; i++) values[i] = 0.0;
    else if (columns == 1)
        products(found, urn, vectors, 1, tile, values);
    else
        products(found, urn, vectors, 2, tile, values);
}

/* Cov[X] @ u. Without a tilt the urn gets its own. */
void covariance_product_of(const double *log_odds, const double *group_sizes, double draws,
                           const double *tilt, const double *vector, int64_t groups,
                           double *values) {
    Urn urn = {log_odds, group_sizes, occupied(group_sizes, groups), 0.0};
    Tile tile = {.first = -1};
    Measure found;
    centre(&urn, draws, tilt, &tile);
    measure(&urn, draws, &tile, &found);
    covariance_products_at(&urn, &found, draws, &tile, vector, 1, values);
    for (int64_t j = urn.groups; j < groups; j++) values[j] = 0.0;
}

/* Vᵀ Cov[X] V for the p columns of V. Workspace: 2p + 1 sums and p averages. */
static void information_of(Urn urn, double draws, Vectors vectors, Sums *sums, double *averages,
                           double *values) {
    Tile tile = {.first = -1};
    Measure found;
    int64_t p = vectors.columns;
    for (int64_t i = 0; i < p * p; i++) values[i] = 0.0;
    centre(&urn, draws, 0, &tile);
    measure(&urn, draws, &tile, &found);
    if (draws <= 0.0 || draws >= found.balls) return;
    averages_of(&urn, vectors, &tile, averages);
    for (int64_t a = 0; a <= p; a++) sums[a] = (Sums){0};
    for (int64_t a = 0; a < p; a += COLUMNS) {
        Vectors some = {vectors.entries + a, vectors.stride, p - a < COLUMNS ? p - a : COLUMNS};
        Sums *ones = a ? 0 : sums + p;
        if (some.columns == COLUMNS)
            add_columns(&found, &urn, some, averages + a, COLUMNS, &tile, ones, sums + a);
        else if (some.columns == 3)
            add_columns(&found, &urn, some, averages + a, 3, &tile, ones, sums + a);
        else if (some.columns == 2)
            add_columns(&found, &urn, some, averages + a, 2, &tile, ones, sums + a);
        else
            add_columns(&found, &urn, some, averages + a, 1, &tile, ones, sums + a);
    }
    /* Σ_i u_i (Cov u)_i = Σ ζ G Gᵀ - ḡ ḡᵀ - Σ_i v_i (Σ ζ δ_i D - b_i d) u_i u_iᵀ for the sums G of
       the columns and D of ones, with averages ḡ and d */
    Weights own = centred_weights_of(&found, sums + p), nothing = {0};
    double shares[TILE];
    for (int64_t first = 0; first < urn.groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j += LANES)
            store(shares + j, sum_at(&found, &own, &nothing, all(0.0), load(tile.p + j),
                                     load(tile.q + j), load(tile.size + j)));
        for (int64_t j = 0; j < tile.number; j++) {
            const double *row = vectors.entries + (first + j) * vectors.stride;
            for (int64_t a = 0; a < p; a++) {
                double weighted = shares[j] * (row[a] - averages[a]);
                for (int64_t b = 0; b <= a; b++)
                    values[a * p + b] -= weighted * (row[b] - averages[b]);
            }
        }
    }
    for (int64_t a = 0; a < p; a++) {
        Weights weights; /* ζ (G - ḡ), with which Re Σ ζ (G - ḡ) G' is the covariance */
        double mean = average(&found, sums + a);
        for (int64_t k = 0; k < found.number; k++) {
            double x = sums[a].real[k] - mean, y = sums[a].imaginary[k];
            weights.f[k] = found.real[k] * x - found.imaginary[k] * y;
            weights.g[k] = found.real[k] * y + found.imaginary[k] * x;
        }
        for (int64_t b = 0; b <= a; b++) {
            for (int64_t k = 0; k < found.number; k++)
                values[a * p + b] +=
                    weights.f[k] * sums[b].real[k] - weights.g[k] * sums[b].imaginary[k];
            values[b * p + a] = values[a * p + b];
        }
    }
}

/* Vᵀ Cov[X] V of matrices V (c, p); NaN if memory is exhausted. */
EXPORT void informations(const double *log_odds, const double *group_sizes, const double *draws,
                         const double *matrices, double *values, int64_t groups, int64_t p,
                         int64_t first, int64_t last) {
    Sums *sums = malloc((p + 1) * sizeof *sums);
    double *averages = malloc((p + 1) * sizeof *averages);
    for (int64_t i = first; i < last; i++) {
        const double *sizes = group_sizes + i * groups;
        Urn urn = {log_odds + i * groups, sizes, occupied(sizes, groups), 0.0};
        Vectors vectors = {matrices + i * groups * p, p, p};
        if (sums && averages)
            information_of(urn, draws[i], vectors, sums, averages, values + i * p * p);
        else
            for (int64_t k = 0; k < p * p; k++) values[i * p * p + k] = NOT_A_NUMBER;
    }
    free(averages);
    free(sums);
}
