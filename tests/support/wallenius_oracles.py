"""Wallenius' law in many digits, three ways that share nothing with diffurn.

``DrawByDraw`` follows the urn ball by ball and holds the law of every small urn. ``log_prob``
integrates, whatever the size: with independent exponential clocks, rate ω_j for each ball of group
j, the balls drawn are the first to ring, so that

    P(x) = ∏ C(m_j, x_j) ∫ D e^{-Ds} ∏ (1 - e^{-ω_j s})^{x_j} ds,   s > 0,   D = Σ ω_j (m_j - x_j),

and with s = e^u the integrand is log-concave in u: one peak between two ends, on which
Gauss-Legendre panels are halved until they agree. ``LargeLaw`` sums that probability over a lattice
with a stride, which for a smooth bell is exact to all digits asked for.

As a script this file adds the integral's digits to the table that ``record_wallenius.R`` wrote:
``python -m support.wallenius_oracles`` in the folder ``tests``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from mpmath import mp, mpf

from support.urns import NEVER, Urn

DIGITS = 40
RECORD = Path(__file__).parent / "data" / "wallenius_r.json"
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Balls:
    """An urn with exact weights."""

    sizes: Counts
    draws: int
    weights: tuple[mpf, ...]

    @classmethod
    def of(cls, sizes: Iterable[int], draws: int, weights: Iterable[float | mpf]) -> Balls:
        return cls(tuple(sizes), draws, tuple(mpf(weight) for weight in weights))

    @classmethod
    def of_urn(cls, urn: Urn) -> Balls:
        with mp.workdps(2 * DIGITS):
            return cls(
                urn.group_sizes,
                urn.draws,
                tuple(mpf(0) if lw == NEVER else mp.exp(mpf(lw)) for lw in urn.log_weights),
            )

    def tilted(self, group: int, step: mpf) -> Balls:
        """The same urn with ``step`` added to one log-weight."""
        with mp.workdps(2 * DIGITS):
            weights = [
                weight * (mp.exp(step) if j == group else 1)
                for j, weight in enumerate(self.weights)
            ]
            return Balls(self.sizes, self.draws, tuple(weights))


def slope(function: Callable[[Balls], mpf], urn: Balls, group: int) -> mpf:
    """∂ function / ∂ log ω_group, by a central difference with an error of 1e-20 or so."""
    with mp.workdps(2 * DIGITS):
        step = mpf(10) ** -10
        return (function(urn.tilted(group, step)) - function(urn.tilted(group, -step))) / (2 * step)


# --------------------------------------------------------------------------------------------------
# Urns
# --------------------------------------------------------------------------------------------------

E6, E12 = math.log(1e6), math.log(1e12)
SMALL = (  # few enough outcomes to follow every draw
    Urn("two-groups", (10, 15), 12, (math.log(2.5), 0.0)),
    Urn("three-colours", (10, 7, 8), 9, (0.0, math.log(2.0), math.log(0.5))),
    Urn("equal-weights", (4, 5, 3), 6, (1.7, 1.7, 1.7)),
    Urn("five-groups", (3, 2, 4, 1, 3), 7, (0.4, -1.3, 0.0, 2.2, 0.9)),
    Urn("one-ball-per-group", (1,) * 8, 3, (0.2, -3.0, 1.0, 1.0, -0.7, 2.0, 0.0, 4.0)),
    Urn("heavy-subset", (1,) * 6, 4, (5.0, 3.0, 1.0, -1.0, -3.0, -5.0)),
    Urn("lopsided", (60, 3), 20, (-2.0, 3.0)),
    Urn("one-draw", (4, 7, 2), 1, (1.0, -2.0, 0.5)),
    Urn("all-but-one", (4, 7, 2), 12, (1.0, -2.0, 0.5)),
    Urn("no-draws", (4, 7, 2), 0, (1.0, -2.0, 0.5)),
    Urn("all-balls", (4, 7, 2), 13, (1.0, -2.0, 0.5)),
    Urn("single-group", (10,), 4, (0.7,)),
    Urn("single-group-all", (10,), 10, (0.7,)),
    Urn("empty-urn", (0, 0), 0, (1.0, 2.0)),
    Urn("empty-group", (6, 0, 5), 5, (2.0, 7.0, -1.0)),
    Urn("only-one-group-holds-balls", (0, 9, 0), 4, (2.0, 0.0, -1.0)),
    Urn("never-drawn", (5, 6, 4), 5, (0.3, NEVER, -0.4)),
    Urn("never-drawn-rest-must-fill", (3, 4, 2), 5, (1.0, NEVER, -2.0)),
    Urn("never-drawn-but-one", (5, 6, 7), 4, (NEVER, 2.0, NEVER)),
    Urn("never-drawn-none-drawn", (5, 6), 0, (NEVER, NEVER)),
    Urn("odds-1e6", (5, 5, 5), 7, (E6, 0.0, -E6)),
    Urn("odds-1e6-filled", (5, 5, 5), 5, (E6, 0.0, -E6)),
    Urn("odds-1e6-one-less", (5, 5, 5), 9, (-E6, 0.0, E6)),
    Urn("odds-1e6-two-groups", (12, 9), 10, (-E6, 0.0)),
    Urn("odds-1e12", (5, 5, 5), 7, (E12, 0.0, -E12)),
    Urn("odds-1e12-filled", (5, 5, 5), 10, (E12, 0.0, -E12)),
    Urn("odds-1e12-one-more", (5, 5, 5), 6, (E12, 0.0, -E12)),
    Urn("odds-1e12-two-groups", (12, 9), 10, (E12, 0.0)),
    Urn("odds-1e12-all-but-one", (4, 3, 5), 11, (E12, 0.0, -E12)),
    Urn("common-offset", (6, 4, 7), 8, (299.0, 300.0, 298.5)),
)
LARGE = (
    Urn("1e6x2", (10**6, 10**6), 10**6, (0.0, 0.9)),
    Urn("1e6x2-few-draws", (10**6, 10**6), 30, (0.0, 3.0)),
    Urn("1e6x2-nearly-all", (10**6, 10**6), 2 * 10**6 - 3, (0.0, 2.0)),
    Urn("1e6x2-odds-1e6", (10**6, 10**6), 1_000_500, (E6, 0.0)),
    Urn("1e6x2-odds-1e12", (10**6, 10**6), 700_000, (E12, 0.0)),
    Urn("1e6-and-one", (10**6, 1), 300_000, (0.0, 1.5)),
    Urn("1e6x3", (10**6, 10**6, 10**5), 10**6, (0.0, 0.9, 2.3)),
    Urn("1e6x3-odds-1e12", (10**6, 10**6, 10**6), 1_500_000, (E12, 0.0, -E12)),
    Urn("1e6-uneven", (10**6, 10**3, 10), 5 * 10**5, (0.0, 4.0, -4.0)),
    Urn("1e5x8", (10**5,) * 8, 350_000, tuple(0.4 * j for j in range(8))),
    Urn(
        "1e4x8-odds-1e-12-to-1e12",
        (10**4,) * 8,
        33_333,
        tuple(E12 * (j - 3.5) / 3.5 for j in range(8)),
    ),
    Urn("c30", tuple(range(1, 31)), 200, tuple(0.1 * j - 1.5 for j in range(30))),
    Urn("c60-one-ball-each", (1,) * 60, 25, tuple(0.1 * j for j in range(60))),
    Urn("paper-200x3-odds-10", (200, 200, 200), 180, (0.0, math.log(10.0), 0.0)),
)

# --------------------------------------------------------------------------------------------------
# Ball by ball
# --------------------------------------------------------------------------------------------------


class DrawByDraw:
    """The law of the counts after n draws, from that after n - 1 draws: nothing but sums of
    positive products.
    """

    def __init__(self, urn: Balls) -> None:
        self.urn = urn
        with mp.workdps(2 * DIGITS):
            law = {(0,) * len(urn.sizes): mpf(1)}
            for _ in range(urn.draws):
                law = self._one_more(law)
        self.law: dict[Counts, mpf] = law

    def _one_more(self, law: dict[Counts, mpf]) -> dict[Counts, mpf]:
        grown: dict[Counts, mpf] = defaultdict(mpf)
        for counts, probability in law.items():
            left = [
                weight * (m - x)
                for weight, m, x in zip(self.urn.weights, self.urn.sizes, counts, strict=True)
            ]
            share = probability / mp.fsum(left)
            for j, weight in enumerate(left):
                if weight > 0:
                    grown[(*counts[:j], counts[j] + 1, *counts[j + 1 :])] += share * weight
        return dict(grown)

    def log_prob(self, counts: Sequence[int]) -> mpf:
        with mp.workdps(2 * DIGITS):
            return mp.log(self.law[tuple(counts)]) if tuple(counts) in self.law else -mp.inf

    def expectation(self, function: Callable[[Counts], mpf | int]) -> mpf:
        with mp.workdps(2 * DIGITS):
            return mp.fsum(
                probability * function(counts) for counts, probability in self.law.items()
            )

    @cached_property
    def mean(self) -> list[mpf]:
        return [self.expectation(lambda x, j=j: x[j]) for j in range(len(self.urn.sizes))]

    @cached_property
    def covariance(self) -> list[list[mpf]]:
        groups, mean = range(len(self.urn.sizes)), self.mean
        return [
            [
                self.expectation(lambda x, i=i, j=j: (x[i] - mean[i]) * (x[j] - mean[j]))
                for j in groups
            ]
            for i in groups
        ]

    @property
    def entropy(self) -> mpf:
        with mp.workdps(2 * DIGITS):
            return -mp.fsum(p * mp.log(p) for p in self.law.values())

    @property
    def mode(self) -> Counts:
        """Of outcomes that are equally probable, to 60 digits, the last in lexicographic order."""
        with mp.workdps(2 * DIGITS):
            nearly = max(self.law.values()) * (1 - mpf(10) ** -60)
        return max(counts for counts, p in self.law.items() if p >= nearly)

    def tail(self, group: int) -> list[mpf]:
        """P(X_group ≥ i) for i = 1, …, m_group."""
        with mp.workdps(2 * DIGITS):
            return [
                mp.fsum(p for x, p in self.marginals[group].items() if x >= i)
                for i in range(1, self.urn.sizes[group] + 1)
            ]

    @cached_property
    def marginals(self) -> list[dict[int, mpf]]:
        """P(X_j = x) for each group, of all x that are possible."""
        marginals: list[dict[int, mpf]] = [defaultdict(mpf) for _ in self.urn.sizes]
        with mp.workdps(2 * DIGITS):
            for counts, probability in self.law.items():
                for marginal, x in zip(marginals, counts, strict=True):
                    marginal[x] += probability
        return [dict(sorted(marginal.items())) for marginal in marginals]


class AtOnce(DrawByDraw):
    """Fisher's law of the same balls, from its definition: ∏ C(m_j, x_j) ω_j^x_j, normalised."""

    def __init__(self, urn: Balls) -> None:
        self.urn = urn
        choices = itertools.product(*(range(m + 1) for m in urn.sizes))
        with mp.workdps(2 * DIGITS):
            terms = {
                x: mp.fprod(
                    math.comb(m, k) * weight**k
                    for m, weight, k in zip(urn.sizes, urn.weights, x, strict=True)
                )
                for x in choices
                if sum(x) == urn.draws
            }
            whole = mp.fsum(terms.values())
            self.law = {x: term / whole for x, term in terms.items() if term > 0}


def divergence(p: DrawByDraw, q: DrawByDraw) -> mpf:
    """E_p[log p(x) - log q(x)]; infinite where q is zero and p is not."""
    if any(x not in q.law for x in p.law):
        return mp.inf
    with mp.workdps(2 * DIGITS):
        return mp.fsum(own * mp.log(own / q.law[x]) for x, own in p.law.items())


@cache
def draw_by_draw(urn: Balls) -> DrawByDraw:
    return DrawByDraw(urn)


# --------------------------------------------------------------------------------------------------
# The integral
# --------------------------------------------------------------------------------------------------

ORDER = 32  # nodes of a Gauss-Legendre panel
MOST_HALVINGS = 14


@cache
def _rule(digits: int) -> tuple[tuple[mpf, mpf], ...]:
    """Nodes and weights on [-1, 1]: the roots of the Legendre polynomial by Newton's method, and
    2/((1 - x²) P'(x)²).
    """
    with mp.workdps(digits + 10):
        rule = []
        for k in range(1, ORDER + 1):
            x = mp.cos(mp.pi * (k - mpf(1) / 4) / (ORDER + mpf(1) / 2))
            for _ in range(8):
                value, derivative = _legendre(x)
                x -= value / derivative
            rule.append((x, 2 / ((1 - x * x) * _legendre(x)[1] ** 2)))
        return tuple(rule)


def _legendre(x: mpf) -> tuple[mpf, mpf]:
    before, value = mpf(1), x
    for k in range(2, ORDER + 1):
        before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
    return value, ORDER * (x * value - before) / (x * x - 1)


class Integrand:
    """log of D s e^{-Ds} ∏ (1 - e^{-ω_j s})^{x_j} at s = e^u, in mpf and, to find one's way, in
    floats.
    """

    def __init__(self, urn: Balls, counts: Sequence[int]) -> None:
        grouped: dict[mpf, int] = defaultdict(int)  # groups of one weight share a factor
        self.left = mpf(0)
        for size, weight, x in zip(urn.sizes, urn.weights, counts, strict=True):
            grouped[weight] += x
            self.left += weight * (size - x)
        self.factors = [(weight, x) for weight, x in grouped.items() if x > 0]
        self.log_left = mp.log(self.left)
        self._rough = [(float(mp.log(weight)), x) for weight, x in self.factors]
        self._rough_left = float(self.log_left)

    def __call__(self, u: mpf) -> mpf:
        s = mp.exp(u)
        value = self.log_left + u - self.left * s
        for weight, x in self.factors:
            y = weight * s
            value += x * mp.log(1 - mp.exp(-y) if y > 0.1 else -mp.expm1(-y))
        return value

    def rough(self, u: float) -> float:
        value = self._rough_left + u - math.exp(self._rough_left + u)
        for log_weight, x in self._rough:
            y = log_weight + u
            value += x * (y if y < -37 else math.log(-math.expm1(-math.exp(min(y, 5.0)))))
        return value

    def rough_slope(self, u: float) -> float:
        value = 1 - math.exp(self._rough_left + u)
        for log_weight, x in self._rough:
            y = math.exp(min(log_weight + u, 6.0))
            value += x * (y / math.expm1(y) if y > 1e-12 else 1.0)
        return value

    def peak(self) -> float:
        """The slope is positive where Ds < 1 and negative where Ds > n + 1."""
        low, high = (
            -self._rough_left,
            -self._rough_left + math.log(2 + sum(x for _, x in self.factors)),
        )
        return _bisect(lambda u: self.rough_slope(u) > 0, low, high)

    def ends(self, drop: float) -> tuple[float, float]:
        """Where the logarithm has fallen by ``drop`` on either side of the peak; beyond, by
        concavity, nothing matters.
        """
        peak = self.peak()
        floor = self.rough(peak) - drop
        left = peak - next(step for step in _doubling() if self.rough(peak - step) < floor)
        right = peak + next(step for step in _doubling() if self.rough(peak + step) < floor)
        return _bisect(lambda u: self.rough(u) < floor, left, peak), _bisect(
            lambda u: self.rough(u) >= floor, peak, right
        )


def _doubling() -> Iterable[float]:
    return (2.0**k * 1e-6 for k in itertools.count())


def _bisect(first_half: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if first_half(middle) else (low, middle)
    return (low + high) / 2


def log_prob(urn: Balls, counts: Sequence[int], digits: int = DIGITS) -> mpf:
    """log P(x), with an error of about 10^-digits."""
    possible = all(
        0 <= x <= m and (weight > 0 or x == 0)
        for m, weight, x in zip(urn.sizes, urn.weights, counts, strict=True)
    )
    if not possible or sum(counts) != urn.draws:
        return -mp.inf
    if (
        all(
            x == m or weight == 0
            for m, weight, x in zip(urn.sizes, urn.weights, counts, strict=True)
        )
        or urn.draws == 0
    ):
        return mpf(0)
    extra = len(str(sum(urn.sizes)))
    with mp.workdps(digits + 12 + extra):
        ways = mp.fsum(log_binomial(m, x) for m, x in zip(urn.sizes, counts, strict=True))
        return ways + _log_integral(Integrand(urn, counts), digits)


def log_binomial(size: int, x: int) -> mpf:
    return (
        mp.log(math.comb(size, x))
        if size <= 3000
        else mp.loggamma(size + 1) - mp.loggamma(x + 1) - mp.loggamma(size - x + 1)
    )


def _log_integral(integrand: Integrand, digits: int) -> mpf:
    left, right = (mpf(end) for end in integrand.ends((digits + 3) * math.log(10)))
    top = integrand(mpf(integrand.peak()))
    rule = _rule(digits)

    def panel(a: mpf, b: mpf) -> mpf:
        middle, half = (a + b) / 2, (b - a) / 2
        return half * mp.fsum(
            weight * mp.exp(integrand(middle + half * node) - top) for node, weight in rule
        )

    edges = [left, (left + right) / 2, right]
    coarse = [(a, b, panel(a, b), 0) for a, b in itertools.pairwise(edges)]
    tolerance = mp.fsum(value for _, _, value, _ in coarse) * mpf(10) ** (-digits - 2)
    accepted: list[mpf] = []
    while coarse:
        a, b, value, halvings = coarse.pop()
        middle = (a + b) / 2
        halves = (
            (a, middle, panel(a, middle), halvings + 1),
            (middle, b, panel(middle, b), halvings + 1),
        )
        finer = halves[0][2] + halves[1][2]
        if abs(finer - value) <= tolerance:
            accepted.append(finer)
        else:
            assert halvings < MOST_HALVINGS, "the panels do not agree"
            coarse.extend(halves)
    return top + mp.log(mp.fsum(accepted))


# --------------------------------------------------------------------------------------------------
# Large urns
# --------------------------------------------------------------------------------------------------


def fluid(urn: Balls) -> tuple[list[float], list[float]]:
    """Where outcomes lie, roughly: means m (1 - e^{-ωs}) at the s where they sum to n, and
    variances of independent binomials there.
    """
    rates = [float(weight) for weight in urn.weights]

    def rung(u: float) -> list[float]:
        return [
            -m * math.expm1(-rate * math.exp(u)) for m, rate in zip(urn.sizes, rates, strict=True)
        ]

    mean = rung(
        _bisect(lambda u: sum(rung(u)) < min(urn.draws, sum(urn.sizes) - 0.5), -100.0, 100.0)
    )
    return mean, [
        max(x * (1 - x / m), 1e-12) if m else 0.0 for m, x in zip(urn.sizes, mean, strict=True)
    ]


def probe_counts(
    urn: Balls, shifts: Sequence[float] = (0.0, 1.0, -2.5, 8.0, -30.0)
) -> list[Counts]:
    """The two outcomes that favour the lightest and the heaviest groups most, some at the given
    numbers of deviations from the centre, and two in which a few balls have changed their group,
    which matters where nearly all is certain.
    """
    mean, spread = fluid(urn)
    by_weight = sorted(range(len(urn.sizes)), key=lambda j: urn.weights[j])
    widest = sorted(range(len(urn.sizes)), key=lambda j: -spread[j])
    probes = [_complete(urn, [0.0] * len(mean), order) for order in (by_weight, by_weight[::-1])]
    for shift in shifts:
        step = [shift * math.sqrt(a) * (-1) ** k for k, a in enumerate(spread)]
        pull = sum(step) / sum(spread)
        probes.append(
            _complete(
                urn, [x + d - pull * a for x, d, a in zip(mean, step, spread, strict=True)], widest
            )
        )
    centre = probes[2]
    left = [
        m - x if weight > 0 else 0
        for m, weight, x in zip(urn.sizes, urn.weights, centre, strict=True)
    ]
    for moved in (1, 7):
        source = max(range(len(left)), key=lambda j: centre[j])
        target = max((j for j in range(len(left)) if j != source), key=lambda j: left[j])
        balls = min(moved, centre[source], left[target])
        probes.append(
            tuple(x + balls * ((j == target) - (j == source)) for j, x in enumerate(centre))
        )
    return list(dict.fromkeys(probes))


def _complete(urn: Balls, near: Sequence[float], order: Sequence[int]) -> Counts:
    """Whole counts next to ``near``; what is missing from n, or too much, is settled in
    ``order``.
    """
    drawable = [m if weight > 0 else 0 for m, weight in zip(urn.sizes, urn.weights, strict=True)]
    counts = [min(max(round(x), 0), m) for x, m in zip(near, drawable, strict=True)]
    for j in order:
        missing = urn.draws - sum(counts)
        counts[j] += (
            min(missing, drawable[j] - counts[j]) if missing > 0 else max(missing, -counts[j])
        )
    return tuple(counts)


class LargeLaw:
    """Mean and covariance of an urn of two or three distinct weights and many balls, from
    probabilities on a lattice with strides.

    A sum over every h-th count of a bell of deviation σ, times h, differs from the whole sum by
    about exp(-2π²σ²/h²), here 1e-14. Groups of one weight are merged, which is exact, and split
    again by the central law.
    """

    STRIDE, REACH, TAKEN = 0.8, 8.5, 16  # in deviations, in deviations, digits of each probability

    def __init__(self, urn: Balls) -> None:
        self.urn = urn
        self.kinds = list(dict.fromkeys(urn.weights))
        sizes = [
            sum(m for m, weight in zip(urn.sizes, urn.weights, strict=True) if weight == kind)
            for kind in self.kinds
        ]
        self.merged = Balls(tuple(sizes), urn.draws, tuple(self.kinds))
        self._sum_over_the_lattice()

    def _sum_over_the_lattice(self) -> None:
        mean, spread = fluid(self.merged)
        free = len(self.kinds) - 1
        centre = [round(x) for x in mean[:-1]]
        covariance = [
            [(a if i == j else 0.0) - a * b / sum(spread) for j, b in enumerate(spread[:-1])]
            for i, a in enumerate(spread[:-1])
        ]
        steps = _lattice(covariance, self.STRIDE)
        reach = range(-math.ceil(self.REACH / self.STRIDE), math.ceil(self.REACH / self.STRIDE) + 1)
        self.total, first, second = mpf(0), [mpf(0)] * free, [[mpf(0)] * free for _ in range(free)]
        for multiples in itertools.product(reach, repeat=free):
            if sum(k * k for k in multiples) > reach[-1] ** 2:
                continue  # the corners of the square
            offset = [
                sum(k * step[i] for k, step in zip(multiples, steps, strict=True))
                for i in range(free)
            ]
            x = [c + o for c, o in zip(centre, offset, strict=True)]
            x.append(self.urn.draws - sum(x))
            p = mp.exp(log_prob(self.merged, x, self.TAKEN)) * _volume(steps)
            self.total += p
            for i in range(free):
                first[i] += p * offset[i]
                for j in range(free):
                    second[i][j] += p * offset[i] * offset[j]
        means = [c + f for c, f in zip(centre, first, strict=True)]
        self.merged_mean = [*means, self.urn.draws - mp.fsum(means)]
        inner = [[second[i][j] - first[i] * first[j] for j in range(free)] for i in range(free)]
        rows = [[*row, -mp.fsum(row)] for row in inner]
        self.merged_covariance = [*rows, [-mp.fsum(column) for column in zip(*rows, strict=True)]]

    @cached_property
    def mean(self) -> list[mpf]:
        return [
            self._share(j) * self.merged_mean[self._kind(j)] for j in range(len(self.urn.sizes))
        ]

    @cached_property
    def covariance(self) -> list[list[mpf]]:
        groups = range(len(self.urn.sizes))
        return [[self._entry(i, j) for j in groups] for i in groups]

    def _kind(self, group: int) -> int:
        return self.kinds.index(self.urn.weights[group])

    def _share(self, group: int) -> mpf:
        return mpf(self.urn.sizes[group]) / self.merged.sizes[self._kind(group)]

    def _entry(self, i: int, j: int) -> mpf:
        """Between the kinds, scaled by the groups' shares; within a kind also the central law's,
        E[Y (M - Y)]/(M - 1) (share - share²).
        """
        between = (
            self._share(i) * self._share(j) * self.merged_covariance[self._kind(i)][self._kind(j)]
        )
        if self._kind(i) != self._kind(j) or self._share(i) == 1:
            return between
        kind, size = self._kind(i), self.merged.sizes[self._kind(i)]
        drawn = self.merged_mean[kind]
        within = (drawn * (size - drawn) - self.merged_covariance[kind][kind]) / (size - 1)
        return between + within * (
            (self._share(i) if i == j else 0) - self._share(i) * self._share(j)
        )


def _lattice(covariance: list[list[float]], stride: float) -> list[list[int]]:
    """Whole steps about ``stride`` deviations long, along the columns of a Cholesky factor."""
    first = math.sqrt(covariance[0][0])
    if len(covariance) == 1:
        return [[max(1, math.floor(stride * first))]]
    regression = covariance[1][0] / first
    second = math.sqrt(covariance[1][1] - regression**2)
    return [
        [max(1, math.floor(stride * first)), round(stride * regression)],
        [0, max(1, math.floor(stride * second))],
    ]


def _volume(steps: list[list[int]]) -> int:
    return math.prod(step[i] for i, step in enumerate(steps))


@cache
def large_law(urn: Balls) -> LargeLaw:
    with mp.workdps(30):
        return LargeLaw(urn)


# --------------------------------------------------------------------------------------------------
# What BiasedUrn says
# --------------------------------------------------------------------------------------------------

TRUSTED = 1e-7  # relative error of a probability up to which a recorded value counts as right


@dataclass(frozen=True)
class Recorded:
    """A probability by BiasedUrn, its logarithm by the integral, and how far they are apart;
    ``log`` is None where BiasedUrn gave 0.
    """

    call: str
    sizes: Counts
    draws: int
    odds: tuple[float, ...]
    counts: Counts
    value: float
    log: float | None
    integral: str
    relative_error: float

    def __str__(self) -> str:
        return self.call

    @property
    def balls(self) -> Balls:
        return Balls.of(self.sizes, self.draws, self.odds)

    @property
    def exact(self) -> mpf:
        with mp.workdps(DIGITS):
            return mpf(self.integral)


def recorded() -> list[Recorded]:
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    return [
        Recorded(
            **{
                name: tuple(entry) if isinstance(entry, list) else entry
                for name, entry in row.items()
            }
        )
        for row in rows
    ]


def _add_the_integral() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    with mp.workdps(DIGITS + 5):
        for row in record["rows"]:
            exact = log_prob(Balls.of(row["sizes"], row["draws"], row["odds"]), row["counts"])
            row["integral"] = mp.nstr(exact, DIGITS)
            row["relative_error"] = float(mp.nstr(abs(mpf(row["value"]) / mp.exp(exact) - 1), 3))
    rows = ",\n".join(json.dumps(row) for row in record.pop("rows"))
    RECORD.write_text(f'{json.dumps(record)[:-1]}, "rows": [\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    _add_the_integral()
