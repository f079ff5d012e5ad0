"""Random partitions: probabilities by brute force over all orders, draws and arguments."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from diffurn import RandomPartition, score_surrogate
from diffurn._partition.mode import _log_prob_of_first
from support.goodness import chi_square_p_value
from support.partitions import log_law

# The chance that a test of draws fails although they follow the law.
FALSE_ALARM = 1e-5

CASES: dict[str, tuple[list[float], list[float], list[int] | None]] = {
    "three subsets": ([1.2, -0.3, 0.4, 2.1, -1.7, 0.0], [0.5, 0.0, -1.0], None),
    "four subsets": ([0.3, -0.3, 2.0, 1.0, -1.0], [0.0, 1.0, -2.0, 0.3], None),
    "one subset": ([0.3, -0.3, 2.0], [0.7], None),
    "one item": ([0.3], [0.7, 0.1, -0.4], None),
    "equal": ([0.0] * 6, [0.0] * 3, None),
    "ties": ([1.0, 0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0], None),
    "scores far apart": ([40.0, -300.0, 7.0, 0.0, 300.0, 39.0], [3.0, -4.0, 0.0], None),
    "weights far apart": ([0.4, -0.3, 0.7, 0.1, 0.9], [200.0, -100.0, 0.0], None),
    "small groups": ([1.0, -1.0, 0.5, 2.0, 0.1], [0.3, 0.9, -0.5], [2, 3, 1]),
    "no choice of sizes": ([1.0, -1.0, 0.5, 2.0, 0.1], [0.3, 0.9, -0.5], [2, 2, 1]),
    "an empty group": ([1.0, -1.0, 0.5, 2.0], [0.3, 0.9, -0.5], [2, 0, 3]),
    "large groups": ([1.0, -1.0, 0.5, 2.0], [0.3, 0.9, -0.5], [50, 20, 80]),
}
every_case = pytest.mark.parametrize("case", CASES)


def partition_of(case: str, **options: Any) -> RandomPartition:
    scores, weights, sizes = CASES[case]
    return RandomPartition(torch.tensor(scores), torch.tensor(weights), sizes, **options)


def law_of(case: str) -> tuple[Tensor, Tensor]:
    """All possible partitions and their log-probabilities."""
    law = log_law(*CASES[case])
    return torch.tensor(list(law)), torch.tensor(list(law.values()))


# --------------------------------------------------------------------------------------------------
# Probabilities
# --------------------------------------------------------------------------------------------------


@every_case
def test_log_prob_is_the_sum_over_all_orders(case: str) -> None:
    labels, log_prob = law_of(case)
    torch.testing.assert_close(
        partition_of(case).log_prob(labels), log_prob, rtol=1e-12, atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_log_prob_is_the_sum_over_all_orders_of_eight_items(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores, weights = random.normal(scale=2, size=8).tolist(), random.normal(size=3).tolist()
    law = log_law(scores, weights)
    partition = RandomPartition(torch.tensor(scores), torch.tensor(weights))
    found = partition.log_prob(torch.tensor(list(law)))
    torch.testing.assert_close(found, torch.tensor(list(law.values())), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ["three subsets", "small groups", "scores far apart"])
def test_probabilities_sum_to_one(case: str) -> None:
    items, subsets = len(CASES[case][0]), len(CASES[case][1])
    every = torch.tensor(list(itertools.product(range(subsets), repeat=items)))
    total = partition_of(case, validate_args=False).log_prob(every).exp().sum()
    torch.testing.assert_close(total, torch.tensor(1.0), rtol=1e-12, atol=0)


def test_a_subset_of_weight_zero_is_empty() -> None:
    partition = RandomPartition(torch.zeros(3), torch.tensor([0.0, -torch.inf, 1.0]))
    without = RandomPartition(torch.zeros(3), torch.tensor([0.0, 1.0]))
    assert partition.log_prob([0, 1, 2]) == -torch.inf
    torch.testing.assert_close(partition.log_prob([0, 2, 2]), without.log_prob([0, 1, 1]))
    assert not (partition.sample((100,)) == 1).any()


def test_impossible_partitions_have_probability_zero() -> None:
    partition = partition_of("small groups", validate_args=False)
    assert partition.log_prob([0, 0, 0, 1, 2]) == -torch.inf
    assert partition.log_prob([0, 0, 1, 1, 3]) == -torch.inf


def test_common_factors_change_nothing() -> None:
    labels = law_of("three subsets")[0]
    partition = partition_of("three subsets")
    moved = RandomPartition(partition.log_scores + 500, partition.log_weights - 70)
    torch.testing.assert_close(
        moved.log_prob(labels), partition.log_prob(labels), rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("case", ["three subsets", "ties", "small groups"])
def test_derivatives_of_log_prob(case: str) -> None:
    scores, weights, sizes = CASES[case]
    labels = law_of(case)[0][::40]
    arguments = [torch.tensor(x, requires_grad=True) for x in (scores, weights)]

    def log_prob(log_scores: Tensor, log_weights: Tensor) -> Tensor:
        return RandomPartition(log_scores, log_weights, sizes).log_prob(labels)

    assert torch.autograd.gradcheck(log_prob, arguments)
    assert torch.autograd.gradgradcheck(log_prob, arguments)


def test_missing_items_do_not_matter() -> None:
    labels, log_prob = law_of("three subsets")
    scores, weights, _ = CASES["three subsets"]
    place = [0, 2, 3, 4, 6, 7]
    padded = torch.full((8,), torch.nan).index_put((torch.tensor(place),), torch.tensor(scores))
    given = torch.full((len(labels), 8), -1)
    given[:, place] = labels
    padded.requires_grad_()
    partition = RandomPartition(padded, torch.tensor(weights), mask=~padded.isnan())
    found = partition.log_prob(given)
    torch.testing.assert_close(found, log_prob, rtol=1e-12, atol=1e-12)
    found.sum().backward()
    assert padded.grad is not None
    assert (padded.grad[[1, 5]] == 0).all()
    drawn = partition.sample((50,))
    assert (drawn[:, [1, 5]] == -1).all()
    assert (drawn[:, place] >= 0).all()
    assert partition.support.check(drawn).all()


def test_float32_arguments_are_computed_in_float64() -> None:
    scores, weights = (torch.tensor(x, dtype=torch.float32) for x in CASES["three subsets"][:2])
    labels = law_of("three subsets")[0]
    found = RandomPartition(scores, weights).log_prob(labels)
    assert found.dtype == torch.float32
    expected = RandomPartition(scores.double(), weights.double()).log_prob(labels)
    torch.testing.assert_close(found, expected.float(), rtol=1e-7, atol=0)


class _LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result._is_view():
            self.elements = max(self.elements, result.numel())
        return result


def test_memory_is_linear_in_items_and_subsets() -> None:
    items, subsets = 20_000, 8
    scores, weights = (torch.randn(size, requires_grad=True) for size in (items, subsets))
    with _LargestTensor() as largest:
        partition = RandomPartition(scores, weights)
        partition.log_prob(partition.sample()).backward()
    assert items < largest.elements < 40 * items * subsets < items**2 / 40


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["three subsets", "four subsets", "small groups", "an empty group"]
)
def test_draws_follow_the_law(case: str) -> None:
    law = log_law(*CASES[case])
    index = {labels: place for place, labels in enumerate(law)}
    drawn = partition_of(case).sample((20_000,))
    assert drawn.dtype == torch.int64
    kinds, counts = torch.unique(drawn, dim=0, return_counts=True)
    observed = np.zeros(len(law), dtype=int)
    for labels, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        observed[index[tuple(labels)]] = count
    p_value = chi_square_p_value(observed, np.exp(list(law.values())))
    assert p_value > FALSE_ALARM


def test_draws_of_a_batch_have_its_shapes() -> None:
    partition = RandomPartition(torch.randn(4, 1, 5), torch.randn(3, 2), [[5, 5], [4, 2], [9, 7]])
    assert partition.batch_shape == (4, 3)
    assert partition.event_shape == (5,)
    drawn = partition.sample((7, 2))
    assert drawn.shape == (7, 2, 4, 3, 5)
    assert partition.support.check(drawn).all()
    log_prob = partition.log_prob(drawn)
    assert log_prob.shape == (7, 2, 4, 3)
    one = RandomPartition(partition.log_scores[2, 1], partition.log_weights[2, 1], [4, 2])
    torch.testing.assert_close(one.log_prob(drawn[:, :, 2, 1]), log_prob[:, :, 2, 1])
    expanded = one.expand((6,))
    assert expanded.sample().shape == (6, 5)
    torch.testing.assert_close(expanded.log_prob(drawn[3, 0, 2, 1]), log_prob[3, 0, 2, 1].expand(6))
    copied = copy.deepcopy(one)
    torch.testing.assert_close(copied.log_prob(drawn[0, 0, 2, 1]), log_prob[0, 0, 2, 1])


def test_seeds_decide_draws() -> None:
    partition = partition_of("three subsets")
    first, second = ((torch.manual_seed(3), partition.sample((9,)))[1] for _ in range(2))
    assert (first == second).all()


# --------------------------------------------------------------------------------------------------
# The most probable partition, and single items
# --------------------------------------------------------------------------------------------------


@every_case
def test_no_partition_is_more_probable_than_the_mode(case: str) -> None:
    partition = partition_of(case)
    largest = law_of(case)[1].max()
    assert partition.support.check(partition.mode)
    torch.testing.assert_close(partition.log_prob(partition.mode), largest, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_mode_of_seven_items_is_the_best_of_all_partitions(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores, weights = random.normal(scale=3, size=7).tolist(), random.normal(size=3).tolist()
    law = log_law(scores, weights)
    best = max(law, key=law.__getitem__)
    partition = RandomPartition(torch.tensor(scores), torch.tensor(weights))
    assert partition.mode.tolist() == list(best)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_integrals_of_pairs_of_cuts_are_those_of_log_prob(scale: float) -> None:
    torch.manual_seed(2)
    scores = (scale * torch.randn(40)).sort(descending=True).values
    log_first = _log_prob_of_first(scores.unsqueeze(0), torch.tensor([40]))[0]
    for start in (0, 3, 17, 38):
        left = scores[start:]
        # Where the sizes are certain, only the items count.
        for size in range(1, len(left)):
            two = RandomPartition(left, torch.zeros(2), [size, len(left) - size])
            labels = (torch.arange(len(left)) >= size).long()
            torch.testing.assert_close(
                log_first[start, start + size], two.log_prob(labels), rtol=1e-12, atol=1e-12
            )
    assert (log_first[:, 40] == 0).all()
    assert (log_first.diagonal() == 0).all()


def test_no_exchange_and_no_other_cut_improves_a_large_mode() -> None:
    torch.manual_seed(0)
    partition = RandomPartition(2 * torch.randn(2, 60), torch.randn(4))
    mode = partition.mode
    best = partition.log_prob(mode)
    others = mode.repeat(500, 1, 1)
    for labels in others.flatten(0, 1):
        i, j = torch.randint(60, (2,))
        labels[i] = labels[j] if torch.rand(()) < 0.5 else torch.randint(4, ())
    assert ((others != mode).any(-1).sum(0) > 200).all()
    assert (partition.log_prob(others) < best + 1e-9).all()


@every_case
def test_inclusion_is_the_sum_over_all_partitions(case: str) -> None:
    labels, log_prob = law_of(case)
    partition = partition_of(case)
    is_in = torch.nn.functional.one_hot(labels, partition.subsets)
    expected = (log_prob.exp()[:, None, None] * is_in).sum(0)
    torch.testing.assert_close(partition.inclusion(), expected, rtol=0, atol=1e-12)


def test_inclusion_is_the_share_of_draws() -> None:
    torch.manual_seed(4)
    partition = RandomPartition(torch.randn(2, 30), torch.randn(2, 4))
    drawn = torch.nn.functional.one_hot(partition.sample((20_000,)), 4).double()
    exact = partition.inclusion()
    z = (drawn.mean(0) - exact) / (exact * (1 - exact) / 20_000).sqrt()
    torch.testing.assert_close(exact.sum(-1), torch.ones(2, 30))
    torch.testing.assert_close(exact.sum(-2), partition.sizes.mean)
    assert z.abs().amax() < 5.1  # of 240 normal numbers: one run in ten thousand is beyond


@pytest.mark.parametrize("case", ["four subsets", "small groups"])
def test_derivatives_of_inclusion(case: str) -> None:
    scores, weights, sizes = CASES[case]
    arguments = [torch.tensor(x, requires_grad=True) for x in (scores, weights)]
    assert torch.autograd.gradcheck(
        lambda s, w: RandomPartition(s, w, sizes).inclusion(), arguments, atol=1e-6
    )


def test_missing_items_are_in_no_subset() -> None:
    scores, weights, _ = CASES["three subsets"]
    place = [0, 2, 3, 4, 6, 7]
    padded = torch.full((8,), torch.nan).index_put((torch.tensor(place),), torch.tensor(scores))
    hidden = RandomPartition(padded, torch.tensor(weights), mask=~padded.isnan())
    plain = partition_of("three subsets")
    assert hidden.mode[[1, 5]].tolist() == [-1, -1]
    assert hidden.mode[place].tolist() == plain.mode.tolist()
    inclusion = hidden.inclusion()
    assert (inclusion[[1, 5]] == 0).all()
    torch.testing.assert_close(inclusion[place], plain.inclusion(), rtol=0, atol=1e-12)


# --------------------------------------------------------------------------------------------------
# Monte Carlo
# --------------------------------------------------------------------------------------------------


def test_entropy_and_kl_are_estimated_with_their_errors() -> None:
    p, log_p = partition_of("three subsets"), law_of("three subsets")[1]
    labels = law_of("three subsets")[0]
    q = RandomPartition(torch.zeros(6), torch.zeros(3))
    exact = {
        "entropy": -(log_p.exp() * log_p).sum(),
        "kl": (log_p.exp() * (log_p - q.log_prob(labels))).sum(),
    }
    found = {"entropy": p.estimate_entropy(4000), "kl": p.estimate_kl(q, 4000)}
    for name, (value, error) in found.items():
        assert 0.001 < error < 0.05
        assert (value - exact[name]).abs() < 4.5 * error, name


def test_gradients_of_estimates_and_of_the_surrogate_are_unbiased() -> None:
    scores, weights = (torch.tensor(x, requires_grad=True) for x in CASES["four subsets"][:2])
    labels = law_of("four subsets")[0]
    partition = RandomPartition(scores, weights)
    log_prob = partition.log_prob(labels)
    cost = (labels * torch.arange(1, 6)).double().sum(-1).square()
    losses = {
        "entropy": (-(log_prob.exp() * log_prob).sum(), lambda: partition.estimate_entropy(100)[0]),
        "surrogate": (
            (log_prob.exp() * cost).sum(),
            lambda: score_surrogate(
                partition, lambda x: (x * torch.arange(1, 6)).double().sum(-1).square(), 100
            ),
        ),
    }
    for name, (exact, estimate) in losses.items():
        expected = torch.cat(torch.autograd.grad(exact, (scores, weights), retain_graph=True))
        runs = torch.stack(
            [torch.cat(torch.autograd.grad(estimate(), (scores, weights))) for _ in range(100)]
        )
        # Sums of derivatives are zero, so the error of each is compared with its own deviation.
        z = (runs.mean(0) - expected) / (runs.std(0) / 10)
        assert z.abs().amax() < 5, name


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"log_scores": [0.0, torch.nan]}, "log_scores at index"),
        ({"log_scores": 1.0}, "a last dimension of items"),
        ({"log_weights": []}, "one of subsets, one or more"),
        ({"log_weights": [0.0, torch.inf]}, "log_weights"),
        ({"group_sizes": [1, 0]}, "at least the number of items"),
        ({"log_weights": [0.0, -torch.inf], "group_sizes": [1, 5]}, "at least the number of items"),
        ({"group_sizes": [2, 2, 2]}, "must be the 2 subsets"),
        ({"group_sizes": [2.5, 2]}, "group_sizes"),
        ({"mask": [1, 0]}, "must be boolean"),
        ({"mask": [True, False, True]}, "must be the 2 items"),
        ({"log_scores": torch.zeros(3, 2), "log_weights": torch.zeros(4, 2)}, "do not broadcast"),
    ],
)
def test_bad_arguments_are_explained(arguments: dict[str, Any], sentence: str) -> None:
    plain: dict[str, Any] = {"log_scores": [0.0, 1.0], "log_weights": [0.0, 0.0]}
    with pytest.raises(ValueError, match=sentence):
        RandomPartition(**{**plain, **arguments})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([0, 0, 1, 2, 3], "from 0 to 2"),
        ([0, 0, 1, 2, -1], "from 0 to 2"),
        ([0.0, 0.5, 1.0, 2.0, 1.0], "from 0 to 2"),
        ([0, 0, 0, 1, 1], "more items than its group size"),
        ([0, 1], "must be the 5 items"),
    ],
)
def test_bad_values_are_explained(value: list[Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        partition_of("small groups").log_prob(value)


def test_a_label_of_a_missing_item_is_explained() -> None:
    partition = RandomPartition(torch.zeros(3), torch.zeros(2), mask=[True, False, True])
    with pytest.raises(ValueError, match="it must be -1"):
        partition.log_prob([0, 1, 1])


def test_an_estimate_needs_two_samples() -> None:
    with pytest.raises(ValueError, match="must be at least 2"):
        partition_of("ties").estimate_entropy(1)


def test_a_partition_of_nothing_is_certain() -> None:
    partition = RandomPartition(torch.zeros(2, 0), torch.zeros(3))
    assert partition.sample().shape == (2, 0)
    assert partition.log_prob(partition.sample()).tolist() == [0.0, 0.0]
    assert partition.mode.shape == (2, 0)
    assert partition.inclusion().shape == (2, 0, 3)
    hidden = RandomPartition(torch.zeros(2), torch.zeros(3), mask=[False, False])
    assert hidden.log_prob([-1, -1]) == 0
    assert hidden.mode.tolist() == [-1, -1]
    assert (hidden.inclusion() == 0).all()


@pytest.mark.parametrize("name", ["mean", "variance", "entropy"])
def test_labels_without_moments_say_which_method_has_them(name: str) -> None:
    partition = partition_of("three subsets")
    with pytest.raises(NotImplementedError, match=r"use (inclusion|estimate_entropy)\(\)"):
        partition.entropy() if name == "entropy" else getattr(partition, name)
