"""Fisher's noncentral hypergeometric law by three independent routes, in at least 50 digits and in
the plainest form; none imports diffurn.

* ``Enumeration`` lists every outcome of a small urn and sums.
* ``contour``: [zⁿ] ∏(1 + ω_j z)^{m_j} as a Cauchy integral, at a radius that is *not* the saddle
  point, for urns of any size. Its number of nodes comes with a proof (see ``Circle``); it works in
  110 digits, and in more until at least 40 of a value's are proven.
* ``Vandermonde``: groups of equal weight merge into one, so an urn with two distinct weights is a
  single sum of positive terms.

An urn is anything hashable with ``group_sizes``, ``draws`` and ``log_weights`` (see ``urns.py``).
The log-weights are taken as the exact binary numbers that they are. Results are ``mpf`` numbers
that carry their digits with them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from mpmath import mp, mpc, mpf

NEVER = -math.inf
DIGITS = 60  # of sums with positive terms only
Balls = tuple[
    tuple[float, int], ...
]  # (log-weight, number of balls) for each distinct weight, in increasing order
T = TypeVar("T")


class Moments(NamedTuple):
    """log Z, E[X_j] of every group and Cov(X_i, X_j) of the ``chosen_pairs``."""

    log_normalizer: mpf
    mean: list[mpf]
    covariance: dict[tuple[int, int], mpf]


@cache
def log_factorial(k: int, digits: int = 120) -> mpf:
    with mp.workdps(digits):
        return mp.loggamma(k + 1)


def log_binomial(n: int, k: int) -> mpf:
    """log of n choose k; the caller's working precision counts."""
    return log_factorial(n) - log_factorial(k) - log_factorial(n - k)


def merged(group_sizes: Sequence[int], log_weights: Sequence[float]) -> Balls:
    """All balls by weight: (1+wz)^a (1+wz)^b = (1+wz)^{a+b}, which is Vandermonde's identity. Balls
    never drawn are left out.
    """
    balls: Counter[float] = Counter()
    for size, log_weight in zip(group_sizes, log_weights, strict=True):
        if size > 0 and log_weight != NEVER:
            balls[float(log_weight)] += size
    return tuple(sorted(balls.items()))


def balls_of(urn) -> Balls:
    return merged(urn.group_sizes, urn.log_weights)


def balls_without(urn, group: int) -> Balls:
    """The balls of all groups but one."""
    rest = [j for j in range(len(urn.group_sizes)) if j != group]
    return merged([urn.group_sizes[j] for j in rest], [urn.log_weights[j] for j in rest])


def number_of(balls: Balls) -> int:
    return sum(count for _, count in balls)


def chosen_pairs(groups: int, most: int = 12, sample: int = 30) -> list[tuple[int, int]]:
    """All pairs of groups if there are few, else the diagonal and some others."""
    if groups <= most:
        return list(itertools.combinations_with_replacement(range(groups), 2))
    others = random.Random(groups).sample(list(itertools.combinations(range(groups), 2)), sample)
    return [(j, j) for j in range(groups)] + others


def total(terms) -> mpf:
    return mp.fsum(terms)


# --------------------------------------------------------------------------------------------------
# (a) Enumeration
# --------------------------------------------------------------------------------------------------


def outcomes(sizes: Sequence[int], draws: int) -> Iterator[tuple[int, ...]]:
    """All integer vectors 0 ≤ x ≤ sizes with sum ``draws``."""
    if not sizes:
        yield from [()] if draws == 0 else []
        return
    for first in range(max(0, draws - sum(sizes[1:])), min(sizes[0], draws) + 1):
        for rest in outcomes(sizes[1:], draws - first):
            yield (first, *rest)


class Enumeration:
    """Every outcome of a small urn with its probability ∏ C(m_j, x_j) ω_j^{x_j} / Σ."""

    def __init__(self, urn) -> None:
        with mp.workdps(DIGITS):
            self.urn = urn
            sizes = [
                0 if lw == NEVER else m
                for m, lw in zip(urn.group_sizes, urn.log_weights, strict=True)
            ]
            weights = [
                mp.exp(lw) for lw in urn.log_weights
            ]  # exp(-inf) = 0 and 0⁰ = 1, as it should be
            self.outcomes = list(outcomes(sizes, urn.draws))
            met = [set(column) for column in zip(*self.outcomes, strict=True)]
            factors = [
                {x: math.comb(m, x) * w**x for x in xs}
                for m, w, xs in zip(sizes, weights, met, strict=True)
            ]
            terms = [
                mp.fprod(factor[x] for factor, x in zip(factors, counts, strict=True))
                for counts in self.outcomes
            ]
            normalizer = total(terms)
            self.log_normalizer = mp.log(normalizer)
            self.probabilities = [term / normalizer for term in terms]
            self.log_probs = {
                counts: mp.log(p)
                for counts, p in zip(self.outcomes, self.probabilities, strict=True)
            }

    def log_prob(self, counts: Sequence[int]) -> mpf:
        return self.log_probs.get(tuple(counts), mpf("-inf"))

    def expectation(self, function: Callable[[tuple[int, ...]], mpf]) -> mpf:
        with mp.workdps(DIGITS):
            return total(
                p * function(counts)
                for p, counts in zip(self.probabilities, self.outcomes, strict=True)
            )

    def mode(self) -> tuple[int, ...]:
        """The most probable outcome; of several, the one that gives most to the first group, then
        to the second, and so on.
        """
        best = max(self.log_probs.values())
        return max(
            counts
            for counts, log_p in self.log_probs.items()
            if abs(log_p - best) < mpf(10) ** (10 - DIGITS)
        )

    def moments(self) -> Moments:
        centre, groups = (
            self.mode(),
            range(len(self.urn.group_sizes)),
        )  # a centre near the mean: no cancellation below
        with mp.workdps(DIGITS):
            shift = [self.expectation(lambda x, j=j: x[j] - centre[j]) for j in groups]
            covariance = {}
            for i, j in chosen_pairs(len(groups)):
                product = self.expectation(
                    lambda x, i=i, j=j: (x[i] - centre[i]) * (x[j] - centre[j])
                )
                covariance[i, j] = product - shift[i] * shift[j]
            return Moments(
                self.log_normalizer,
                [self.expectation(lambda x, j=j: x[j]) for j in groups],
                covariance,
            )

    def marginals(self) -> list[dict[int, mpf]]:
        """For each group, log P(X_j = x) of every x that can occur."""
        with mp.workdps(DIGITS):
            masses: list[dict[int, mpf]] = [{} for _ in self.urn.group_sizes]
            for counts, p in zip(self.outcomes, self.probabilities, strict=True):
                for mass, x in zip(masses, counts, strict=True):
                    mass[x] = mass.get(x, mpf(0)) + p
            return [{x: mp.log(p) for x, p in mass.items()} for mass in masses]

    def entropy(self) -> mpf:
        return -self.expectation(lambda counts: self.log_probs[counts])

    def kl(self, other: Enumeration) -> mpf:
        with mp.workdps(DIGITS):
            return self.expectation(lambda counts: self.log_probs[counts] - other.log_prob(counts))


@cache
def enumeration(urn) -> Enumeration:
    return Enumeration(urn)


# --------------------------------------------------------------------------------------------------
# (b) Cauchy integral
# --------------------------------------------------------------------------------------------------


class TooFewDigitsError(ArithmeticError):
    """The proven error is not far enough below the value."""


def _solve_log_radius(balls: Balls, target: float) -> float:
    """log r with Σ M σ(log r + log w) = target, by bisection in plain floats: any radius is valid,
    so precision does not matter.
    """
    low, high = -balls[-1][0] - 800.0, -balls[0][0] + 800.0
    for _ in range(80):
        middle = (low + high) / 2
        mean = sum(
            count * 0.5 * (1 + math.tanh((middle + log_weight) / 2)) for log_weight, count in balls
        )
        low, high = (middle, high) if mean < target else (low, middle)
    return (low + high) / 2


def off_saddle_log_radius(balls: Balls, draws: int) -> float:
    """A radius beyond the saddle point, by three standard deviations of the sum or by a factor e.

    In log r the variance of the sum grows by a factor e at most, so P(S = draws) stays above e^-20
    or so of its largest value.
    """
    saddle = _solve_log_radius(balls, draws)
    shares = [
        (count, 0.5 * (1 + math.tanh((saddle + log_weight) / 2))) for log_weight, count in balls
    ]
    deviation = math.sqrt(sum(count * p * (1 - p) for count, p in shares))
    return saddle + 3 / max(deviation, 3.0)


class Circle:
    """P(S = k) of S = Σ Binomial(M, p), p = Rw/(1+Rw), by the trapezoid rule with K nodes on the
    circle |z| = R.

    The full rule gives Σ_l P(S = k + lK) exactly. Two things are left out, both below 10^-digits:

    * *aliases*: P(|S - E S| ≥ t) ≤ 2 exp(-t²/(2(σ² + t/3))) (Bernstein), t = K - |k - E S|; none at
      all if K exceeds the number of balls;
    * *nodes far from θ = 0*: |q + p e^{iθ}|² = 1 - 4pq sin²(θ/2), hence |φ_S(θ)| ≤ exp(-2σ²
      sin²(θ/2)), which falls in θ up to π.

    K is odd, so that no node is θ = π, where a factor may vanish. φ(-θ) is the conjugate of φ(θ),
    so half of the nodes are enough. Working precision exceeds ``digits`` by 30, which covers the
    multiplication of angles by up to 10¹⁰ balls.
    """

    def __init__(
        self, balls: Balls, draws: int, digits: int, log_radius: float | None = None, reach: int = 0
    ) -> None:
        self.balls, self.draws, self.digits = balls, draws, digits
        self.log_radius = off_saddle_log_radius(balls, draws) if log_radius is None else log_radius
        with mp.workdps(digits + 30):
            self.p = {lw: 1 / (1 + mp.exp(-(mpf(self.log_radius) + mpf(lw)))) for lw, _ in balls}
            self.q = {lw: 1 / (1 + mp.exp(mpf(self.log_radius) + mpf(lw))) for lw, _ in balls}
            mean = total(count * self.p[lw] for lw, count in balls)
            variance = float(total(count * self.p[lw] * self.q[lw] for lw, count in balls))
            bound = (digits + 1) * math.log(10)
            tail = bound / 3 + math.sqrt(bound**2 / 9 + 2 * bound * variance)
            nodes = (
                min(number_of(balls), math.ceil(tail + abs(float(mean) - draws) + reach + 3)) + 1
            )
            self.nodes = nodes + 1 - nodes % 2
            # one or two balls may be taken out of S below, each of variance at most 1/4
            smallest = max(variance - 0.5, 0.0)
            used = next(
                (
                    k
                    for k in self._half()
                    if 2 * smallest * math.sin(math.pi * k / self.nodes) ** 2 > bound
                ),
                self.nodes // 2 + 1,
            )
            self.unit = [mp.expjpi(mpf(2 * k) / self.nodes) for k in range(used)]
            self.factors = {lw: [self.q[lw] + self.p[lw] * z for z in self.unit] for lw, _ in balls}
            self.terms = []  # φ(θ) e^{-i·draws·θ}, one complex exponential per node
            for k in range(used):
                exponent = mpc(0, -2 * mp.pi * (draws * k % self.nodes) / self.nodes)
                for lw, count in balls:
                    exponent += count * mp.log(self.factors[lw][k])
                self.terms.append(mp.exp(exponent))

    def _half(self) -> Iterator[int]:
        """Node numbers of the upper half circle, thinned out where there are very many: any cut-off
        beyond the bound will do.
        """
        k = 1
        while k <= self.nodes // 2:
            yield k
            k += max(1, k // 64)

    def _sum(self, terms: Sequence[mpc]) -> mpf:
        return (terms[0].real + 2 * total(term.real for term in terms[1:])) / self.nodes

    def certain(self, value: mpf) -> mpf:
        """The value, if at least half of the digits are proven."""
        if value < mpf(10) ** (-self.digits // 2):
            raise TooFewDigitsError
        return value

    @cache  # noqa: B019 - a circle lives no longer than one computation
    def rotated(self, log_weight: float) -> list[mpc]:
        return [z / factor for z, factor in zip(self.unit, self.factors[log_weight], strict=True)]

    def probability(self, *removed: float) -> mpf:
        """P(S' = draws - r), where S' is S without r balls of the weights given."""
        with mp.workdps(self.digits + 30):
            terms = self.terms
            for log_weight in removed:
                terms = [
                    term * turn for term, turn in zip(terms, self.rotated(log_weight), strict=True)
                ]
            return self.certain(self._sum(terms))

    def probabilities(self, first: int, stride: int, count: int) -> list[mpf]:
        """P(S = first - i·stride), i = 0..count-1, each with the absolute error 10^-digits;
        ``reach`` must have allowed for them.
        """
        with mp.workdps(self.digits + 30):
            turn = [z**stride for z in self.unit]
            terms = [
                term * z ** (self.draws - first)
                for term, z in zip(self.terms, self.unit, strict=True)
            ]
            values = []
            for _ in range(count):
                values.append(self._sum(terms))
                terms = [term * z for term, z in zip(terms, turn, strict=True)]
            return values

    def log_scale(self) -> mpf:
        """log of what turns P(S = draws) into [z^draws] ∏(1 + wz)^M."""
        with mp.workdps(self.digits + 30):
            return -self.draws * mpf(self.log_radius) - total(
                count * mp.log(self.q[lw]) for lw, count in self.balls
            )


def with_enough_digits(compute: Callable[[int], T]) -> T:
    """The first result whose digits are proven; ever more digits are tried."""
    for digits in (80, 160, 320, 640):
        try:
            return compute(digits)
        except TooFewDigitsError:
            continue
    raise TooFewDigitsError


@cache
def log_coefficient(balls: Balls, draws: int) -> mpf:
    """log [z^draws] ∏(1 + wz)^M."""
    if not 0 <= draws <= number_of(balls):
        return mpf("-inf")
    with mp.workdps(130):
        if draws == 0:
            return mpf(0)
        if draws == number_of(balls):
            return total(count * mpf(lw) for lw, count in balls)

        def compute(digits: int) -> mpf:
            circle = Circle(balls, draws, digits)
            return circle.log_scale() + mp.log(circle.probability())

        return with_enough_digits(compute)


def log_normalizer(urn) -> mpf:
    return moments(urn).log_normalizer


def unnormalized_log_prob(urn, counts: Sequence[int]) -> mpf:
    """Σ log C(m_j, x_j) + x_j log ω_j."""
    with mp.workdps(130):
        terms = [mpf(0)]
        for size, log_weight, x in zip(urn.group_sizes, urn.log_weights, counts, strict=True):
            if x > 0:
                terms.append(log_binomial(size, x) + x * mpf(log_weight))
        return total(terms)


def log_prob(urn, counts: Sequence[int]) -> mpf:
    with mp.workdps(130):
        return unnormalized_log_prob(urn, counts) - log_normalizer(urn)


def is_certain(urn) -> bool:
    """Whether the urn has one outcome only."""
    holding = sum(
        m > 0 and lw != NEVER for m, lw in zip(urn.group_sizes, urn.log_weights, strict=True)
    )
    return holding <= 1 or urn.draws in (0, number_of(balls_of(urn)))


@cache
def moments(urn) -> Moments:
    """E[X_j] = m_j p_j P(S' = n-1)/P(S = n), S' one ball of group j less; E[X_i X_j] likewise with
    two balls less.
    """
    sizes, log_weights = urn.group_sizes, urn.log_weights
    balls, groups = balls_of(urn), len(sizes)
    if is_certain(urn):
        alive = [
            0 if lw == NEVER else min(m, urn.draws)
            for m, lw in zip(sizes, log_weights, strict=True)
        ]
        return Moments(
            log_coefficient(balls, urn.draws),
            [mpf(x) for x in alive],
            {pair: mpf(0) for pair in chosen_pairs(groups)},
        )

    def compute(digits: int) -> Moments:
        circle = Circle(balls, urn.draws, digits)
        with mp.workdps(digits + 30):
            whole = circle.probability()

            @cache
            def ratio(*removed: float) -> mpf:
                return (
                    mp.fprod(circle.p[lw] for lw in removed) * circle.probability(*removed) / whole
                )

            mean = [
                mpf(0) if m == 0 or lw == NEVER else m * ratio(lw)
                for m, lw in zip(sizes, log_weights, strict=True)
            ]
            covariance = {}
            for i, j in chosen_pairs(groups):
                pairs_of_balls = sizes[i] * (sizes[i] - 1) if i == j else sizes[i] * sizes[j]
                possible = (
                    pairs_of_balls > 0
                    and urn.draws >= 2
                    and NEVER not in (log_weights[i], log_weights[j])
                )
                both = (
                    pairs_of_balls * ratio(*sorted((log_weights[i], log_weights[j])))
                    if possible
                    else mpf(0)
                )
                covariance[i, j] = both - mean[i] * mean[j] + (mean[i] if i == j else 0)
            largest, cancelled = max(abs(value) for value in covariance.values()), max(mean) ** 2
            if largest < cancelled * mpf(10) ** (20 - digits // 2):
                raise TooFewDigitsError
            return Moments(circle.log_scale() + mp.log(whole), mean, covariance)

    return with_enough_digits(compute)


def marginal_log_prob(urn, group: int, x: int) -> mpf:
    """P(X_j = x) = C(m_j, x) ω_j^x [z^{n-x}] ∏_{i≠j}(1 + ω_i z)^{m_i} / [zⁿ] ∏_i."""
    with mp.workdps(130):
        if urn.log_weights[group] == NEVER:
            return mpf(0) if x == 0 else mpf("-inf")
        if not 0 <= x <= urn.group_sizes[group]:
            return mpf("-inf")
        own = log_binomial(urn.group_sizes[group], x) + x * mpf(urn.log_weights[group])
        return own + log_coefficient(balls_without(urn, group), urn.draws - x) - log_normalizer(urn)


def expected_log_binomial(urn, group: int, stride: int | None = None) -> mpf:
    """E[log C(m_j, X_j)] as a sum over the marginal's window, at a stride where it is wide.

    The marginals' generating function is a coefficient of a real stable polynomial, hence has real
    roots only: X_j is a sum of independent Bernoullis. So Bernstein bounds the window, and a stride
    h ≤ σ/4 changes the sum of the masses by exp(-2σ² sin²(π/h)) < 1e-100.
    """
    size, log_weight, draws = urn.group_sizes[group], urn.log_weights[group], urn.draws
    if size < 2 or log_weight == NEVER:
        return mpf(0)
    mean, variance = float(moments(urn).mean[group]), float(moments(urn).covariance[group, group])
    rest, digits = balls_without(urn, group), 80
    bound = 50 * math.log(10)
    width = bound / 3 + math.sqrt(bound**2 / 9 + 2 * bound * variance)
    lowest = max(0, draws - number_of(rest), math.floor(mean - width))
    highest = min(size, draws, math.ceil(mean + width))
    if stride is None:
        stride = 1 if highest - lowest < 600 else math.floor(math.sqrt(variance) / 4)
    counts = range(lowest, highest + 1, stride)
    with mp.workdps(digits + 30):
        if lowest == highest:
            return log_binomial(size, lowest)
        log_radius = mpf(off_saddle_log_radius(balls_of(urn), draws))
        circle = Circle(
            rest,
            draws - counts[len(counts) // 2],
            digits,
            float(log_radius),
            reach=highest - lowest,
        )
        log_ratio = (
            -draws * log_radius
            - total(count * mp.log(circle.q[lw]) for lw, count in rest)
            - log_normalizer(urn)
        )
        others = circle.probabilities(draws - lowest, stride, len(counts))
        masses, expectation = [], []
        for x, other in zip(counts, others, strict=True):
            log_c = log_binomial(size, x)
            masses.append(
                stride * other * mp.exp(log_c + x * (log_weight + log_radius) + log_ratio)
            )
            expectation.append(masses[-1] * log_c)
        if abs(total(masses) - 1) > mpf(10) ** -35:
            raise TooFewDigitsError
        return total(expectation)


def entropy(urn) -> mpf:
    """log Z - Σ_j (E[X_j] log ω_j + E[log C(m_j, X_j)]); groups alike in size and weight are
    computed once.
    """
    if is_certain(urn):
        return mpf(0)
    with mp.workdps(130):
        alike = Counter(zip(urn.group_sizes, urn.log_weights, strict=True))
        result = log_normalizer(urn)
        for j, kind in enumerate(zip(urn.group_sizes, urn.log_weights, strict=True)):
            if times := alike.pop(kind, 0):
                linear = moments(urn).mean[j] * mpf(kind[1]) if moments(urn).mean[j] else 0
                result -= times * (linear + expected_log_binomial(urn, j))
        return result


def kl(urn, other) -> mpf:
    """Σ_j E[X_j](log ω_j - log ω'_j) - log Z + log Z', for urns of equal sizes and draws."""
    with mp.workdps(130):
        triples = zip(moments(urn).mean, urn.log_weights, other.log_weights, strict=True)
        linear = total(mean * (mpf(a) - mpf(b)) for mean, a, b in triples if mean > 0)
        return linear - log_normalizer(urn) + log_coefficient(balls_of(other), other.draws)


# --------------------------------------------------------------------------------------------------
# (c) Vandermonde: at most two distinct weights
# --------------------------------------------------------------------------------------------------


class Vandermonde:
    """An urn of at most two distinct weights: Y, the number of balls drawn of the heavier kind, has
    weights C(A, y) C(B, n-y) w^y.

    The terms follow from the largest one by their ratios, both ways, until the geometric bound on
    what is left is below 10^-DIGITS.
    """

    def __init__(self, urn, with_entropy: bool = False) -> None:
        self.urn, self.balls = urn, balls_of(urn)
        if len(self.balls) > 2:
            raise ValueError(f"{urn.name} has {len(self.balls)} distinct weights, more than two")
        (self.lighter, b), (self.heavier, a) = (
            (self.balls[0], self.balls[-1]) if len(self.balls) == 2 else ((0.0, 0), self.balls[0])
        )
        self.a, self.b, n = a, b, urn.draws
        with mp.workdps(DIGITS + 15):
            gap = mpf(self.heavier) - mpf(self.lighter)
            start = self._largest_term(gap)
            anchor = log_binomial(a, start) + log_binomial(b, n - start) + start * gap
            sums = [
                mpf(1),
                mpf(0),
                mpf(0),
                mpf(0),
            ]  # of t, t·(y-start), t·(y-start)², t·log t with t = 1 at the start
            for step in (1, -1):
                self._add(sums, start, step, mp.exp(gap), with_entropy)
            normalizer = sums[0]
            shift = sums[1] / normalizer
            self.log_normalizer = mp.log(normalizer) + anchor + n * mpf(self.lighter)
            self.heavy_mean, self.light_mean, self.heavy_variance = (
                start + shift,
                n - start - shift,
                sums[2] / normalizer - shift**2,
            )
            self.entropy_of_heavy = (
                mp.log(normalizer) - sums[3] / normalizer
            )  # of Y: the urn's entropy if it has two groups

    def _largest_term(self, gap: mpf) -> int:
        """Bisection: the ratio of neighbouring terms, (A-y)(n-y)w / ((y+1)(B-n+y+1)), falls in
        y.
        """
        n = self.urn.draws
        low, high = max(0, n - self.b), min(self.a, n)
        while low < high:
            y = (low + high) // 2
            rises = mp.log(mpf((self.a - y) * (n - y))) + gap > mp.log(
                mpf((y + 1) * (self.b - n + y + 1))
            )
            low, high = (y + 1, high) if rises else (low, y)
        return low

    def _add(self, sums: list[mpf], start: int, step: int, odds: mpf, with_entropy: bool) -> None:
        a, b, n = self.a, self.b, self.urn.draws
        term, y, smallest = mpf(1), start, None
        factor = odds if step > 0 else 1 / odds
        while True:
            if step > 0:
                up, down = (a - y) * (n - y), (y + 1) * (b - n + y + 1)
            else:
                up, down = y * (b - n + y), (a - y + 1) * (n - y + 1)
            if up == 0:
                return
            previous, term = term, term * up / down * factor
            smallest = smallest or term * mpf(10) ** -(
                DIGITS + 10
            )  # relative to the first step, which may be tiny itself
            y += step
            distance = y - start
            moved = term * distance
            sums[0] += term
            sums[1] += moved
            sums[2] += moved * distance
            if with_entropy:
                sums[3] += term * mp.log(term)
            # the ratios fall, so all later terms together are below term·ratio/(1 - ratio)
            if term < previous and term * term < smallest * (previous - term):
                return

    def moments(self) -> Moments:
        """Within a kind of M balls of which Y are drawn the groups are central hypergeometric: E =
        Y m/M, and so on.
        """
        with mp.workdps(DIGITS):
            sizes, log_weights = self.urn.group_sizes, self.urn.log_weights
            of_kind = {
                self.lighter: (self.b, self.light_mean),
                self.heavier: (self.a, self.heavy_mean),
            }
            share, mean, drawn = [], [], []
            for size, log_weight in zip(sizes, log_weights, strict=True):
                balls, expected = of_kind.get(log_weight, (0, mpf(0)))
                share.append(mpf(size) / balls if balls else mpf(0))
                mean.append(share[-1] * expected)
                # E[Y(M-Y)]/(M-1)
                drawn.append(
                    (expected * (balls - expected) - self.heavy_variance) / (balls - 1)
                    if balls > 1
                    else mpf(0)
                )
            covariance = {}
            for i, j in chosen_pairs(len(sizes)):
                if log_weights[i] == log_weights[j]:
                    same = share[i] * (1 - share[i]) if i == j else -share[i] * share[j]
                    covariance[i, j] = same * drawn[i] + share[i] * share[j] * self.heavy_variance
                else:
                    covariance[i, j] = -share[i] * share[j] * self.heavy_variance
            return Moments(self.log_normalizer, mean, covariance)

    def log_prob(self, counts: Sequence[int]) -> mpf:
        with mp.workdps(DIGITS + 15):
            return unnormalized_log_prob(self.urn, counts) - self.log_normalizer


@cache
def vandermonde(urn, with_entropy: bool = False) -> Vandermonde:
    return Vandermonde(urn, with_entropy)


# --------------------------------------------------------------------------------------------------
# Mode, and where to look
# --------------------------------------------------------------------------------------------------


def better_exchange(urn, counts: Sequence[int]) -> tuple[int, int] | None:
    """(i, j) if moving a ball from group j to group i makes the counts more probable, or equally so
    with i < j; else None.

    More probable means beyond the rounding of float64 log-weights: log 2 as a float is no exact
    logarithm, and meant as one. The log-probability is discretely concave, so counts without such
    an exchange are a mode, and the one that favours earlier groups.
    """
    sizes, log_weights = urn.group_sizes, urn.log_weights
    gain, price = {}, {}  # of one ball more of group i, of the last ball of group j
    with mp.workdps(DIGITS):
        for j, (size, log_weight, x) in enumerate(zip(sizes, log_weights, counts, strict=True)):
            if x < size and log_weight != NEVER:
                gain[j] = mp.log(mpf(size - x) / (x + 1)) + mpf(log_weight)
            if x > 0:
                price[j] = mp.log(mpf(size - x + 1) / x) + mpf(log_weight)
        tie = mpf(10) ** (15 - DIGITS)
        rounding = 2e-15 * (
            1
            + max(
                (abs(log_weight) for log_weight in log_weights if log_weight != NEVER), default=0.0
            )
        )
        for (i, gained), (j, paid) in itertools.product(gain.items(), price.items()):
            difference = gained - paid
            if i != j and (difference > rounding or (abs(difference) < tie and i < j)):
                return i, j
    return None


def _rough_log_coefficient(balls: Balls, draws: int) -> float:
    """Saddle-point approximation in floats."""
    if draws in (0, number_of(balls)):
        return 0.0 if draws == 0 else sum(count * lw for lw, count in balls)
    saddle = _solve_log_radius(balls, draws)
    value, variance = -draws * saddle, 0.0
    for log_weight, count in balls:
        eta = saddle + log_weight
        p = 0.5 * (1 + math.tanh(eta / 2))
        value += count * (max(eta, 0.0) + math.log1p(math.exp(-abs(eta))))
        variance += count * p * (1 - p)
    return value - 0.5 * math.log(2 * math.pi * max(variance, 0.16))


def rough_marginal_log_prob(urn, group: int, x: int) -> float:
    """Approximates log P(X_j = x) up to a constant, to choose where to compare."""
    size = urn.group_sizes[group]
    own = (
        math.lgamma(size + 1)
        - math.lgamma(x + 1)
        - math.lgamma(size - x + 1)
        + x * urn.log_weights[group]
    )
    return own + _rough_log_coefficient(balls_without(urn, group), urn.draws - x)


def marginal_probes(
    urn, group: int, levels: Sequence[float] = (-10.0, -100.0, -1000.0)
) -> list[int]:
    """x near the mean and, on both sides, where log P(X_j = x) is about each of the levels (or
    where the support ends).
    """
    rest = number_of(balls_without(urn, group))
    size = 0 if urn.log_weights[group] == NEVER else urn.group_sizes[group]
    lowest, highest = max(0, urn.draws - rest), min(size, urn.draws)
    centre = min(max(round(float(moments(urn).mean[group])), lowest), highest)
    if lowest == highest:
        return [centre]
    top = rough_marginal_log_prob(urn, group, centre)
    probes = [centre]
    for level, end in itertools.product(levels, (lowest, highest)):
        near, far = centre, end
        while abs(far - near) > 1:
            middle = (near + far) // 2
            near, far = (
                (middle, far)
                if rough_marginal_log_prob(urn, group, middle) - top > level
                else (near, middle)
            )
        probes.append(near)
    return list(dict.fromkeys(probes))
