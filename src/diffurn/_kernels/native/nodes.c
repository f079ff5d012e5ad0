/* P(S = n), means and covariances of one urn by quadrature, as in `_fisher/nodes.py`. */

#include "nodes.h"

#define BLOCK 8
/* Characteristic functions of up to so many balls are multiplied, and not taken to logarithms. */
#define MOST_MULTIPLIED 8.0

/* z^power for 1 ≤ power ≤ MOST_MULTIPLIED, multiplied to the product. */
INLINE void multiply(vec *real, vec *imaginary, vec x, vec y, int power) {
    for (;;) {
        if (power & 1) {
            vec product = *real * x - *imaginary * y;
            *imaginary = *real * y + *imaginary * x;
            *real = product;
        }
        power >>= 1;
        if (!power) return;
        vec square = x * x - y * y;
        y = 2.0 * x * y;
        x = square;
    }
}

void measure(const Urn *urn, double draws, Tile *tile, Measure *found) {
    vec variances = all(0.0), exceptions = all(0.0), multiplied = all(0.0), often = all(0.0);
    vec balls = all(0.0);
    for (int64_t first = 0; first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t j = 0; j < tile->number; j += LANES) {
            vec p = load(tile->p + j), q = load(tile->q + j), size = load(tile->size + j);
            ivec common = p > q;
            vec signed_size = where(common, -size, size);
            vec expected = signed_size * smaller(p, q);
            variances += size * p * q;
            exceptions += expected;
            multiplied += where(size <= MOST_MULTIPLIED, expected, all(0.0));
            often += where(common, size, all(0.0));
            balls += size;
        }
    }
    double variance = sum(variances), nats = constants.tail_nats;
    double width = nats / 3.0 + root(all(nats * nats / 9.0 + 2.0 * nats * variance))[0];
    /* K is odd, so that no node is at θ = π, where 1 - 4pq sin²(θ/2) may vanish. */
    double half = rounded(all(0.5 * width))[0];
    double period = 2.0 * (half > 0.5 * width ? half - 1.0 : half) + 3.0;
    found->balls = sum(balls);

    double drift = sum(exceptions) + (sum(often) - draws);
    /* The phases of multiplied groups are not centred. Their centre is a whole number, whose phase is
       exact modulo 2π, and a fraction. */
    double centre = sum(multiplied), whole = rounded(all(centre))[0];
    double turns = whole - period * rounded(all(whole / period))[0];
    drift -= centre - whole;

    vec one_to_lanes;
    for (int i = 0; i < LANES; i++) one_to_lanes[i] = i + 1.0;
    int64_t nodes = 0;
    double theta[MOST_NODES], log_amplitude[MOST_NODES], phase[MOST_NODES];
    for (; nodes < MOST_NODES; nodes += BLOCK) {
        for (int64_t k = nodes; k < nodes + BLOCK; k += LANES) {
            vec index = one_to_lanes + (double)k, sine, cosine;
            vec half_theta = (PI / period) * index;
            sine_and_cosine(half_theta, &sine, &cosine);
            vec turned = turns * index;
            turned -= period * rounded(turned / period);
            store(theta + k, 2.0 * half_theta);
            store(found->sine + k, 2.0 * sine * cosine);
            store(found->half_sine_squared + k, sine * sine);
            store(log_amplitude + k, all(0.0));
            store(phase + k, (2.0 * half_theta) * drift - (2.0 * PI / period) * turned);
            store(found->real + k, all(1.0));
            store(found->imaginary + k, all(0.0));
        }
        double bound = 2.0 * variance * found->half_sine_squared[nodes];
        if (nodes && !(2.0 * (nodes + 1.0) < period && bound < constants.node_nats)) break;
    }
    found->number = nodes;

    for (int64_t first = 0; first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t k = 0; k < nodes; k += LANES) {
            vec s = load(found->sine + k), s2 = load(found->half_sine_squared + k);
            vec angle = load(theta + k), logs = load(log_amplitude + k), sums = load(phase + k);
            vec real = load(found->real + k), imaginary = load(found->imaginary + k);
            for (int64_t j = 0; j < tile->number; j++) {
                double p = tile->p[j], q = tile->q[j], size = tile->size[j];
                int common = p > q;
                double rarer = common ? q : p;
                vec x = 1.0 - (2.0 * rarer) * s2, y = rarer * s;
                if (size <= MOST_MULTIPLIED) {
                    if (size == 1.0) {
                        if (common) y = -y;
                        vec product = real * x - imaginary * y;
                        imaginary = real * y + imaginary * x;
                        real = product;
                    } else if (size > 0.0)
                        multiply(&real, &imaginary, x, common ? -y : y, (int)size);
                } else {
                    logs += (0.5 * size) * vlog1p((-4.0 * p * q) * s2);
                    sums += (common ? -size : size) * (angle_of(x, y) - rarer * angle);
                }
            }
            store(log_amplitude + k, logs);
            store(phase + k, sums);
            store(found->real + k, real);
            store(found->imaginary + k, imaginary);
        }
    }

    vec total = all(0.0);
    for (int64_t k = 0; k < nodes; k += LANES) {
        vec sine, cosine, index = one_to_lanes + (double)k;
        vec amplitude = where(2.0 * index < period, vexp(load(log_amplitude + k)) * (2.0 / period),
                              all(0.0));
        sine_and_cosine(load(phase + k), &sine, &cosine);
        vec x = load(found->real + k), y = load(found->imaginary + k);
        vec real = amplitude * (x * cosine - y * sine);
        store(found->real + k, real);
        store(found->imaginary + k, amplitude * (x * sine + y * cosine));
        total += real;
    }
    found->mass = 1.0 / period + sum(total);
    double scale = 1.0 / found->mass;
    for (int64_t k = 0; k < nodes; k += LANES) {
        store(found->real + k, load(found->real + k) * scale);
        store(found->imaginary + k, load(found->imaginary + k) * scale);
    }
}

/* Tilts an urn half way between n - ½ and n + ½, or as it is told. Its own tilt is kept if it is close
   to n and the outcome is far from certain. */
void centre(Urn *urn, double draws, const double *tilt, Tile *tile) {
    vec variances = all(0.0), exceptions = all(0.0), often = all(0.0);
    for (int64_t first = 0; !tilt && first < urn->groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t j = 0; j < tile->number; j += LANES) {
            vec p = load(tile->p + j), q = load(tile->q + j), size = load(tile->size + j);
            variances += size * p * q;
            exceptions += where(p > q, -size * q, size * p);
            often += where(p > q, size, all(0.0));
        }
    }
    double surplus = sum(exceptions) + (sum(often) - draws);
    if (!tilt && sum(variances) > 1.0 && surplus * surplus < 1.0) return;
    urn->tilt = tilt ? *tilt
                     : centring_tilt_of(urn->log_odds, urn->group_sizes, draws, urn->groups);
    tile->first = -1;
}

double log_mass_of(const double *log_odds, const double *group_sizes, double draws,
                   int64_t groups) {
    Urn urn = {log_odds, group_sizes, groups, 0.0};
    Tile tile = {.first = -1};
    Measure found;
    measure(&urn, draws, &tile, &found);
    return log_of(found.mass);
}

/* δ_j = (e^{iθ} - 1) / (q_j + p_j e^{iθ}), as in `Nodes._slopes`. */
INLINE void slopes(double p, double q, vec sine, vec half_sine_squared, vec *real,
                   vec *imaginary) {
    vec scale = 1.0 / (1.0 - (4.0 * p * q) * half_sine_squared);
    *real = (2.0 * (p - q)) * half_sine_squared * scale;
    *imaginary = sine * scale;
}

/* Σ ζ δ_j */
static double average(const Measure *found, double p, double q) {
    vec total = all(0.0);
    for (int64_t k = 0; k < found->number; k += LANES) {
        vec real, imaginary;
        slopes(p, q, load(found->sine + k), load(found->half_sine_squared + k), &real, &imaginary);
        total += load(found->real + k) * real - load(found->imaginary + k) * imaginary;
    }
    return sum(total);
}

/* The mean of each group, or with `shift` its change by conditioning. */
static void mean_of(const double *log_odds, const double *group_sizes, double draws, double tilt,
                    int64_t groups, int shift, double *values) {
    Urn urn = {log_odds, group_sizes, groups, tilt};
    Tile tile = {.first = -1};
    Measure found;
    measure(&urn, draws, &tile, &found);
    for (int64_t first = 0; first < groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j++) {
            double p = tile.p[j], q = tile.q[j], size = tile.size[j];
            double b = average(&found, p, q);
            if (shift)
                values[first + j] = size * p * q * b;
            else if (draws <= 0.0)
                values[first + j] = 0.0;
            else if (draws >= found.balls)
                values[first + j] = size;
            else
                values[first + j] = size * p * (1.0 + q * b);
        }
    }
}

/* x_j = m_j p_j q_j (δ_j - b_j) on the nodes, where b_j is the average of δ_j under ζ. */
static void fluctuations(const Measure *found, double p, double q, double size, double *real,
                         double *imaginary) {
    double b = average(found, p, q), variance = size * p * q;
    for (int64_t k = 0; k < found->number; k += LANES) {
        vec x, y;
        slopes(p, q, load(found->sine + k), load(found->half_sine_squared + k), &x, &y);
        store(real + k, variance * (x - b));
        store(imaginary + k, variance * y);
    }
}

/* Variances, as -Σ_{j≠i} Cov_ij with Cov_ij = Σ ζ x_i x_j.

   The sum over all groups but i is the sum over all groups but the widest, minus the term of i, plus
   the term of the widest group. So the subtracted term is never larger than the result. */
static void variances_of(const double *log_odds, const double *group_sizes, double draws,
                         double tilt, int64_t groups, double *values) {
    Urn urn = {log_odds, group_sizes, groups, tilt};
    Tile tile = {.first = -1};
    Measure found;
    measure(&urn, draws, &tile, &found);
    int64_t nodes = found.number, widest = 0;
    double largest = -1.0, wr[MOST_NODES], wi[MOST_NODES], xr[MOST_NODES], xi[MOST_NODES];
    double sum_r[MOST_NODES] = {0.0}, sum_i[MOST_NODES] = {0.0};
    /* The node at θ = 0 has δ = 0, and so x_j = -v_j b_j; its part of ζ is real. */
    double wide_0 = 0.0, sum_0 = 0.0, zeta_0 = 1.0;
    for (int64_t k = 0; k < nodes; k++) zeta_0 -= found.real[k];
    for (int64_t first = 0; first < groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j++) {
            double variance = tile.size[j] * tile.p[j] * tile.q[j];
            if (variance > largest) largest = variance, widest = first + j;
        }
    }
    for (int64_t first = 0; first < groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j++) {
            double p = tile.p[j], q = tile.q[j], size = tile.size[j];
            fluctuations(&found, p, q, size, xr, xi);
            double x_0 = -size * p * q * average(&found, p, q);
            if (first + j == widest) {
                memcpy(wr, xr, sizeof wr), memcpy(wi, xi, sizeof wi);
                wide_0 = x_0;
                continue;
            }
            for (int64_t k = 0; k < nodes; k += LANES) {
                store(sum_r + k, load(sum_r + k) + load(xr + k));
                store(sum_i + k, load(sum_i + k) + load(xi + k));
            }
            sum_0 += x_0;
        }
    }
    int certain = draws <= 0.0 || draws >= found.balls;
    for (int64_t first = 0; first < groups; first += TILE) {
        load_tile(&urn, first, &tile);
        for (int64_t j = 0; j < tile.number; j++) {
            double p = tile.p[j], q = tile.q[j], size = tile.size[j];
            double narrow = first + j == widest ? 0.0 : 1.0;
            fluctuations(&found, p, q, size, xr, xi);
            double x_0 = -size * p * q * average(&found, p, q);
            vec total = all(0.0);
            for (int64_t k = 0; k < nodes; k += LANES) {
                vec x = load(xr + k), y = load(xi + k), w = load(wr + k), v = load(wi + k);
                vec real = load(sum_r + k) + narrow * (w - x);
                vec imaginary = load(sum_i + k) + narrow * (v - y);
                total += load(found.real + k) * (x * real - y * imaginary) -
                         load(found.imaginary + k) * (x * imaginary + y * real);
            }
            double others = sum_0 + narrow * (wide_0 - x_0);
            values[first + j] = certain ? 0.0 : -(sum(total) + zeta_0 * x_0 * others);
        }
    }
}

/* Cov[X] of at most MOST_IN_MATRIX groups from the nodes of an urn that `centre` has tilted, and E[X]
   if asked for. Entries beside the diagonal have one sign, and the diagonal follows from "rows sum to
   zero". */
void covariance_matrix_at(const Urn *urn, const Measure *found, double draws, Tile *tile,
                          double *values, double *means) {
    int64_t groups = urn->groups;
    double real[MOST_IN_MATRIX][MOST_NODES], imaginary[MOST_IN_MATRIX][MOST_NODES];
    double at_zero[MOST_IN_MATRIX], zeta_0 = 1.0, variance = 0.0;
    for (int64_t k = 0; k < found->number; k++) zeta_0 -= found->real[k];
    for (int64_t first = 0; first < groups; first += TILE) {
        load_tile(urn, first, tile);
        for (int64_t j = 0; j < tile->number; j++) {
            double p = tile->p[j], q = tile->q[j], size = tile->size[j];
            fluctuations(found, p, q, size, real[first + j], imaginary[first + j]);
            double b = average(found, p, q);
            at_zero[first + j] = -size * p * q * b;
            if (means) means[first + j] = size * p * (1.0 + q * b);
            variance += size * p * q;
        }
    }
    int certain = draws <= 0.0 || draws >= found->balls;
    if (means && (certain || variance < WIDE)) { /* accurate at the tilt to n - ½ */
        double tilt = log_tilt_of(urn->log_odds, urn->group_sizes, draws, groups);
        mean_of(urn->log_odds, urn->group_sizes, draws, tilt, groups, 0, means);
    }
    for (int64_t i = 0; i < groups; i++) values[i * groups + i] = 0.0;
    for (int64_t i = 0; i < groups; i++)
        for (int64_t j = 0; j < i; j++) {
            vec total = all(0.0);
            for (int64_t k = 0; k < found->number; k += LANES) {
                vec x = load(real[i] + k), y = load(imaginary[i] + k);
                vec u = load(real[j] + k), v = load(imaginary[j] + k);
                total += load(found->real + k) * (x * u - y * v) -
                         load(found->imaginary + k) * (x * v + y * u);
            }
            double entry = certain ? 0.0 : sum(total) + zeta_0 * at_zero[i] * at_zero[j];
            values[i * groups + j] = values[j * groups + i] = entry;
            values[i * groups + i] -= entry;
            values[j * groups + j] -= entry;
        }
}

/* The same from the log-odds and a tilt to begin with. */
void covariance_matrix_of(const double *log_odds, const double *group_sizes, double draws,
                          double tilt, int64_t groups, double *values, double *means) {
    Urn urn = {log_odds, group_sizes, groups, tilt};
    Tile tile = {.first = -1};
    Measure found;
    centre(&urn, draws, 0, &tile);
    measure(&urn, draws, &tile, &found);
    covariance_matrix_at(&urn, &found, draws, &tile, values, means);
}

EXPORT void covariances(const double *log_odds, const double *group_sizes, const double *draws,
                        double *values, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        covariance_matrix_of(log_odds + i * groups, group_sizes + i * groups, draws[i], 0.0, groups,
                             values + i * groups * groups, 0);
}

EXPORT void log_masses(const double *log_odds, const double *group_sizes, const double *draws,
                       double *values, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        values[i] = log_mass_of(log_odds + i * groups, group_sizes + i * groups, draws[i], groups);
}

EXPORT void means(const double *log_odds, const double *group_sizes, const double *draws,
                  double *values, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        mean_of(log_odds + i * groups, group_sizes + i * groups, draws[i], 0.0, groups, 0,
                values + i * groups);
}

EXPORT void means_anywhere(const double *log_weights, const double *group_sizes,
                           const double *draws, double *values, int64_t groups, int64_t first,
                           int64_t last) {
    for (int64_t i = first; i < last; i++) {
        const double *weights = log_weights + i * groups, *sizes = group_sizes + i * groups;
        double tilt = log_tilt_of(weights, sizes, draws[i], groups);
        mean_of(weights, sizes, draws[i], tilt, groups, 0, values + i * groups);
    }
}

EXPORT void mean_shifts(const double *log_odds, const double *group_sizes, const double *draws,
                        double *values, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        mean_of(log_odds + i * groups, group_sizes + i * groups, draws[i], 0.0, groups, 1,
                values + i * groups);
}

/* Without tilts each urn gets its centring tilt; without vectors the variances are computed. */
EXPORT void covariance_products(const double *log_odds, const double *group_sizes,
                                const double *draws, const double *tilts, const double *vectors,
                                double *values, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        const double *odds = log_odds + i * groups, *sizes = group_sizes + i * groups;
        if (vectors)
            covariance_product_of(odds, sizes, draws[i], tilts ? tilts + i : 0,
                                  vectors + i * groups, groups, values + i * groups);
        else
            variances_of(odds, sizes, draws[i],
                         centring_tilt_of(odds, sizes, draws[i], groups), groups,
                         values + i * groups);
    }
}

/* Sets `found` to 1 if some counts are not whole numbers from 0 to m with the sum n. */
EXPORT void not_outcomes(const double *counts, const double *group_sizes, const double *draws,
                         int64_t *found, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        double total = 0.0;
        int possible = 1;
        for (int64_t j = i * groups; j < (i + 1) * groups; j++) {
            double x = counts[j];
            possible &= x >= 0.0 && x <= group_sizes[j] && x == (double)(int64_t)x;
            total += x;
        }
        if (!(possible && total == draws[i])) *found = 1;
    }
}
