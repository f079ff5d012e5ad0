"""Triton kernels that draw: from tables exactly what NumPy draws with the same random words, by
rejection the exact law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher import moments
from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.sampling import tables
from diffurn._fisher.sampling.tables import AliasTables, PlainUrns
from diffurn._fisher.sampling.tree import Outcomes, Tree
from support import samplers
from support.distributions import assert_possible
from support.goodness import Yardstick, tilted_log_odds
from support.kernels import DEVICE, INTERPRETED, recorded, with_kernels
from support.philox import SEED, fixed_seed, philox
from support.urns import URNS, Urn, by_name

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip(
        "the kernels need a CUDA device, or TRITON_INTERPRET=1 to run without one",
        allow_module_level=True,
    )

import triton
import triton.language as tl

from diffurn._kernels import sampling as kernels
from diffurn._kernels import subsets
from diffurn._kernels.shared import log1p

pytestmark = [
    pytest.mark.needs("triton"),
    pytest.mark.filterwarnings(
        "ignore:.*encountered in:RuntimeWarning"
    ),  # the interpreter's NumPy, on what is masked afterwards
]
DRAWS = 10_000 if INTERPRETED else 10_000_000
# With a fresh seed and right kernels the probability that any test of this file fails is this;
# CASES p-value lists share it.
FALSE_ALARM = 1e-4
DTYPES = [torch.float32, torch.float64]


if INTERPRETED:  # it takes as long for a program of a hundred thousand entries as for one of ten
    subsets.PROPOSED = 1 << 17
    kernels.PROPOSED, kernels.OF_LONG_ROWS["ROWS"] = 1 << 17, 1 << 5
    kernels.OF_OUTCOMES["BLOCK"] = kernels.OF_CHAINS["BLOCK"] = 1 << 13


def tilted(urn: Urn) -> tuple[Tensor, Tensor, Tensor]:
    return samplers.tilted(urn, torch.device("cpu"))


@contextmanager
def in_tiles() -> Iterator[None]:
    """Few groups are many: two fill a tile of the kernel for long rows."""
    tile = {"GROUPS": 2, "ROWS": 1 << 14 if INTERPRETED else 1, "num_warps": 1}
    with patch.multiple(kernels, MOST_GROUPS=0, OF_LONG_ROWS=tile):
        yield


@pytest.fixture(params=["in_registers", "in_tiles"])
def either_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "in_registers":
        yield
        return
    with in_tiles():
        yield


def each(
    urn: Urn, number: int, dtype: torch.dtype = torch.float64, module: Any = kernels
) -> Tensor:
    """Of one urn, shape (number, c)."""
    operands = (operand.unsqueeze(0).to(DEVICE) for operand in tilted(urn))
    return module.draw_each(*operands, number, dtype).squeeze(1).cpu()


# --------------------------------------------------------------------------------------------------
# Tables: the same words, the same draws
# --------------------------------------------------------------------------------------------------


def test_philox_gives_its_published_words() -> None:
    assert [f"{int(w[0]):08x}" for w in philox(0, np.zeros(1))] == [
        "6627e8d5",
        "e169c58d",
        "bc57ac4c",
        "9b00dbd8",
    ]
    ones = np.array([0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    words = philox(0xFFFFFFFFFFFFFFFF, ones, 0xFFFFFFFF, 0xFFFFFFFF)
    assert [f"{int(w[0]):08x}" for w in words] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def bits(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return (((high << np.uint64(32)) | low) >> np.uint64(1)).astype(np.int64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name", ["paper-200x3-odds-10", "biasedurn-univariate", "equal-weights-1x4-tie"]
)
def test_outcomes_are_those_that_the_random_words_choose(name: str, dtype: torch.dtype) -> None:
    number, half = 20_001, kernels.OF_OUTCOMES["BLOCK"]
    outcomes = Outcomes.build(*tilted(by_name(name)), dtype)
    counts = torch.full((number, outcomes.counts.shape[-1]), -1, dtype=dtype, device=DEVICE)
    table = kernels.OutcomesOnDevice.of(outcomes, DEVICE)
    with fixed_seed():
        table.fill(counts)

    draw = np.arange(number)
    words = np.stack(philox(SEED, draw // (2 * half) * half + draw % half))
    second = draw // half % 2 == 1
    chosen = bits(*np.where(second, words[2:], words[:2]))
    place = chosen >> outcomes.lookup.shift
    choice = 2 * place + (chosen >= outcomes.lookup.limits.numpy()[place])
    assert torch.equal(counts.cpu(), outcomes.counts[choice])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name", ["titanic", "single-group", "gaps-c10-N9e3-n4e3-148", "almost-sure-1e9-near-poisson"]
)
def test_chains_are_walked_as_the_random_words_say(name: str, dtype: torch.dtype) -> None:
    urn, number = by_name(name), 10_001
    if dtype == torch.float32 and urn.draws > 2**24:
        pytest.skip("float32 does not hold these counts")
    chain = Tree.build(*tilted(urn), chain=True)
    counts = torch.full((number, urn.groups), -1, dtype=dtype, device=DEVICE)
    table = kernels.ChainOnDevice.of(chain, DEVICE)
    with fixed_seed():
        table.fill(counts)
    assert_possible(counts.cpu(), urn)

    rest, node = np.full(number, urn.draws), chain.root
    for j in range(urn.groups - 1):
        assert node is not None
        chosen = bits(*philox(SEED, np.arange(number), j)[:2])
        place = (rest - node.lowest_total) * node.lookup.places + (chosen >> node.lookup.shift)
        own = node.lookup.choices.numpy()[2 * place + (chosen >= node.lookup.limits.numpy()[place])]
        assert (counts[:, j].cpu().numpy() == own).all()
        rest, node = rest - own, node.right
    assert (counts[:, -1].cpu().numpy() == rest).all()


# --------------------------------------------------------------------------------------------------
# Rejection: its parts, without chance
# --------------------------------------------------------------------------------------------------


@triton.jit
def _log_pmf_kernel(k, size, logit, remainders, value, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m, rarer = tl.load(size + i), -tl.abs(tl.load(logit + i))
    odds = tl.exp(rarer)
    log_failures = tl.log(tl.maximum(m, 1.0)) - log1p(odds)
    tl.store(
        value + i,
        kernels._log_pmf(
            tl.load(k + i),
            m,
            m * (odds / (1.0 + odds)),
            log_failures + rarer,
            log_failures,
            remainders,
        ),
    )


SIZES_AND_LOGITS = [
    (1, 0.0),
    (7, -0.3),
    (40, -4.0),
    (200, -1.2),
    (10**4, -0.01),
    (10**6, -9.0),
    (10**9, -1e-9),
    (10**10, -17.0),
    (9, -300.0),
]


def test_binomial_masses_are_exact() -> None:
    """Up to a factor that the mode has too; compared with forty digits. What is lost at m = 10⁹ is
    the rounding of the expected count.
    """
    cases = []
    with mpmath.workdps(40):
        for m, logit in SIZES_AND_LOGITS:
            odds = mpmath.exp(logit)
            mode = int(mpmath.floor((m + 1) * odds / (1 + odds)))
            deviation = math.sqrt(m * float(odds)) + 1
            for steps in (0, 0.5, 1, -1, 3, -3, 8, 20, math.inf, -math.inf):
                k = int(min(max(mode + steps * deviation, 0), m))
                ratio = (
                    mpmath.loggamma(mode + 1)
                    + mpmath.loggamma(m - mode + 1)
                    - mpmath.loggamma(k + 1)
                    - mpmath.loggamma(m - k + 1)
                )
                cases += [(m, logit, mode, k, float(ratio + (k - mode) * mpmath.mpf(logit)))]
    m, logit, mode, k, exact = (
        torch.tensor(column, dtype=torch.float64, device=DEVICE)
        for column in zip(*cases, strict=True)
    )
    size = triton.next_power_of_2(len(cases))
    found = []
    for count in (k, mode):
        arguments = [
            torch.nn.functional.pad(values, (0, size - len(cases))) for values in (count, m, logit)
        ]
        value = torch.empty(size, dtype=torch.float64, device=DEVICE)
        _log_pmf_kernel[(1,)](*arguments, kernels._remainders(DEVICE), value, size)
        found.append(value[: len(cases)])
    torch.testing.assert_close(found[0] - found[1], exact, rtol=2e-11, atol=1e-12)


@triton.jit
def _hat_kernel(size, p, a, b, alpha, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    own_a, own_b, own_alpha = kernels._hat(tl.load(size + i), tl.load(p + i))
    tl.store(a + i, own_a)
    tl.store(b + i, own_b)
    tl.store(alpha + i, own_alpha)


def test_the_hat_covers_the_binomial_law() -> None:
    """If nowhere f(k(u)) (a/us² + b) / α > f(mode), every count is proposed as often as it should;
    the means start at the least, 10.
    """
    means, probabilities = np.meshgrid(
        [10.0, 10.3, 10.7, 11.0, 13.0, 20.0, 50.0, 300.0, 1e4], [0.5, 0.4, 0.2, 0.05, 1e-3, 1e-6]
    )
    p = probabilities.ravel()
    m = np.ceil(means.ravel() / p)
    size = triton.next_power_of_2(len(m))
    constants = [torch.empty(size, dtype=torch.float64, device=DEVICE) for _ in range(3)]
    padded = [
        torch.nn.functional.pad(torch.tensor(values, device=DEVICE), (0, size - len(m)), value=0.5)
        for values in (m, p)
    ]
    _hat_kernel[(1,)](*padded, *constants, size)
    a, b, alpha = (values[: len(m), None].cpu().numpy() for values in constants)
    m, p = m[:, None], p[:, None]

    us = np.concatenate([np.linspace(1e-5, 0.5, 50_001), np.geomspace(1e-12, 1e-4, 500)])
    mode, log_odds = np.floor((m + 1) * p), np.log(p) - np.log1p(-p)
    for sign in (-1, 1):
        k = np.floor((2 * a / us + b) * sign * (0.5 - us) + m * p + 0.5)
        inside = (k >= 0) & (k <= m)
        k = np.where(inside, k, mode)
        log_ratio = np.where(
            inside, log_factorial_ratio(m, mode, k) + (k - mode) * log_odds, -np.inf
        )
        assert (log_ratio + np.log((a / us**2 + b) / alpha) <= 0).all()


def log_factorial_ratio(m: np.ndarray, mode: np.ndarray, k: np.ndarray) -> np.ndarray:
    """log of (mode! (m - mode)!) / (k! (m - k)!)."""
    from scipy.special import gammaln

    return gammaln(mode + 1) + gammaln(m - mode + 1) - gammaln(k + 1) - gammaln(m - k + 1)


# --------------------------------------------------------------------------------------------------
# Rejection: draws by chance
# --------------------------------------------------------------------------------------------------

FITTED = [
    by_name("paper-200x3-odds-10"),
    by_name("small-spread2-c6-N2e1-n1e1-19"),
    by_name("almost-sure-5x3-one-more"),
    Urn("1e6x3", (10**6,) * 3, 1_100_000, (0.0, 1.2, -0.7)),
    Urn("30x9", (30,) * 9, 120, tuple(0.5 * j - 2.0 for j in range(9))),
    by_name("above-int32-few-draws"),
]
FITTED_IN_TILES = [*FITTED[:3], Urn("30x4", (30,) * 4, 50, (0.5, -1.0, 0.0, 0.3))]
SUBSETS = [
    Urn("1x9", (1,) * 9, 4, tuple(0.5 * j - 2.0 for j in range(9))),
    Urn("1x8-with-empty", (1, 1, 0, 1, 1, 0, 1, 1), 3, (3.0, 0.1, 5.0, -2.0, 9.0, 0.0, -0.4, 1.0)),
    Urn("1x6-all-but-one", (1,) * 6, 5, (0.0, 1.0, -1.0, 6.0, -6.0, 0.3)),
    Urn("1x2", (1,) * 2, 1, (0.0, -1.5)),
]
CASES = len(FITTED) + len(FITTED_IN_TILES) + len(SUBSETS) + 1


@pytest.mark.parametrize("urn", FITTED, ids=str)
def test_single_groups_and_pairs_follow_the_law(urn: Urn) -> None:
    counts = each(urn, DRAWS if urn.groups < 9 else DRAWS // 4)
    assert_possible(counts, urn)
    p_values = Yardstick(urn).p_values([counts.numpy().astype(np.int64)])
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


@pytest.mark.parametrize("urn", FITTED_IN_TILES, ids=str)
def test_groups_and_pairs_of_long_rows_follow_the_law(urn: Urn) -> None:
    """Also pairs from different tiles, which must not share their random words."""
    with in_tiles():
        counts = each(urn, DRAWS)
    assert_possible(counts, urn)
    p_values = Yardstick(urn).p_values([counts.numpy().astype(np.int64)])
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


@pytest.mark.parametrize("urn", SUBSETS, ids=str)
def test_single_balls_follow_the_law(urn: Urn) -> None:
    counts = each(urn, DRAWS, module=subsets)
    assert_possible(counts, urn)
    p_values = Yardstick(urn).p_values([counts.numpy().astype(np.int64)])
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


@pytest.mark.parametrize(("size", "draws"), [(1, 0), (1, 70), (0, 0)])
def test_single_balls_that_are_certain_are_drawn(size: int, draws: int) -> None:
    urn = Urn("certain", (size,) * 70, draws, tuple(0.1 * j for j in range(70)))
    assert (each(urn, 3, module=subsets) == draws / 70).all()


def test_a_thousand_single_balls_fit_one_program() -> None:
    rng = np.random.default_rng(4)
    urn = Urn("1x1024", (1,) * 1024, 400, tuple(rng.normal(0.0, 2.0, 1024).tolist()))
    counts = each(urn, 4, torch.float32, subsets)
    assert_possible(counts, urn)
    expected = (1 / (1 + np.exp(-tilted_log_odds(urn)))).astype(float)
    assert np.corrcoef(counts.sum(0).numpy(), expected)[0, 1] > 0.7


def test_rows_without_a_number_of_balls_are_not_a_number() -> None:
    log_odds = torch.full((2, 40), math.log(5 / 35), dtype=torch.float64, device=DEVICE)
    draws = torch.tensor([5.0, math.nan], dtype=torch.float64, device=DEVICE)
    counts = subsets.draw_each(log_odds, torch.ones_like(log_odds), draws, 2, torch.float64)
    assert counts[:, 1].isnan().all()
    assert (counts[:, 0].sum(-1) == 5).all()


@triton.jit
def _limits_kernel(words, further, high, low, found, N: tl.constexpr, DECIDES: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    word, rest = tl.load(words + i).to(tl.uint32), tl.load(further + i).to(tl.uint32)
    below = subsets._is_below(word, rest, tl.load(high + i), tl.load(low + i), DECIDES)
    tl.store(found + i, below.to(tl.int64))


def test_ties_of_the_first_bits_are_decided_by_further_ones() -> None:
    """A number of 64 random bits, in two words, is compared with a limit up to 2⁶⁴."""
    edges = [0, 1, 5, 2**31, 2**32 - 1]
    pairs = [
        (word, rest, limit)
        for word in edges
        for rest in edges
        for limit in (0, 5, 2**32, 2**32 + 5, 2**63 + 1, 2**64 - 1, 2**64)
    ]
    pairs += [(0, 0, 0)] * (256 - len(pairs))
    columns = [(w, r, limit >> 32, limit & 0xFFFFFFFF) for w, r, limit in pairs]
    words = torch.tensor(columns, device=DEVICE).T.contiguous()
    found = torch.empty_like(words[0])
    for decides in (True, False):
        _limits_kernel[(1,)](*words, found, N=256, DECIDES=decides)
        kept = 0xFFFFFFFF if decides else 0
        expected = [
            (w << 32 | r & kept) < (limit if decides else limit >> 32 << 32)
            for w, r, limit in pairs
        ]
        assert found.tolist() == expected


def test_draws_of_many_different_urns_follow_their_laws() -> None:
    """Standardised by the exact mean and variance of each urn, single groups add up to standard
    normal numbers.
    """
    rng = np.random.default_rng(5)
    urns = min(DRAWS, 100_000)
    sizes = torch.tensor(rng.integers(0, 300, (urns, 3)))
    draws = torch.tensor(rng.integers(1, np.maximum(sizes.sum(-1).numpy(), 2)))
    log_weights = torch.tensor(rng.normal(0.0, 2.0, (urns, 3)))
    urn = FisherHypergeometric(sizes, draws.minimum(sizes.sum(-1)), log_weights=log_weights)
    operands = [operand.to(DEVICE) for operand in _dispatch.fisher(urn).tilted]
    counts = kernels.draw_each(*operands, 1, torch.float64)[0].cpu()
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    assert (counts.sum(-1) == urn.draws).all()
    variance = urn.variance
    for j in range(3):
        spread = variance[:, j] > 0.05
        z = ((counts - urn.mean)[spread, j] / variance[spread, j].sqrt()).numpy()
        assert abs(z.sum() / math.sqrt(len(z))) < 5.0  # P < 1e-6 each
        assert abs((z**2 - 1).sum() / math.sqrt(len(z) * np.var(z**2))) < 5.0


def assert_all_urns_of_a_batch_are_possible(groups: int) -> None:
    urns = [urn for urn in URNS if urn.groups == groups]
    operands = [torch.stack(values).to(DEVICE) for values in zip(*map(tilted, urns), strict=True)]
    counts = kernels.draw_each(*operands, 50, torch.float64).cpu()
    assert counts.shape == (50, len(urns), groups)
    for urn, own in zip(urns, counts.unbind(1), strict=True):
        assert_possible(own, urn)


@pytest.mark.parametrize("groups", [1, 2, 3, 20])
def test_every_draw_is_possible_and_urns_of_one_batch_do_not_mix(groups: int) -> None:
    assert_all_urns_of_a_batch_are_possible(groups)


def test_long_rows_are_possible_and_urns_of_one_batch_do_not_mix() -> None:
    with in_tiles():
        assert_all_urns_of_a_batch_are_possible(5)


def test_a_thousand_groups_fit_one_program() -> None:
    urn = Urn(
        "3x1000", (3,) * 1000, 1234, tuple(np.random.default_rng(3).normal(0.0, 1.0, 1000).tolist())
    )
    counts = each(urn, 4, torch.float32)
    assert counts.dtype == torch.float32
    assert_possible(counts, urn)
    expected = (3 / (1 + np.exp(-tilted_log_odds(urn)))).astype(float)
    assert np.corrcoef(counts.sum(0).numpy(), expected)[0, 1] > 0.7


def test_more_groups_than_one_program_holds_are_drawn_by_kernels_too() -> None:
    """Sums over groups, standardised by their exact mean and variance, are standard normal numbers
    when they are added up.
    """
    number, groups = 32 if INTERPRETED else 10_000, 1500
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 7, groups)
    sizes[1200] = 3000  # most of the spread: few rounds
    urn = Urn(
        "0-to-6x1500", tuple(sizes.tolist()), 2500, tuple(rng.normal(0.0, 1.0, groups).tolist())
    )
    operands = [operand.to(DEVICE) for operand in tilted(urn)]
    counts = each(urn, number).to(DEVICE)
    assert_possible(counts.cpu(), urn)
    mean = moments.mean_value.__wrapped__(*operands)
    places = torch.arange(groups, dtype=torch.float64, device=DEVICE)
    for statistic in (
        operands[0],
        places,
        (places < kernels.MOST_GROUPS).double(),
        (places == 1200).double(),
    ):
        variance = (statistic * moments.covariance_product.__wrapped__(*operands, statistic)).sum()
        z = ((counts - mean) * statistic).sum() / (number * variance).sqrt()
        assert abs(float(z)) < 5.0  # P < 1e-6 each


# --------------------------------------------------------------------------------------------------
# Where they are launched
# --------------------------------------------------------------------------------------------------


def on_device(name: str, copies: tuple[int, ...] = ()) -> FisherHypergeometric:
    urn = by_name(name)
    log_weights = torch.tensor(urn.log_weights, device=DEVICE).repeat(*copies, 1)
    return FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)


@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("biasedurn-three-colours", 4_000_000, "outcomes"),
        ("titanic", 100_000_000, "chain"),
        ("subset-of-one-c200-N2e2-n1e0-138", 100_000_000, "tree"),
    ],
)
def test_many_draws_on_a_gpu_come_from_tables_for_kernels(
    name: str, number: int, kind: str
) -> None:
    with with_kernels():
        law = _dispatch.fisher_for_draws(on_device(name), number)
    assert isinstance(law, AliasTables)
    assert law.kind == kind


@pytest.mark.parametrize(
    ("kind", "copies", "used"),
    [
        ("outcomes", (), kernels.OutcomesOnDevice),
        ("outcomes", (2,), kernels.OutcomesOnDevice),
        ("chain", (), kernels.ChainOnDevice),
        ("chain", (2,), kernels.ChainOnDevice),
    ],
)
def test_tables_draw_by_kernels(kind: str, copies: tuple[int, ...], used: type) -> None:
    name, number = "biasedurn-three-colours" if kind == "outcomes" else "titanic", 4000
    operands = on_device(name, copies)._operands()
    law = AliasTables(PlainUrns.read(*operands), kind, *operands)
    tables._kept_table.cache_clear()
    with with_kernels():
        table = tables._kept_table(law.urns.rows[0], kind, torch.float32, DEVICE, False)
        counts = law.sample(number, torch.float32)
    tables._kept_table.cache_clear()
    assert type(table) is used
    assert counts.dtype == torch.float32
    assert counts.shape == (number, *copies, by_name(name).groups)
    assert_possible(counts.cpu(), by_name(name))


@pytest.mark.parametrize(("copies", "number"), [((3,), 5), ((3, 2), 0)])
def test_few_draws_of_each_urn_are_made_by_the_kernel(copies: tuple[int, ...], number: int) -> None:
    """The one that `kernels.draw_each` launches, with the same seed."""
    urn = on_device("titanic", copies)
    with with_kernels():
        law = _dispatch.fisher_for_draws(urn, number)
        assert type(law) is Quadrature
        torch.manual_seed(4)
        counts = law.sample(number, torch.float32)
        torch.manual_seed(4)
        rows = [operand.reshape(-1, *operand.shape[len(copies) :]) for operand in law.tilted]
        expected = kernels.draw_each(*rows, number, torch.float32)
    assert counts.dtype == torch.float32
    assert counts.shape == (number, *copies, 4)
    assert torch.equal(counts.reshape(expected.shape), expected)
    assert_possible(counts.cpu(), by_name("titanic"))


def test_a_seed_decides_all_draws(either_kernel: None) -> None:
    urn = by_name("titanic")
    results = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        results.append((each(urn, 100), each(urn, 100)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[0][1])
    assert not torch.equal(results[0][0], results[2][0])
    assert len(results[0][0].unique(dim=0)) > 90  # rows do not share their random words


def test_nothing_is_drawn_for_no_urns(either_kernel: None) -> None:
    operands = [operand.unsqueeze(0).to(DEVICE) for operand in tilted(by_name("titanic"))]
    assert kernels.draw_each(*operands, 0, torch.float64).shape == (0, 1, 4)
    assert kernels.draw_each(*(operand[:0] for operand in operands), 3, torch.float64).shape == (
        3,
        0,
        4,
    )


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # the interpreter's NumPy
def test_an_urn_without_outcomes_gives_nan_and_ends(either_kernel: None) -> None:
    urn = FisherHypergeometric(
        [5, 5, 9], 8, weights=torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), validate_args=False
    )
    operands = [operand.to(DEVICE) for operand in _dispatch.fisher(urn).tilted]
    with patch.multiple(kernels, MOST_ROUNDS=3):
        counts = kernels.draw_each(*operands, 1, torch.float64)[0]
    assert counts[0].isnan().all()
    assert counts[1].tolist() == [0.0, 0.0, 8.0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own making
def test_draws_compile_as_one_graph(either_kernel: None) -> None:
    operands = [operand.unsqueeze(0).to(DEVICE) for operand in tilted(by_name("titanic"))]
    compiled = torch.compile(
        kernels.draw_each, fullgraph=True, backend="aot_eager" if INTERPRETED else "inductor"
    )
    assert_possible(compiled(*operands, 5, torch.float64)[:, 0].cpu(), by_name("titanic"))


@pytest.mark.skipif(INTERPRETED, reason="graphs are recorded on CUDA devices")
def test_a_recorded_graph_draws_anew_each_time() -> None:
    operands = [operand.unsqueeze(0).to(DEVICE) for operand in tilted(by_name("titanic"))]
    graph, counts = recorded(lambda: kernels.draw_each(*operands, 50, torch.float64))
    graph.replay()
    first = counts.clone()
    graph.replay()
    assert not torch.equal(first, counts)
    assert_possible(counts[:, 0].cpu(), by_name("titanic"))


@pytest.mark.skipif(
    INTERPRETED, reason="the interpreter reads addresses, which tensors under vmap do not have"
)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_draws_under_vmap_follow_the_law_of_each_urn() -> None:
    weights = torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 0.5]], dtype=torch.float64, device=DEVICE)
    counts = torch.func.vmap(
        lambda w: FisherHypergeometric([200] * 3, 100, weights=w).sample((100_000,)),
        randomness="different",
    )(weights)
    urns = FisherHypergeometric([200] * 3, 100, weights=weights)
    assert bool((counts.sum(-1) == 100).all())
    error = (counts.mean(1) - urns.mean) / (urns.variance / 100_000).sqrt()
    assert error.abs().max().item() < 6
