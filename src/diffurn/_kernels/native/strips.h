/* Many counts from one law, by rejection from strips. */

#ifndef DIFFURN_STRIPS_H
#define DIFFURN_STRIPS_H

#include "counts.h"

#define MOST_STRIPS 256

/* A place of an alias table (Walker, 1977), and the masses of the strip of the same number. */
typedef struct {
    double limit, lower, upper;
    int64_t other;
} Strip;

/* The law of group j, or of the first of two groups given the total n of both. Its masses rise up to
   a mode and fall beyond it. The likely counts are cut into strips of equal width, whose masses lie
   between `lower` and `upper`. */
typedef struct {
    const Groups *urn;
    int64_t group, number; /* of strips */
    int is_pair;
    double draws, first, last, width;
    Strip strips[MOST_STRIPS];
} Strips;

/* Prepares strips for about so many counts; 0 if there are none for this law. For one group, counts
   are those of the rarer outcome; a pair has draws n. */
int prepare_strips(Strips *strips, const Groups *urn, int64_t group, double expected);
int prepare_strips_of_pair(Strips *strips, const Groups *urn, double draws, double expected);

/* A random count; NaN if nothing is accepted. */
double count_from_strips(const Strips *strips, Random *random);

/* Whether v is below the mass of a count, relative to the largest mass of the group. */
int is_below_mass(const Strips *strips, double count, double v);

/* Strips pay from so many draws of an urn on. */
#define FEWEST_FOR_STRIPS 40

/* Prepares strips of all groups, or of a pair, for about so many draws; 0 if there are none for this
   urn. */
int prepare_strips_of_urn(Strips *strips, const Groups *urn, double draws, double expected);

/* One draw from Fisher's law, from strips if they are not null; 0 if nothing was accepted. */
int draw_urn(const Groups *urn, const Strips *strips, double draws, int64_t rounds, Random *random,
             double *counts);

#endif
