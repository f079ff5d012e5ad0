/* The race behind Wallenius' law at one log time u, as in `_wallenius/moments.py`, where y = ω e^u. */

#include "race.h"

#define LARGEST_LOG_TIME 100.0
#define LARGEST_LOG_ODDS 1000.0
#define FAR_TILT 30.0

static void place(Race *race, double u) {
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec log_time = load_first(race->log_weights + j, number, 0.0) + u;
        vec log_odds = smaller(log_odds_of_arrival(log_time), all(LARGEST_LOG_ODDS));
        store_first(race->log_odds + j, log_odds, number);
        store_first(race->arrivals + j, vexp(smaller(log_time, all(LARGEST_LOG_TIME))), number);
    }
}

/* Σ ζ δ for a vector of groups. */
INLINE vec averages(const Measure *found, vec p, vec q) {
    vec pq = p * q, difference = p - q, total = all(0.0);
    for (int64_t k = 0; k < found->number; k++) {
        double f = 2.0 * found->half_sine_squared[k] * found->real[k];
        double g = found->sine[k] * found->imaginary[k];
        total += (difference * f - g) / (1.0 - (4.0 * found->half_sine_squared[k]) * pq);
    }
    return total;
}

/* KL(σ(x + t) ‖ σ(x)) = t σ(x + t) - log(1 + σ(x) (e^t - 1)) of each ball, summed. The rarer outcome
   is taken, so that rounding errors are relative to the exceptions. */
static double divergence(const Race *race, double tilt) {
    double up = vexpm1(all(tilt))[0], down = vexpm1(all(-tilt))[0];
    vec total = all(0.0);
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec x = load_first(race->log_odds + j, number, 0.0);
        vec size = load_first(race->group_sizes + j, number, 0.0);
        ivec common = x > 0.0;
        vec t = where(common, all(-tilt), all(tilt)), shifted = t - absolute(x);
        vec e = vexp(-absolute(x)), e_shifted = vexp(-absolute(shifted));
        vec p = e / (1.0 + e);
        vec after = where(shifted > 0.0, all(1.0), e_shifted) / (1.0 + e_shifted);
        vec by_change = vlog1p(p * where(common, all(down), all(up)));
        vec apart = (larger(shifted, all(0.0)) + vlog1p(e_shifted)) - vlog1p(e);
        total += size * (t * after - where(t < FAR_TILT, by_change, apart));
    }
    return sum(total);
}

/* Counts of balls drawn and of balls left at a tilt, log P(S = n) and the nodes. */
static void counts_at(const Race *race, double tilt, double *drawn, double *left, double *log_mass,
                      Measure *nodes) {
    Urn urn = {race->log_odds, race->group_sizes, race->groups, tilt};
    Tile tile = {.first = -1};
    vec often = all(0.0), exceptions = all(0.0);
    measure(&urn, race->draws, &tile, nodes);
    for (int64_t first = 0; first < race->groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j += LANES) {
            int64_t number = tile.number - j;
            vec p = load(tile.p + j), q = load(tile.q + j), size = load(tile.size + j);
            vec b = averages(nodes, p, q);
            vec of_drawn = size * p * (1.0 + q * b), of_left = size * q * (1.0 - p * b);
            if (race->draws <= 0.0) of_drawn = all(0.0), of_left = size;
            if (drawn) store_first(drawn + first + j, of_drawn, number);
            if (left) store_first(left + first + j, of_left, number);
            often += where(p > q, size, all(0.0));
            exceptions += where(p > q, -size * q, size * p);
        }
    }
    double surplus = sum(exceptions) + (sum(often) - race->draws);
    if (log_mass) *log_mass = log_of(nodes->mass) - divergence(race, tilt) + surplus * tilt;
}

/* Σ m p q at a tilt. */
static double variance_at(const Race *race, double tilt) {
    vec variance = all(0.0);
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec x = load_first(race->log_odds + j, number, 0.0) + tilt, rarer, commoner;
        probabilities(x, &rarer, &commoner);
        variance += load_first(race->group_sizes + j, number, 0.0) * rarer * commoner;
    }
    return sum(variance);
}

void run_race(Race *race, double u) {
    place(race, u);
    double low = log_tilt_of(race->log_odds, race->group_sizes, race->draws, race->groups);
    double variance = variance_at(race, low);
    if (variance > WIDE) { /* half a ball more */
        race->centre = low + 0.5 / variance;
        counts_at(race, race->centre, race->drawn, race->left, &race->log_mass, &race->nodes);
    } else {
        double high =
            log_tilt_of(race->log_odds, race->group_sizes, race->draws + 1.0, race->groups);
        counts_at(race, low, race->drawn, 0, &race->log_mass, &race->nodes);
        counts_at(race, high, 0, race->left, 0, &race->nodes);
        Urn urn = {race->log_odds, race->group_sizes, race->groups, 0.5 * (low + high)};
        Tile tile = {.first = -1};
        race->centre = urn.tilt;
        measure(&urn, race->draws, &tile, &race->nodes);
    }
    vec rate = all(0.0), full = all(0.0);
    for (int64_t j = 0; j < race->groups; j += LANES) {
        int64_t number = race->groups - j;
        vec y = load_first(race->arrivals + j, number, 0.0);
        vec left = load_first(race->left + j, number, 0.0);
        vec drawn = load_first(race->drawn + j, number, 0.0);
        vec x = load_first(race->log_odds + j, number, 0.0);
        vec b = where(y > 1e-8, y * vexp(-x), 1.0 - 0.5 * y); /* y / (e^y - 1) */
        rate += where(left > 0.0, left * y, all(0.0));
        full += where(drawn > 0.0, drawn * b, all(0.0));
    }
    race->rate = sum(rate);
    race->slope = sum(full) - race->rate + 1.0;
}
