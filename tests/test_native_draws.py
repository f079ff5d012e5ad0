"""Many draws of one urn by C kernels: strips, mixtures of Fisher's laws, and tables of outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln
from torch import Tensor

from diffurn import FisherHypergeometric, WalleniusHypergeometric, _dispatch
from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.sampling.tables import AliasTables
from diffurn._kernels import dispatch
from support.distributions import assert_possible
from support.goodness import Yardstick, chi_square_p_value
from support.urns import Urn

if not dispatch.HAS_NATIVE:
    pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0", allow_module_level=True)

from diffurn._kernels.native import sampling

# The seeds are fixed. With fresh seeds and right samplers, FALSE_ALARM is the probability that any
# of the p-values below is too small; they share it evenly.
FALSE_ALARM, P_VALUES = 1e-4, 600
LEVEL = FALSE_ALARM / P_VALUES


def operands(
    sizes: tuple[int, ...], draws: int, log_weights: tuple[float, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a batch of one urn, for the kernels."""
    urn = log_weights, [float(size) for size in sizes], float(draws)
    return tuple(torch.tensor([x], dtype=torch.float64) for x in urn)  # type: ignore[return-value]


# --------------------------------------------------------------------------------------------------
# Fisher's law: strips
# --------------------------------------------------------------------------------------------------

FISHER = (
    Urn("pair-of-few-counts", (7, 9), 8, (0.0, 1.0)),
    Urn("pair-of-common-balls", (40, 300), 320, (0.0, 2.0)),
    Urn("pair-of-wide-strips", (100_000, 30_000), 50_000, (0.5, -0.5)),
    Urn("pair-of-rare-balls", (10**7, 40), 300_000, (0.0, 3.0)),
    Urn("pair-of-huge-groups", (10**8, 10**8), 6 * 10**7, (1.0, -0.5)),
    Urn("three-of-few-counts", (5, 3, 4), 6, (0.0, 1.0, -1.0)),
    Urn("three-with-an-empty-group", (50, 0, 60), 70, (0.0, 1.0, -1.0)),
    Urn("three-of-wide-strips", (10_000, 20_000, 5000), 12_000, (0.0, 1.0, -1.0)),
    Urn("three-of-rare-and-common", (10**6, 30, 200), 5 * 10**5, (0.0, 4.0, -3.0)),
    Urn("six-groups", (40, 900, 3, 17, 2000, 60), 1100, (0.0, 0.3, -2.0, 4.0, 0.1, 1.0)),
)


@pytest.mark.parametrize("number", [400, 300_000], ids=["few-strips", "many-strips"])
@pytest.mark.parametrize("urn", FISHER, ids=str)
def test_draws_from_strips_follow_the_law(urn: Urn, number: int) -> None:
    """With few strips, from many calls."""
    calls = max(1, 40_000 // number)
    urns = operands(urn.group_sizes, urn.draws, urn.log_weights)
    pieces = [sampling.draw_each(*urns, number, seed=seed)[:, 0] for seed in range(calls)]
    counts = torch.cat(pieces)
    assert_possible(counts, urn)
    p_values = Yardstick(urn).p_values([counts.long().numpy()])
    assert len(p_values) <= 21
    assert min(p_values, default=1.0) >= LEVEL


@pytest.mark.parametrize(
    ("sizes", "draws", "log_weights", "only"),
    [
        ((4, 3), 7, (0.0, 0.7), [4.0, 3.0]),
        ((4, 3), 0, (0.0, 0.7), [0.0, 0.0]),
        ((0, 9), 5, (0.0, 0.7), [0.0, 5.0]),
        ((0, 0), 0, (0.0, 0.7), [0.0, 0.0]),
        ((10**9, 10**9), 2 * 10**9, (3.0, -3.0), [1e9, 1e9]),
        ((2, 0, 3), 5, (1.0, 0.0, 2.0), [2.0, 0.0, 3.0]),
        ((0, 0, 0), 0, (1.0, 0.0, 2.0), [0.0, 0.0, 0.0]),
    ],
)
def test_strips_of_a_sure_outcome_hold_nothing_else(
    sizes: tuple[int, ...], draws: int, log_weights: tuple[float, ...], only: list[float]
) -> None:
    counts = sampling.draw_each(*operands(sizes, draws, log_weights), 500, seed=1)[:, 0]
    assert torch.equal(counts, torch.tensor(only, dtype=torch.float64).expand(500, -1))


@pytest.mark.parametrize("spread", [0.0, 30.0, 500.0])
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_draws_of_extreme_weights_stay_within_the_support(groups: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(groups)
    for size in (1, 3, 50, 10**6, 10**12):
        log_weights = tuple(float(x) for x in spread * torch.randn(groups, generator=generator))
        for draws in (1, groups * size // 3, groups * size - 1):
            urn = Urn("extreme", (size,) * groups, draws, log_weights)
            counts = sampling.draw_each(*operands(urn.group_sizes, draws, log_weights), 300, 2)
            assert_possible(counts[:, 0], urn)


def test_only_millions_of_draws_of_one_urn_need_a_table() -> None:
    """Other calls need none, so the first one is as fast as the next ones."""
    weights = torch.tensor([1.0, 2.0, 3.0])
    urn = FisherHypergeometric([40, 30, 50], 60, weights=weights)
    for number in (1, 100, 10_000):
        assert type(_dispatch.fisher_for_draws(urn, number)) is Quadrature
    law = _dispatch.fisher_for_draws(urn, 3_000_000)
    assert isinstance(law, AliasTables)
    assert law.kind == "outcomes"
    pair = FisherHypergeometric([40, 30], 35, weights=weights[:2])
    assert type(_dispatch.fisher_for_draws(pair, 3_000_000)) is Quadrature


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_from_a_table_of_all_outcomes_follow_the_law(dtype: torch.dtype) -> None:
    urn = Urn("three-of-few-counts", (40, 0, 30, 50), 60, (0.0, 0.0, 1.0, -0.5))
    log_weights = torch.tensor(urn.log_weights, dtype=dtype)
    law = FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)
    torch.manual_seed(8)
    counts = law.sample((1_000_000,))
    assert counts.dtype == dtype
    assert_possible(counts, urn)
    assert min(Yardstick(urn).p_values([counts.long().numpy()])) >= LEVEL
    torch.manual_seed(8)
    assert torch.equal(law.sample((1_000_000,)), counts)


# --------------------------------------------------------------------------------------------------
# Wallenius' law: a mixture of Fisher's laws
# --------------------------------------------------------------------------------------------------

WALLENIUS = {
    "even": ((200, 200), 120, (0.0, -1.8)),
    "a group that runs out": ((300, 2000), 700, (3.0, 0.0)),
    "few balls left": ((60, 80), 100, (0.0, 2.0)),
    "one ball of a kind": ((1, 500), 200, (2.0, 0.0)),
    "far weights": ((100, 300), 160, (9.0, 0.0)),
    "three groups": ((20, 30, 25), 36, (0.0, 1.0, -1.5)),
    "an empty group": ((30, 0, 45), 40, (0.0, 1.0, -0.5)),
    "few balls of two groups": ((2, 3, 90), 50, (1.0, -2.0, 0.0)),
}


def law_by_draws(
    sizes: tuple[int, ...], draws: int, log_weights: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """All outcomes and their probabilities, ball after ball; all terms are positive."""
    groups, shape = len(sizes), tuple(min(size, draws) + 1 for size in sizes[:-1])
    weights = np.exp(log_weights)
    digits = np.indices(shape).reshape(groups - 1, -1)
    law = np.zeros(shape)
    law[(0,) * (groups - 1)] = 1.0
    for step in range(draws):
        last = np.clip(step - digits.sum(0), 0, None)
        left = np.array(sizes)[:, None] - np.vstack([digits, last])
        rates = weights[:, None] * np.clip(left, 0, None)
        shares = (rates / np.maximum(rates.sum(0), 1e-300)).reshape(groups, *shape)
        after = law * shares[-1]
        for j in range(groups - 1):
            moved = np.moveaxis(law * shares[j], j, 0)
            np.moveaxis(after, j, 0)[1:] += moved[:-1]
        law = after
    counts = np.vstack([digits, draws - digits.sum(0)]).T
    possible = (counts[:, -1] >= 0) & (counts[:, -1] <= sizes[-1])
    return counts[possible], law.reshape(-1)[possible]


def log_binomial(size: int, counts: np.ndarray) -> np.ndarray:
    inside = (counts >= 0) & (counts <= size)
    x = np.where(inside, counts, 0)
    return np.where(inside, gammaln(size + 1) - gammaln(x + 1) - gammaln(size - x + 1), -np.inf)


def law_of_mixture(nodes: Tensor, sizes: tuple[int, ...], outcomes: np.ndarray) -> np.ndarray:
    """The probabilities of outcomes, from every component on its own."""
    weights = nodes[:, 1] / nodes[:, 1].sum()
    total = np.zeros(len(outcomes))
    for node, group in itertools.product(range(len(nodes)), range(len(sizes))):
        if not weights[node, group] > 0:
            continue
        fewer = [size - (j == group) for j, size in enumerate(sizes)]
        parts = [
            log_binomial(m, outcomes[:, j]) + outcomes[:, j] * float(nodes[node, 0, j])
            for j, m in enumerate(fewer)
        ]
        mass = np.exp(np.sum(parts, 0) - np.max(np.sum(parts, 0)))
        total += float(weights[node, group]) * mass / mass.sum()
    return total


@pytest.mark.parametrize("name", WALLENIUS)
def test_mixtures_have_the_law_of_the_urn(name: str) -> None:
    sizes, draws, log_weights = WALLENIUS[name]
    nodes = sampling.mixtures(*operands(sizes, draws, log_weights))
    assert nodes is not None
    outcomes, exact = law_by_draws(sizes, draws, log_weights)
    found = law_of_mixture(nodes[0], sizes, outcomes)
    assert math.isclose(exact.sum(), 1.0, rel_tol=1e-12)
    assert np.abs(found - exact).sum() <= 1e-12
    likely = exact > 1e-6
    assert np.abs(found[likely] / exact[likely] - 1).max() <= 1e-10


def test_mixtures_of_random_urns_have_their_laws() -> None:
    rng, tried, found = np.random.default_rng(3), 0, 0
    while tried < 60:
        groups = int(rng.integers(2, 4))
        sizes = tuple(int(10 ** rng.uniform(0, 3.0 if groups == 2 else 1.7)) for _ in range(groups))
        if sum(sizes) < 70:
            continue
        tried += 1
        draws = int(rng.integers(33, sum(sizes) - 32))
        log_weights = tuple(float(x) for x in rng.normal(0.0, rng.choice([0.3, 1, 3, 6]), groups))
        nodes = sampling.mixtures(*operands(sizes, draws, log_weights))
        if nodes is None:
            continue
        found += 1
        outcomes, exact = law_by_draws(sizes, draws, log_weights)
        apart = np.abs(law_of_mixture(nodes[0], sizes, outcomes) - exact)
        assert apart.sum() <= 1e-11, (sizes, draws, log_weights)
    assert found >= 55


def test_mixtures_of_large_urns_have_their_probabilities() -> None:
    """Beside the integrals for single outcomes."""
    sizes, draws = (10**6, 3 * 10**6), 1_500_000
    urn = WalleniusHypergeometric(sizes, draws, log_weights=torch.tensor([0.7, 0.0]))
    (nodes,) = sampling.mixtures(*operands(sizes, draws, (0.7, 0.0)))  # type: ignore[misc]
    nodes = nodes[nodes[:, 1].sum(-1) > 0]
    first = (urn.mean[0] + urn.variance[0].sqrt() * torch.linspace(-5, 5, 41)).round()
    counts = torch.stack([first, draws - first], -1)
    total = torch.zeros(41)
    for group in range(2):
        fewer = [size - (j == group) for j, size in enumerate(sizes)]
        component = FisherHypergeometric(fewer, draws, log_weights=nodes[:, 0])
        masses = component.log_prob(counts.unsqueeze(1).expand(-1, len(nodes), -1)).exp()
        total += masses @ nodes[:, 1, group] / nodes[:, 1].sum()
    assert (total / urn.log_prob(counts).exp() - 1).abs().max() < 1e-9


@pytest.mark.parametrize("number", [100, 200_000])
@pytest.mark.parametrize("name", WALLENIUS)
def test_draws_from_mixtures_follow_the_law(name: str, number: int) -> None:
    sizes, draws, log_weights = WALLENIUS[name]
    urns = operands(sizes, draws, log_weights)
    nodes, calls = sampling.mixtures(*urns), max(1, 20_000 // number)
    assert nodes is not None
    pieces = [sampling.draw_mixtures(nodes, *urns[1:], number, seed) for seed in range(calls)]
    counts = torch.cat([piece for piece in pieces if piece is not None])[:, 0].long().numpy()
    assert len(counts) == number * calls
    outcomes, exact = law_by_draws(sizes, draws, log_weights)
    places = {tuple(x): place for place, x in enumerate(outcomes.tolist())}
    seen, times = np.unique(counts, axis=0, return_counts=True)
    observed = np.zeros(len(places), dtype=np.int64)
    observed[[places[tuple(x)] for x in seen.tolist()]] = times
    assert chi_square_p_value(observed, exact) >= LEVEL


def test_consecutive_draws_from_a_mixture_are_independent() -> None:
    """Rows are drawn by components, and are put back in place. Fails in 7e-6 of all seeds."""
    urns = operands((200, 200), 120, (0.0, -1.8))
    counts = sampling.draw_by_race(*urns, 100_000, seed=4)[:, 0, 0]
    centred = counts - counts.mean()
    for lag in (1, 2, 64):
        correlation = (centred[lag:] * centred[:-lag]).mean() / centred.square().mean()
        assert abs(float(correlation)) < 4.7 / 100_000**0.5


def test_urns_of_a_batch_have_mixtures_of_their_own() -> None:
    sizes = torch.tensor([[500.0, 700.0], [900.0, 90.0]])
    draws = torch.tensor([400.0, 200.0])
    log_weights = torch.tensor([[0.0, 1.0], [0.0, -2.0]])
    counts = sampling.draw_by_race(log_weights, sizes, draws, 40_000, seed=6)
    urn = WalleniusHypergeometric(sizes.long(), draws.long(), log_weights=log_weights)
    assert (counts.sum(-1) == draws).all()
    error = (counts.mean(0) - urn.mean) / (urn.variance / 40_000).sqrt()
    assert error.abs().max() < 5


def test_an_urn_without_a_mixture_is_drawn_by_a_race() -> None:
    few, left = ((9, 9), 10), ((90, 90), 175)
    for sizes, draws in (few, left):
        urns = operands(sizes, draws, (0.0, 1.0))
        assert sampling.mixtures(*urns) is None
        assert (sampling.draw_by_race(*urns, 300, seed=1).sum(-1) == draws).all()
    sizes_, unknown = torch.full((1, 2), 90.0), torch.tensor([torch.nan])
    assert sampling.mixtures(torch.zeros(1, 2), sizes_, unknown) is None
    assert sampling.draw_by_race(torch.zeros(1, 2), sizes_, unknown, 300, seed=1).isnan().all()


# --------------------------------------------------------------------------------------------------
# Tables, and all ways
# --------------------------------------------------------------------------------------------------


def test_draws_from_a_table_have_its_masses() -> None:
    rng = np.random.default_rng(2)
    for number in (1, 2, 7, 1000):
        masses = rng.exponential(size=number) ** 3
        masses[rng.random(number) < 0.2] = 0.0
        masses[0] = 1.0
        outcomes = torch.arange(2.0 * number).reshape(number, 2)
        table = sampling.Table(outcomes, torch.from_numpy(masses))
        counts = table.draw(500_000, seed=number)
        assert torch.equal(counts[:, 1], counts[:, 0] + 1)
        observed = np.bincount((counts[:, 0] / 2).long().numpy(), minlength=number)
        assert (observed[masses == 0] == 0).all()
        assert chi_square_p_value(observed, masses / masses.sum()) >= LEVEL


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
@pytest.mark.parametrize("sizes", [(5, 6), (500, 600), (90, 60, 80)])
def test_draws_do_not_depend_on_the_number_of_threads(
    law: type[FisherHypergeometric], sizes: tuple[int, ...]
) -> None:
    threads, found = torch.get_num_threads(), []
    urn = law(sizes, sum(sizes) // 2, weights=torch.tensor([1.0, 2.0, 3.0])[: len(sizes)])
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            torch.manual_seed(1)
            found.append(urn.sample((20_000,)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
