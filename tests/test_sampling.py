"""Draws: always possible, and of exactly the right law.

Chi-square tests look at single groups and at pairs, in both sampling regimes and both dtypes. They
cannot see a bias much below a percent: test_sampling_laws.py does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor

from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.sampling import rejection, tables
from diffurn._fisher.sampling.tables import AliasTables
from diffurn._fisher.sampling.tree import Tree
from diffurn._kernels import dispatch
from support.distributions import GeneralFisher, assert_possible
from support.goodness import Law, Yardstick, chi_square_p_value
from support.samplers import (
    FEW_OUTCOMES,
    MOST_CELLS,
    TABLED,
    by_blocks,
    by_rejection,
    by_tree,
    cells_of,
    distribution,
    drawn_from,
    outcomes_and_probabilities,
    tilted,
)
from support.urns import NEVER, URNS, Urn, by_name

DRAWS = 100_000
LARGEST_FLOAT32 = 2**24  # the largest count up to which float32 holds every integer

# The seeds are fixed, so a test that passes always passes. With a fresh seed and a right sampler,
# this is the probability that any test of this file fails: it is shared out evenly among the CASES
# (counted where they are listed) and within a case among its p-values.
FALSE_ALARM = 1e-4


# --------------------------------------------------------------------------------------------------
# Every draw is possible
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_the_tilt_makes_the_draws_typical(urn: Urn, device: torch.device) -> None:
    """Any tilt gives the right law, but unless the proposed counts sum to about n, rejection never
    ends.
    """
    log_odds, group_sizes, draws = tilted(urn, device)
    p = torch.sigmoid(log_odds)
    deviation = (group_sizes * p * (1 - p)).sum().sqrt()
    assert ((group_sizes * p).sum() - draws).abs() <= 0.51 + 3 * deviation


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_every_draw_by_rejection_is_possible(urn: Urn, device: torch.device) -> None:
    assert_possible(by_rejection(tilted(urn, device), max(20, 2000 // urn.groups)), urn)


@pytest.mark.parametrize("urn", [urn for urn in URNS if urn.groups >= 4], ids=str)
def test_every_draw_in_which_blocks_decide_is_possible(urn: Urn, device: torch.device) -> None:
    assert_possible(by_blocks(tilted(urn, device), max(20, 2000 // urn.groups)), urn)


@pytest.mark.parametrize("urn", TABLED, ids=str)
def test_every_draw_from_tables_is_possible(urn: Urn, device: torch.device) -> None:
    assert_possible(by_tree(tilted(urn, device), 2000), urn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("urn", URNS, ids=str)
def test_every_draw_of_the_distribution_is_possible(
    urn: Urn, dtype: torch.dtype, device: torch.device
) -> None:
    if dtype == torch.float32 and urn.draws > LARGEST_FLOAT32:
        with pytest.raises(ValueError, match="float64"):
            distribution(urn, device, dtype).sample()
        return
    for number in (20, 2000 // urn.groups):  # few draws, and so many that tables pay
        counts = distribution(urn, device, dtype).sample((number,))
        assert counts.dtype == dtype
        assert_possible(counts, urn)
    counts = distribution(urn, device, dtype, copies=(5, 2)).rsample()
    assert counts.dtype == dtype
    assert_possible(counts, urn)


@pytest.mark.parametrize("number", [1, 3000], ids=["one-draw-each", "many-draws-each"])
@pytest.mark.parametrize("groups", [1, 2, 3, 20])
def test_urns_of_one_batch_do_not_mix(groups: int, number: int, device: torch.device) -> None:
    """Urns from no balls to ten billion side by side: what is drawn of one must fit that one."""
    urns = [urn for urn in (URNS if number == 1 else TABLED) if urn.groups == groups]
    assert len(urns) >= 3
    sizes, draws = (
        torch.tensor([urn.group_sizes for urn in urns], device=device),
        [urn.draws for urn in urns],
    )
    log_weights = torch.tensor([urn.log_weights for urn in urns], device=device)
    counts = FisherHypergeometric(
        sizes, torch.tensor(draws, device=device), log_weights=log_weights
    ).sample((number,))
    assert counts.shape == (number, len(urns), groups)
    for urn, own in zip(urns, counts.unbind(1), strict=True):
        assert_possible(own, urn)


@pytest.mark.parametrize("urn", [urn for urn in URNS if NEVER in urn.log_weights], ids=str)
def test_groups_of_weight_zero_are_never_drawn(urn: Urn, device: torch.device) -> None:
    """Also when the zero is given as a weight, as in `weights=[1, 0]`."""
    weights = torch.tensor(urn.log_weights, device=device).exp()
    counts = FisherHypergeometric(urn.group_sizes, urn.draws, weights=weights).sample((10_000,))
    assert (counts[:, weights == 0] == 0).all()
    assert_possible(counts, urn)


@st.composite
def urns_of_any_kind(draw: st.DrawFn) -> Urn:
    groups = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(0, 30), min_size=groups, max_size=groups))
    log_weight = st.floats(-300.0, 300.0) | st.floats(-3.0, 3.0) | st.just(NEVER)
    urn = Urn(
        "drawn",
        tuple(sizes),
        0,
        tuple(draw(st.lists(log_weight, min_size=groups, max_size=groups))),
    )
    return replace(urn, draws=draw(st.integers(0, sum(urn.drawable))))


@given(urn=urns_of_any_kind())
def test_no_urn_gives_an_impossible_draw(urn: Urn, device: torch.device) -> None:
    parameters = tilted(urn, device)
    assert_possible(by_tree(parameters, 100), urn)
    assert_possible(by_rejection(parameters, 50), urn)
    assert_possible(by_blocks(parameters, 50), urn)
    assert_possible(distribution(urn, device).sample((2,)), urn)
    assert_possible(distribution(urn, device, torch.float32).sample((2,)), urn)


# --------------------------------------------------------------------------------------------------
# Draws by chance
# --------------------------------------------------------------------------------------------------


def float32_weights(urn: Urn) -> Urn:
    """The urn whose log-weights are the nearest in float32, so that one law holds for both
    dtypes.
    """
    return replace(urn, log_weights=tuple(float(np.float32(lw)) for lw in urn.log_weights))


FEW_GROUPS = [
    float32_weights(by_name(name))
    for name in (
        # a handful of balls
        "biasedurn-univariate",
        "biasedurn-three-colours",
        "equal-weights-2-5-8-tie",
        "equal-weights-1x4-tie",
        "one-draw",
        "all-but-one",
        "small-spread2-c6-N2e1-n1e1-19",
        "small-spread10-c5-N2e1-n1e1-27",
        # degenerate: all but certain, empty or never-drawn groups, log-weights of ±300
        "almost-sure-5x3-one-more",
        "almost-sure-gap-10",
        "almost-sure-ladder",
        "almost-sure-1e9-near-poisson",
        "never-drawn-first",
        "empty-group-middle",
        "extreme-common-offset",
        "subset-spread50-c8-N8e0-n4e0-125",
        # hundreds and thousands of balls
        "paper-200x3-odds-2",
        "paper-200x3-odds-10",
        "titanic",
        "medium-spread1-c8-N5e2-n4e2-43",
        "medium-spread5-c3-N3e3-n8e1-49",
        "gaps-c10-N9e3-n4e3-148",
        # up to ten billion
        "large-spread1-c3-N1e6-n5e5-73",
        "large-spread1-c3-N1e9-n1e8-74",
        "large-spread1-c5-N1e9-n1e3-76",
        "above-int32-few-draws",
    )
]
MILLIONS = [
    float32_weights(Urn("1e6x2", (10**6,) * 2, 900_000, (0.4, 0.0))),
    float32_weights(Urn("1e6x3", (10**6,) * 3, 1_100_000, (0.0, 1.2, -0.7))),
    float32_weights(
        Urn("1e6x10", (10**6,) * 10, 3_700_000, tuple(0.25 * j - 1.0 for j in range(10)))
    ),
]
MANY_GROUPS = [
    float32_weights(by_name(name))
    for name in (
        "subset-spread1-c20-N2e1-n4e0-127",
        "medium-spread1-c20-N2e3-n5e2-45",
        "subset-spread3-c50-N5e1-n2e1-129",
    )
]
FIFTY = float32_weights(by_name("medium-spread1-c50-N1e4-n6e3-46"))
THOUSAND = float32_weights(
    Urn(
        "10x1000",
        (10,) * 1000,
        4321,
        tuple(np.random.default_rng(1000).normal(0.0, 1.0, 1000).tolist()),
    )
)

WAYS: dict[str, Callable[[Urn, torch.device], Tensor]] = {
    "tables": lambda urn, device: by_tree(tilted(urn, device), DRAWS),
    "rejection": lambda urn, device: by_rejection(tilted(urn, device), DRAWS),
    "blocks": lambda urn, device: by_blocks(tilted(urn, device), DRAWS),
    "many-draws-float32": lambda urn, device: distribution(urn, device, torch.float32).sample(
        (DRAWS,)
    ),
    "many-draws-float64": lambda urn, device: distribution(urn, device, torch.float64).rsample(
        (DRAWS,)
    ),
    "one-draw-each-float32": lambda urn, device: distribution(
        urn, device, torch.float32, copies=(DRAWS,)
    ).sample(),
    "one-draw-each-float64": lambda urn, device: distribution(
        urn, device, torch.float64, copies=(DRAWS,)
    ).sample(),
}


def ways_for(urn: Urn, copies_in_float32: bool) -> list[str]:
    fits_float32 = urn.draws <= LARGEST_FLOAT32
    ways = [
        "rejection",
        "many-draws-float64",
        "one-draw-each-float32" if copies_in_float32 and fits_float32 else "one-draw-each-float64",
    ]
    ways += ["many-draws-float32"] if fits_float32 else []
    ways += ["blocks"] if urn.groups >= 4 else []
    return ways + (["tables"] if cells_of(urn) <= 4 * MOST_CELLS else [])


FITTED = [
    *(
        (urn, way)
        for i, urn in enumerate(FEW_GROUPS + MILLIONS)
        for way in ways_for(urn, copies_in_float32=i % 2 == 0)
    ),
    *(
        (urn, way)
        for urn in MANY_GROUPS
        for way in ("tables", "rejection", "blocks", "many-draws-float32")
    ),
    *((FIFTY, way) for way in ("tables", "rejection", "blocks")),
]
DIFFERENT_URNS = [
    (50_000, 1, torch.float32),
    (50_000, 1, torch.float64),
    (50, 1000, torch.float32),
    (50, 1000, torch.float64),
]
CASES = len(FITTED) + 2 + len(DIFFERENT_URNS)  # 2: a thousand groups from tables and by rejection


def assert_plausible(p_values: list[float]) -> None:
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


@cache
def yardstick(urn: Urn) -> Yardstick:
    return Yardstick(urn)


@pytest.mark.parametrize(("urn", "way"), FITTED, ids=str)
def test_single_groups_and_pairs_follow_the_law(urn: Urn, way: str, device: torch.device) -> None:
    counts = WAYS[way](urn, device)
    assert counts.shape == (DRAWS, urn.groups)
    assert_possible(counts, urn)
    assert_plausible(yardstick(urn).p_values([counts.to(torch.int64).cpu().numpy()]))


def test_a_thousand_groups_from_tables_follow_the_law(device: torch.device) -> None:
    tree = Tree.build(*tilted(THOUSAND, device))

    def batches() -> Iterator[np.ndarray]:  # all draws at once would take hundreds of megabytes
        for _ in range(8):
            counts = drawn_from(tree, 5000, device)
            assert_possible(counts, THOUSAND)
            yield counts.cpu().numpy()

    assert_plausible(yardstick(THOUSAND).p_values(batches()))


def test_a_thousand_groups_by_rejection_follow_the_law(device: torch.device) -> None:
    """Blocks of groups decide. Fewer draws, since each takes a millisecond."""
    counts = by_rejection(tilted(THOUSAND, device), 4000)
    assert_possible(counts, THOUSAND)
    assert_plausible(yardstick(THOUSAND).p_values([counts.to(torch.int64).cpu().numpy()]))


@pytest.mark.parametrize(("urns", "number", "dtype"), DIFFERENT_URNS, ids=str)
def test_draws_of_many_different_urns_follow_their_laws(
    urns: int, number: int, dtype: torch.dtype, device: torch.device
) -> None:
    """With V uniform, F(x - 1) + V P(x) is uniform whatever the law, so that urns of all kinds can
    be tested together.

    Of three groups the first, and the second given the first, say everything; their moments are
    also compared, which finds a bias that is spread over all bins.
    """
    rng = np.random.default_rng(urns)
    sizes = rng.integers(0, 41, (urns, 3))
    draws = rng.integers(0, sizes.sum(-1) + 1)
    log_weights = rng.normal(0.0, 1.5, (urns, 3)).astype(np.float32).astype(float)
    parameters = (torch.tensor(sizes), torch.tensor(draws), torch.tensor(log_weights, dtype=dtype))
    group_sizes, number_drawn, of_dtype = (parameter.to(device) for parameter in parameters)
    counts = (
        FisherHypergeometric(group_sizes, number_drawn, log_weights=of_dtype)
        .sample((number,))
        .to(torch.int64)
        .cpu()
        .numpy()
    )
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    assert (counts.sum(-1) == draws).all()

    x = np.arange(41)
    possible = x <= sizes[..., None]
    log_terms = np.where(
        possible,
        log_comb(sizes[..., None], np.where(possible, x, 0)) + x * log_weights[..., None],
        -np.inf,
    )
    terms = np.exp(log_terms - log_terms.max(-1, keepdims=True))  # C(m, x) ω^x, up to a factor
    last_two = np.zeros((urns, 81))
    for second in x:
        last_two[:, second : second + 41] += terms[:, 1, second, None] * terms[:, 2]
    p_values = []
    law_of_first = terms[:, 0] * at(last_two, draws[:, None] - x)
    law_of_first = np.broadcast_to(
        law_of_first / law_of_first.sum(-1, keepdims=True), (number, urns, 41)
    ).reshape(-1, 41)
    first, second = counts[..., 0].ravel(), counts[..., 1].ravel()
    rest = np.broadcast_to(draws, (number, urns)).ravel() - first
    law_of_second = np.tile(terms[:, 1], (number, 1)) * at(
        np.tile(terms[:, 2], (number, 1)), rest[:, None] - x
    )
    law_of_second /= law_of_second.sum(-1, keepdims=True)

    cells = np.zeros(len(first), dtype=np.int64)
    for law, count in ((law_of_first, first), (law_of_second, second)):
        own = np.take_along_axis(law, count[:, None], 1)[:, 0]
        below = (law * (x < count[:, None])).sum(-1)
        cells = 20 * cells + np.minimum(20 * (below + rng.random(len(count)) * own), 19).astype(
            np.int64
        )
        deviation = x - (law * x).sum(-1, keepdims=True)
        variance, fourth = (law * deviation**2).sum(-1), (law * deviation**4).sum(-1)
        drawn = np.take_along_axis(deviation, count[:, None], 1)[:, 0]
        p_values.append(two_sided(drawn.sum() / math.sqrt(variance.sum())))
        p_values.append(
            two_sided((drawn**2 - variance).sum() / math.sqrt((fourth - variance**2).sum()))
        )
    p_values.append(chi_square_p_value(np.bincount(cells, minlength=400), np.full(400, 1 / 400)))
    assert_plausible(p_values)


def log_comb(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


def at(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Of each row the entries at its indices, zero outside."""
    inside = (index >= 0) & (index < values.shape[1])
    return np.where(inside, np.take_along_axis(values, np.where(inside, index, 0), 1), 0.0)


def two_sided(standardised: float) -> float:
    return float(2 * stats.norm.sf(abs(standardised)))


@pytest.mark.parametrize("urn", FEW_OUTCOMES, ids=str)
def test_the_yardstick_is_right(urn: Urn) -> None:
    """What the chi-square tests compare with, against the enumeration."""
    outcomes, exact = outcomes_and_probabilities(urn)
    law = Law(urn)
    for j in range(urn.groups):
        marginal = np.bincount(outcomes[:, j], exact, minlength=urn.group_sizes[j] + 1)
        assert np.abs(law.marginal(j).at(np.arange(len(marginal))) - marginal).sum() <= 1e-12
    for i, j in zip(range(urn.groups - 1), range(1, urn.groups), strict=True):
        parity_i, parity_j = ((law.groups[k].counts % 2).astype(np.int64) for k in (i, j))
        both_odd = exact[(outcomes[:, i] % 2 == 1) & (outcomes[:, j] % 2 == 1)].sum()
        if parity_i.any() and parity_j.any():
            assert abs(law.pair(i, j, parity_i, parity_j)[1, 1] - both_odd) <= 1e-12


# --------------------------------------------------------------------------------------------------
# Seeds, shapes, graphs
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def without_c_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With them, a CPU needs no tables."""
    monkeypatch.setattr(dispatch, "HAS_NATIVE", False)


REGIMES = {
    "tables": ((), (20_000,)),
    "rejection": ((200,), (3,)),
}  # copies of the urn and draws of each


@pytest.mark.parametrize("regime", REGIMES)
def test_each_regime_has_its_sampler(
    regime: str, device: torch.device, without_c_kernels: None
) -> None:
    """So that the tests of this file reach both through the distribution, too."""
    copies, number = REGIMES[regime]
    urn = distribution(by_name("titanic"), device, copies=copies)
    law = _dispatch.fisher_for_draws(urn, math.prod(number))
    assert type(law) is (AliasTables if regime == "tables" else Quadrature)
    assert_possible(law.sample(math.prod(number), torch.float64), by_name("titanic"))


@pytest.mark.parametrize(("copies", "number"), REGIMES.values(), ids=REGIMES)
def test_a_seed_decides_all_draws(
    copies: tuple[int, ...], number: tuple[int, ...], device: torch.device
) -> None:
    urn = distribution(by_name("titanic"), device, copies=copies)
    torch.manual_seed(7)
    first, next_to_first = urn.sample(number), urn.sample(number)
    torch.manual_seed(7)
    again = urn.rsample(number)
    torch.manual_seed(8)
    other = urn.sample(number)
    assert torch.equal(first, again)
    assert not torch.equal(first, next_to_first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("copies", "number"), REGIMES.values(), ids=REGIMES)
def test_draws_in_a_fork_of_the_generator_leave_it_alone(
    copies: tuple[int, ...], number: tuple[int, ...], device: torch.device
) -> None:
    urn = distribution(by_name("titanic"), device, copies=copies)
    torch.manual_seed(7)
    undisturbed = urn.sample(number)
    torch.manual_seed(7)
    with torch.random.fork_rng():
        urn.sample(number)
    assert torch.equal(urn.sample(number), undisturbed)


@pytest.mark.parametrize(("copies", "number"), REGIMES.values(), ids=REGIMES)
def test_drawing_neither_reads_nor_sets_numpy_randomness(
    copies: tuple[int, ...], number: tuple[int, ...], device: torch.device
) -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()
    distribution(by_name("titanic"), device, copies=copies).sample(number)
    assert (np.random.get_state(legacy=False)["state"]["key"] == before).all()


@pytest.mark.parametrize(("copies", "number"), REGIMES.values(), ids=REGIMES)
def test_only_rsample_leaves_a_graph(
    copies: tuple[int, ...], number: tuple[int, ...], device: torch.device
) -> None:
    titanic = by_name("titanic")
    log_weights = (
        torch.tensor(titanic.log_weights, device=device).repeat(*copies, 1).requires_grad_()
    )
    urn = FisherHypergeometric(titanic.group_sizes, titanic.draws, log_weights=log_weights)
    assert not urn.sample(number).requires_grad
    assert urn.rsample(number).requires_grad


@pytest.mark.parametrize("method", ["sample", "rsample"])
@pytest.mark.parametrize("sample_shape", [(), (0,), (1,), (2, 3), (4, 0, 2)], ids=str)
@pytest.mark.parametrize("batch_shape", [(), (1,), (5,), (3, 2), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("name", ["titanic", "single-group", "equal-weights-1x4-tie"])
def test_draws_have_the_shape_of_sample_batch_and_event(
    name: str,
    batch_shape: tuple[int, ...],
    sample_shape: tuple[int, ...],
    method: str,
    device: torch.device,
) -> None:
    urn = by_name(name)
    counts = getattr(distribution(urn, device, copies=batch_shape), method)(sample_shape)
    assert counts.shape == (*sample_shape, *batch_shape, urn.groups)
    assert_possible(counts, urn)


@pytest.mark.parametrize("number", [2, 5000], ids=["rejection", "tables"])
def test_draws_of_one_urn_and_of_its_copies_are_independent(
    number: int, device: torch.device
) -> None:
    """Copies must not share their random numbers."""
    counts = distribution(by_name("titanic"), device, copies=(50,)).sample((number,))
    assert len(counts[:, :, 0].flatten().unique()) > 20
    assert not (counts == counts[:, :1]).all(-1).all(0)[1:].any()
    assert not (counts == counts[:1]).all(-1).all(-1)[1:].any()


def test_rejection_of_an_impossible_urn_ends_with_an_error() -> None:
    log_odds, sizes, draws = (
        torch.tensor(values, dtype=torch.float64) for values in ([[0.0, 0.0]], [[5.0, 5.0]], [11.0])
    )
    with pytest.raises(
        RuntimeError, match=r"no proposal was accepted for the urn m = \[5.0, 5.0\], n = 11.0"
    ):
        rejection.draw_by_rejection(log_odds, sizes, draws)


def test_rejection_does_not_wait_for_urns_without_a_number_of_draws() -> None:
    log_odds, sizes = (
        torch.zeros(2, 3, dtype=torch.float64),
        torch.full((2, 3), 5.0, dtype=torch.float64),
    )
    counts = rejection.draw_by_rejection(
        log_odds, sizes, torch.tensor([torch.nan, 7.0], dtype=torch.float64)
    )
    assert counts[0].isnan().all()
    assert counts[1].sum() == 7


# --------------------------------------------------------------------------------------------------
# Tables that are kept
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_tables", [True, False])
def test_ten_million_draws_of_few_outcomes_follow_the_law(
    by_tables: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one table of all outcomes, or by C kernels if there are some.

    Seeds being fixed, p-values as small as asserted occur once in a million fresh seeds.
    """
    if by_tables:
        monkeypatch.setattr(dispatch, "HAS_NATIVE", False)
    urn, number = by_name("paper-200x3-odds-10"), 10_000_000
    law = _dispatch.fisher_for_draws(distribution(urn, device, torch.float32), number)
    if by_tables:
        assert isinstance(law, AliasTables)
        assert law.kind == "outcomes"
    counts = distribution(urn, device, torch.float32).sample((number,))
    assert_possible(counts, urn)
    p_values = yardstick(urn).p_values(
        [piece.to(torch.int64).cpu().numpy() for piece in counts.split(1_000_000)]
    )
    assert min(p_values) >= 1e-6 / len(p_values)


def test_kept_tables_draw_what_fresh_ones_would(
    device: torch.device, without_c_kernels: None
) -> None:
    """Whether an urn was drawn from before must not show, nor which dtype was asked for then."""
    urn, number = by_name("titanic"), 20_000
    draws = []
    for keeps in (False, True, True):
        if not keeps:
            tables._kept_table.cache_clear()
        torch.manual_seed(3)
        draws.append(distribution(urn, device).sample((number,)))
        assert distribution(urn, device, torch.float32).sample((number,)).dtype == torch.float32
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])


def test_kept_tables_are_found_without_a_tilt(
    device: torch.device, without_c_kernels: None
) -> None:
    """The tilt of an urn that was drawn from before is remembered, as are its tables."""
    urn, number = by_name("never-drawn-middle"), 2_000_000  # enough that tables pay on every device
    log_weights = torch.tensor(urn.log_weights, device=device)
    general = GeneralFisher(urn.group_sizes, urn.draws, log_weights=log_weights)
    assert isinstance(_dispatch.fisher_for_draws(general, number), AliasTables)
    general.sample((number,))
    remembered = tables._tilted, tables._kept_table
    known = [each.cache_info() for each in remembered]
    assert_possible(general.sample((number,)), urn)
    for each, before in zip(remembered, known, strict=True):
        after = each.cache_info()
        assert (after.misses, after.hits) == (before.misses, before.hits + 1)


def test_tables_are_not_kept_for_other_weights(
    device: torch.device, without_c_kernels: None
) -> None:
    log_weights = torch.tensor([0.0, 1.0, 2.0], device=device)
    urn = FisherHypergeometric([30, 30, 30], 40, log_weights=log_weights)
    before = urn.sample((20_000,)).mean(0)
    log_weights.copy_(torch.tensor([2.0, 1.0, 0.0], device=device))  # as an optimiser does
    assert (urn.sample((20_000,)).mean(0) - before.flip(0)).abs().max() < 0.2
