/* Vectors of doubles, and the elementary functions of the kernels.

   The functions have no branches, and are accurate to about one unit in the last place. They are
   our own, so that the library needs no other one and loops over lanes have no calls. */

#ifndef DIFFURN_VEC_H
#define DIFFURN_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 8
#elif defined(__AVX2__)
#define LANES 4
#else
#define LANES 2
#endif

#define INLINE static inline __attribute__((always_inline))

typedef double vec __attribute__((vector_size(8 * LANES)));
typedef uint64_t uvec __attribute__((vector_size(8 * LANES)));
typedef int64_t ivec __attribute__((vector_size(8 * LANES))); /* a comparison is 0 or -1 */

#define INF ((double)__builtin_inff())
#define NOT_A_NUMBER ((double)__builtin_nanf(""))
#define PI 3.141592653589793
#define LOG_2_PI 1.8378770664093453

INLINE vec all(double x) {
    return x - (vec){0.0};
}

INLINE vec load(const double *from) {
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void store(double *to, vec x) {
    memcpy(to, &x, sizeof x);
}

/* The first `count` numbers, and `other` in the lanes beyond. */
INLINE vec load_first(const double *from, int64_t count, double other) {
    if (count >= LANES) return load(from);
    double lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = i < count ? from[i] : other;
    return load(lanes);
}

INLINE void store_first(double *to, vec x, int64_t count) {
    for (int i = 0; i < LANES && i < count; i++) to[i] = x[i];
}

INLINE vec where(ivec mask, vec yes, vec no) {
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

INLINE vec absolute(vec x) {
    return (vec)((ivec)x & INT64_MAX);
}

INLINE vec copysigned(vec magnitude, vec sign) {
    return (vec)(((ivec)magnitude & INT64_MAX) | ((ivec)sign & INT64_MIN));
}

INLINE vec larger(vec x, vec y) {
    return where(x > y, x, y);
}

INLINE vec smaller(vec x, vec y) {
    return where(x < y, x, y);
}

INLINE vec root(vec x) {
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrt(x[i]);
    return x;
}

INLINE double sum(vec x) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

INLINE int any(ivec mask) {
    int64_t found = 0;
    for (int i = 0; i < LANES; i++) found |= mask[i];
    return found != 0;
}

/* The nearest whole number for |x| < 2^51, and its low bits as an integer. */
#define ROUNDER 6755399441055744.0 /* 1.5 · 2^52 */

INLINE vec rounded(vec x) {
    return (x + ROUNDER) - ROUNDER;
}

/* 2^k for whole k from -1022 to 1023. */
INLINE vec power_of_two(vec k) {
    return (vec)((ivec)(k + (ROUNDER + 1023.0)) << 52);
}

INLINE vec vexp(vec x) {
    ivec nan = x != x;
    vec given = x;
    x = larger(smaller(x, all(710.0)), all(-746.0));
    vec k = rounded(x * 1.4426950408889634);
    /* ln 2 in two parts; the product of k and the first is exact */
    vec r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10;
    vec s = all(1.0 / 6227020800.0); /* Taylor's series, up to r^13 / 13! */
    s = s * r + 1.0 / 479001600.0;
    s = s * r + 1.0 / 39916800.0;
    s = s * r + 1.0 / 3628800.0;
    s = s * r + 1.0 / 362880.0;
    s = s * r + 1.0 / 40320.0;
    s = s * r + 1.0 / 5040.0;
    s = s * r + 1.0 / 720.0;
    s = s * r + 1.0 / 120.0;
    s = s * r + 1.0 / 24.0;
    s = s * r + 1.0 / 6.0;
    s = s * r + 0.5;
    s = 1.0 + (r + r * r * s);
    vec half = rounded(0.5 * k); /* in two factors, since 2^k may be subnormal */
    return where(nan, given, s * power_of_two(half) * power_of_two(k - half));
}

/* e^x - 1, relatively accurate. */
INLINE vec vexpm1(vec x) {
    ivec nan = x != x;
    vec given = x;
    x = larger(smaller(x, all(709.0)), all(-40.0));
    vec k = rounded(x * 1.4426950408889634);
    vec r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10;
    vec s = all(1.0 / 6227020800.0); /* Taylor's series, up to r^13 / 13! */
    s = s * r + 1.0 / 479001600.0;
    s = s * r + 1.0 / 39916800.0;
    s = s * r + 1.0 / 3628800.0;
    s = s * r + 1.0 / 362880.0;
    s = s * r + 1.0 / 40320.0;
    s = s * r + 1.0 / 5040.0;
    s = s * r + 1.0 / 720.0;
    s = s * r + 1.0 / 120.0;
    s = s * r + 1.0 / 24.0;
    s = s * r + 1.0 / 6.0;
    s = s * r + 0.5;
    s = r + r * r * s;
    vec scale = power_of_two(smaller(k, all(1023.0)));
    return where(nan, given, scale * s + (scale - 1.0));
}

/* log(y + rest) for finite y > 0, where rest is the rounding error of y. */
INLINE vec log_of_sum(vec y, vec rest) {
    ivec subnormal = y < 2.2250738585072014e-308;
    y = where(subnormal, y * 18014398509481984.0, y); /* 2^54 */
    /* y = 2^k (1 + f) with √½ ≤ 1 + f < √2 */
    uvec shifted = (uvec)y + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    vec f = (vec)((shifted & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0;
    vec k = (vec)((shifted >> 52) | 0x4330000000000000) - (4503599627370496.0 + 1023.0);
    f += rest * power_of_two(smaller(-k, all(1023.0)));
    k -= where(subnormal, all(54.0), all(0.0));
    vec s = f / (2.0 + f), z = s * s; /* log(1 + f) = 2 atanh s */
    vec series = all(1.0 / 21.0);
    series = series * z + 1.0 / 19.0;
    series = series * z + 1.0 / 17.0;
    series = series * z + 1.0 / 15.0;
    series = series * z + 1.0 / 13.0;
    series = series * z + 1.0 / 11.0;
    series = series * z + 1.0 / 9.0;
    series = series * z + 1.0 / 7.0;
    series = series * z + 1.0 / 5.0;
    series = series * z + 1.0 / 3.0;
    vec square = 0.5 * f * f;
    vec small = s * (square + 2.0 * z * series) + k * 1.9082149292705877e-10;
    return k * 0.6931471803691238 - ((square - small) - f) + (y - y); /* NaN stays NaN */
}

/* log x for finite x > 0. */
INLINE vec vlog(vec x) {
    return log_of_sum(x, all(0.0));
}

/* log(1 + x) for finite x > -1. */
INLINE vec vlog1p(vec x) {
    vec y = 1.0 + x;
    vec rest = where(absolute(x) < 1.0, x - (y - 1.0), 1.0 - (y - x));
    return log_of_sum(y, rest);
}

/* sin x and cos x for |x| < 10^6 or so. */
INLINE void sine_and_cosine(vec x, vec *sine, vec *cosine) {
    vec quarters = x * 0.6366197723675814 + ROUNDER;
    ivec quadrant = (ivec)quarters;
    vec k = quarters - ROUNDER;
    /* π/2 in three parts; the products of k and the first two are exact */
    vec r = ((x - k * 1.5707963267341256) - k * 6.07710049817245e-11) - k * 8.333742918520879e-20;
    vec z = r * r;
    vec s = all(1.0 / 355687428096000.0);
    s = -s * z + 1.0 / 1307674368000.0;
    s = -s * z + 1.0 / 6227020800.0;
    s = -s * z + 1.0 / 39916800.0;
    s = -s * z + 1.0 / 362880.0;
    s = -s * z + 1.0 / 5040.0;
    s = -s * z + 1.0 / 120.0;
    s = -s * z + 1.0 / 6.0;
    s = r - r * z * s;
    vec c = all(1.0 / 20922789888000.0);
    c = -c * z + 1.0 / 87178291200.0;
    c = -c * z + 1.0 / 479001600.0;
    c = -c * z + 1.0 / 3628800.0;
    c = -c * z + 1.0 / 40320.0;
    c = -c * z + 1.0 / 720.0;
    c = -c * z + 1.0 / 24.0;
    c = 1.0 - z * (0.5 - z * c);
    ivec odd = -(quadrant & 1);
    vec sine_of = where(odd, c, s), cosine_of = where(odd, s, c);
    *sine = (vec)((ivec)sine_of ^ ((quadrant & 2) << 62));
    *cosine = (vec)((ivec)cosine_of ^ (((quadrant + 1) & 2) << 62));
}

/* The angle of x + iy for x > 0 and y ≥ 0. */
INLINE vec angle_of(vec x, vec y) {
    /* turned by 0, π/4 or π/2, so that it is at most π/8 */
    ivec steep = y > 0.41421356237309503 * x, steeper = x < 0.41421356237309503 * y;
    vec top = where(steeper, -x, where(steep, y - x, y));
    vec bottom = where(steeper, y, where(steep, x + y, x));
    vec turned = where(steeper, all(PI / 2), where(steep, all(PI / 4), all(0.0)));
    vec t = top / bottom, z = t * t;
    /* (atan(t) / t - 1) / t², interpolated at Chebyshev's points of 0 ≤ t² ≤ tan²(π/8) */
    vec s = all(-0.019176887119062259);
    s = s * z + 0.0392316582955871913;
    s = s * z - 0.0508544973794025986;
    s = s * z + 0.0585814891280220988;
    s = s * z - 0.06664511447381948;
    s = s * z + 0.0769218319082608656;
    s = s * z - 0.0909090457812390189;
    s = s * z + 0.111111110152563617;
    s = s * z - 0.142857142846665429;
    s = s * z + 0.199999999999955207;
    s = s * z - 0.333333333333333302;
    return turned + (t + t * z * s);
}

#endif
