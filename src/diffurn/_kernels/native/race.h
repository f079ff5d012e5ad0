/* The race behind Wallenius' law: a ball of weight ω has arrived by time s with probability 1 - e^-y,
   where y = ω s. */

#ifndef DIFFURN_RACE_H
#define DIFFURN_RACE_H

#include "nodes.h"

/* The largest |log y|, beyond which all balls of a group have arrived, or none. */
#define LOG_LARGEST 700.0

/* y of log y */
INLINE vec arrived(vec log_y) {
    return vexp(larger(smaller(log_y, all(LOG_LARGEST)), all(-LOG_LARGEST)));
}

/* log(1 - e^-y) of log y. As -log(1 + 1/(e^y - 1)) it is accurate for small y and for small
   results. */
INLINE vec log_share_arrived(vec log_y) {
    vec odds = vexpm1(smaller(arrived(log_y), all(LOG_LARGEST)));
    return smaller(log_y + LOG_LARGEST, all(0.0)) - vlog1p(1.0 / odds);
}

/* b(y) = y / (e^y - 1), which falls from one for full groups to zero for exhausted ones. */
INLINE vec saturation(vec y) {
    vec within = smaller(larger(y, all(1e-8)), all(LOG_LARGEST));
    return where(y < 1e-8, 1.0 - 0.5 * y, within / vexpm1(within));
}

/* log(e^y - 1) of log y, the log-odds that a ball has arrived. */
INLINE vec log_odds_of_arrival(vec log_y) {
    vec y = arrived(log_y);
    ivec late = y > 1.0;
    vec early = where(late, all(1.0), y), z = early * early;
    vec series = all(-1.0874343492790309365e-17); /* log(2 sinh(y/2) / y) in powers of y² */
    series = series * z + 4.7700344757099136467e-16;
    series = series * z - 2.1185501852016142918e-14;
    series = series * z + 9.5589546647747705949e-13;
    series = series * z - 4.403491782239577654e-11;
    series = series * z + 2.0876756987868098979e-9;
    series = series * z - 1.0333994708994708995e-7;
    series = series * z + 5.5114638447971781305e-6;
    series = series * z - 3.4722222222222222222e-4;
    series = series * z + 4.1666666666666666667e-2;
    return where(late, y + vlog1p(-vexp(-where(late, y, all(1.0)))),
                 log_y + (0.5 * early + z * series));
}

/* The race at one time, given that `draws` balls have arrived: their counts follow Fisher's law with
   the odds e^y - 1. Lists have one number for each group. */
typedef struct {
    int64_t groups;
    const double *log_weights, *group_sizes;
    double draws;
    double *log_odds, *arrivals, *drawn, *left; /* arrivals are y, the others of Fisher's urn */
    double log_mass, rate, slope; /* log P(S = n), E[D s], and the slope of log P(S = n) s in u */
    double centre;                /* a tilt between low and high, and the nodes there */
    Measure nodes;
} Race;

/* The race at log time u. */
void run_race(Race *race, double u);

/* Runs the race at the peak of P(S = n) s, roughly, and returns its log time. */
double peak_of_race(Race *race, double *deviation);

#endif
