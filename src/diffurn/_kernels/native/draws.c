/* One exact draw of each urn of a few groups, by the method of `_fisher/sampling/rejection.py`. */

#include "binomial.h"

#define MOST_GROUPS 128
/* A binomial count of a smaller mean is found by inversion from 0 upwards, which ends at
   LONGEST_WALK (P < 1e-29). */
#define WALK_BELOW 10.0
#define LONGEST_WALK 64.0
/* Of a count by Hörmann's method, of which more than half are accepted. */
#define MOST_TRIES 1000

/* -------------------------------------------------------------------------------------------------
   Random numbers: xoshiro256++ (Blackman, Vigna, 2019), seeded by splitmix64
   ---------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t state[4];
} Random;

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The stream of a row; rows have streams of their own, whatever thread draws them. */
static Random stream(uint64_t seed, uint64_t row) {
    uint64_t x = mixed(mixed(seed) + row * 0x9e3779b97f4a7c15);
    Random random;
    for (int i = 0; i < 4; i++) random.state[i] = mixed(x += 0x9e3779b97f4a7c15);
    return random;
}

INLINE uint64_t turned(uint64_t x, int bits) {
    return (x << bits) | (x >> (64 - bits));
}

/* A uniform number in [0, 1) of 53 bits. */
INLINE double uniform(Random *random) {
    uint64_t *s = random->state, result = turned(s[0] + s[3], 23) + s[0], shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = turned(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

/* -------------------------------------------------------------------------------------------------
   Binomial counts
   ---------------------------------------------------------------------------------------------- */

/* The groups of an urn. The rarer outcome of their balls is drawn, of probability p, so that p is
   accurate even if the other one is almost certain. */
typedef struct {
    int64_t groups, widest;
    double size[MOST_GROUPS], p[MOST_GROUPS], odds[MOST_GROUPS];
    double log_expected[MOST_GROUPS], log_others[MOST_GROUPS]; /* of the counts of both outcomes */
    double log_none[MOST_GROUPS], log_peak[MOST_GROUPS]; /* of no ball, and of the largest mass */
    int common[MOST_GROUPS];                             /* whether the rarer outcome is to be left */
} Groups;

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

/* From log-weights of any tilt. */
static void prepare(Groups *urn, const double *log_weights, const double *group_sizes,
                    double draws, int64_t groups) {
    double tilt = log_tilt_of(log_weights, group_sizes, draws, groups);
    double variance[MOST_GROUPS];
    for (int64_t j = 0; j < groups; j += LANES) { /* MOST_GROUPS is a multiple of LANES */
        vec given = load_first(log_weights + j, groups - j, 0.0) + tilt, rarer, commoner;
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
        urn->common[j] = log_weights[j] + tilt > 0.0;
        if (variance[j] > variance[urn->widest]) urn->widest = j;
    }
}

/* The mass of a whole count of the rarer outcome, relative to the largest mass. */
static double relative_mass(const Groups *urn, int64_t j, double count) {
    double size = urn->size[j], expected = size * urn->p[j], difference = count - expected;
    vec parts = part_of_mass((vec){count, size - count}, (vec){expected, size - expected},
                             (vec){urn->log_expected[j], urn->log_others[j]},
                             (vec){difference, -difference});
    return exp_of(parts[0] + parts[1] - urn->log_peak[j]);
}

/* A count of the rarer outcome in group j: by inversion, or if it is larger by W. Hörmann's method
   (*The generation of binomial random variates*, 1993). NaN if nothing is accepted. */
static double binomial(const Groups *urn, int64_t j, Random *random) {
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

/* -------------------------------------------------------------------------------------------------
   Draws
   ---------------------------------------------------------------------------------------------- */

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
