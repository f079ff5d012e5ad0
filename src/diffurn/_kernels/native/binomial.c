/* The binomial law's log-masses, as in `_numerics/binomial.py`. */

#include "binomial.h"

#define EXP_8 2980.9579870417283

/* log Γ(x+1) - x log x + x for real x ≥ 0, given log x; 0 at 0.

   For x < 8 it follows from the value at y = x + 8, since Γ(y+1) = (x+1) ⋯ (x+8) Γ(x+1). No term is
   larger than the result. */
INLINE vec stirling_remainder(vec x, vec log_x) {
    ivec small = x < SERIES_FROM;
    vec y = where(small, x + 8.0, x);
    vec series = stirling_series(y);
    if (!any(small)) return series + 0.5 * (LOG_2_PI + log_x);
    /* The product of the first and the last factor is x (x + 9) + 8. The other pairs differ from it
       by constants. */
    vec pair = x * (x + 9.0), square = y * y;
    vec product = (pair + 8.0) * (pair + 14.0) * ((pair + 18.0) * (pair + 20.0));
    vec scale = where(small, product * EXP_8 / (square * square * (square * square)), all(1.0));
    vec log_y = where(small, vlog(y), log_x);
    vec value = series + 0.5 * (LOG_2_PI + log_y) - vlog(scale);
    value += where(small, x * vlog(y / larger(x, all(1e-300))), all(0.0));
    return where(x == 0.0, all(0.0), value);
}

/* tanh(x / 2) for |x| < ½; the series was interpolated at Chebyshev's points. */
INLINE vec half_tanh(vec x) {
    vec z = x * x;
    vec series = all(-4.01856505099760285e-8);
    series = series * z + 4.36802204293277024e-7;
    series = series * z - 4.32739763397836506e-6;
    series = series * z + 0.0000427138035271001593;
    series = series * z - 0.000421626981509312355;
    series = series * z + 0.00416666666658502455;
    series = series * z - 0.0416666666666656957;
    series = series * z + 0.499999999999999998;
    return x * series;
}

INLINE vec log_mass(vec x, vec size, vec log_odds) {
    ivec outside = (x < 0.0) | (x > size); /* false for NaN, which stays NaN */
    x = where(outside, all(0.0), x);
    vec failures = size - x, rarer, commoner;
    probabilities(log_odds, &rarer, &commoner);
    ivec often = log_odds > 0.0;
    vec expected = size * where(often, commoner, rarer);
    vec expected_failures = size * where(often, rarer, commoner);
    /* x - mp comes from the smaller of the expected counts, which has the smaller rounding error. For
       odds near one both are large, and p - ½ = ½ tanh(log_odds / 2) is more accurate. */
    vec difference = where(often, expected_failures - failures, x - expected);
    ivec even = absolute(log_odds) < 0.5;
    if (any(even)) {
        vec half = 0.5 * size;
        difference = where(even, (x - half) - half * half_tanh(log_odds), difference);
    }
    vec log_size = vlog(larger(size, all(1.0)));
    vec log_x = vlog(larger(x, all(TINY))), log_failures = vlog(larger(failures, all(TINY)));
    vec log_commoner = log_size - vlog1p(rarer / commoner);
    vec log_expected = log_commoner + smaller(log_odds, all(0.0));
    vec log_expected_failures = log_commoner - larger(log_odds, all(0.0));
    vec log_whole = where(size >= 1.0, log_size, vlog(larger(size, all(TINY))));
    vec value = stirling_remainder(size, log_whole) - stirling_remainder(x, log_x) -
                stirling_remainder(failures, log_failures) -
                deviance(x, log_x, expected, log_expected, difference) -
                deviance(failures, log_failures, expected_failures, log_expected_failures,
                         -difference);
    return where(outside, all(-INF), value);
}

void binomial_log_masses(const double *counts, const double *group_sizes, const double *log_odds,
                         double *values, int64_t number) {
    for (int64_t i = 0; i < number; i += LANES) {
        int64_t left = number - i;
        vec value = log_mass(load_first(counts + i, left, 0.0), load_first(group_sizes + i, left, 0.0),
                             load_first(log_odds + i, left, 0.0));
        store_first(values + i, value, left);
    }
}

EXPORT void binomials(const double *counts, const double *group_sizes, const double *log_odds,
                      double *values, int64_t first, int64_t last) {
    binomial_log_masses(counts + first, group_sizes + first, log_odds + first, values + first,
                        last - first);
}

#define PIECE 64

/* Log-masses of one log-odds for each, to be added to the values of their rows. */
typedef struct {
    int64_t number, rows[PIECE];
    double counts[PIECE], sizes[PIECE], log_odds[PIECE], signs[PIECE];
} Terms;

static void add_all(Terms *terms, double *values) {
    double masses[PIECE];
    binomial_log_masses(terms->counts, terms->sizes, terms->log_odds, masses, terms->number);
    for (int64_t i = 0; i < terms->number; i++)
        values[terms->rows[i]] += terms->signs[i] * masses[i];
    terms->number = 0;
}

INLINE void add(Terms *terms, double *values, int64_t row, double sign, double count, double size,
                double log_odds) {
    int64_t i = terms->number++;
    terms->rows[i] = row, terms->signs[i] = sign;
    terms->counts[i] = count, terms->sizes[i] = size, terms->log_odds[i] = log_odds;
    if (terms->number == PIECE) add_all(terms, values);
}

/* Σ_j log Bin(x_j; m_j, p) - log Bin(n; Σm, p) with a p at which n is typical. */
EXPORT void central_log_probs(const double *counts, const double *group_sizes, const double *draws,
                              double *values, int64_t groups, int64_t first, int64_t last) {
    Terms terms = {.number = 0};
    for (int64_t i = first; i < last; i++) {
        double balls = 0.0;
        for (int64_t j = i * groups; j < (i + 1) * groups; j++) balls += group_sizes[j];
        double log_odds = log_of((draws[i] + 0.5) / (balls - draws[i] + 0.5));
        values[i] = 0.0;
        add(&terms, values, i, -1.0, draws[i], balls, log_odds);
        for (int64_t j = i * groups; j < (i + 1) * groups; j++)
            add(&terms, values, i, 1.0, counts[j], group_sizes[j], log_odds);
    }
    add_all(&terms, values);
}
