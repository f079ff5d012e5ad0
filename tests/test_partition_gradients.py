"""Gradients through draws of random partitions, against sums over all partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from diffurn import (
    ConditionalST,
    CovarianceST,
    Estimator,
    FisherHypergeometric,
    GumbelSoftmax,
    GumbelTopK,
    RandomPartition,
    ScoreFunction,
    TwoStageGumbel,
    score_surrogate,
)
from diffurn._partition.cuts import prob_of_cuts
from support.goodness import chi_square_p_value
from support.partitions import log_law, log_law_of_sizes

SCORES, WEIGHTS = [0.3, -0.3, 2.0, 1.0, -1.0], [0.0, 1.0, -2.0, 0.3]
LAW = log_law(SCORES, WEIGHTS)
FALSE_ALARM = 1e-5

every_estimator = pytest.mark.parametrize(
    "estimator",
    [
        ConditionalST(),
        CovarianceST(),
        TwoStageGumbel(0.5),
        TwoStageGumbel(1.0, conditionals="merged", sort_temperature=0.3),
        TwoStageGumbel(0.7, hard=False),
        ScoreFunction(),
    ],
    ids=repr,
)


def leaves(times: int | None = None) -> tuple[Tensor, Tensor]:
    """The scores and the log-weights, once or as a batch."""
    given = torch.tensor(SCORES), torch.tensor(WEIGHTS)
    if times is not None:
        given = given[0].repeat(times, 1), given[1].repeat(times, 1)
    return given[0].requires_grad_(), given[1].requires_grad_()


def linear(memberships: Tensor) -> Tensor:
    i, k = torch.arange(5.0).unsqueeze(-1), torch.arange(4.0)
    return (memberships * torch.cos(3 * i + 2 * k)).sum((-1, -2))


def curved(memberships: Tensor) -> Tensor:
    return (linear(memberships) - 1).square() + (
        memberships[..., 0, :] * memberships[..., 1, :]
    ).sum(-1)


def exact_gradient(f: Callable[[Tensor], Tensor]) -> Tensor:
    """Of E[f], in the scores and the weights, by the sum over all partitions."""
    scores, weights = leaves()
    labels = torch.tensor(list(LAW))
    probability = RandomPartition(scores, weights).log_prob(labels).exp()
    expectation = (probability * f(one_hot(labels, 4).double())).sum()
    return torch.cat(torch.autograd.grad(expectation, (scores, weights)))


def gradients(estimator: Estimator, f: Callable[[Tensor], Tensor], number: int) -> Tensor:
    """Of single draws, ``(number, n + K)``."""
    scores, weights = leaves(number)
    draws = RandomPartition(scores, weights, estimator=estimator).rsample()
    return torch.cat(torch.autograd.grad(f(draws).sum(), (scores, weights)), -1)


def deviations(found: Tensor, expected: Tensor) -> Tensor:
    """The distance of the mean from an expectation, in standard errors."""
    return (found.mean(0) - expected) / (found.std(0) / len(found) ** 0.5)


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------


@every_estimator
def test_draws_are_memberships_of_one_subset_for_each_item(estimator: Estimator) -> None:
    scores, weights = leaves()
    partition = RandomPartition(scores, weights, estimator=estimator).expand((3,))
    drawn = partition.rsample((2, 7))
    assert drawn.shape == (2, 7, 3, 5, 4)
    assert drawn.requires_grad == estimator.draws_carry_gradients
    is_hard = getattr(estimator, "hard", True)
    assert bool(((drawn - drawn.round()).abs() < 1e-12).all()) == is_hard
    if is_hard:
        torch.testing.assert_close(drawn.sum(-1), torch.ones(2, 7, 3, 5))
    else:  # each place of the order is in one subset
        torch.testing.assert_close(drawn.sum((-1, -2)), torch.full((2, 7, 3), 5.0))


@pytest.mark.parametrize(
    "estimator", [ConditionalST(), CovarianceST(), TwoStageGumbel(0.5)], ids=repr
)
def test_hard_draws_follow_the_law(estimator: Estimator) -> None:
    torch.manual_seed(0)
    drawn = RandomPartition(*leaves(), estimator=estimator).rsample((20_000,)).argmax(-1)
    kinds, counts = torch.unique(drawn, dim=0, return_counts=True)
    of = dict(zip(map(tuple, kinds.tolist()), counts.tolist(), strict=True))
    assert set(of) <= set(LAW)
    observed = np.array([of.get(labels, 0) for labels in LAW])
    assert chi_square_p_value(observed, np.exp(list(LAW.values()))) > FALSE_ALARM


@every_estimator
def test_missing_items_get_no_membership_and_no_gradient(estimator: Estimator) -> None:
    torch.manual_seed(1)
    place = [0, 2, 3, 5, 6]
    number = 20 if isinstance(estimator, CovarianceST) else 4000  # which has no variance
    padded = torch.full((number, 7), torch.nan)
    padded[:, place] = torch.tensor(SCORES)
    padded.requires_grad_()
    weights = torch.tensor(WEIGHTS)
    draws = RandomPartition(padded, weights, mask=~padded.isnan(), estimator=estimator).rsample()
    assert (draws[:, [1, 4]] == 0).all()
    plain = RandomPartition(torch.tensor(SCORES), weights, estimator=estimator).rsample((number,))
    apart = draws[:, place].mean(0) - plain.mean(0)
    assert (apart.abs() < 5 * (0.5 / number) ** 0.5).all()  # 5 deviations of a share of one half
    if estimator.draws_carry_gradients:
        (gradient,) = torch.autograd.grad(linear(draws[:, place]).sum(), padded)
        assert (gradient[:, [1, 4]] == 0).all()
        of_plain = gradients(estimator, linear, number)[:, :5]
        z = (gradient[:, place].mean(0) - of_plain.mean(0)) / (
            2 * of_plain.var(0) / number + 1e-20
        ).sqrt()
        assert z.abs().amax() < 5


def test_relaxed_draws_become_hard_as_the_temperature_falls() -> None:
    torch.manual_seed(0)
    partition = RandomPartition(*leaves(), estimator=TwoStageGumbel(1e-7, hard=False))
    drawn = partition.rsample((500,))
    assert ((drawn - drawn.round()).abs().amax((-1, -2)) < 1e-6).double().mean() > 0.98


@every_estimator
@pytest.mark.parametrize(("items", "subsets"), [(1, 3), (4, 1), (0, 2)])
def test_draws_of_small_sets_have_their_shapes(
    estimator: Estimator, items: int, subsets: int
) -> None:
    scores, weights = torch.zeros(items), torch.zeros(subsets)
    drawn = RandomPartition(scores, weights, estimator=estimator).rsample((6,))
    assert drawn.shape == (6, items, subsets)
    torch.testing.assert_close(drawn.sum((-1, -2)), torch.full((6,), float(items)))


# --------------------------------------------------------------------------------------------------
# Gradients
# --------------------------------------------------------------------------------------------------


def test_conditional_gradients_of_linear_functions_are_unbiased() -> None:
    torch.manual_seed(0)
    found = gradients(ConditionalST(), linear, 10_000)
    assert deviations(found, exact_gradient(linear)).abs().amax() < 3


def test_covariance_gradients_of_linear_functions_are_exact() -> None:
    expected = exact_gradient(linear)
    for gradient in gradients(CovarianceST(), linear, 3):
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("f", [linear, curved])
def test_the_bias_of_the_score_estimator_is_within_three_standard_errors(
    f: Callable[[Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    scores, weights = leaves(20_000)
    partition = RandomPartition(scores, weights)
    loss = score_surrogate(partition, lambda labels: f(one_hot(labels, 4).double()), 2)
    found = torch.cat(torch.autograd.grad(loss.sum(), (scores, weights)), -1)
    assert deviations(found, exact_gradient(f)).abs().amax() < 3


@pytest.mark.parametrize("estimator", [ConditionalST(), TwoStageGumbel(0.5)], ids=repr)
def test_gradients_of_curved_functions_point_the_right_way(estimator: Estimator) -> None:
    torch.manual_seed(0)
    found = gradients(estimator, curved, 10_000).mean(0)
    assert torch.cosine_similarity(found, exact_gradient(curved), 0) > 0.8


def test_gradients_with_ties_and_weight_zero_are_finite() -> None:
    scores = torch.zeros(6, requires_grad=True)
    weights = torch.tensor([0.0, -torch.inf, 0.0], requires_grad=True)
    for estimator in (ConditionalST(), CovarianceST(), TwoStageGumbel(0.5)):
        drawn = RandomPartition(scores, weights, estimator=estimator).rsample((50,))
        assert (drawn[..., 1] == 0).all()
        (drawn[..., 0, 0] * drawn[..., 1, 2]).sum().backward()
        for leaf in (scores, weights):
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()


def test_a_large_partition_has_gradients_in_memory_linear_in_items() -> None:
    scores, weights = torch.randn(50_000, requires_grad=True), torch.randn(6, requires_grad=True)
    drawn = RandomPartition(scores, weights).rsample()
    (drawn * torch.randn(50_000, 6)).sum().backward()
    assert scores.grad is not None
    assert weights.grad is not None
    assert scores.grad.isfinite().all()
    # Adding a number to all scores or to all weights changes nothing.
    assert scores.grad.sum().abs() < 1e-9 * scores.grad.abs().sum()
    assert weights.grad.sum().abs() < 1e-9 * weights.grad.abs().sum()


# --------------------------------------------------------------------------------------------------
# Cuts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ([0.5, 0.0, -1.0], [7, 7, 7]),
        ([200.0, -100.0, 0.0], [7, 7, 7]),
        ([0.3, 0.9, -0.5], [3, 3, 1]),
        ([0.3, 0.9, -0.5], [50, 0, 80]),
    ],
)
def test_cuts_have_the_law_of_sums_of_sizes(weights: list[float], sizes: list[int]) -> None:
    expected = torch.zeros(2, 8)
    for counts, log_prob in log_law_of_sizes(7, weights, sizes):
        for k in range(2):
            expected[k, sum(counts[: k + 1])] += np.exp(log_prob)
    found = prob_of_cuts(torch.tensor(weights), torch.tensor(sizes).double(), torch.tensor(7.0), 7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_cuts_of_a_thousand_items_have_the_moments_of_the_urn() -> None:
    weights = torch.tensor([0.3, -2.0, 1.5, 0.0])
    urn = FisherHypergeometric([1000] * 4, 1000, log_weights=weights)
    found = prob_of_cuts(weights, urn.group_sizes.double(), urn.draws.double(), 1000)
    j = torch.arange(1001.0)
    before = torch.ones(4, 4).tril()[:3]
    mean, covariance = before @ urn.mean, before @ urn.covariance_matrix @ before.T
    torch.testing.assert_close(found @ j, mean, rtol=1e-11, atol=0)
    torch.testing.assert_close(
        found @ j.square() - (found @ j).square(), covariance.diagonal(), rtol=1e-8, atol=0
    )


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (GumbelSoftmax(), "is for urns"),
        (GumbelTopK(), "is for urns"),
        (ConditionalST, "give an instance"),
        ("gumbel", "must be an Estimator"),
    ],
    ids=str,
)
def test_estimators_of_urns_are_refused(estimator: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RandomPartition([0.0, 1.0], [0.0, 0.0], estimator=estimator)


def test_urns_refuse_estimators_of_partitions() -> None:
    with pytest.raises(ValueError, match="is for a RandomPartition"):
        FisherHypergeometric([5, 5], 3, weights=[1.0, 2.0], estimator=ConditionalST())


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"conditionals": "both"}, {"sort_temperature": -1.0}], ids=str
)
def test_bad_options_are_explained(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} is "):
        TwoStageGumbel(**options)


# --------------------------------------------------------------------------------------------------
# Transforms
# --------------------------------------------------------------------------------------------------


def test_probabilities_can_be_mapped_and_differentiated_by_transforms() -> None:
    scores, weights = torch.randn(3, 5), torch.randn(3, 2)
    labels = RandomPartition(scores, weights).sample()

    def log_prob(s: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return RandomPartition(s, w, validate_args=False).log_prob(y)

    found = torch.func.vmap(torch.func.grad(log_prob))(scores, weights, labels)
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(log_prob(leaf, weights, labels).sum(), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


# torch's own compiler makes an object of an autograd function.
compiling = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@pytest.mark.slow
@compiling
@pytest.mark.parametrize(
    "estimator", [ConditionalST(), TwoStageGumbel(0.5), CovarianceST()], ids=repr
)
def test_draws_compile_without_a_graph_break(estimator: Estimator) -> None:
    scores, weights = (torch.randn(size, requires_grad=True) for size in ((2, 5), (2, 3)))

    def draw(s: Tensor, w: Tensor) -> Tensor:
        partition = RandomPartition(s, w, estimator=estimator, validate_args=False)
        return partition.rsample((4,))

    drawn = torch.compile(draw, fullgraph=True, backend="aot_eager")(scores, weights)
    torch.testing.assert_close(drawn.sum(-1), torch.ones(4, 2, 5))
    for gradient in torch.autograd.grad((drawn * torch.randn(5, 3)).sum(), (scores, weights)):
        assert gradient.isfinite().all()
        assert (gradient != 0).any()


@pytest.mark.slow
@compiling
def test_probabilities_compile_without_a_graph_break() -> None:
    scores, weights = torch.randn(2, 5), torch.randn(2, 3)
    labels = RandomPartition(scores, weights).sample()

    def log_prob(s: Tensor, w: Tensor) -> Tensor:
        return RandomPartition(s, w, validate_args=False).log_prob(labels)

    compiled = torch.compile(log_prob, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(scores, weights), log_prob(scores, weights), rtol=1e-10, atol=1e-10
    )
