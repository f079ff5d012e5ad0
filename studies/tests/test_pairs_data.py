"""Draws of pairs against the laws they are said to have, computed here by counting subsets; the
false-alarm rate of a test is 1e-5.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from diffurn_studies.pairs.sampler import Pairs, draw_pairs, uniforms_per_pair
from support.goodness import chi_square_p_value

FALSE_ALARMS = 1e-5
SIZES = (6, 6, 2, 3, 3, 40, 40)
FEW = (2, 3, 5, 4)
RANDOM = -1


def pairs_of(
    sizes: tuple[int, ...], number: int, shared: int, sampler: str = "exact", seed: int = 0
) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(
        number, uniforms_per_pair(len(sizes)), generator=generator, dtype=torch.float32
    )
    return draw_pairs(uniforms, torch.tensor(sizes), shared, sampler)


def as_number(subset: Tensor) -> Tensor:
    """Subsets of the factors as binary numbers."""
    return (subset.long() * 2 ** torch.arange(subset.shape[-1])).sum(-1)


def assert_follows(outcomes: Tensor, probabilities: np.ndarray, tests: int = 1) -> None:
    assert math.isclose(probabilities.sum(), 1.0)
    observed = torch.bincount(outcomes, minlength=probabilities.size).numpy()
    assert observed.size == probabilities.size
    assert observed[probabilities.ravel() == 0].sum() == 0
    assert chi_square_p_value(observed, probabilities) > FALSE_ALARMS / tests


@pytest.mark.parametrize("shared", range(len(SIZES) + 1))
def test_exactly_so_many_factors_are_shared_and_all_others_differ(shared: int) -> None:
    pairs = pairs_of(SIZES, 20_000, shared)
    first, second = pairs.factors.unbind(-2)
    assert pairs.factors.dtype == pairs.known.dtype == torch.int64
    assert torch.equal(pairs.shared, first == second)
    assert torch.all(pairs.shared.sum(-1) == shared)
    assert torch.all((pairs.factors >= 0) & (pairs.factors < torch.tensor(SIZES)))


@pytest.mark.parametrize("shared", [1, 3, 5])
def test_subsets_and_their_known_members_are_equally_likely(
    shared: int,
) -> None:
    pairs = pairs_of(SIZES, 60_000, shared, seed=shared)
    assert not pairs.shared.gather(-1, pairs.known.unsqueeze(-1)).any()
    factors = len(SIZES)
    law = np.zeros((2**factors, factors))
    for chosen in itertools.combinations(range(factors), shared):
        independent = [factor for factor in range(factors) if factor not in chosen]
        law[sum(2**factor for factor in chosen), independent] = (
            1 / math.comb(factors, shared) / len(independent)
        )
    assert_follows(as_number(pairs.shared) * factors + pairs.known, law)


@pytest.mark.parametrize("shared", range(len(SIZES) + 1))
def test_fixed_sets_share_the_first_factors_and_no_other(shared: int) -> None:
    pairs = pairs_of(SIZES, 20_000, shared, "fixed", seed=shared)
    first, second = pairs.factors.unbind(-2)
    truly = torch.arange(len(SIZES)) < shared
    assert torch.equal(first == second, truly.expand(20_000, -1))
    assert torch.equal(pairs.shared, first == second)
    changed = np.zeros(len(SIZES))
    changed[shared % len(SIZES) :] = 1 / (len(SIZES) - shared % len(SIZES))
    assert_follows(pairs.known, changed, tests=len(SIZES) + 1)


def test_fixed_sets_of_a_random_number_share_the_first_factors() -> None:
    shared = pairs_of(SIZES, 30_000, RANDOM, "fixed", seed=3).shared
    number = shared.sum(-1, keepdim=True)
    assert torch.equal(shared, torch.arange(len(SIZES)) < number)
    assert_follows(number[:, 0], np.array([0, *[1 / 6] * 6]))


@pytest.mark.parametrize("sampler", ["exact", "loose", "fixed"])
def test_the_values_of_both_views_are_uniform(sampler: str) -> None:
    pairs = pairs_of(SIZES, 40_000, 3, sampler, seed=10)
    for view, (factor, size) in itertools.product(range(2), enumerate(SIZES)):
        assert_follows(
            pairs.factors[:, view, factor], np.full(size, 1 / size), tests=2 * len(SIZES)
        )


@pytest.mark.parametrize("size", [2, 3, 5, 40])
def test_a_factor_that_differs_takes_every_two_values_equally_often(size: int) -> None:
    first, second = pairs_of((3, size), 60_000, 0, seed=11).factors[..., 1].unbind(-1)
    law = (1 - np.eye(size)) / (size * (size - 1))
    assert_follows(first * size + second, law)


def test_values_of_different_factors_are_independent() -> None:
    factors = pairs_of(FEW, 60_000, 2, seed=12).factors
    combination = (factors[:, 0] * torch.tensor([60, 20, 4, 1])).sum(-1)
    assert_follows(combination, np.full(120, 1 / 120))


def test_a_random_number_of_changes_is_uniform_from_one_to_all_but_one() -> None:
    changed = len(SIZES) - pairs_of(SIZES, 40_000, RANDOM, seed=13).shared.sum(-1)
    assert_follows(changed, np.array([0, *[1 / 6] * 6, 0]))


def loose_law(sizes: tuple[int, ...], shared: int) -> Iterator[tuple[set[int], int, float]]:
    """Every subset that can be equal, with the known factor and the probability of both, once for
    every way to it.
    """
    factors = len(sizes)
    changes = range(1, factors) if shared == RANDOM else [factors - shared]
    for most, number_by_coin in itertools.product(changes, (0, 1)):
        number = (1, most)[number_by_coin]
        for chosen in itertools.combinations(range(factors), number):
            for kept in itertools.product((False, True), repeat=number):
                of_values = math.prod(
                    1 / sizes[i] if same else 1 - 1 / sizes[i]
                    for i, same in zip(chosen, kept, strict=True)
                )
                equal = set(range(factors)) - {
                    i for i, same in zip(chosen, kept, strict=True) if not same
                }
                for known in chosen:
                    yield (
                        equal,
                        known,
                        of_values / len(changes) / 2 / math.comb(factors, number) / number,
                    )


@pytest.mark.parametrize("shared", [0, 1, 2, 3, RANDOM])
def test_the_loose_sampler_shares_what_enumeration_says(shared: int) -> None:
    factors, law = len(FEW), np.zeros((2 ** len(FEW), len(FEW)))
    for equal, known, probability in loose_law(FEW, shared):
        law[sum(2**factor for factor in equal), known] += probability
    pairs = pairs_of(FEW, 60_000, shared, "loose", seed=14)
    assert torch.equal(pairs.shared, pairs.factors[:, 0] == pairs.factors[:, 1])
    assert_follows(as_number(pairs.shared) * factors + pairs.known, law)


def test_the_loose_sampler_shares_more_factors_than_asked_for() -> None:
    law = np.zeros(len(SIZES) + 1)
    for equal, _, probability in loose_law(SIZES, 3):
        law[len(equal)] += probability
    assert_follows(pairs_of(SIZES, 60_000, 3, "loose", seed=15).shared.sum(-1), law)


@pytest.mark.parametrize("sampler", ["exact", "loose"])
def test_each_model_of_a_stack_has_its_own_number(sampler: str) -> None:
    uniforms = torch.rand(4, 5, 6, uniforms_per_pair(len(SIZES)), dtype=torch.float32)
    numbers = [0, 3, RANDOM, 7]
    together = draw_pairs(
        uniforms, torch.tensor(SIZES), torch.tensor(numbers)[:, None, None], sampler
    )
    assert [tuple(part.shape) for part in together] == [(4, 5, 6, 2, 7), (4, 5, 6, 7), (4, 5, 6)]
    for model, number in enumerate(numbers):
        alone = draw_pairs(uniforms[model], torch.tensor(SIZES), number, sampler)
        assert all(
            torch.equal(mine[model], theirs) for mine, theirs in zip(together, alone, strict=True)
        )


@pytest.mark.parametrize("sampler", ["exact", "loose"])
def test_the_smallest_and_largest_uniforms_give_values_within_bounds(sampler: str) -> None:
    sizes = torch.arange(2, 1000)
    for extreme in (0.0, 1 - 2**-24):
        uniforms = torch.full((uniforms_per_pair(len(sizes)),), extreme, dtype=torch.float32)
        for shared in (0, RANDOM):
            pairs = draw_pairs(uniforms, sizes, shared, sampler)
            assert torch.all((pairs.factors >= 0) & (pairs.factors < sizes))
            assert 0 <= pairs.known < len(sizes)


def test_equal_uniforms_still_order_the_factors() -> None:
    pairs = draw_pairs(torch.full((uniforms_per_pair(7),), 0.25), torch.tensor(SIZES), 3)
    assert int(pairs.shared.sum()) == 3


# torch itself, on first use of its compiler, calls functions that it has deprecated
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("sampler", ["exact", "loose"])
def test_draws_are_one_graph_without_a_look_at_values(sampler: str) -> None:
    uniforms = torch.rand(2, 9, uniforms_per_pair(len(SIZES)), dtype=torch.float32)
    sizes, shared = torch.tensor(SIZES), torch.tensor([[2], [RANDOM]])
    torch.compiler.reset()
    compiled = torch.compile(draw_pairs, fullgraph=True, backend="eager")(
        uniforms, sizes, shared, sampler
    )
    assert all(
        torch.equal(mine, theirs)
        for mine, theirs in zip(compiled, draw_pairs(uniforms, sizes, shared, sampler), strict=True)
    )


def test_impossible_requests_are_refused() -> None:
    sizes = torch.tensor(SIZES)
    uniforms = torch.rand(3, uniforms_per_pair(len(SIZES)))
    with pytest.raises(ValueError, match="from 0 to 7"):
        draw_pairs(uniforms, sizes, 8)
    with pytest.raises(ValueError, match="from 0 to 7"):
        draw_pairs(uniforms, sizes, -2)
    with pytest.raises(ValueError, match="choose exact, loose, fixed"):
        draw_pairs(uniforms, sizes, 2, "sloppy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes 23 numbers"):
        draw_pairs(uniforms[:, 1:], sizes, 2)
