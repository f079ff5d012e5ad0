"""One table of urns for every test and benchmark: small ones to enumerate, huge ones, and the
degenerate ones that break naive code.

``URNS`` holds all of them, each with a readable and unique ``name`` (use ``ids=str``). The
selections below it are views of the same table: ``SMALL`` can be enumerated, ``LARGE`` cannot,
``EXTREME`` has log-weights beyond ±50, ``FEW_WEIGHTS`` at most two distinct weights, ``SUBSETS``
one ball per group. ``probe_counts`` proposes outcomes of an urn, from its mode to its far tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

NEVER = -math.inf  # the log-weight of a group that is never drawn
ENUMERABLE = 5_000  # outcomes an enumeration may hold


@dataclass(frozen=True)
class Urn:
    """Group sizes m, draws n and log-weights log ω of one urn, in plain Python numbers."""

    name: str
    group_sizes: tuple[int, ...]
    draws: int
    log_weights: tuple[float, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def groups(self) -> int:
        return len(self.group_sizes)

    @property
    def population(self) -> int:
        return sum(self.group_sizes)

    @property
    def drawable(self) -> tuple[int, ...]:
        """Group sizes with the never-drawn groups (ω = 0) emptied."""
        return tuple(
            0 if lw == NEVER else m
            for m, lw in zip(self.group_sizes, self.log_weights, strict=True)
        )

    @property
    def distinct_weights(self) -> int:
        return len({lw for m, lw in zip(self.drawable, self.log_weights, strict=True) if m > 0})

    @property
    def largest_log_weight(self) -> float:
        return max((abs(lw) for lw in self.log_weights if lw != NEVER), default=0.0)


def support_size(urn: Urn, limit: int = ENUMERABLE) -> int:
    """Number of outcomes, or ``limit + 1`` as soon as there are more than ``limit``."""
    ways, later = (
        {0: 1},
        sum(urn.drawable),
    )  # partial sum -> number of ways to reach it, each of which can be completed
    for size in urn.drawable:
        later -= size
        grown: dict[int, int] = {}
        total = 0
        for drawn, count in ways.items():
            lowest, highest = max(0, urn.draws - drawn - later), min(size, urn.draws - drawn)
            total += count * (highest - lowest + 1)
            if total > limit:
                return limit + 1
            for x in range(lowest, highest + 1):
                grown[drawn + x] = grown.get(drawn + x, 0) + count
        ways = grown
    return sum(ways.values())


def _hand_picked() -> list[Urn]:
    titanic = (325, 285, 706, 885)
    return [
        # n exactly fills the heaviest groups: the outcome is almost sure and every other one
        # carries weight e^-50 or less
        Urn("almost-sure-5x3-first-filled", (5, 5, 5), 5, (50.0, 0.0, -50.0)),
        Urn("almost-sure-5x3-two-filled", (5, 5, 5), 10, (50.0, 0.0, -50.0)),
        Urn("almost-sure-5x3-reversed", (5, 5, 5), 5, (-50.0, 0.0, 50.0)),
        Urn("almost-sure-5x3-one-more", (5, 5, 5), 6, (50.0, 0.0, -50.0)),
        Urn("almost-sure-5x3-one-less", (5, 5, 5), 4, (50.0, 0.0, -50.0)),
        Urn("almost-sure-gap-20", (7, 3, 9), 10, (20.0, 0.0, 20.0 - 2.0**-10)),
        Urn("almost-sure-gap-10", (40, 60), 40, (10.0, 0.0)),
        Urn("almost-sure-1000-filled", (1000, 1000), 1000, (50.0, 0.0)),
        Urn("almost-sure-1e6-filled", (10**6, 10**6), 10**6, (50.0, 0.0)),
        Urn(
            "almost-sure-1e9-filled",
            (3 * 10**8, 3 * 10**8, 4 * 10**8),
            6 * 10**8,
            (25.0, 0.0, -25.0),
        ),
        Urn("almost-sure-1e9-near-poisson", (5 * 10**8, 5 * 10**8), 5 * 10**8, (40.0, 0.0)),
        Urn(
            "almost-sure-ladder", tuple(range(1, 11)), 15, tuple(50.0 - 11.0 * i for i in range(10))
        ),
        Urn("almost-sure-ten-filled", (20,) * 20, 200, (30.0,) * 10 + (-30.0,) * 10),
        Urn("lighter-group-must-help", (1000, 1000), 100, (10.0, 0.0)),
        # no draws, all balls, one ball, all but one
        Urn("no-draws", (4, 7, 2), 0, (1.0, -2.0, 0.5)),
        Urn("no-draws-1e9", (5 * 10**8, 5 * 10**8), 0, (1.0, -2.0)),
        Urn("all-balls", (4, 7, 2), 13, (1.0, -2.0, 0.5)),
        Urn("all-balls-1e9", (10**8, 2 * 10**8, 7 * 10**8), 10**9, (50.0, -50.0, 0.0)),
        Urn("one-draw", (4, 7, 2), 1, (1.0, -2.0, 0.5)),
        Urn("one-draw-spread-50", (3, 8, 5, 1), 1, (50.0, 0.0, -50.0, 49.0)),
        Urn("one-draw-1e9", (10**8, 2 * 10**8, 7 * 10**8), 1, (3.0, 0.0, -1.0)),
        Urn("all-but-one", (4, 7, 2), 12, (1.0, -2.0, 0.5)),
        Urn("all-but-one-spread-50", (3, 8, 5, 1), 16, (50.0, 0.0, -50.0, 49.0)),
        Urn("all-but-one-1e9", (10**8, 2 * 10**8, 7 * 10**8), 10**9 - 1, (3.0, 0.0, -1.0)),
        Urn("empty-urn", (0, 0), 0, (1.0, 2.0)),
        # empty groups, single groups, groups that are never drawn
        Urn("empty-group-first", (0, 6, 9), 5, (2.0, 0.0, -1.0)),
        Urn("empty-group-middle", (6, 0, 9), 5, (2.0, 50.0, -1.0)),
        Urn("empty-group-last-1e9", (4 * 10**8, 6 * 10**8, 0), 10**8, (2.0, -1.0, 0.0)),
        Urn("only-one-group-holds-balls", (0, 12, 0), 7, (2.0, 0.0, -1.0)),
        Urn("single-group", (10,), 4, (0.7,)),
        Urn("single-group-all", (10,), 10, (-3.0,)),
        Urn("single-group-none", (10,), 0, (-3.0,)),
        Urn("single-group-1e9", (10**9,), 123_456_789, (50.0,)),
        Urn("never-drawn-first", (5, 6, 7), 9, (NEVER, 0.3, -0.4)),
        Urn("never-drawn-middle", (5, 6, 7), 9, (0.3, NEVER, -0.4)),
        Urn("never-drawn-rest-must-fill", (5, 6, 7), 12, (1.0, NEVER, -2.0)),
        Urn("never-drawn-all-but-one", (5, 6, 7), 6, (NEVER, 2.0, NEVER)),
        Urn("never-drawn-none-drawn", (5, 6), 0, (NEVER, NEVER)),
        Urn("never-drawn-1e9", (10**8, 4 * 10**8, 5 * 10**8), 2 * 10**8, (1.0, NEVER, -1.0)),
        Urn("never-drawn-zero-odds", (5, 5), 3, (NEVER, 0.0)),
        # equal weights: the central law; sizes chosen so that several outcomes tie for the mode
        Urn("equal-weights-3x3-tie", (3, 3), 3, (0.0, 0.0)),
        Urn("equal-weights-5-11-tie", (5, 11), 8, (0.0, 0.0)),
        Urn("equal-weights-11-5-tie", (11, 5), 8, (0.0, 0.0)),
        Urn("equal-weights-1x4-tie", (1, 1, 1, 1), 2, (-3.0, -3.0, -3.0, -3.0)),
        Urn("equal-weights-2-5-8-tie", (2, 5, 8), 5, (0.7, 0.7, 0.7)),
        Urn("equal-weights-19-29-tie", (19, 29), 14, (2.5, 2.5)),
        Urn("equal-weights-1e9-tie", (10**8 - 1, 9 * 10**8 - 1), 123_456_789, (0.0, 0.0)),
        Urn("equal-weights-1e9-tie-swapped", (9 * 10**8 - 1, 10**8 - 1), 123_456_789, (0.0, 0.0)),
        Urn("equal-weights-c200-tie", (7,) * 200, 333, (1.25,) * 200),
        Urn("equal-weights-10-20-30", (10, 20, 30), 15, (0.0, 0.0, 0.0)),
        Urn("equal-weights-50", (8, 9, 10), 13, (50.0, 50.0, 50.0)),
        # values quoted by other packages, and the urns on which they fail
        Urn("biasedurn-univariate", (10, 15), 12, (math.log(2.5), 0.0)),
        Urn("biasedurn-three-colours", (10, 7, 8), 9, (0.0, math.log(2.0), math.log(0.5))),
        Urn("scipy-aborts-odds-1e155", (5, 5), 3, (math.log(1e155), 0.0)),
        Urn("scipy-minus-infinity-odds-1e-6", (200, 400), 180, (math.log(1e-6), 0.0)),
        Urn("scipy-overflows-int32", (3_000_000_000, 4_000_000_000), 1_000_000, (0.5, 0.0)),
        Urn("paper-200x3-odds-2", (200, 200, 200), 180, (0.0, math.log(2.0), 0.0)),
        Urn("paper-200x3-odds-10", (200, 200, 200), 180, (0.0, math.log(10.0), 0.0)),
        Urn("titanic", titanic, 711, (1.8, 0.9, 0.0, -0.2)),
        # beyond int32, up to ten billion balls
        Urn("above-int32-one-group", (2**31 + 11, 1000, 17), 2**31, (0.1, 0.0, -0.1)),
        Urn("above-int32-few-draws", (2**33, 2**20, 5), 50, (-9.0, 0.0, 4.0)),
        Urn("1e10-three-groups", (6 * 10**9, 3 * 10**9, 10**9), 4 * 10**9, (0.3, -0.8, 2.0)),
        Urn("1e10-spread-50", (6 * 10**9, 3 * 10**9, 10**9), 7 * 10**9, (50.0, -50.0, 0.0)),
        Urn("1e10-equal-weights", (10**9,) * 10, 3 * 10**9, (0.0,) * 10),
        # log-weights of ±300, whose odds leave the range of float32 and whose products leave that
        # of float64
        Urn("extreme-5x3", (5, 5, 5), 5, (300.0, 0.0, -300.0)),
        Urn("extreme-5x3-one-more", (5, 5, 5), 6, (300.0, 0.0, -300.0)),
        Urn("extreme-two-groups", (12, 9), 10, (300.0, -300.0)),
        Urn("extreme-two-groups-swapped", (12, 9), 10, (-300.0, 300.0)),
        Urn("extreme-common-offset", (12, 9, 14), 17, (299.0, 300.0, 298.5)),
        Urn("extreme-common-negative-offset", (12, 9, 14), 17, (-299.0, -300.0, -298.5)),
        Urn("extreme-1e6", (10**6, 10**6, 10**6), 1_500_000, (300.0, 0.0, -300.0)),
        Urn("extreme-1e9", (3 * 10**8, 3 * 10**8, 4 * 10**8), 450_000_000, (300.0, 299.0, -300.0)),
        Urn("extreme-subset", (1,) * 30, 11, tuple(300.0 - 20.0 * i for i in range(30))),
    ]


def _split(
    rng: np.random.Generator, population: int, groups: int, evenness: float
) -> tuple[int, ...]:
    """``population`` balls in ``groups`` groups of at least one ball; a small ``evenness`` makes a
    few groups hold nearly all.
    """
    shares = rng.dirichlet(np.full(groups, evenness))
    sizes = [1 + int(share * (population - groups)) for share in shares]
    sizes[int(np.argmax(shares))] += population - sum(sizes)
    return tuple(sizes)


def _log_weights(rng: np.random.Generator, groups: int, spread: float) -> tuple[float, ...]:
    return tuple(float(lw) for lw in rng.uniform(-spread, spread, groups))


def _random() -> list[Urn]:
    rng = np.random.default_rng(20_230_501)
    urns: list[Urn] = []

    def add(kind: str, sizes: Sequence[int], draws: int, log_weights: Sequence[float]) -> None:
        name = f"{kind}-c{len(sizes)}-N{sum(sizes):.0e}-n{draws:.0e}".replace("e+0", "e").replace(
            "e+", "e"
        )
        urns.append(Urn(f"{name}-{len(urns)}", tuple(sizes), draws, tuple(log_weights)))

    for spread in (0.5, 2.0, 10.0, 50.0):  # small enough to enumerate: c = 1..6
        for groups in (1, 2, 2, 3, 3, 4, 4, 5, 5, 6):
            largest = {1: 60, 2: 60, 3: 30, 4: 12, 5: 7, 6: 5}[groups]
            sizes = [int(m) for m in rng.integers(1, largest + 1, groups)]
            add(
                f"small-spread{spread:g}",
                sizes,
                int(rng.integers(0, sum(sizes) + 1)),
                _log_weights(rng, groups, spread),
            )
    for spread in (1.0, 5.0, 20.0, 50.0):  # too many outcomes to enumerate
        for groups, population in (
            (2, 10**5),
            (3, 3000),
            (5, 10**4),
            (8, 500),
            (10, 10**5),
            (20, 2000),
            (50, 10**4),
            (100, 5000),
        ):
            sizes = _split(rng, population, groups, 2.0)
            add(
                f"medium-spread{spread:g}",
                sizes,
                int(rng.integers(1, population)),
                _log_weights(rng, groups, spread),
            )
    for spread in (1.0, 5.0, 20.0, 50.0):  # up to 1e9 balls, few draws to nearly all of them
        for groups, population in (
            (2, 10**9),
            (3, 10**6),
            (3, 10**9),
            (4, 10**8),
            (5, 10**9),
            (10, 10**7),
            (30, 10**9),
            (200, 10**9),
        ):
            sizes = _split(rng, population, groups, 0.7)
            fraction = float(rng.choice([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999]))
            add(
                f"large-spread{spread:g}",
                sizes,
                max(1, round(fraction * population)),
                _log_weights(rng, groups, spread),
            )
    for groups, population in (
        (2, 10**9),
        (7, 10**9),
        (60, 10**8),
        (200, 10**6),
    ):  # a group far larger than all the others
        sizes = _split(rng, population, groups, 0.05)
        add("uneven", sizes, population // 3, _log_weights(rng, groups, 6.0))
    for groups, population in (
        (2, 10**9),
        (3, 10**9),
        (10, 10**6),
        (50, 10**9),
        (200, 10**9),
        (200, 2000),
    ):  # Vandermonde reduces c to 1
        sizes = _split(rng, population, groups, 3.0)
        add("one-weight", sizes, int(rng.integers(1, population)), (float(rng.normal()),) * groups)
    for groups, population in (
        (2, 10**9),
        (3, 10**7),
        (10, 10**6),
        (50, 10**8),
        (200, 10**9),
        (200, 10**4),
    ):  # ... and here to 2
        sizes, pair = _split(rng, population, groups, 3.0), _log_weights(rng, 2, 4.0)
        add(
            "two-weights",
            sizes,
            int(rng.integers(1, population)),
            [pair[i % 2] for i in range(groups)],
        )
    for groups, population in (
        (3, 10**9),
        (9, 10**9),
        (60, 10**9),
        (200, 10**9),
    ):  # three weights and one size per weight
        triple = _log_weights(rng, 3, 3.0)
        add(
            "three-weights",
            [population // groups] * groups,
            int(rng.integers(1, population)),
            [triple[i % 3] for i in range(groups)],
        )
    subsets = (
        (4, 1.0),
        (8, 50.0),
        (12, 5.0),
        (20, 1.0),
        (20, 50.0),
        (50, 3.0),
        (100, 1.0),
        (100, 20.0),
        (200, 1.0),
        (200, 50.0),
    )
    for groups, spread in subsets:
        add(
            f"subset-spread{spread:g}",
            (1,) * groups,
            int(rng.integers(1, groups)),
            _log_weights(rng, groups, spread),
        )
    for groups in (20, 200):
        add("subset-equal-weights", (1,) * groups, groups // 3, (0.0,) * groups)
        add("subset-of-one", (1,) * groups, 1, _log_weights(rng, groups, 5.0))
        add("subset-all-but-one", (1,) * groups, groups - 1, _log_weights(rng, groups, 5.0))
    ladders = (
        (4, 20.0, 400),
        (6, 15.0, 10**4),
        (10, 10.0, 10**6),
        (5, 24.0, 10**9),
        (50, 1.9, 500),
        (200, 0.5, 10**8),
    )
    for groups, gap, population in ladders:
        ladder = rng.permutation(
            groups
        )  # weights on a ladder, and n fills the heaviest half exactly
        sizes = _split(rng, population, groups, 2.0)
        weights = [gap * (int(step) - (groups - 1) / 2) for step in ladder]
        filled = sum(m for m, step in zip(sizes, ladder, strict=True) if step >= groups // 2)
        add(f"filled-gap{gap:g}", sizes, filled, weights)
    for groups in (2, 3, 10, 40):  # some groups empty, some never drawn
        sizes = [int(m) for m in rng.integers(0, 2000, groups)]
        sizes[int(rng.integers(groups))] = 0
        weights = list(_log_weights(rng, groups, 5.0))
        weights[int(rng.integers(groups))] = NEVER
        total = sum(m for m, lw in zip(sizes, weights, strict=True) if lw != NEVER)
        add("gaps", sizes, total // 2, weights)
    return urns


URNS: tuple[Urn, ...] = (*_hand_picked(), *_random())
SMALL = tuple(urn for urn in URNS if urn.population <= 10**4 and support_size(urn) <= ENUMERABLE)
LARGE = tuple(urn for urn in URNS if urn.population >= 10**6)
EXTREME = tuple(urn for urn in URNS if urn.largest_log_weight > 51)
FEW_WEIGHTS = tuple(urn for urn in URNS if urn.distinct_weights <= 2)
SUBSETS = tuple(urn for urn in URNS if set(urn.group_sizes) == {1})


def by_name(name: str) -> Urn:
    """The urn of that name."""
    return next(urn for urn in URNS if urn.name == name)


def disturbed(urn: Urn, scale: float) -> Urn:
    """The same urn with other log-weights; three steps repeat over the groups, so that equal
    weights stay few.
    """
    steps = (0.83, -0.41, 0.17)
    log_weights = tuple(lw + scale * steps[j % 3] for j, lw in enumerate(urn.log_weights))
    return replace(urn, name=f"{urn.name}-disturbed-{scale:g}", log_weights=log_weights)


def tilted_means(urn: Urn) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the independent binomials whose means sum to n: where the
    urn's outcomes lie, roughly.
    """
    sizes, log_weights = (
        np.array(urn.drawable, dtype=float),
        np.array([0.0 if lw == NEVER else lw for lw in urn.log_weights]),
    )
    low, high = -log_weights.max() - 800.0, -log_weights.min() + 800.0
    for _ in range(200):
        middle = (low + high) / 2
        share = 0.5 * (1 + np.tanh((middle + log_weights) / 2))
        low, high = (middle, high) if (sizes * share).sum() < urn.draws else (low, middle)
    return sizes * share, np.sqrt(sizes * share * (1 - share))


def _complete(urn: Urn, counts: np.ndarray, order: Sequence[int]) -> tuple[int, ...]:
    """Integers near ``counts`` within the group sizes; what is missing from n, or too much, is
    settled in ``order``.
    """
    whole = [min(max(round(float(x)), 0), m) for x, m in zip(counts, urn.drawable, strict=True)]
    missing = urn.draws - sum(whole)
    for j in order:
        step = min(missing, urn.drawable[j] - whole[j]) if missing > 0 else max(missing, -whole[j])
        whole[j] += step
        missing -= step
    return tuple(whole)


def probe_counts(urn: Urn, near: int = 3, seed: int = 0) -> list[tuple[int, ...]]:
    """Distinct outcomes of an urn: the rounded mean, ``near`` random ones around it, shifts by 6,
    30 and 300 sd, and the two extremes.
    """
    rng = np.random.default_rng([seed, urn.groups, urn.draws])
    mean, deviation = tilted_means(urn)
    by_spread = [int(j) for j in np.argsort(-deviation)]
    heaviest_first = sorted(range(urn.groups), key=lambda j: -urn.log_weights[j])
    pull = deviation**2 / max(float((deviation**2).sum()), 1e-300)
    probes = [_complete(urn, mean, by_spread)]
    for scale in [1.0] * near + [6.0, 30.0, 300.0]:
        step = scale * deviation * rng.standard_normal(urn.groups)
        probes.append(_complete(urn, mean + step - pull * step.sum(), by_spread))
    probes.append(_complete(urn, np.zeros(urn.groups), heaviest_first))
    probes.append(_complete(urn, np.zeros(urn.groups), heaviest_first[::-1]))
    return list(dict.fromkeys(probes))
