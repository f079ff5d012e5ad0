/* Wallenius' law of small urns by dynamic programming, as in `_wallenius/sequential.py`. */

#include "nodes.h"

#include <stdlib.h>
#include <string.h>

/* The states of an urn: one digit for every group but `rest`, which has the rest of the draws. Lists
   over states follow each other in one piece of memory. */
typedef struct {
    int64_t groups, rest, number, steps, ragged;
    const int64_t *bases;           /* of the groups with a digit */
    int64_t *strides;
    double *rates, *total, *digits; /* ω_j (m_j - x_j) of each such group, their sum, and Σ x_j */
    double *left, *after, *law;
} States;

/* Whether there was memory. `end` frees it. */
static int begin(States *states) {
    int64_t number = states->number, groups = states->groups;
    double *space = malloc((groups + 4) * number * sizeof *space);
    int64_t *strides = malloc(groups * sizeof *strides);
    states->strides = strides;
    states->total = space;
    if (!space || !strides) return 0;
    states->digits = space + number, states->left = space + 2 * number;
    states->after = space + 3 * number, states->law = space + 4 * number;
    states->rates = space + 5 * number;
    for (int64_t j = groups - 2, stride = 1; j >= 0; stride *= states->bases[j--])
        strides[j] = stride;
    return 1;
}

static void end(States *states) {
    free(states->total);
    free(states->strides);
}

static void prepare(const States *states, const double *log_weights, const double *group_sizes) {
    int64_t number = states->number;
    memset(states->total, 0, 2 * number * sizeof(double)); /* and the digits */
    for (int64_t j = 0; j < states->groups - 1; j++) {
        int64_t group = j + (j >= states->rest), base = states->bases[j];
        int64_t stride = states->strides[j];
        double weight = exp_of(log_weights[group]), size = group_sizes[group];
        double *rates = states->rates + j * number;
        for (int64_t s = 0; s < number; s++) {
            double digit = (double)(s / stride % base);
            rates[s] = size > digit ? weight * (size - digit) : 0.0;
            states->total[s] += rates[s];
            states->digits[s] += digit;
        }
    }
}

/* The law after one more draw, of which `drawn` were made. A ball of a group adds the group's stride.
   No digit overflows: at its largest value the group is empty, or all draws are made. */
static void draw(const States *states, double weight, double size, double drawn) {
    int64_t number = states->number;
    double *law = states->law, *left = states->left, *after = states->after;
    for (int64_t s = 0; s < number; s++) {
        double balls = size - (drawn - states->digits[s]);
        double rate = balls > 0.0 ? weight * balls : 0.0, total = states->total[s] + rate;
        left[s] = total > 0.0 ? law[s] / total : 0.0;
        after[s] = left[s] * rate;
    }
    for (int64_t j = 0; j < states->groups - 1; j++) {
        const double *rates = states->rates + j * number;
        int64_t stride = states->strides[j];
        for (int64_t s = stride; s < number; s++) after[s] += left[s - stride] * rates[s - stride];
    }
    memcpy(law, after, number * sizeof(double));
}

/* P(x) of every state after n draws, in `states->law`. */
static void run(const States *states, const double *log_weights, const double *group_sizes,
                double draws) {
    double *law = states->law, sum = 0.0, size = group_sizes[states->rest];
    double weight = exp_of(log_weights[states->rest]);
    prepare(states, log_weights, group_sizes);
    memset(law, 0, states->number * sizeof(double));
    law[0] = 1.0;
    for (int64_t k = 0; k < states->steps && (!states->ragged || (double)k < draws); k++)
        draw(states, weight, size, (double)k);
    for (int64_t s = 0; s < states->number; s++) sum += law[s];
    for (int64_t s = 0; s < states->number; s++) law[s] /= sum;
}

/* The counts of a state after n draws. */
static void counts_of(const States *states, int64_t s, double draws, double *counts) {
    for (int64_t j = 0; j < states->groups - 1; j++)
        counts[j + (j >= states->rest)] = (double)(s / states->strides[j] % states->bases[j]);
    counts[states->rest] = draws - states->digits[s];
}

/* P(x) of every state, (urns, states). Urns of a ragged batch make draws of their own number. */
EXPORT void state_laws(const double *log_weights, const double *group_sizes, const double *draws,
                       const int64_t *bases, double *values, int64_t groups, int64_t rest,
                       int64_t number, int64_t steps, int64_t ragged, int64_t first,
                       int64_t last) {
    States states = {groups, rest, number, steps, ragged, bases};
    int done = begin(&states);
    for (int64_t i = first; i < last; i++) {
        if (done) run(&states, log_weights + i * groups, group_sizes + i * groups, draws[i]);
        for (int64_t s = 0; s < number; s++)
            values[i * number + s] = done ? states.law[s] : NOT_A_NUMBER;
    }
    end(&states);
}

/* The means (urns, groups), or the covariances (urns, groups, groups): around the most probable
   state, so that little cancels if it is almost certain. The other address is null. */
EXPORT void state_moments(const double *log_weights, const double *group_sizes,
                          const double *draws, const int64_t *bases, double *means,
                          double *covariances, int64_t groups, int64_t rest, int64_t number,
                          int64_t steps, int64_t ragged, int64_t first, int64_t last) {
    double centre[MOST_IN_MATRIX] = {0.0}, shift[MOST_IN_MATRIX], x[MOST_IN_MATRIX];
    States states = {groups, rest, number, steps, ragged, bases};
    int done = begin(&states);
    int64_t size = means ? groups : groups * groups;
    for (int64_t i = first; i < last; i++) {
        double *values = (means ? means : covariances) + i * size;
        for (int64_t k = 0; k < size; k++) values[k] = done ? 0.0 : NOT_A_NUMBER;
        if (!done) continue;
        run(&states, log_weights + i * groups, group_sizes + i * groups, draws[i]);
        int64_t likeliest = 0;
        for (int64_t s = 0; s < number; s++)
            if (states.law[s] > states.law[likeliest]) likeliest = s;
        if (covariances) counts_of(&states, likeliest, draws[i], centre);
        memset(shift, 0, sizeof shift);
        for (int64_t s = 0; s < number; s++) {
            if (states.law[s] == 0.0) continue;
            counts_of(&states, s, draws[i], x);
            for (int64_t j = 0; j < groups; j++) {
                double part = states.law[s] * (x[j] - centre[j]);
                shift[j] += part;
                if (covariances)
                    for (int64_t k = 0; k < groups; k++)
                        values[j * groups + k] += part * (x[k] - centre[k]);
            }
        }
        for (int64_t j = 0; j < groups; j++) {
            if (means) values[j] = shift[j];
            else
                for (int64_t k = 0; k < groups; k++) values[j * groups + k] -= shift[j] * shift[k];
        }
    }
    end(&states);
}
