/* The tilt of one urn, as in `_fisher/tilt.py`, which derives the method. */

#include "kernels.h"

#define FEW_GROUPS 32 /* a multiple of LANES */

EXPORT Constants constants;

typedef struct {
    const double *log_weights, *group_sizes;
    int64_t groups;
    double anchor, total, target; /* log-weights are taken relative to the anchor */
} Equation;

typedef struct {
    double newton, excess, variance;
} Step;

/* Log-weights and sizes from group j on; groups that are never drawn get size zero. */
INLINE void drawable(const Equation *urn, int64_t j, vec *weight, vec *size) {
    vec given = load_first(urn->log_weights + j, urn->groups - j, 0.0);
    vec balls = load_first(urn->group_sizes + j, urn->groups - j, 0.0);
    ivec exists = (balls > 0.0) & (given > -INF);
    *weight = where(exists, given, all(0.0));
    *size = where(exists, balls, all(0.0));
}

static Step step(const Equation *urn, double shift) {
    vec exceptions = all(0.0), differences = all(0.0), variances = all(0.0), often = all(0.0);
    for (int64_t j = 0; j < urn->groups; j += LANES) {
        vec weight, size, rarer, commoner;
        drawable(urn, j, &weight, &size);
        vec log_odds = (weight - urn->anchor) + shift;
        probabilities(log_odds, &rarer, &commoner);
        vec expected = size * rarer;
        exceptions += expected;
        differences += copysigned(expected, log_odds); /* left of the common, less drawn of the rare */
        variances += expected * commoner;
        often += copysigned(size, log_odds);
    }
    double both = sum(exceptions), difference = sum(differences), variance = sum(variances);
    double missing = (2.0 * urn->target - urn->total) - sum(often);
    double drawn = both - difference, left = both + difference;
    double lacking = missing > 0.0 ? missing : 0.0, smallest = both * constants.rounding;
    double rising = drawn + (lacking - missing), falling = left + lacking;
    rising = rising > smallest ? rising : smallest;
    falling = falling > smallest ? falling : smallest;
    double slope = variance * (drawn / rising + left / falling);
    return (Step){log_of(rising / falling) * both / slope, -0.5 * missing - difference, variance};
}

INLINE int has_settled(Step step) { /* false for NaN */
    return step.excess * step.excess <= constants.settled_squared * step.variance;
}

/* The balls at least as heavy as a weight, the smallest of these weights, and the largest other. */
static double heavier(const Equation *urn, double than, double *above, double *below) {
    vec reached = all(0.0), least = all(INF), most = all(-INF);
    for (int64_t j = 0; j < urn->groups; j += LANES) {
        vec weight, size;
        drawable(urn, j, &weight, &size);
        ivec exists = size > 0.0, heavy = weight >= than;
        reached += where(heavy, size, all(0.0));
        least = smaller(least, where(heavy & exists, weight, all(INF)));
        most = larger(most, where(~heavy & exists, weight, all(-INF)));
    }
    *above = least[0], *below = most[0];
    for (int i = 1; i < LANES; i++) {
        *above = least[i] < *above ? least[i] : *above;
        *below = most[i] > *below ? most[i] : *below;
    }
    return sum(reached);
}

/* The root relative to the group that holds the ball `target`, found in a bracket. */
static double bracketed(Equation *urn) {
    double low, high, above, below;
    heavier(urn, -INF, &low, &below);
    heavier(urn, INF, &above, &high);
    while (low < high) { /* both are weights, and the bracket loses one of them each time */
        double middle = 0.5 * low + 0.5 * high;
        if (!(middle > low)) middle = high;
        if (heavier(urn, middle, &above, &below) >= urn->target)
            low = above;
        else
            high = below;
    }
    urn->anchor = low;
    double upto = heavier(urn, low, &above, &below);
    vec heavy = all(0.0);
    for (int64_t j = 0; j < urn->groups; j += LANES) {
        vec weight, size;
        drawable(urn, j, &weight, &size);
        heavy += where(weight > low, size, all(0.0));
    }
    double short_of = urn->target - sum(heavy), lighter = urn->total - urn->target;
    low = log_of((short_of > 0.5 ? short_of : 0.5) / (lighter > 0.5 ? lighter : 0.5)) - 1.0;
    lighter = upto - urn->target;
    high = log_of(urn->target / (lighter > 0.5 ? lighter : 0.5)) + 1.0;
    for (int i = 0; i < constants.bisections; i++) {
        double middle = 0.5 * (low + high);
        if (step(urn, middle).excess < 0.0)
            low = middle;
        else
            high = middle;
    }
    double shift = 0.5 * (low + high);
    for (int i = 0; i < constants.newton_steps; i++) {
        shift = shift < low ? low : shift > high ? high : shift;
        shift -= step(urn, shift).newton;
    }
    return shift - urn->anchor;
}

double log_tilt_of(const double *log_weights, const double *group_sizes, double draws,
                   int64_t groups) {
    /* The numbers of few groups are copied, so that vectors are loaded as a whole. */
    double weights[FEW_GROUPS], sizes[FEW_GROUPS];
    Equation urn = {log_weights, group_sizes, groups, 0.0, 0.0, 0.0};
    if (groups <= FEW_GROUPS) {
        for (int64_t j = 0; j < groups; j++) weights[j] = log_weights[j], sizes[j] = group_sizes[j];
        for (int64_t j = groups; j < FEW_GROUPS && j % LANES; j++) weights[j] = sizes[j] = 0.0;
        urn = (Equation){weights, sizes, (groups + LANES - 1) / LANES * LANES, 0.0, 0.0, 0.0};
        groups = urn.groups;
    }
    vec balls = all(0.0), moments = all(0.0);
    for (int64_t j = 0; j < groups; j += LANES) {
        vec weight, size;
        drawable(&urn, j, &weight, &size);
        balls += size;
        moments += size * weight;
    }
    urn.total = sum(balls);
    if (!(urn.total > 0.0) || draws != draws) return 0.0 * draws; /* any tilt is right, or none */
    double last = draws < urn.total ? draws : urn.total;
    urn.target = (last > 1.0 ? last : 1.0) - 0.5;

    /* Newton's method from the root of normally distributed log-weights; no bracket is needed if it
       settles, since the residual is checked. */
    double divisor = urn.total > 1.0 ? urn.total : 1.0, mean = sum(moments) / divisor;
    urn.anchor = mean;
    vec squares = all(0.0);
    for (int64_t j = 0; j < groups; j += LANES) {
        vec weight, size;
        drawable(&urn, j, &weight, &size);
        vec relative = larger(smaller(weight - mean, all(99.0)), all(-99.0));
        squares += size * relative * relative;
    }
    double spread = sum(squares) / divisor, others = urn.total - urn.target;
    double scale = root(all(1.0 + spread * (PI / 8.0)))[0];
    double shift = log_of(urn.target / (others > 0.5 ? others : 0.5)) * scale;
    for (int i = 0; i < constants.hasty_steps; i++) {
        Step found = step(&urn, shift);
        shift -= found.newton;
        if (has_settled(found)) return shift - urn.anchor;
    }
    return bracketed(&urn);
}

double centring_tilt_of(const double *log_odds, const double *group_sizes, double draws,
                        int64_t groups) {
    return 0.5 * (log_tilt_of(log_odds, group_sizes, draws, groups) +
                  log_tilt_of(log_odds, group_sizes, draws + 1.0, groups));
}

EXPORT void log_tilts(const double *log_weights, const double *group_sizes, const double *draws,
                      double *tilts, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        tilts[i] = log_tilt_of(log_weights + i * groups, group_sizes + i * groups, draws[i], groups);
}

EXPORT void centring_tilts(const double *log_odds, const double *group_sizes, const double *draws,
                           double *tilts, int64_t groups, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        tilts[i] =
            centring_tilt_of(log_odds + i * groups, group_sizes + i * groups, draws[i], groups);
}
