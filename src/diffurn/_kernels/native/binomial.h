/* The parts of binomial log-masses in Loader's form, as in `_numerics/binomial.py`. */

#ifndef DIFFURN_BINOMIAL_H
#define DIFFURN_BINOMIAL_H

#include "kernels.h"

#define TINY 2.2250738585072014e-308
#define SERIES_FROM 8.0 /* from here on the error of Stirling's series is rounding */

/* log Γ(x+1) - x log x + x - ½ log 2πx for x ≥ SERIES_FROM. */
INLINE vec stirling_series(vec x) {
    vec inverse = 1.0 / x, s = inverse * inverse;
    vec series = all(-3617.0 / 122400.0);
    series = series * s + 1.0 / 156.0;
    series = series * s - 691.0 / 360360.0;
    series = series * s + 1.0 / 1188.0;
    series = series * s - 1.0 / 1680.0;
    series = series * s + 1.0 / 1260.0;
    series = series * s - 1.0 / 360.0;
    series = series * s + 1.0 / 12.0;
    return series * inverse;
}

/* x log(x / M) + M - x, as in `binomial.deviance`. */
INLINE vec deviance(vec x, vec log_x, vec expected, vec log_expected, vec difference) {
    vec v = difference / larger(x + expected, all(TINY)), s = v * v;
    vec series = all(1.0 / 17.0);
    series = series * s + 1.0 / 15.0;
    series = series * s + 1.0 / 13.0;
    series = series * s + 1.0 / 11.0;
    series = series * s + 1.0 / 9.0;
    series = series * s + 1.0 / 7.0;
    series = series * s + 1.0 / 5.0;
    series = series * s + 1.0 / 3.0;
    vec near = difference * v + 2.0 * x * v * s * series;
    vec far = where(x > 0.0, x * (log_x - log_expected), all(0.0)) - difference;
    return where(absolute(v) <= 0.1, near, far);
}

#endif
