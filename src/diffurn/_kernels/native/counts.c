/* Random binomial counts. */

#include "binomial.h"
#include "counts.h"

/* A binomial count of a smaller mean is found by inversion from 0 upwards, which ends at
   LONGEST_WALK (P < 1e-29). */
#define WALK_BELOW 10.0
#define LONGEST_WALK 64.0
/* Of a count by Hörmann's method, of which more than half are accepted. */
#define MOST_TRIES 1000

void alias(double *masses, int64_t number, double *limits, int64_t *others, int64_t *stack) {
    double total = 0.0;
    for (int64_t i = 0; i < number; i++) total += masses[i];
    int64_t light = 0, heavy = number; /* the stack has light columns below and heavy ones above */
    for (int64_t i = 0; i < number; i++) {
        masses[i] *= (double)number / total;
        limits[i] = 1.0;
        others[i] = i;
        stack[masses[i] < 1.0 ? light++ : --heavy] = i;
    }
    while (light && heavy < number) {
        int64_t i = stack[--light], j = stack[heavy];
        limits[i] = masses[i];
        others[i] = j;
        masses[j] -= 1.0 - masses[i];
        if (masses[j] < 1.0) {
            heavy++;
            stack[light++] = j;
        }
    }
}

/* log Γ(k+1) - k log k + k for whole k ≥ 0, given log k. */
INLINE vec remainder_of(vec k, vec log_k) {
    static const double few[] = {0.0, 1.0, 1.30685281944005469, 1.49592260322372593, 1.63287638586838314, 1.74030218061154412, 1.82869439664177099, 1.90379031767822116};
    ivec small = k < SERIES_FROM;
    vec value = stirling_series(larger(k, all(SERIES_FROM))) + 0.5 * (LOG_2_PI + log_k);
    if (!any(small)) return value;
    for (int i = 0; i < LANES; i++)
        if (small[i]) value[i] = few[k[i] >= 0.0 ? (int)k[i] : 0];
    return value;
}

/* The part of a binomial log-mass that comes from the whole count of one of both outcomes. */
INLINE vec part_of_mass(vec count, vec expected, vec log_expected, vec difference) {
    vec log_count = vlog(larger(count, all(1.0)));
    return -remainder_of(count, log_count) -
           deviance(count, log_count, expected, log_expected, difference);
}

void prepare_groups(Groups *urn, const double *log_odds, const double *group_sizes,
                    int64_t groups) {
    double variance[MOST_GROUPS];
    for (int64_t j = 0; j < groups; j += LANES) { /* MOST_GROUPS is a multiple of LANES */
        vec given = load_first(log_odds + j, groups - j, 0.0), rarer, commoner;
        vec size = load_first(group_sizes + j, groups - j, 0.0);
        probabilities(given, &rarer, &commoner);
        vec expected = size * rarer, odds = rarer / commoner, log_q = -vlog1p(odds);
        vec log_others = vlog(larger(size, all(1.0))) + log_q;
        vec log_expected = log_others - absolute(given);
        vec peak = (size + 1.0) * rarer; /* the mode is the whole number below */
        peak = larger(smaller(where(peak < 0x1p50, rounded(peak - 0.5), peak), size), all(0.0));
        vec difference = peak - expected;
        store(urn->size + j, size);
        store(urn->p + j, rarer);
        store(urn->odds + j, odds);
        store(urn->log_none + j, size * log_q);
        store(urn->log_expected + j, log_expected);
        store(urn->log_others + j, log_others);
        store(urn->log_peak + j,
              part_of_mass(peak, expected, log_expected, difference) +
                  part_of_mass(size - peak, size * commoner, log_others, -difference));
        store(variance + j, expected * commoner);
    }
    urn->groups = groups;
    urn->widest = 0;
    for (int64_t j = 0; j < groups; j++) {
        urn->common[j] = log_odds[j] > 0.0;
        if (variance[j] > variance[urn->widest]) urn->widest = j;
    }
}

double relative_mass(const Groups *urn, int64_t j, double count) {
    double size = urn->size[j], expected = size * urn->p[j], difference = count - expected;
    vec parts = part_of_mass((vec){count, size - count}, (vec){expected, size - expected},
                             (vec){urn->log_expected[j], urn->log_others[j]},
                             (vec){difference, -difference});
    return exp_of(parts[0] + parts[1] - urn->log_peak[j]);
}

double relative_mass_of_pair(const Groups *urn, double count, double other) {
#if LANES < 4
    return relative_mass(urn, 0, count) * relative_mass(urn, 1, other);
#else
    const double *size = urn->size, *p = urn->p;
    double expected = size[0] * p[0], expected_other = size[1] * p[1];
    double difference = count - expected, difference_other = other - expected_other;
    vec parts = part_of_mass(
        (vec){count, size[0] - count, other, size[1] - other},
        (vec){expected, size[0] - expected, expected_other, size[1] - expected_other},
        (vec){urn->log_expected[0], urn->log_others[0], urn->log_expected[1], urn->log_others[1]},
        (vec){difference, -difference, difference_other, -difference_other});
    return exp_of(((parts[0] + parts[1]) - urn->log_peak[0]) +
                  ((parts[2] + parts[3]) - urn->log_peak[1]));
#endif
}

vec relative_masses(const Groups *urn, int64_t j, vec counts) {
    vec size = all(urn->size[j]), expected = size * urn->p[j], difference = counts - expected;
    return vexp(part_of_mass(counts, expected, all(urn->log_expected[j]), difference) +
                part_of_mass(size - counts, size - expected, all(urn->log_others[j]), -difference) -
                urn->log_peak[j]);
}

/* By inversion, or if the mean is larger by W. Hörmann's method
   (*The generation of binomial random variates*, 1993). */
double binomial(const Groups *urn, int64_t j, Random *random) {
    double size = urn->size[j], p = urn->p[j], expected = size * p;
    if (expected < WALK_BELOW) {
        double u = uniform(random), mass = exp_of(urn->log_none[j]), k = 0.0;
        while (u >= mass && k < size && k < LONGEST_WALK) {
            u -= mass;
            k += 1.0;
            mass *= urn->odds[j] * ((size - k + 1.0) / k);
        }
        return k;
    }
    double deviation = root(all(expected * (1.0 - p)))[0], b = 1.15 + 2.53 * deviation;
    double a = -0.0873 + 0.0248 * b + 0.01 * p, alpha = (2.83 + 5.1 / b) * deviation;
    double inside = 0.92 - 4.2 / b;
    for (int i = 0; i < MOST_TRIES; i++) {
        double u = uniform(random) - 0.5, v = uniform(random);
        double distance = 0.5 - (u < 0.0 ? -u : u);
        double candidate = (2.0 * a / distance + b) * u + expected + 0.5;
        if (!(candidate >= 0.0 && candidate < size + 1.0)) continue;
        double k = (double)(int64_t)candidate;
        if (distance >= 0.07 && v <= inside) return k;
        if (v * alpha < relative_mass(urn, j, k) * (a / (distance * distance) + b)) return k;
    }
    return NOT_A_NUMBER;
}
