/* What the kernels share. Rows are urns; all arrays are contiguous float64, row by row, and a kernel
   computes the rows from `first` up to `last`. */

#ifndef DIFFURN_KERNELS_H
#define DIFFURN_KERNELS_H

#include "vec.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Constants of the Python modules that the kernels replace; set once, when the library is loaded. */
typedef struct {
    double tail_nats;       /* _fisher.nodes.TAIL_NATS */
    double node_nats;       /* nodes where |φ| < e^-node_nats are left out */
    double settled_squared; /* _fisher.tilt.SETTLED² */
    double rounding;        /* _fisher.tilt.ROUNDING */
    double hasty_steps, bisections, newton_steps;
} Constants;

extern Constants constants;

/* The probabilities of the rarer and of the commoner outcome of a ball. */
INLINE void probabilities(vec log_odds, vec *rarer, vec *commoner) {
    vec odds = vexp(-absolute(log_odds));
    *commoner = 1.0 / (1.0 + odds);
    *rarer = odds * *commoner;
}

INLINE double exp_of(double x) {
    return vexp(all(x))[0];
}

/* log x; -inf for 0, NaN for negative numbers. */
INLINE double log_of(double x) {
    return x > 0.0 ? vlog(all(x))[0] : x == 0.0 ? -INF : NOT_A_NUMBER;
}

double log_tilt_of(const double *log_weights, const double *group_sizes, double draws,
                   int64_t groups);
double centring_tilt_of(const double *log_odds, const double *group_sizes, double draws,
                        int64_t groups);
double log_mass_of(const double *log_odds, const double *group_sizes, double draws,
                   int64_t groups);
void covariance_product_of(const double *log_odds, const double *group_sizes, double draws,
                           const double *tilt, const double *vector, int64_t groups,
                           double *values);
void binomial_log_masses(const double *counts, const double *group_sizes, const double *log_odds,
                         double *values, int64_t number);

#endif
