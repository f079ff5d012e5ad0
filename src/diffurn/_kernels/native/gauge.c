/* Newton steps of fits, as in `_numerics/gauge.py`. */

#include "kernels.h"

#define MOST_COEFFICIENTS 16 /* LAPACK is faster for larger matrices */

typedef double Matrix[MOST_COEFFICIENTS][MOST_COEFFICIENTS];

/* free @ information @ free + scale · gauge, with free = 1 - gauge. */
static void metric_of(const double *information, const double *gauge, int64_t p, Matrix metric) {
    Matrix half;
    double scale = 0.0;
    for (int64_t i = 0; i < p; i++) scale += information[i * p + i] / (double)p;
    if (scale < 1e-30) scale = 1e-30;
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = 0; j < p; j++) {
            half[i][j] = information[i * p + j];
            for (int64_t k = 0; k < p; k++) half[i][j] -= gauge[i * p + k] * information[k * p + j];
        }
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = 0; j < p; j++) {
            metric[i][j] = half[i][j] + scale * gauge[i * p + j];
            for (int64_t k = 0; k < p; k++) metric[i][j] -= half[i][k] * gauge[k * p + j];
        }
}

/* Cholesky's factor in the lower triangle; 0 if the matrix is not positive definite. */
static int factorise(Matrix matrix, int64_t p) {
    for (int64_t j = 0; j < p; j++) {
        for (int64_t i = j; i < p; i++)
            for (int64_t k = 0; k < j; k++) matrix[i][j] -= matrix[i][k] * matrix[j][k];
        if (!(matrix[j][j] > 0.0)) return 0;
        double pivot = root(all(matrix[j][j]))[0];
        for (int64_t i = j; i < p; i++) matrix[i][j] /= pivot;
    }
    return 1;
}

/* The entry i of free @ x, where the entries of x are `apart` numbers apart. */
INLINE double projected(const double *gauge, int64_t p, int64_t i, const double *x, int64_t apart) {
    double value = x[i * apart];
    for (int64_t k = 0; k < p; k++) value -= gauge[i * p + k] * x[k * apart];
    return value;
}

/* Solutions of (p, columns) numbers, NaN where the metric is not positive definite. */
EXPORT void positive_solutions(const double *informations, const double *rights,
                               const double *gauges, double *values, int64_t p, int64_t columns,
                               int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
        const double *gauge = gauges + row * p * p, *right = rights + row * p * columns;
        double *value = values + row * p * columns;
        Matrix metric;
        metric_of(informations + row * p * p, gauge, p, metric);
        int positive = factorise(metric, p);
        for (int64_t column = 0; column < columns; column++) {
            double x[MOST_COEFFICIENTS];
            for (int64_t i = 0; i < p; i++) {
                x[i] = projected(gauge, p, i, right + column, columns);
                for (int64_t k = 0; k < i; k++) x[i] -= metric[i][k] * x[k];
                x[i] /= metric[i][i];
            }
            for (int64_t i = p; i-- > 0;) {
                for (int64_t k = i + 1; k < p; k++) x[i] -= metric[k][i] * x[k];
                x[i] /= metric[i][i];
            }
            for (int64_t i = 0; i < p; i++)
                value[i * columns + column] =
                    positive ? projected(gauge, p, i, x, 1) : NOT_A_NUMBER;
        }
    }
}
