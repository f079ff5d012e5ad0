"""The conditional log-likelihood as a loss: values, gradients, ragged strata."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from diffurn import clogit, conditional_log_likelihood
from support.strata import one_by_one, study

STRATA = torch.tensor([5, 1, 5, 1, 5, 1, 1, 2, 2, 2, 9, 9, 7])
EVENTS = torch.tensor([1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1])


def scores() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (3 * torch.randn(13, dtype=torch.float64, generator=generator)).requires_grad_()


def by_listing(s: Tensor) -> Tensor:
    """The log-likelihood of each stratum from all subsets."""
    values = []
    for label in STRATA.unique():
        rows = (label == STRATA).nonzero().flatten()
        number = int(EVENTS[rows].sum())
        sums = [s[list(subset)].sum() for subset in itertools.combinations(rows.tolist(), number)]
        values.append((s[rows] * EVENTS[rows]).sum() - torch.stack(sums).logsumexp(0))
    return torch.stack(values)


def test_values_and_gradients_equal_those_of_listed_subsets() -> None:
    s, weights = scores(), torch.tensor([0.3, -1.0, 2.0, 0.7, 1.1], dtype=torch.float64)
    mine, expected = conditional_log_likelihood(s, EVENTS, STRATA), by_listing(s)
    torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-12)
    (found,) = torch.autograd.grad(mine @ weights, s)
    (wanted,) = torch.autograd.grad(expected @ weights, s)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("model", ["fisher", "wallenius"])
def test_first_and_second_derivatives_agree_with_differences(model: str) -> None:
    def total(s: Tensor) -> Tensor:
        return conditional_log_likelihood(s, EVENTS, STRATA, model=model).sum()

    assert torch.autograd.gradcheck(total, scores())
    assert torch.autograd.gradgradcheck(total, scores())


def test_wallenius_equals_all_orders_of_the_events() -> None:
    s = scores().detach()
    found = conditional_log_likelihood(s, EVENTS, STRATA, model="wallenius")
    for place, label in enumerate(STRATA.unique().tolist()):
        mine = label == STRATA
        if 0 < EVENTS[mine].sum() < mine.sum():
            expected = one_by_one(s[mine].numpy(), EVENTS[mine].numpy())
            assert float(found[place]) == pytest.approx(expected, abs=1e-10)


def test_its_maximum_is_the_fit_of_clogit() -> None:
    case, x, *_, stratum = study()
    result = clogit(case, x, stratum)
    beta = result.coefficients.clone().requires_grad_()
    loss = conditional_log_likelihood(torch.tensor(x) * beta, case, torch.tensor(stratum)).sum()
    assert loss.item() == pytest.approx(float(result.log_likelihood), abs=1e-11)
    assert float(torch.autograd.grad(loss, beta)[0]) == pytest.approx(0, abs=1e-9)


def test_a_large_stratum_of_single_precision_keeps_its_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(50_000, generator=generator, dtype=torch.float32)
    events = torch.rand(50_000, generator=generator) < torch.sigmoid(s)
    single = conditional_log_likelihood(s, events)
    double = conditional_log_likelihood(s.double(), events)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=0)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"events has shape \(2,\), but scores has shape \(3,\)"):
        conditional_log_likelihood(torch.zeros(3), [1, 0])
    with pytest.raises(ValueError, match="scores has shape"):
        conditional_log_likelihood(torch.zeros(3, 1), torch.zeros(3, 1))
