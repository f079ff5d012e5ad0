"""The interfaces of the authors' code: their shapes, and the exact law behind them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from diffurn import FisherHypergeometric, RandomPartition
from diffurn.compat import MVHG, PL, RandPart
from support.goodness import chi_square_p_value
from support.partitions import log_law_of_orders

FALSE_ALARM = 1e-5
SIZES, DRAWS = (2, 3, 4), 4


def exact_law(log_weights: Tensor) -> dict[tuple[int, ...], float]:
    """Fisher's law of the urn above, by enumeration."""
    mass = {
        x: math.prod(math.comb(m, k) for m, k in zip(SIZES, x, strict=True))
        * math.exp(sum(k * w for k, w in zip(x, log_weights.tolist(), strict=True)))
        for x in itertools.product(*(range(m + 1) for m in SIZES))
        if sum(x) == DRAWS
    }
    return {x: value / sum(mass.values()) for x, value in mass.items()}


def drawn(log_weights: Tensor, number: int, hard: bool = True, noise: bool = True):
    log_w = log_weights.repeat(number, 1)
    m, n = torch.tensor(SIZES), torch.full((number, 1), DRAWS)
    return MVHG(device="cpu")(m, n, log_w, 0.5, add_noise=noise, hard=hard)


# --------------------------------------------------------------------------------------------------
# Sizes
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 6])
@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("noise", [True, False])
def test_sizes_have_the_shapes_of_the_authors_code(number: int, hard: bool, noise: bool) -> None:
    y, x, y_mask, log_p = drawn(torch.tensor([0.3, 1.0, -0.5]), number, hard, noise)
    for group, m in enumerate(SIZES):
        assert y[group].shape == y_mask[group].shape == (number, 1, m + 1)
        assert x[group].shape == (number, 1, 1)
        torch.testing.assert_close(y[group].sum(-1), torch.ones(number, 1))
        torch.testing.assert_close((y[group] * torch.arange(m + 1)).sum(-1, keepdim=True), x[group])
        torch.testing.assert_close(y_mask[group][..., 1:].sum(-1, keepdim=True), x[group])
    torch.testing.assert_close(sum(x), torch.full((number, 1, 1), float(DRAWS)))
    assert log_p.shape == (number,)


def test_sizes_follow_the_exact_law_and_carry_its_log_probability() -> None:
    torch.manual_seed(0)
    log_weights = torch.tensor([0.3, 2.0, -1.5])
    law = exact_law(log_weights)
    _, x, _, log_p = drawn(log_weights, 4000)
    rows = torch.cat(x, 1).squeeze(-1).round().long().tolist()
    for _ in range(4):  # each call has one random order of the groups
        _, more, _, _ = drawn(log_weights, 4000)
        rows += torch.cat(more, 1).squeeze(-1).round().long().tolist()
    observed = np.array([rows.count(list(counts)) for counts in law])
    assert observed.sum() == len(rows) == 20_000
    assert chi_square_p_value(observed, np.array(list(law.values()))) > FALSE_ALARM
    expected = torch.tensor([math.log(law[tuple(row)]) for row in rows[:4000]])
    torch.testing.assert_close(log_p, expected)


def test_get_log_probs_is_exact_whatever_the_batch() -> None:
    log_w = torch.tensor([[0.3, 2.0, -1.5], [0.0, 0.0, 1.0]])
    x = [torch.full((1, 1, 1), value) for value in (1.0, 2.0, 1.0)]
    found = MVHG("cpu").get_log_probs(
        torch.tensor(SIZES), torch.full((2, 1), DRAWS), x, None, log_w
    )
    expected = [math.log(exact_law(row)[1, 2, 1]) for row in log_w]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_gradients_of_sizes_keep_the_number_of_draws() -> None:
    torch.manual_seed(0)
    leaf = torch.tensor([0.3, 1.0, -0.5], requires_grad=True)
    for _ in range(6):  # any group may be drawn last
        y, x, y_mask, log_p = drawn(leaf, 50)
        (total,) = torch.autograd.grad(sum(x).sum(), leaf, retain_graph=True)
        assert total.abs().amax() < 1e-10
        for group, m in enumerate(SIZES):
            wanted = torch.autograd.grad(x[group].sum(), leaf, retain_graph=True)[0]
            from_mask = y_mask[group][..., 1:].sum()
            for by in ((y[group] * torch.arange(m + 1)).sum(), from_mask):
                (gradient,) = torch.autograd.grad(by, leaf, retain_graph=True)
                torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)
        assert torch.autograd.grad(log_p.sum(), leaf)[0].isfinite().all()


def test_gradients_of_linear_functions_are_near_the_exact_ones() -> None:
    torch.manual_seed(0)
    leaf = torch.tensor([0.3, 1.0, -0.5], requires_grad=True)
    m, n = torch.tensor([20, 20, 20]), torch.full((4000, 1), 18)
    _, x, _, _ = MVHG("cpu")(m, n, leaf.repeat(4000, 1), 0.5)
    values = torch.tensor([1.0, -2.0, 0.5])
    found = torch.autograd.grad((torch.cat(x, 1).squeeze(-1) @ values).mean(), leaf)[0]
    urn = FisherHypergeometric([20, 20, 20], 18, log_weights=leaf)
    expected = torch.autograd.grad(urn.mean @ values, leaf)[0]
    assert (found - expected).norm() < 0.1 * expected.norm()


def test_too_many_draws_are_explained() -> None:
    with pytest.raises(ValueError, match="must be from 0 to 9 balls"):
        MVHG("cpu")(torch.tensor(SIZES), torch.tensor([[10]]), torch.zeros(1, 3), 1.0)


# --------------------------------------------------------------------------------------------------
# Orders
# --------------------------------------------------------------------------------------------------


def test_orders_have_the_law_of_plackett_and_luce() -> None:
    torch.manual_seed(0)
    scores = torch.tensor([[0.5, -1.0, 1.5, 0.0]])
    law = dict(log_law_of_orders(scores[0].tolist()))
    orders = PL(scores.repeat(10_000, 1), tau=0.5).rsample([1]).argmax(-1)
    rows = list(map(tuple, orders.tolist()))
    observed = np.array([rows.count(order) for order in law])
    assert chi_square_p_value(observed, np.exp(list(law.values()))) > FALSE_ALARM
    matrices = torch.nn.functional.one_hot(torch.tensor(list(law)), 4)
    found = PL(scores.repeat(len(law), 1), tau=None).log_prob(matrices)
    torch.testing.assert_close(found, torch.tensor(list(law.values())), rtol=1e-12, atol=1e-12)


def test_orders_without_noise_sort_the_scores() -> None:
    sort = PL(torch.tensor([[0.5, -1.0, 1.5, 0.0]]), tau=0.1, g_noise=False)
    assert sort.rsample([1]).argmax(-1).tolist() == [[2, 0, 3, 1]]
    assert sort.mean.argmax(-1).tolist() == [[2, 0, 3, 1]]
    assert sort.log_prob(sort.mean).shape == ()
    assert PL(torch.zeros(2, 3), 0.5).rsample([5]).shape == (5, 2, 3, 3)
    with pytest.raises(ValueError, match="tau is None"):
        PL(torch.zeros(2, 3), None).rsample([1])


# --------------------------------------------------------------------------------------------------
# Partitions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subsets", [1, 2, 4])
def test_log_probabilities_of_partitions_sum_to_the_exact_one(subsets: int) -> None:
    torch.manual_seed(0)
    scores, log_omega = torch.randn(5, 7).double(), torch.randn(5, subsets).double()
    part, perm, ohts, places, sizes, log_p_mvhg, log_p_pi_n = RandPart(subsets, device="cpu")(
        scores, log_omega, temperature=0.5
    )
    assert part.shape == places.shape == (5, subsets, 7)
    assert perm.shape == (5, 7, 7)
    assert [each.shape for each in ohts] == [(5, 1, 8)] * subsets
    assert [each.shape for each in sizes] == [(5, 1, 1)] * subsets
    assert ((part == 0) | (part == 1)).all()
    assert (part.sum(1) == 1).all()
    torch.testing.assert_close(part.sum(-1), torch.cat(sizes, 1).squeeze(-1))
    torch.testing.assert_close(places @ perm, part)
    partition = RandomPartition(scores, log_omega)
    torch.testing.assert_close(
        log_p_mvhg + log_p_pi_n, partition.log_prob(part.argmax(1)), rtol=1e-10, atol=1e-10
    )


def test_gradients_of_a_partition_reach_scores_and_weights() -> None:
    torch.manual_seed(0)
    scores, log_omega = torch.randn(3, 6), torch.randn(3, 3)
    for conditional in (None, torch.randn(3, 3)):
        leaves = [scores.clone().requires_grad_(), log_omega.clone().requires_grad_()]
        out = RandPart(3, device="cpu")(
            *leaves, temperature=0.7, conditional_log_score_selection=conditional
        )
        assert len(out) == (7 if conditional is None else 8)
        loss = (out[0] * torch.randn(3, 3, 6)).sum() + out[5].sum() + out[6].sum()
        for gradient in torch.autograd.grad(loss, leaves):
            assert gradient.isfinite().all()
            assert (gradient != 0).any()


def test_scores_of_subsets_are_given_to_the_items_by_their_order() -> None:
    places = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    found = RandPart(2, device="cpu").compute_conditioned_log_scores(
        torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[5.0, 7.0]]), places, 0.5
    )
    assert found.tolist() == [[7.0, 5.0, 5.0]]


def test_the_prior_of_sizes_is_exact_for_lists_and_tensors() -> None:
    log_omega = torch.tensor([[0.4, 0.0]]).repeat(3, 1)
    sizes = [torch.full((1, 1, 1), 2.0), torch.full((1, 1, 1), 5.0)]
    module = RandPart(2, device="cpu")
    urn = FisherHypergeometric([7, 7], 7, log_weights=log_omega)
    expected = urn.log_prob(torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(module.get_log_prob_mvhg(log_omega, sizes), expected)
    as_tensor = torch.cat(sizes, -1).squeeze(1)
    torch.testing.assert_close(module.get_log_prob_mvhg(log_omega, as_tensor), expected)


def test_many_orders_of_one_draw_of_sizes_are_scored_exactly() -> None:
    """As the authors' clustering calls the parts: relaxed sizes, repeated places, sizes by sums."""
    torch.manual_seed(0)
    scores, log_omega = torch.randn(1, 6).double(), torch.randn(1, 3).double()
    module = RandPart(3, device="cpu")
    _, _, ohts, places, _, log_p, _ = module(scores, log_omega, g_noise=False, temperature=0.5)
    perms, part, log_p_items = module.get_partition(
        scores.repeat(20, 1), places.repeat(20, 1, 1), 0.5, True, True
    )
    exact = RandomPartition(scores, log_omega).log_prob(part.argmax(1))
    torch.testing.assert_close(log_p + log_p_items, exact, rtol=1e-10, atol=1e-10)
    summed = (torch.cat(ohts, 1) * torch.arange(7)).sum(-1)
    sizes = [summed[:, k].reshape(-1, 1, 1) for k in range(3)]
    again = module.get_log_prob_mvhg(log_omega.repeat(20, 1), sizes, ohts)
    torch.testing.assert_close(again, log_p.repeat(20))
    of_equal = PL(torch.zeros_like(scores), tau=0.5, g_noise=False).log_prob(perms)
    torch.testing.assert_close(of_equal, torch.full((20,), -math.log(math.factorial(6))))


def test_sizes_without_noise_may_order_items_by_relaxed_scores() -> None:
    """As the authors' multitask module calls it."""
    scores, log_omega = torch.randn(4, 50), torch.randn(4, 2)
    module = RandPart(2, device="cpu")
    for hard in (True, False):
        part, _, ohts, _, sizes, *_ = module(
            scores, log_omega, g_noise=False, hard_n=hard, hard_pi=False, temperature=0.5
        )
        assert ((part >= 0) & (part <= 1)).all()
        for one_hot in ohts:  # also of the group drawn last
            torch.testing.assert_close(one_hot.sum(-1), torch.ones(4, 1))
        torch.testing.assert_close(sum(sizes), torch.full((4, 1, 1), 50.0))


def test_a_wrong_number_of_weights_is_explained() -> None:
    with pytest.raises(ValueError, match="n_cluster is 3"):
        RandPart(3, device="cpu")(torch.zeros(1, 4), torch.zeros(1, 2))
