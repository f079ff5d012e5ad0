/* Random numbers, and random binomial counts. */

#ifndef DIFFURN_COUNTS_H
#define DIFFURN_COUNTS_H

#include "kernels.h"

#define MOST_GROUPS 128 /* prepared at once */

/* xoshiro256++ (Blackman, Vigna, 2019), seeded by splitmix64 */
typedef struct {
    uint64_t state[4];
} Random;

INLINE uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The stream of a row; rows have streams of their own, whatever thread draws them. */
INLINE Random stream(uint64_t seed, uint64_t row) {
    uint64_t x = mixed(mixed(seed) + row * 0x9e3779b97f4a7c15);
    Random random;
    for (int i = 0; i < 4; i++) random.state[i] = mixed(x += 0x9e3779b97f4a7c15);
    return random;
}

/* A uniform number in [0, 1) of a row, which is independent of its stream. */
INLINE double uniform_of_row(uint64_t seed, uint64_t row) {
    uint64_t x = mixed(mixed(~seed) + row * 0x9e3779b97f4a7c15);
    return (double)(x >> 11) * 0x1p-53;
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

/* Walker's alias table (1977) of masses, of which the total is positive. A place belongs to its own
   column up to its limit, and to another one beyond it. The masses are overwritten, and the stack has
   as many entries. */
void alias(double *masses, int64_t number, double *limits, int64_t *others, int64_t *stack);

/* Some groups of an urn. The rarer outcome of their balls is drawn, of probability p, so that p is
   accurate even if the other one is almost certain. */
typedef struct {
    int64_t groups, widest;
    double size[MOST_GROUPS], p[MOST_GROUPS], odds[MOST_GROUPS];
    double log_expected[MOST_GROUPS], log_others[MOST_GROUPS]; /* of the counts of both outcomes */
    double log_none[MOST_GROUPS], log_peak[MOST_GROUPS]; /* of no ball, and of the largest mass */
    int common[MOST_GROUPS];                             /* whether the rarer outcome is to be left */
} Groups;

/* Prepares at most MOST_GROUPS groups, given the log-odds of a ball. */
void prepare_groups(Groups *urn, const double *log_odds, const double *group_sizes,
                    int64_t groups);

/* The mass of a whole count of the rarer outcome, relative to the largest mass. */
double relative_mass(const Groups *urn, int64_t j, double count);
double relative_mass_of_pair(const Groups *urn, double count, double other); /* of groups 0 and 1 */
vec relative_masses(const Groups *urn, int64_t j, vec counts);

/* A count of the rarer outcome in group j; NaN if nothing is accepted. */
double binomial(const Groups *urn, int64_t j, Random *random);

#endif
