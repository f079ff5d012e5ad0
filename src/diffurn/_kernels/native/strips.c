/* Many counts from one law, by rejection from strips (J. Ahrens, *A one-table method for sampling from
   continuous and discrete distributions*, 1995).

   A strip is chosen by its width times its largest mass, then a count within it. Most counts are
   accepted since they are below the smallest mass of the strip, and need no evaluation of the law. */

#include "strips.h"

/* Counts of a smaller mass, relative to the largest one, are left out, as random numbers of 53 bits
   cannot resolve them. */
#define NEGLIGIBLE 1e-20
#define REACH 9.7 /* standard deviations of a normal law within which masses are larger */
#define LEAST_REACH 8.0
#define MOST_STRETCHES 60
/* Bounds are this much apart from the masses, which have rounding errors. */
#define SLACK 1e-9
/* More strips than the fewest pay from so many counts on. */
#define FEWEST_STRIPS 64
#define MANY_COUNTS 600.0
/* Of which nine in ten are accepted. */
#define MOST_TRIES 1000

/* The masses of counts, up to a factor. */
INLINE vec masses(const Strips *strips, vec counts) {
    const Groups *urn = strips->urn;
    if (!strips->is_pair) return relative_masses(urn, strips->group, counts);
    vec others = strips->draws - counts;
    if (urn->common[0]) counts = urn->size[0] - counts;
    if (urn->common[1]) others = urn->size[1] - others;
    return relative_masses(urn, 0, counts) * relative_masses(urn, 1, others);
}

static double mass_of(const Strips *strips, double count) {
    const Groups *urn = strips->urn;
    if (!strips->is_pair) return relative_mass(urn, strips->group, count);
    double other = strips->draws - count;
    if (urn->common[0]) count = urn->size[0] - count;
    if (urn->common[1]) other = urn->size[1] - other;
    return relative_mass_of_pair(urn, count, other);
}

INLINE double larger_of(double x, double y) {
    return x > y ? x : y;
}

INLINE double smaller_of(double x, double y) {
    return x < y ? x : y;
}

/* From the least and the largest count, a standard deviation, and counts with the mode between
   them. */
static int prepare(Strips *strips, double least, double most, double deviation, double rising,
                   double falling) {
    double reach = (double)(int64_t)(REACH * deviation + LEAST_REACH);
    double first = larger_of(least, rising - reach), last = smaller_of(most, falling + reach);
    if (!(first <= last) || rising > last || falling < first) return 0;
    for (int i = 0; i < MOST_STRETCHES && first > least; i++) {
        if (!(mass_of(strips, first) > NEGLIGIBLE)) break;
        first = larger_of(least, first - reach);
    }
    for (int i = 0; i < MOST_STRETCHES && last < most; i++) {
        if (!(mass_of(strips, last) > NEGLIGIBLE)) break;
        last = smaller_of(most, last + reach);
    }
    double number = last - first + 1.0, width = (double)(int64_t)((number - 1.0) / strips->number) + 1.0;
    double at[MOST_STRIPS + LANES], areas[MOST_STRIPS], limits[MOST_STRIPS], total = 0.0;
    int64_t others[MOST_STRIPS], stack[MOST_STRIPS];
    strips->first = first;
    strips->last = last;
    strips->width = width;
    for (int64_t i = 0; i <= strips->number; i += LANES) { /* which is a multiple of LANES */
        vec counts;
        for (int64_t k = 0; k < LANES; k++)
            counts[k] = smaller_of(first + (double)(i + k) * width, last);
        store(at + i, masses(strips, counts));
    }
    for (int64_t i = 0; i < strips->number; i++) {
        Strip *strip = strips->strips + i;
        double begin = first + (double)i * width, end = begin + width - 1.0;
        strip->lower = smaller_of(at[i], at[i + 1]) * (1.0 - SLACK);
        strip->upper = larger_of(at[i], at[i + 1]) * (1.0 + SLACK);
        if (end >= rising && begin <= falling) strip->upper = 1.0 + SLACK;
        if (width == 1.0) strip->lower = strip->upper = at[i];
        areas[i] = begin <= last ? strip->upper : 0.0;
        total += areas[i];
    }
    if (!(total > 0.0 && total < INF)) return 0;
    alias(areas, strips->number, limits, others, stack);
    for (int64_t i = 0; i < strips->number; i++) {
        strips->strips[i].limit = limits[i];
        strips->strips[i].other = others[i];
    }
    return 1;
}

static double variance_of(const Groups *urn, int64_t j) {
    return urn->size[j] * urn->p[j] * (1.0 - urn->p[j]);
}

/* About the mode of the rarer outcome. */
static double mode_of(const Groups *urn, int64_t j) {
    return smaller_of((double)(int64_t)((urn->size[j] + 1.0) * urn->p[j]), urn->size[j]);
}

INLINE int64_t number_of_strips(double expected) {
    return expected < MANY_COUNTS ? FEWEST_STRIPS : MOST_STRIPS;
}

int prepare_strips(Strips *strips, const Groups *urn, int64_t j, double expected) {
    double mode = mode_of(urn, j), deviation = root(all(variance_of(urn, j)))[0];
    strips->urn = urn, strips->group = j, strips->is_pair = 0, strips->draws = 0.0;
    strips->number = number_of_strips(expected);
    return prepare(strips, 0.0, urn->size[j], deviation, mode - 1.0, mode + 1.0);
}

/* Both groups rise up to a mode and fall beyond it, and so does their product outside of the interval
   between the modes. */
int prepare_strips_of_pair(Strips *strips, const Groups *urn, double draws, double expected) {
    double variance = variance_of(urn, 0), other_variance = variance_of(urn, 1);
    double total = larger_of(variance + other_variance, 1e-300);
    double mode = mode_of(urn, 0), other = mode_of(urn, 1);
    if (urn->common[0]) mode = urn->size[0] - mode;
    if (urn->common[1]) other = urn->size[1] - other;
    other = draws - other;
    strips->urn = urn, strips->group = 0, strips->is_pair = 1, strips->draws = draws;
    strips->number = number_of_strips(expected);
    return prepare(strips, larger_of(0.0, draws - urn->size[1]), smaller_of(urn->size[0], draws),
                   root(all(variance * (other_variance / total)))[0], smaller_of(mode, other) - 1.0,
                   larger_of(mode, other) + 1.0);
}

double count_from_strips(const Strips *strips, Random *random) {
    for (int i = 0; i < MOST_TRIES; i++) {
        double target = uniform(random) * (double)strips->number;
        int64_t place = (int64_t)target;
        if (target - (double)place >= strips->strips[place].limit)
            place = strips->strips[place].other;
        const Strip *strip = strips->strips + place;
        double count = strips->first + (double)place * strips->width;
        if (strips->width == 1.0) return count;
        count += (double)(int64_t)(uniform(random) * strips->width);
        double v = uniform(random) * strip->upper;
        if (count > strips->last) continue;
        if (v < strip->lower || v < mass_of(strips, count)) return count;
    }
    return NOT_A_NUMBER;
}

int is_below_mass(const Strips *strips, double count, double v) {
    double place = (count - strips->first) / strips->width;
    if (place >= 0.0 && count <= strips->last) {
        const Strip *strip = strips->strips + (int64_t)place;
        if (v < strip->lower) return 1;
        if (v >= strip->upper) return 0;
    }
    return v < mass_of(strips, count);
}
