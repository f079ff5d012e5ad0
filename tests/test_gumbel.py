"""The Gumbel-Softmax chain: its law, its windows, its relaxations and its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from diffurn import FisherHypergeometric, GumbelSoftmax
from support.urns import LARGE, URNS, Urn

SIZES, DRAWS = (200, 200, 200), 180
SEEDS, DRAWS_PER_SEED = 100, 1_000
# 300 tests at level 0.05: more than 37 rejections happen by chance once in 100 000 runs.
MOST_REJECTIONS = int(stats.binom.isf(1e-5, 3 * SEEDS, 0.05))


def paper_urn(
    second_weight: float, device: torch.device, **estimator: object
) -> FisherHypergeometric:
    """The urn of the paper's Kolmogorov-Smirnov study."""
    weights = torch.tensor([1.0, second_weight, 1.0], device=device)
    return FisherHypergeometric(SIZES, DRAWS, weights=weights, estimator=GumbelSoftmax(**estimator))


def draw_by_scipy(
    sizes: tuple[int, ...],
    draws: int,
    weights: tuple[float, ...],
    number: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """The paper's chain with SciPy's univariate law: each group against all later ones merged into
    one.
    """
    left, counts = np.full(number, draws), []
    for i in range(len(sizes) - 1):
        later = sum(sizes[i + 1 :])
        odds = (
            weights[i]
            * later
            / sum(w * m for w, m in zip(weights[i + 1 :], sizes[i + 1 :], strict=True))
        )
        x = np.arange(sizes[i] + 1)
        count = np.empty(number, dtype=int)
        for n in np.unique(left):
            rows = np.flatnonzero(left == n)
            cdf = np.cumsum(stats.nchypergeom_fisher.pmf(x, sizes[i] + later, sizes[i], n, odds))
            count[rows] = np.searchsorted(cdf, rng.random(len(rows)) * cdf[-1], side="right")
        counts.append(count)
        left = left - count
    return np.stack([*counts, left], -1)


def rejections(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Two-sample KS tests at 5 %, one a seed and group (conservative, since counts are
    discrete).
    """
    return sum(
        stats.ks_2samp(a, b, method="asymp").pvalue < 0.05
        for x, y in zip(ours, theirs, strict=True)
        for a, b in zip(x.T, y.T, strict=True)
    )


def test_merged_chain_draws_from_scipys_law_merged_the_same_way(device: torch.device) -> None:
    shape = (SEEDS, DRAWS_PER_SEED, 3)
    ours = paper_urn(5.0, device, conditionals="merged").rsample(shape[:2]).cpu().numpy()
    theirs = draw_by_scipy(
        SIZES, DRAWS, (1.0, 5.0, 1.0), SEEDS * DRAWS_PER_SEED, np.random.default_rng(1)
    ).reshape(shape)
    assert rejections(ours, theirs) <= MOST_REJECTIONS


def test_exact_chain_draws_from_the_exact_law(device: torch.device) -> None:
    weights = torch.tensor([1.0, 5.0, 2.0], device=device)
    urn = FisherHypergeometric(
        (20, 20, 20), 18, weights=weights, estimator=GumbelSoftmax(conditionals="exact")
    )
    shape = (SEEDS, DRAWS_PER_SEED)
    outcomes = urn.enumerate_support().cpu().numpy()
    theirs = np.random.default_rng(1).choice(
        outcomes, shape, p=urn.log_prob(urn.enumerate_support()).exp().cpu().numpy()
    )
    assert rejections(urn.rsample(shape).cpu().numpy(), theirs) <= MOST_REJECTIONS


@pytest.mark.parametrize(
    ("second_weight", "mean", "distance"),
    [(2.0, 49.0, 0.077), (5.0, 32.5, 0.360), (10.0, 21.3, 0.582)],
)
def test_merged_chain_is_known_not_to_be_fishers_law(
    second_weight: float, mean: float, distance: float, device: torch.device
) -> None:
    """Class 1 in fixed order: what the paper's merge does to the law, so that nobody takes one for
    the other.
    """
    urn = paper_urn(second_weight, device, conditionals="merged")
    ours = urn.rsample((50_000,))[:, 0].cpu().numpy()
    counts = torch.arange(DRAWS + 1.0, device=device)
    cdf = (
        urn.marginals.log_prob(counts.unsqueeze(-1).expand(-1, 3))[:, 0]
        .exp()
        .cumsum(0)
        .cpu()
        .numpy()
    )
    empirical = np.searchsorted(np.sort(ours), np.arange(DRAWS + 1), side="right") / len(ours)
    assert ours.mean() == pytest.approx(mean, abs=0.15)
    assert abs(empirical - cdf).max() == pytest.approx(distance, abs=0.01)
    assert abs(empirical - cdf).max() > 10 * stats.kstwobign.isf(0.05) / math.sqrt(len(ours))


@pytest.mark.parametrize("order", [None, "random", (2, 0, 1)])
def test_exact_chain_has_the_exact_mean_in_every_order(order: object, device: torch.device) -> None:
    urn = FisherHypergeometric(
        (5, 7, 9),
        8,
        weights=torch.tensor([1.0, 4.0, 0.5], device=device),
        estimator=GumbelSoftmax(order=order),
    )
    draws = 100_000
    deviation = (urn.rsample((draws,)).mean(0) - urn.mean) / (urn.variance / draws).sqrt()
    assert deviation.abs().max() < stats.norm.isf(1e-6)


@pytest.mark.parametrize("temperature", [1.0, 10.0])
@pytest.mark.parametrize("conditionals", ["exact", "merged"])
def test_windows_hold_every_count_that_the_relaxation_can_see(
    temperature: float, conditionals: str, device: torch.device
) -> None:
    """Within 38·max(1, τ) nats of the peak: at τ = 10 a narrower window would change the relaxed
    law.
    """
    urn = paper_urn(5.0, device)
    draw = GumbelSoftmax(temperature, conditionals=conditionals).draw(urn)
    x = torch.arange(SIZES[0] + 1.0, device=device)
    later = (
        torch.tensor([5.0, 1.0], device=device).log()
        if conditionals == "exact"
        else torch.tensor([3.0, 3.0], device=device).log()
    )
    rest = FisherHypergeometric(SIZES[1:], DRAWS - x[: DRAWS + 1], log_weights=later).log_normalizer
    full = log_binomial(SIZES[0], x)[: DRAWS + 1] + rest
    start = int(draw.window_starts[0])
    inside = draw.log_weights[0]
    wanted = full > full.max() - 38 * max(1.0, temperature)
    assert wanted[:start].sum() == 0
    assert wanted[start + len(inside) :].sum() == 0
    law, ours = (
        torch.softmax(values / temperature, 0)
        for values in (full[start : start + len(inside)], inside)
    )
    assert 0.5 * (law - ours).abs().sum() <= 1e-12


def log_binomial(size: int, x: Tensor) -> Tensor:
    return math.lgamma(size + 1) - torch.lgamma(x + 1) - torch.lgamma(size - x + 1)


def assert_valid(counts: Tensor, urn: FisherHypergeometric) -> None:
    assert (counts == counts.round()).all()
    assert (counts >= 0).all()
    assert (counts <= urn.group_sizes).all()
    assert (counts.sum(-1) == urn.draws).all()


@given(st.data())
def test_hard_counts_never_violate_the_urn(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 5))
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=groups, max_size=groups))
    log_weights = data.draw(st.lists(st.floats(-300, 300), min_size=groups, max_size=groups))
    estimator = GumbelSoftmax(
        temperature=data.draw(st.sampled_from([0.01, 0.1, 1.0, 10.0])),
        conditionals=data.draw(st.sampled_from(["exact", "merged"])),
        order=data.draw(st.sampled_from([None, "random"])),
        rao_blackwell=data.draw(st.sampled_from([0, 2])),
    )
    leaf = torch.tensor(log_weights).requires_grad_()
    urn = FisherHypergeometric(
        sizes, data.draw(st.integers(0, sum(sizes))), log_weights=leaf, estimator=estimator
    )
    counts = urn.rsample((5,))
    assert_valid(counts.detach(), urn)
    counts.square().sum().backward()
    assert torch.isfinite(leaf.grad).all()


# The coldest has most to overflow. Windows are the same for all τ ≤ 1, and on large urns they cost
# seconds: of those some are enough.
TEMPERED = [(urn, 0.01) for urn in URNS] + [
    (urn, warm) for urn in URNS if urn not in LARGE or urn in LARGE[::8] for warm in (0.1, 1.0)
]


@pytest.mark.parametrize(("urn", "temperature"), TEMPERED, ids=str)
def test_gradient_is_finite_for_every_urn_of_the_table(
    urn: Urn, temperature: float, device: torch.device
) -> None:
    for conditionals in ("merged", "exact"):
        log_weights = torch.tensor(urn.log_weights, device=device).requires_grad_()
        estimator = GumbelSoftmax(temperature, conditionals=conditionals)
        distribution = FisherHypergeometric(
            urn.group_sizes, urn.draws, log_weights=log_weights, estimator=estimator
        )
        counts = distribution.rsample()
        assert_valid(counts.detach(), distribution)
        ((counts - distribution.mean.detach()) / max(1, urn.draws)).square().sum().backward()
        assert torch.isfinite(log_weights.grad).all()


def test_relaxed_counts_are_fractional_and_sum_to_the_draws(device: torch.device) -> None:
    for conditionals in ("exact", "merged"):
        counts = paper_urn(
            5.0, device, temperature=1.0, hard=False, conditionals=conditionals
        ).rsample((100,))
        assert (counts != counts.round()).any()
        torch.testing.assert_close(counts.sum(-1), torch.full((100,), float(DRAWS), device=device))


def test_the_last_group_takes_exactly_what_is_left(device: torch.device) -> None:
    """d x_last / d(draws left) = 1, so upstream gradients equal in all groups cancel: n is
    fixed.
    """
    log_weights = torch.zeros(3, device=device, requires_grad=True)
    urn = FisherHypergeometric((5, 5, 5), 6, log_weights=log_weights, estimator=GumbelSoftmax(0.5))
    (gradient,) = torch.autograd.grad(urn.rsample((100,)).sum(), log_weights)
    torch.testing.assert_close(gradient, torch.zeros(3, device=device), rtol=0.0, atol=1e-9)


def test_draw_returns_what_algorithm_1_makes(device: torch.device) -> None:
    urn = FisherHypergeometric(
        (3, 5, 4), 5, weights=torch.tensor([[1.0, 2.0, 0.5], [1.0, 1.0, 1.0]], device=device)
    )
    for order in (None, (1, 2, 0)):
        draw = GumbelSoftmax(0.5, order=order).draw(urn, (7,))
        assert draw.counts.shape == (7, 2, 3)
        assert_valid(draw.counts, urn)
        for j in range(3):
            one_hot, start = draw.one_hots[j], draw.window_starts[j]
            columns = torch.arange(one_hot.shape[-1], device=device)
            assert set(one_hot.unique().tolist()) <= {0.0, 1.0}
            assert torch.equal((one_hot * columns).sum(-1) + start, draw.counts[..., j])
            assert torch.equal(draw.perturbed[j].argmax(-1) + start, draw.counts[..., j])
            assert draw.log_weights[j].shape == draw.perturbed[j].shape == one_hot.shape
            assert not (
                draw.log_weights[j].gt(-torch.inf)
                & (start.unsqueeze(-1) + columns > urn.group_sizes[..., j].unsqueeze(-1))
            ).any()


def test_log_density_is_that_of_relaxed_categoricals_in_a_chain(device: torch.device) -> None:
    """torch's RelaxedOneHotCategorical, group by group, each given the hard counts before it."""
    urn = FisherHypergeometric((3, 5, 4), 5, weights=torch.tensor([1.0, 2.0, 0.5], device=device))
    estimator = GumbelSoftmax(0.7, hard=False)
    draw = estimator.draw(urn, (6,))
    expected = torch.zeros(6, device=device)
    for group in range(2):
        for row in range(6):
            possible = draw.log_weights[group][row] > -torch.inf
            if possible.sum() > 1:
                temperature = torch.tensor(0.7, device=device)
                relaxed = torch.distributions.RelaxedOneHotCategorical(
                    temperature, logits=draw.log_weights[group][row][possible]
                )
                expected[row] += relaxed.log_prob(draw.one_hots[group][row][possible])
    torch.testing.assert_close(estimator.log_density(draw), expected)


def test_gumbel_rao_keeps_the_law_and_lowers_the_spread(device: torch.device) -> None:
    """Rao-Blackwell: the same expectation given the hard draw, less noise around it."""
    spreads, means = [], []
    for noises in (0, 16):
        log_weights = torch.zeros(20_000, 3, device=device, requires_grad=True)
        urn = FisherHypergeometric(
            (5, 5, 5),
            6,
            log_weights=log_weights,
            estimator=GumbelSoftmax(0.1, rao_blackwell=noises),
        )
        (gradient,) = torch.autograd.grad(urn.rsample()[:, 0].sum(), log_weights)
        spreads.append(gradient.var(0).sum().sqrt())
        means.append(gradient.mean(0))
    assert spreads[1] < 0.6 * spreads[0]
    assert (means[1] - means[0]).norm() < 4 * spreads[0] / math.sqrt(20_000)


def test_rank_indicators_count_up_to_the_draw(device: torch.device) -> None:
    for estimator in (GumbelSoftmax(0.5), GumbelSoftmax(0.5, conditionals="merged")):
        log_weights = torch.zeros(4, 3, device=device, requires_grad=True)
        urn = FisherHypergeometric((5, 7, 9), 8, log_weights=log_weights, estimator=estimator)
        for group in range(3):
            counts, indicators = urn.rank_indicators(group, (50,))
            assert indicators.shape == (50, 4, int(urn.group_sizes[0, group]))
            assert_valid(counts.detach(), urn)
            ranks = torch.arange(1, indicators.shape[-1] + 1, device=device)
            assert torch.equal(
                indicators.detach(),
                (ranks <= counts.detach()[..., group].unsqueeze(-1)).to(counts.dtype),
            )
            (gradient,) = torch.autograd.grad((indicators * ranks).sum(), log_weights)
            assert gradient.abs().max() > 0


def test_large_groups_at_low_temperature_stay_finite(device: torch.device) -> None:
    for conditionals in ("exact", "merged"):
        log_weights = torch.tensor([300.0, -300.0, 0.0], device=device, requires_grad=True)
        estimator = GumbelSoftmax(0.01, conditionals=conditionals)
        urn = FisherHypergeometric(
            (10**5,) * 3, 10**5 + 50_000, log_weights=log_weights, estimator=estimator
        )
        counts = urn.rsample()
        assert_valid(counts.detach(), urn)
        (gradient,) = torch.autograd.grad(counts.square().sum(), log_weights)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"conditionals": "approximate"}, "conditionals is 'approximate'"),
        ({"order": "sorted"}, "order is 'sorted'"),
        ({"rao_blackwell": -1}, "rao_blackwell is -1"),
    ],
)
def test_bad_settings_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GumbelSoftmax(**arguments)


def test_an_order_must_be_a_permutation() -> None:
    urn = FisherHypergeometric(
        (5, 5, 5), 6, weights=torch.ones(3), estimator=GumbelSoftmax(order=(0, 0, 1))
    )
    with pytest.raises(
        ValueError, match=r"order is \[0, 0, 1\], but must be a permutation of the 3 groups"
    ):
        urn.rsample()
