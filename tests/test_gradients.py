"""Gradients: right to first and second order in the weights, in the counts and through draws, also
where a weight is zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from diffurn import CovarianceST, FisherHypergeometric
from support.urns import NEVER, URNS, Urn, probe_counts

# torch's own forward-mode rules are compiled, on first use, by a function that torch has deprecated
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)

PARAMETERS = ("log_weights", "weights")
MODERATE = tuple(urn for urn in URNS if urn.groups <= 10)  # a Jacobian has a row for each


@dataclass(frozen=True)
class Batch:
    """A few small urns at once, and one outcome of each."""

    name: str
    group_sizes: Any
    draws: Any
    log_weights: Any
    counts: Any

    def __str__(self) -> str:
        return self.name


BATCHES = (
    Batch(
        "three-groups",
        [[3, 5, 4], [2, 6, 1]],
        [5, 3],
        [[0.3, -0.7, 0.0], [1.1, 0.2, -0.4]],
        [[1, 3, 1], [1, 2, 0]],
    ),
    Batch("one-group", [[4], [3]], [2, 3], [[0.6], [-1.2]], [[2], [3]]),
    Batch(
        "an-empty-group",
        [[3, 0, 4], [0, 2, 2]],
        [3, 2],
        [[0.5, 0.1, -0.8], [0.4, -0.3, 0.9]],
        [[2, 0, 1], [0, 1, 1]],
    ),
    Batch(
        "one-ball-per-group",
        [[1, 1, 1, 1]],
        [1, 2],
        [[0.2, -1.0, 0.7, 0.0]],
        [[0, 0, 1, 0], [1, 0, 1, 0]],
    ),
)

QUANTITIES: dict[str, Callable[[FisherHypergeometric, Tensor], Tensor]] = {
    "log_prob": lambda urn, counts: urn.log_prob(counts),
    "log_normalizer": lambda urn, counts: urn.log_normalizer,
    "mean": lambda urn, counts: urn.mean,
    "variance": lambda urn, counts: urn.variance,
    "covariance_matrix": lambda urn, counts: urn.covariance_matrix,
    "entropy": lambda urn, counts: urn.entropy(),
    "marginal_log_prob": lambda urn, counts: urn.marginals.log_prob(counts),
}


def parameter_of(log_weights: Any, parameter: str, device: torch.device) -> Tensor:
    """The log-weights, or the weights, as a leaf that wants a gradient."""
    values = torch.tensor(log_weights, device=device)
    return (values if parameter == "log_weights" else values.exp()).requires_grad_()


def tensors(*values: Any, device: torch.device) -> list[Tensor]:
    return [torch.tensor(value, dtype=torch.float64, device=device) for value in values]


# --------------------------------------------------------------------------------------------------
# Finite differences
# --------------------------------------------------------------------------------------------------


# weights differ from log-weights by the chain rule alone, so two batches are enough for them
PARAMETERS_AND_BATCHES = [("log_weights", batch) for batch in BATCHES] + [
    ("weights", batch) for batch in BATCHES[::2]
]


@pytest.mark.parametrize(("parameter", "batch"), PARAMETERS_AND_BATCHES, ids=str)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_first_and_second_derivatives_match_finite_differences(
    parameter: str, quantity: str, batch: Batch, device: torch.device
) -> None:
    sizes, draws, counts = tensors(batch.group_sizes, batch.draws, batch.counts, device=device)

    def function(values: Tensor) -> Tensor:
        return QUANTITIES[quantity](
            FisherHypergeometric(sizes, draws, **{parameter: values}), counts
        )

    values = parameter_of(batch.log_weights, parameter, device)
    # entry by entry once; projections of the rest (fast mode) are as strict and cheaper
    assert gradcheck(
        function,
        values,
        check_forward_ad=True,
        check_undefined_grad=False,
        fast_mode=parameter == "weights",
    )
    assert gradgradcheck(function, values, check_undefined_grad=False, fast_mode=True)


@pytest.mark.parametrize(("parameter", "batch"), PARAMETERS_AND_BATCHES, ids=str)
def test_divergence_has_right_derivatives_in_both_urns(
    parameter: str, batch: Batch, device: torch.device
) -> None:
    sizes, draws = tensors(batch.group_sizes, batch.draws, device=device)

    def function(first: Tensor, second: Tensor) -> Tensor:
        p, q = (
            FisherHypergeometric(sizes, draws, **{parameter: values}) for values in (first, second)
        )
        return kl_divergence(p, q)

    first = parameter_of(batch.log_weights, parameter, device)
    second = parameter_of(
        [[0.9 - 0.7 * lw for lw in row] for row in batch.log_weights], parameter, device
    )
    assert gradcheck(
        function,
        (first, second),
        check_forward_ad=True,
        check_undefined_grad=False,
        fast_mode=parameter == "weights",
    )
    assert gradgradcheck(function, (first, second), check_undefined_grad=False, fast_mode=True)


# --------------------------------------------------------------------------------------------------
# In the counts, by the gamma function
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [BATCHES[0], BATCHES[2]], ids=str)
def test_log_prob_has_right_derivatives_in_weights_and_counts_together(
    batch: Batch, device: torch.device
) -> None:
    sizes, draws = tensors(batch.group_sizes, batch.draws, device=device)

    def function(values: Tensor, counts: Tensor) -> Tensor:
        return FisherHypergeometric(sizes, draws, log_weights=values, validate_args=False).log_prob(
            counts
        )

    # fractional counts strictly inside the bounds, so that a finite difference does not leave them;
    # an empty group cannot move
    inside = sizes * (draws / sizes.sum(-1)).unsqueeze(-1)
    arguments = (
        parameter_of(batch.log_weights, "log_weights", device),
        inside.clone().requires_grad_(),
    )

    def movable(values: Tensor, counts: Tensor) -> Tensor:
        return function(values, torch.where(sizes > 0, counts, 0.0))

    assert gradcheck(movable, arguments, check_undefined_grad=False)
    assert gradgradcheck(movable, arguments, check_undefined_grad=False)


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_slope_in_counts_is_log_weight_minus_digamma_plus_digamma(
    urn: Urn, device: torch.device
) -> None:
    outcomes = probe_counts(urn)
    counts = tensors(outcomes, device=device)[0].requires_grad_()
    FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights, device=device)
    ).log_prob(counts).sum().backward()
    assert counts.grad is not None
    # ω = 0 has no slope in its count (it is -inf); the tilt that cancels is as large as the
    # log-weights
    alive = [j for j, lw in enumerate(urn.log_weights) if lw != NEVER]
    expected = [
        [
            float(
                mpf(urn.log_weights[j])
                - mp.digamma(x[j] + 1)
                + mp.digamma(urn.group_sizes[j] - x[j] + 1)
            )
            for j in alive
        ]
        for x in outcomes
    ]
    wanted = torch.tensor(expected, device=device).reshape(len(outcomes), len(alive))
    torch.testing.assert_close(
        counts.grad[:, alive], wanted, rtol=1e-13, atol=1e-13 * max(30.0, urn.largest_log_weight)
    )


@pytest.mark.parametrize(
    "log_weights", [(0.4, -0.9, 0.0), (300.0, 0.0, -300.0)], ids=["moderate", "extreme"]
)
def test_slope_at_fractional_counts_is_the_gamma_extension(
    log_weights: tuple[float, ...], device: torch.device
) -> None:
    sizes, draws, x = (7, 9, 6), 8, (2.25, 3.5, 2.25)
    counts = torch.tensor(x, device=device, requires_grad=True)
    urn = FisherHypergeometric(
        sizes, draws, log_weights=torch.tensor(log_weights, device=device), validate_args=False
    )
    urn.log_prob(counts).backward()
    expected = [
        float(lw - mp.digamma(a + 1) + mp.digamma(m - a + 1))
        for lw, a, m in zip(log_weights, x, sizes, strict=True)
    ]
    torch.testing.assert_close(
        counts.grad, torch.tensor(expected, device=device), rtol=1e-13, atol=1e-12
    )


@pytest.mark.parametrize(
    "log_weights", [(0.4, -0.9, 0.0), (300.0, 0.0, -300.0)], ids=["moderate", "extreme"]
)
def test_second_order_in_counts_is_trigamma_and_mixed_is_the_identity(
    log_weights: tuple[float, ...], device: torch.device
) -> None:
    sizes, x = (7, 9, 6), (2.0, 4.0, 2.0)

    def function(log_weights: Tensor, counts: Tensor) -> Tensor:
        return FisherHypergeometric(sizes, 8, log_weights=log_weights).log_prob(counts)

    arguments = torch.tensor(log_weights, device=device), torch.tensor(x, device=device)
    (_, mixed), (transposed, in_counts) = torch.func.hessian(function, argnums=(0, 1))(*arguments)
    trigamma = [
        float(-mp.psi(1, a + 1) - mp.psi(1, m - a + 1)) for a, m in zip(x, sizes, strict=True)
    ]
    torch.testing.assert_close(
        in_counts, torch.diag(torch.tensor(trigamma, device=device)), rtol=1e-9, atol=1e-12
    )  # torch's trigamma
    torch.testing.assert_close(mixed, torch.eye(3, device=device), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(transposed, torch.eye(3, device=device), rtol=0.0, atol=1e-12)


# --------------------------------------------------------------------------------------------------
# The exponential family: ∇ log Z = mean, ∇² log Z = covariance
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urn", MODERATE, ids=str)
def test_log_normalizer_has_the_mean_and_covariance_as_derivatives(
    urn: Urn, device: torch.device
) -> None:
    log_weights = torch.tensor(urn.log_weights, device=device, requires_grad=True)
    distribution = FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)
    mean, covariance = distribution.mean, distribution.covariance_matrix.detach()
    (gradient,) = torch.autograd.grad(distribution.log_normalizer, log_weights)
    torch.testing.assert_close(
        gradient, mean.detach(), rtol=1e-10, atol=1e-15 * max(1, urn.population)
    )
    rows = [torch.autograd.grad(entry, log_weights, retain_graph=True)[0] for entry in mean]
    # a group of weight zero stands for odds of e^-300, so certain counts have variances of that
    # order
    torch.testing.assert_close(
        torch.stack(rows), covariance, rtol=0.0, atol=1e-9 * float(covariance.abs().max()) + 1e-120
    )


@pytest.mark.parametrize("urn", MODERATE, ids=str)
def test_hessian_of_log_prob_is_minus_the_covariance_by_two_routes(
    urn: Urn, device: torch.device
) -> None:
    counts = tensors(probe_counts(urn, near=1)[0], device=device)[0]

    def log_prob(log_weights: Tensor) -> Tensor:
        return FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights).log_prob(
            counts
        )

    log_weights = torch.tensor(urn.log_weights, device=device)
    covariance = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=log_weights
    ).covariance_matrix
    # the variances of the independent binomials cancel, and they may be as large as a quarter of
    # the population
    tolerance = 1e-9 * float(covariance.abs().max()) + 1e-15 * max(1, urn.population)
    for hessian in (torch.func.hessian(log_prob), torch.func.jacrev(torch.func.jacrev(log_prob))):
        torch.testing.assert_close(hessian(log_weights), -covariance, rtol=0.0, atol=tolerance)


# --------------------------------------------------------------------------------------------------
# Brute force in high precision
# --------------------------------------------------------------------------------------------------


def terms(sizes: Sequence[int], draws: int, weights: Sequence[mpf]) -> dict[tuple[int, ...], mpf]:
    """∏ C(m_j, x_j) ω_j^{x_j} of every outcome, with 0⁰ = 1."""
    outcomes = (x for x in itertools.product(*(range(m + 1) for m in sizes)) if sum(x) == draws)
    return {
        x: mp.fprod(math.comb(m, a) * w**a for m, a, w in zip(sizes, x, weights, strict=True))
        for x in outcomes
    }


def brute_force(
    quantity: str, sizes: Sequence[int], draws: int, weights: Sequence[mpf], counts: Sequence[int]
) -> list[mpf]:
    """A quantity of Fisher's law, flattened, straight from its definition."""
    weighted, groups = terms(sizes, draws, weights), range(len(sizes))
    normalizer = mp.fsum(weighted.values())

    def expectation(function: Callable[[tuple[int, ...]], Any]) -> mpf:
        return mp.fsum(term * function(x) for x, term in weighted.items()) / normalizer

    if quantity == "log_normalizer":
        return [mp.log(normalizer)]
    if quantity == "log_prob":
        return [mp.log(weighted[tuple(counts)] / normalizer)]
    if quantity == "marginal_log_prob":
        return [mp.log(expectation(lambda x, j=j: x[j] == counts[j])) for j in groups]
    mean = [expectation(lambda x, j=j: x[j]) for j in groups]
    if quantity == "mean":
        return mean
    covariance = [
        [expectation(lambda x, i=i, j=j: (x[i] - mean[i]) * (x[j] - mean[j])) for j in groups]
        for i in groups
    ]
    return (
        [covariance[j][j] for j in groups]
        if quantity == "variance"
        else [entry for row in covariance for entry in row]
    )


def one_sided_jacobian(
    function: Callable[[list[mpf]], list[mpf]], at: Sequence[mpf], digits: int = 40
) -> list[list[mpf]]:
    """∂ function_i / ∂ at_k from the right, by a step so small that about ``digits`` digits are
    right.
    """
    start = function(list(at))
    step = mpf(10) ** -digits * min(w for w in at if w > 0)
    columns = []
    for k in range(len(at)):
        ahead = function([w + step * (k == i) for i, w in enumerate(at)])
        columns.append(
            [(after - before) / step for after, before in zip(ahead, start, strict=True)]
        )
    return [list(row) for row in zip(*columns, strict=True)]


ZERO_WEIGHTS: dict[str, tuple[tuple[int, ...], int, tuple[float, ...], tuple[int, ...]]] = {
    # group sizes, draws, weights and an outcome that leaves the groups of weight zero alone
    "one-zero": ((3, 4, 2), 4, (0.7, 0.0, 1.9), (2, 0, 2)),
    "two-zeros": ((3, 2, 4, 2), 3, (0.0, 1.5, 0.8, 0.0), (0, 1, 2, 0)),
    "the-rest-must-fill": ((2, 3), 2, (1.25, 0.0), (2, 0)),
    "one-ball-per-group": ((1, 1, 1, 1), 2, (0.5, 0.0, 2.0, 1.0), (1, 0, 1, 0)),
    "tiny-weights": ((3, 4, 2), 4, (0.7e-100, 0.0, 1.9e-100), (2, 0, 2)),
    "huge-weights": ((3, 4, 2), 4, (0.7e100, 0.0, 1.9e100), (2, 0, 2)),
    "spread-out": ((3, 4, 2), 4, (1e-60, 0.0, 1e60), (2, 0, 2)),
}
SMOOTH_AT_ZERO = (
    "log_prob",
    "log_normalizer",
    "mean",
    "variance",
    "covariance_matrix",
    "marginal_log_prob",
)


@pytest.mark.parametrize("case", ZERO_WEIGHTS)
@pytest.mark.parametrize("quantity", SMOOTH_AT_ZERO)
def test_at_weight_zero_the_derivative_is_the_true_one_sided_one(
    quantity: str, case: str, device: torch.device
) -> None:
    sizes, draws, weights, counts = ZERO_WEIGHTS[case]
    outcome = torch.tensor(counts, device=device)

    def function(weights: Tensor) -> Tensor:
        return QUANTITIES[quantity](
            FisherHypergeometric(sizes, draws, weights=weights), outcome
        ).reshape(-1)

    with mp.workdps(200):
        exact = [mpf(w) for w in weights]
        expected = one_sided_jacobian(
            lambda at: brute_force(quantity, sizes, draws, at, counts), exact
        )
        unit = [
            w or min(positive for positive in exact if positive > 0) for w in exact
        ]  # derivatives in ω scale as 1/ω
        wanted = torch.tensor(
            [[float(entry * w) for entry, w in zip(row, unit, strict=True)] for row in expected],
            device=device,
        )
    at_zero = torch.tensor(weights, device=device) == 0
    assert bool((wanted[:, at_zero] != 0).any()), (
        "a case in which the derivative is zero proves nothing"
    )
    actual = torch.func.jacrev(function)(torch.tensor(weights, device=device)) * torch.tensor(
        [float(w) for w in unit], device=device
    )
    torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


def test_at_weight_zero_float32_weights_get_the_one_sided_derivative(device: torch.device) -> None:
    sizes, draws, weights, counts = ZERO_WEIGHTS["one-zero"]
    leaf = torch.tensor(weights, dtype=torch.float32, device=device, requires_grad=True)
    FisherHypergeometric(sizes, draws, weights=leaf).mean[1].backward()
    with mp.workdps(200):
        exact = [mpf(w) for w in leaf.tolist()]
        expected = one_sided_jacobian(
            lambda at: brute_force("mean", sizes, draws, at, counts), exact
        )[1]
    torch.testing.assert_close(
        leaf.grad, torch.tensor([float(e) for e in expected], dtype=torch.float32, device=device)
    )


@pytest.mark.parametrize("case", ["one-zero", "the-rest-must-fill"])
def test_at_weight_zero_the_second_derivative_is_the_true_one_sided_one(
    case: str, device: torch.device
) -> None:
    sizes, draws, weights, counts = ZERO_WEIGHTS[case]

    def function(weights: Tensor) -> Tensor:
        return FisherHypergeometric(sizes, draws, weights=weights).log_normalizer

    def slopes(at: list[mpf]) -> list[mpf]:
        return one_sided_jacobian(
            lambda inner: brute_force("log_normalizer", sizes, draws, inner, counts), at, digits=150
        )[0]

    with mp.workdps(450):
        expected = one_sided_jacobian(slopes, [mpf(w) for w in weights])
    wanted = torch.tensor([[float(entry) for entry in row] for row in expected], device=device)
    actual = torch.func.hessian(function)(torch.tensor(weights, device=device))
    # The second derivative in the zero weight itself is not offered: it is the difference of two
    # numbers that agree to rounding.
    zero = torch.tensor(weights, device=device) == 0
    offered = ~(zero.unsqueeze(-1) & zero)
    torch.testing.assert_close(actual[offered], wanted[offered], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_log_weights_of_minus_infinity_get_and_disturb_no_gradient(
    quantity: str, device: torch.device
) -> None:
    kept = [0, 2]
    log_weights = torch.tensor([0.3, NEVER, -0.4], device=device, requires_grad=True)
    others = torch.tensor([0.3, -0.4], device=device, requires_grad=True)
    whole = QUANTITIES[quantity](
        FisherHypergeometric([5, 6, 7], 9, log_weights=log_weights),
        torch.tensor([4, 0, 5], device=device),
    )
    reduced = QUANTITIES[quantity](
        FisherHypergeometric([5, 7], 9, log_weights=others), torch.tensor([4, 5], device=device)
    )
    upstream = torch.randn(whole.shape, device=device)
    whole.backward(upstream)
    for dim in range(whole.ndim):
        upstream = upstream.index_select(dim, torch.tensor(kept, device=device))
    reduced.backward(upstream)
    assert log_weights.grad is not None
    assert log_weights.grad[1] == 0
    torch.testing.assert_close(log_weights.grad[kept], others.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("parameter", PARAMETERS)
@pytest.mark.parametrize("quantity", [name for name in QUANTITIES if name != "log_normalizer"])
@pytest.mark.parametrize("draws", [0, 9], ids=["nothing-drawn", "everything-drawn"])
def test_a_certain_outcome_has_zero_gradients(
    draws: int, quantity: str, parameter: str, device: torch.device
) -> None:
    values = parameter_of([0.4, 0.0, -1.3], parameter, device)
    urn = FisherHypergeometric([4, 0, 5], draws, **{parameter: values})
    result = QUANTITIES[quantity](
        urn, torch.tensor([4, 0, 5] if draws else [0, 0, 0], device=device)
    )
    result.backward(torch.randn(result.shape, device=device))
    torch.testing.assert_close(values.grad, torch.zeros_like(values), rtol=0.0, atol=1e-13)


# --------------------------------------------------------------------------------------------------
# Through draws
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameter", PARAMETERS)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_draws_are_integers_and_send_back_the_exact_covariance_product(
    batch: Batch, parameter: str, device: torch.device
) -> None:
    sizes, draws, log_weights = tensors(
        batch.group_sizes, batch.draws, batch.log_weights, device=device
    )
    values = parameter_of(batch.log_weights, parameter, device)
    counts = FisherHypergeometric(
        sizes, draws, **{parameter: values}, estimator=CovarianceST()
    ).rsample((7,))
    assert torch.equal(counts, counts.round())
    assert torch.equal(counts.sum(-1), draws.expand(counts.shape[:-1]))

    upstream = torch.randn(counts.shape, device=device)
    counts.backward(upstream)
    full = counts.shape[1:]
    rows = zip(
        sizes.expand(full).tolist(),
        draws.expand(full[:-1]).tolist(),
        log_weights.expand(full).tolist(),
        upstream.sum(0),
        strict=True,
    )
    expected = torch.zeros(full, device=device)
    for i, (m, n, lw, total) in enumerate(rows):
        m = [int(size) for size in m]
        weights = [mp.exp(value) for value in lw]
        entries = brute_force("covariance_matrix", m, int(n), weights, ())
        covariance = torch.tensor([float(entry) for entry in entries], device=device).reshape(
            len(m), len(m)
        )
        expected[i] = covariance @ total
    if parameter == "weights":
        expected = expected / values.detach()  # d log ω = dω / ω
    torch.testing.assert_close(
        values.grad, expected.sum_to_size(values.shape), rtol=1e-11, atol=1e-12
    )


def test_draws_send_gradients_to_float32_weights(device: torch.device) -> None:
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float32, device=device, requires_grad=True)
    urn = FisherHypergeometric([3, 5, 4], 5, weights=weights)
    counts = urn.rsample((100,))
    counts[..., 1].sum().backward()
    assert counts.dtype == torch.float32
    torch.testing.assert_close(
        weights.grad, 100 * urn.covariance_matrix[1].detach() / weights.detach()
    )


# --------------------------------------------------------------------------------------------------
# Everywhere
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urn", "parameter"),
    [(urn, "log_weights") for urn in URNS] + [(urn, "weights") for urn in MODERATE[::3]],
    ids=str,
)
def test_gradients_are_finite_on_the_whole_table(
    urn: Urn, parameter: str, device: torch.device
) -> None:
    counts = tensors(probe_counts(urn, near=1)[0], device=device)[0]
    values = parameter_of(urn.log_weights, parameter, device)
    distribution = FisherHypergeometric(urn.group_sizes, urn.draws, **{parameter: values})
    other = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=0.9 * torch.tensor(urn.log_weights, device=device)
    )
    results = {name: quantity(distribution, counts) for name, quantity in QUANTITIES.items()}
    results |= {
        "kl from": kl_divergence(distribution, other),
        "kl to": kl_divergence(other, distribution),
    }
    assert [
        name for name, result in results.items() if not bool(torch.isfinite(result).all())
    ] == []
    upstream = {name: torch.randn(result.shape, device=device) for name, result in results.items()}

    def disturbed(names: Sequence[str]) -> bool:
        (gradient,) = torch.autograd.grad(
            [results[n] for n in names], values, [upstream[n] for n in names], retain_graph=True
        )
        return not bool(torch.isfinite(gradient).all())

    # all at once, because NaN and infinity survive a sum; one by one only to tell which
    assert not disturbed(list(results)) or [name for name in results if disturbed([name])] == []
