/* Exact draws from Wallenius' law, by the method of `_wallenius/sampling.py`, or ball by ball if few
   are drawn. */

#include "counts.h"
#include "race.h"

#include <stdlib.h>

/* Draws that are made one by one: of a whole urn, whose first round is prepared, and of a rest. */
#define MOST_ONE_BY_ONE 32
#define MOST_OF_A_REST 48
#define STEPS_OF_A_GUESS 3
/* A guess halves the remaining arrivals on average, so this many rounds are never reached. */
#define MOST_ROUNDS 10000

/* An interval of time that begins when some balls have arrived. It has no end, or else some balls
   arrive within it. */
typedef struct {
    int64_t groups;
    const double *log_weights, *group_sizes;
    double needed, available, length; /* draws and balls in the interval */
    double *rates, *before, *within, *sums;
} Interval;

/* A group that is chosen by its weight; `sums` has the running sums, of which the last is positive. */
INLINE int64_t chosen(const double *sums, int64_t groups, Random *random) {
    double total = sums[groups - 1], target = total - uniform(random) * total; /* positive */
    int64_t j = 0;
    while (j < groups - 1 && sums[j] < target) j++;
    return j;
}

/* Draws the rest of an interval without end, after which all balls of `before` have been drawn. */
static void one_by_one(Interval *race, Random *random) {
    for (double drawn = 0.0; drawn < race->needed; drawn += 1.0) {
        double total = 0.0;
        for (int64_t j = 0; j < race->groups; j++)
            race->sums[j] = total += race->rates[j] * race->within[j];
        int64_t j = chosen(race->sums, race->groups, random);
        race->before[j] += 1.0;
        race->within[j] -= 1.0;
    }
}

/* A guess of the time by which the draws that are needed are made. Any guess gives exact draws. One
   that is rather too early leaves an interval without end, of which the last balls are drawn one by
   one. Arrivals are concave in time, so Newton's method approaches the guess from below. */
static double guess_of(const Interval *race) {
    double deviation = root(all(race->needed))[0], time = 0.0, endless = !(race->length < INF);
    double target = endless ? race->needed - 1.4 * deviation : race->needed;
    for (int i = 0; i < STEPS_OF_A_GUESS; i++) {
        vec expected = all(0.0), pace = all(0.0);
        for (int64_t j = 0; j < race->groups; j += LANES) {
            int64_t number = race->groups - j;
            vec rate = load_first(race->rates + j, number, 1.0);
            vec within = load_first(race->within + j, number, 0.0);
            if (!endless) within /= larger(-vexpm1(-rate * race->length), all(1e-300));
            vec early = i ? -vexpm1(-rate * time) : all(0.0);
            expected += within * early;
            pace += within * rate * (1.0 - early);
        }
        double missing = target - sum(expected), slope = sum(pace);
        if (missing > 0.0 && slope > 0.0) time += missing / slope;
        if (!(missing > deviation)) break;
    }
    return time > 0.0 && time < race->length ? time : endless ? 1.0 : 0.5 * race->length;
}

/* The arrivals within the interval up to a time, after which a rest of it follows, for groups from
   `first` on. */
static void prepare_round(const Interval *race, double time, double rest, int64_t first,
                          Groups *some) {
    double log_odds[MOST_GROUPS], log_time = log_of(time), log_rest = rest < INF ? log_of(rest) : 0.0;
    int64_t left = race->groups - first, groups = left < MOST_GROUPS ? left : MOST_GROUPS;
    for (int64_t j = 0; j < groups; j += LANES) {
        vec rate = load_first(race->log_weights + first + j, groups - j, 0.0);
        vec odds = log_odds_of_arrival(rate + log_time);
        if (rest < INF) odds -= log_share_arrived(rate + log_rest);
        store_first(log_odds + j, larger(smaller(odds, all(1e6)), all(-1e6)), groups - j);
    }
    prepare_groups(some, log_odds, race->within + first, groups);
}

static void begin(Interval *race, double draws) {
    race->needed = draws;
    race->available = 0.0;
    race->length = INF;
    for (int64_t j = 0; j < race->groups; j++) {
        race->before[j] = 0.0;
        race->available += race->within[j] = race->group_sizes[j];
    }
}

/* The first guess, and its arrivals if they were prepared, are the same for all draws of an urn. */
static int draw(Interval *race, const Groups *prepared, double first_guess, Random *random) {
    Groups own;
    for (int64_t i = 0; i < MOST_ROUNDS; i++) {
        if (!(race->needed > 0.0)) return 1;
        if (race->needed >= race->available) {
            for (int64_t j = 0; j < race->groups; j++) race->before[j] += race->within[j];
            return 1;
        }
        if (race->needed <= (i ? MOST_OF_A_REST : MOST_ONE_BY_ONE) && !(race->length < INF)) {
            one_by_one(race, random);
            return 1;
        }
        double guess = i ? guess_of(race) : first_guess, rest = race->length - guess, early = 0.0;
        const Groups *some = i ? 0 : prepared;
        for (int64_t first = 0; first < race->groups; first += MOST_GROUPS) {
            if (!some || first) {
                prepare_round(race, guess, rest, first, &own);
                some = &own;
            }
            for (int64_t j = 0; j < some->groups; j++) {
                double size = some->size[j], k = size > 0.0 ? binomial(some, j, random) : 0.0;
                if (k != k) return 0;
                race->sums[first + j] = some->common[j] ? size - k : k;
                early += race->sums[first + j];
            }
        }
        if (early <= race->needed) {
            for (int64_t j = 0; j < race->groups; j++) {
                race->before[j] += race->sums[j];
                race->within[j] -= race->sums[j];
            }
            race->needed -= early;
            race->available -= early;
            race->length = rest;
        } else {
            memcpy(race->within, race->sums, race->groups * sizeof *race->sums);
            race->available = early;
            race->length = guess;
        }
    }
    return 0;
}

/* Draws `samples` times from each urn, into counts (samples, urns, groups). Rows are numbered by urns
   first. A row that cannot be drawn becomes NaN. */
EXPORT void race_draws(const double *log_weights, const double *group_sizes, const double *draws,
                       double *counts, int64_t groups, int64_t urns, int64_t samples,
                       int64_t seed, int64_t first, int64_t last) {
    double *space = malloc((4 * groups + 1) * sizeof *space), guess = 0.0;
    Interval race = {.groups = groups, .rates = space, .before = space + groups,
                     .within = space + 2 * groups, .sums = space + 3 * groups};
    Groups prepared;
    int64_t known = -1;
    for (int64_t row = first; row < last; row++) {
        int64_t i = row / samples;
        double *drawn = counts + ((row % samples) * urns + i) * groups;
        int done = space && draws[i] == draws[i];
        if (done) {
            Random random = stream((uint64_t)seed, (uint64_t)row);
            race.log_weights = log_weights + i * groups;
            race.group_sizes = group_sizes + i * groups;
            begin(&race, draws[i]);
            if (known != i) {
                for (int64_t j = 0; j < groups; j += LANES) {
                    vec rate = vexp(load_first(race.log_weights + j, groups - j, 0.0));
                    store_first(race.rates + j, rate, groups - j);
                }
                if (draws[i] > MOST_ONE_BY_ONE) {
                    guess = guess_of(&race);
                    prepare_round(&race, guess, INF, 0, &prepared);
                }
            }
            known = i;
            done = draw(&race, &prepared, guess, &random);
        }
        for (int64_t j = 0; j < groups; j++) drawn[j] = done ? race.before[j] : NOT_A_NUMBER;
    }
    free(space);
}
