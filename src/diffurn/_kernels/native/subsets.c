/* Exact draws from Fisher's law of urns whose groups have few balls.

   Every ball is drawn on its own, with its tilted probability, until n balls are drawn. A ball is
   counted by its rarer outcome, called an exception, which happens if a random word is below a
   threshold. If the total has a large deviation, a block of the balls decides: only the others are
   proposed, and accepted by the probability that the block has the rest of n (Arratia, DeSalvo,
   *Probabilistic divide-and-conquer*, 2016). Then the block is drawn given its total. */

#include "kernels.h"

#include <stdlib.h>

#define WORDS 16 /* random words at once, the same on every machine */
#define PIECE (2 * LANES)
#define PIECES (WORDS / PIECE)
typedef uint32_t words __attribute__((vector_size(4 * PIECE)));
typedef int32_t signs __attribute__((vector_size(4 * PIECE))); /* a comparison is 0 or -1 */
typedef uint32_t half __attribute__((vector_size(4 * LANES)));

/* Without a block, a proposal is accepted with a probability of about 1 / (σ √2π). */
#define LARGEST_VARIANCE_WITHOUT_BLOCK 100.0
/* A block has one ball in ten, or c^⅔ if that is less, since the law of its total costs its square. */
#define BALLS_PER_BLOCKED 10
/* Masses below this one are left out of the law of a block's total. */
#define NEGLIGIBLE 1e-100
/* An accepted proposal takes c rounds at most, on average; failure has a probability of e^-1000. */
#define ROUNDS_PER_BALL 1000

/* -------------------------------------------------------------------------------------------------
   Random words: xoshiro128++ in every lane (Blackman, Vigna, 2019), seeded by splitmix64
   ---------------------------------------------------------------------------------------------- */

typedef struct {
    words state[4][PIECES];
} Random;

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The stream of a row; rows have streams of their own, whatever thread draws them. */
static void seed_row(Random *random, uint64_t seed, uint64_t row) {
    uint64_t x = mixed(mixed(seed) + row * 0x9e3779b97f4a7c15);
    uint32_t state[4 * WORDS];
    for (int i = 0; i < 4 * WORDS; i += 2) {
        uint64_t pair = mixed(x += 0xd1342543de82ef95);
        state[i] = (uint32_t)pair;
        state[i + 1] = (uint32_t)(pair >> 32);
    }
    memcpy(random->state, state, sizeof state);
}

INLINE words turned(words x, int bits) {
    return (x << bits) | (x >> (32 - bits));
}

INLINE words next(Random *random, int piece) {
    words a = random->state[0][piece], b = random->state[1][piece];
    words c = random->state[2][piece], d = random->state[3][piece];
    words result = turned(a + d, 7) + a, shifted = b << 9;
    c ^= a;
    d ^= b;
    random->state[1][piece] = b ^ c;
    random->state[0][piece] = a ^ d;
    random->state[2][piece] = c ^ shifted;
    random->state[3][piece] = turned(d, 11);
    return result;
}

static void draw_words(Random *random, uint32_t *drawn) {
    for (int piece = 0; piece < PIECES; piece++) {
        words some = next(random, piece);
        memcpy(drawn + piece * PIECE, &some, sizeof some);
    }
}

/* A uniform number of 53 bits. */
static double uniform(Random *random) {
    uint32_t drawn[WORDS];
    draw_words(random, drawn);
    return (double)(((uint64_t)drawn[0] << 21) | (drawn[1] >> 11)) * 0x1p-53;
}

/* -------------------------------------------------------------------------------------------------
   Balls
   ---------------------------------------------------------------------------------------------- */

/* Places are filled up to a multiple of WORDS with balls that are no exceptions and count nothing. */
typedef struct {
    int64_t number, places;
    double *log_odds, *size; /* sizes are one */
    uint32_t *high, *low; /* the probability of an exception, in units of 2^-64 */
    int32_t *sign;        /* what an exception adds to the total; -1 if p > ½ */
    int32_t *exception;   /* -1 for an exception, else 0 */
    int32_t *group;
    int64_t common; /* the total without exceptions */
    double variance;
} Balls;

/* Lists for balls in the given number of places, or none if memory is exhausted. */
static Balls *new_balls(int64_t places) {
    places = (places + WORDS - 1) / WORDS * WORDS;
    Balls *balls = malloc(sizeof *balls + places * (2 * sizeof(double) + 5 * sizeof(int32_t)));
    if (!balls) return 0;
    double *log_odds = (double *)(balls + 1);
    int32_t *lists = (int32_t *)(log_odds + 2 * places);
    for (int64_t i = 0; i < places; i++) log_odds[places + i] = 1.0;
    *balls = (Balls){.log_odds = log_odds,
                     .size = log_odds + places,
                     .high = (uint32_t *)lists,
                     .low = (uint32_t *)lists + places,
                     .sign = lists + 2 * places,
                     .exception = lists + 3 * places,
                     .group = lists + 4 * places};
    return balls;
}

/* Fills the places up to a multiple of WORDS with balls that are never drawn. */
static void close_list(Balls *balls) {
    balls->places = balls->number;
    for (; balls->places % WORDS; balls->places++) balls->log_odds[balls->places] = -INF;
}

static void add_ball(Balls *balls, int64_t group, double log_odds) {
    balls->group[balls->number] = (int32_t)group;
    balls->log_odds[balls->number++] = log_odds;
}

static void move_ball(Balls *balls, int64_t from, int64_t to) {
    balls->group[to] = balls->group[from];
    balls->log_odds[to] = balls->log_odds[from];
}

/* Adds the balls drawn to the counts of their groups. */
static void count_balls(const Balls *balls, double *counts) {
    for (int64_t i = 0; i < balls->number; i++)
        counts[balls->group[i]] += (balls->sign[i] < 0) != (balls->exception[i] < 0);
}

/* The whole number below a number from 0 to 2^32, which becomes its fraction. */
INLINE half whole_part(vec *x) {
    vec nearest = rounded(*x), whole = nearest - where(nearest > *x, all(1.0), all(0.0));
    *x -= whole;
    return __builtin_convertvector((uvec)(whole + 0x1p52) & UINT32_MAX, half);
}

/* Thresholds for log-odds that are shifted by a tilt. */
static void tilt_balls(Balls *balls, double tilt) {
    vec variance = all(0.0), common = all(0.0);
    for (int64_t i = 0; i < balls->places; i += LANES) {
        vec rarer, commoner, x = load(balls->log_odds + i) + tilt;
        probabilities(x, &rarer, &commoner);
        variance += rarer * commoner;
        common += where(x > 0.0, all(1.0), all(0.0));
        vec scaled = rarer * 0x1p32;
        half high = whole_part(&scaled);
        scaled *= 0x1p32;
        half low = whole_part(&scaled), sign = __builtin_convertvector((x > 0.0) | 1, half);
        memcpy(balls->high + i, &high, sizeof high);
        memcpy(balls->low + i, &low, sizeof low);
        memcpy(balls->sign + i, &sign, sizeof sign);
    }
    balls->common = (int64_t)sum(common);
    balls->variance = sum(variance);
}

/* The same as `propose`, if a word is equal to its threshold. Then 32 more bits decide. */
static int64_t propose_with_ties(Balls *balls, Random *random) {
    int64_t total = balls->common;
    for (int64_t i = 0; i < balls->number; i += WORDS) {
        uint32_t drawn[WORDS], more[WORDS];
        draw_words(random, drawn);
        draw_words(random, more);
        for (int64_t j = 0; j < WORDS; j++) {
            int is_tie = drawn[j] == balls->high[i + j];
            int is_below = is_tie ? more[j] < balls->low[i + j] : drawn[j] < balls->high[i + j];
            balls->exception[i + j] = -is_below;
            total += is_below ? balls->sign[i + j] : 0;
        }
    }
    return total;
}

/* Draws every ball on its own; the result is the total. */
static int64_t propose(Balls *balls, Random *random) {
    Random own = *random;
    signs total[PIECES], tie = {0};
    memset(total, 0, sizeof total);
    for (int64_t i = 0; i < balls->number; i += WORDS)
        for (int piece = 0; piece < PIECES; piece++) {
            int64_t j = i + piece * PIECE;
            words high, drawn = next(&own, piece);
            signs sign;
            memcpy(&high, balls->high + j, sizeof high);
            memcpy(&sign, balls->sign + j, sizeof sign);
            signs exception = drawn < high;
            tie |= drawn == high;
            memcpy(balls->exception + j, &exception, sizeof exception);
            total[piece] += exception & sign;
        }
    int32_t ties = 0;
    for (int lane = 0; lane < PIECE; lane++) ties |= tie[lane];
    if (ties) return propose_with_ties(balls, random);
    *random = own;
    int64_t sum = balls->common;
    for (int piece = 0; piece < PIECES; piece++)
        for (int lane = 0; lane < PIECE; lane++) sum += total[piece][lane];
    return sum;
}

/* Draws balls until they have a total; whether it worked. */
static int draw_total(Balls *balls, int64_t total, Random *random) {
    for (int64_t round = 0; round <= ROUNDS_PER_BALL * balls->number; round++)
        if (propose(balls, random) == total) return 1;
    return 0;
}

/* -------------------------------------------------------------------------------------------------
   A block that decides
   ---------------------------------------------------------------------------------------------- */

/* The probabilities of totals from `lowest` to `highest`. */
typedef struct {
    double *mass, largest, mean, deviation;
    int64_t lowest, highest;
} Total;

/* The law of the total, ball after ball, as sums of positive terms. Two arrays of number + 2. */
static Total total_of(const Balls *balls, double *arrays) {
    int64_t number = balls->number, low = 0, high = 0;
    double *mass = arrays + 1, *before = arrays + number + 3, mean = 0.0;
    mass[0] = 1.0;
    for (int64_t i = 0; i < number; i++) {
        vec rarer, commoner;
        probabilities(all(balls->log_odds[i]), &rarer, &commoner);
        int common = balls->log_odds[i] > 0.0;
        double p = common ? commoner[0] : rarer[0], q = common ? rarer[0] : commoner[0];
        double *free = before;
        before = mass, mass = free;
        mean += p;
        before[low - 1] = before[++high] = 0.0;
        for (int64_t k = low; k <= high; k += LANES) {
            vec stays = load_first(before + k, high + 1 - k, 0.0);
            vec rises = load_first(before + k - 1, high + 1 - k, 0.0);
            store_first(mass + k, q * stays + p * rises, high + 1 - k);
        }
        while (low < high && mass[low] < NEGLIGIBLE) low++;
        while (low < high && mass[high] < NEGLIGIBLE) high--;
    }
    double largest = 0.0;
    for (int64_t k = low; k <= high; k++) largest = mass[k] > largest ? mass[k] : largest;
    return (Total){mass, largest, mean, root(all(balls->variance))[0], low, high};
}

/* Adds a draw of the block that has the given total to the counts. */
static int draw_block(Balls *block, const Total *law, int64_t total, Random *random,
                      double *counts) {
    double distance = (double)total - law->mean;
    int is_typical = distance * distance <= 1.0 + law->deviation * law->deviation;
    if (!is_typical)
        tilt_balls(block, log_tilt_of(block->log_odds, block->size, (double)total, block->number));
    int found = draw_total(block, total, random);
    count_balls(block, counts);
    if (!is_typical) tilt_balls(block, 0.0);
    return found;
}

/* -------------------------------------------------------------------------------------------------
   Urns
   ---------------------------------------------------------------------------------------------- */

/* An urn's balls: those that are proposed, and those that decide, if any. */
typedef struct {
    Balls *proposed, *block;
    double *arrays; /* for the law of the block's total */
    Total total;
} Urn;

/* Fills the lists of an urn from its tilted log-odds. */
static void prepare(Urn *urn, const double *log_odds, const double *group_sizes, int64_t groups) {
    Balls *proposed = urn->proposed;
    proposed->number = urn->block->number = 0;
    for (int64_t j = 0; j < groups; j++)
        for (int64_t ball = (int64_t)group_sizes[j]; ball > 0; ball--)
            add_ball(proposed, j, log_odds[j]);
    close_list(proposed);
    tilt_balls(proposed, 0.0);
    if (proposed->variance <= LARGEST_VARIANCE_WITHOUT_BLOCK) return;
    int64_t balls = proposed->number, every = BALLS_PER_BLOCKED, kept = 0;
    while (every * every * every < balls) every++; /* c^⅔ of the balls are every c^⅓-th */
    for (int64_t i = 0; i < balls; i++) {
        if (i % every == 0)
            add_ball(urn->block, proposed->group[i], proposed->log_odds[i]);
        else
            move_ball(proposed, i, kept++);
    }
    proposed->number = kept;
    close_list(proposed);
    close_list(urn->block);
    tilt_balls(proposed, 0.0);
    tilt_balls(urn->block, 0.0);
    urn->total = total_of(urn->block, urn->arrays);
}

/* Adds a draw to the counts; whether one was found. */
static int draw_urn(Urn *urn, int64_t draws, Random *random, double *counts) {
    if (!urn->block->number) {
        int found = draw_total(urn->proposed, draws, random);
        count_balls(urn->proposed, counts);
        return found;
    }
    const Total *total = &urn->total;
    for (int64_t round = 0; round <= ROUNDS_PER_BALL * urn->proposed->number; round++) {
        int64_t left = draws - propose(urn->proposed, random);
        if (left < total->lowest || left > total->highest) continue;
        if (uniform(random) * total->largest >= total->mass[left]) continue;
        count_balls(urn->proposed, counts);
        return draw_block(urn->block, total, left, random, counts);
    }
    return 0;
}

/* Exact draws: `number` of each urn, in `counts` (number, urns, groups). Rows are numbered draw by
   draw of the first urn, then of the second. A row is NaN if its urn is impossible. */
EXPORT void subset_draws(const double *log_odds, const double *group_sizes, const double *draws,
                         double *counts, int64_t groups, int64_t urns, int64_t number, int64_t seed,
                         int64_t first, int64_t last) {
    int64_t places = 0;
    for (int64_t i = first / number; first < last && i <= (last - 1) / number; i++) {
        double balls = 0.0;
        for (int64_t j = 0; j < groups; j++) balls += group_sizes[i * groups + j];
        if (balls > (double)places) places = (int64_t)balls;
    }
    Urn urn = {new_balls(places), new_balls(places), malloc((2 * places + 4) * sizeof(double)), {0}};
    int can_draw = urn.proposed && urn.block && urn.arrays;
    int64_t prepared = -1;
    for (int64_t row = first; row < last; row++) {
        int64_t i = row / number;
        double *to = counts + ((row % number) * urns + i) * groups;
        int found = 0;
        memset(to, 0, groups * sizeof *to);
        if (can_draw && draws[i] == draws[i]) {
            Random random;
            seed_row(&random, (uint64_t)seed, (uint64_t)row);
            if (prepared != i) prepare(&urn, log_odds + i * groups, group_sizes + i * groups, groups);
            prepared = i;
            found = draw_urn(&urn, (int64_t)draws[i], &random, to);
        }
        for (int64_t j = 0; !found && j < groups; j++) to[j] = NOT_A_NUMBER;
    }
    free(urn.proposed);
    free(urn.block);
    free(urn.arrays);
}
