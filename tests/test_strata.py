"""The likelihood of cases within strata, with its derivatives, against listed subsets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.random import Generator
from torch import Tensor

from diffurn._fisher.regression import any_drawn, few_drawn, log_prob, one_drawn
from diffurn._numerics.ragged import batches, grouped, padded_size
from diffurn.inference.solving.strata import ANY, FEW, METHODS, ONE, WALLENIUS, Strata
from support.strata import in_forty_digits, listed, one_by_one

PADDED = 3


def problem(rng: Generator, size: int, cases: int, spread: float = 2.0) -> tuple[np.ndarray, ...]:
    case = np.zeros(size)
    case[rng.permutation(size)[:cases]] = 1
    return spread * rng.normal(size=size), case, rng.normal(size=(size, 2)) + 7


def padded(*arrays: np.ndarray) -> tuple[Tensor, ...]:
    """A batch of one stratum with places that hold no row: log ω, present, drawn, V."""
    log_weights, case, design = arrays
    empty = [
        np.concatenate([x, 5 + np.zeros((PADDED, *x.shape[1:]))]) for x in (log_weights, design)
    ]
    present = np.concatenate([np.ones_like(case), np.zeros(PADDED)])
    drawn = np.concatenate([case, np.zeros(PADDED)])
    return tuple(torch.tensor(x).unsqueeze(0) for x in (empty[0], present, drawn, empty[1]))


LISTED = [
    (method, size, cases)
    for size, cases in [(2, 1), (7, 1), (7, 3), (8, 7), (12, 6)]
    for method in (one_drawn, few_drawn, any_drawn)
    if method is not one_drawn or cases == 1
]


@pytest.mark.parametrize(("method", "size", "cases"), LISTED)
def test_value_score_and_information_equal_those_of_listed_subsets(method, size, cases) -> None:
    arrays = problem(np.random.default_rng(size + cases), size, cases)
    found = method(*padded(*arrays))
    for mine, expected in zip(found, listed(*arrays), strict=True):
        torch.testing.assert_close(
            mine[0], torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-11
        )


@pytest.mark.parametrize("method", [few_drawn, any_drawn], ids=lambda f: f.__name__)
def test_extreme_log_weights_keep_all_digits(method) -> None:
    rng = np.random.default_rng(3)
    log_weights, case, design = problem(rng, 12, 5, spread=200.0)
    value = method(*padded(log_weights, case, design))[0]
    expected = in_forty_digits(log_weights, case)
    assert float(value) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize(("size", "cases"), [(400, 200), (900, 3), (500, 490)])
def test_large_strata_equal_forty_digits(size: int, cases: int) -> None:
    log_weights, case, design = problem(np.random.default_rng(size), size, cases)
    expected = float(in_forty_digits(log_weights, case))
    operands = padded(log_weights, case, design)
    assert float(any_drawn(*operands)[0]) == pytest.approx(expected, abs=1e-10)
    assert float(log_prob(*operands[:3])) == pytest.approx(expected, abs=1e-10)


def test_slices_of_a_long_stratum_add_up() -> None:
    """A stratum of 12,000 rows is passed in several slices; twelve strata of 1,000 are not."""
    log_weights, case, design = problem(np.random.default_rng(0), 12_000, 6000, spread=0.5)
    _, score, information = any_drawn(*padded(log_weights, case, design))
    odds = torch.tensor(log_weights) + 0.5 * np.log(6000 / 6000)
    p = torch.sigmoid(odds)
    v, x = p * (1 - p), torch.tensor(design)
    centred = x - (v @ x) / v.sum()
    # With so many rows the cases are almost independent: the relative difference is about 1/N.
    independent = centred.mT @ (v.unsqueeze(-1) * centred)
    torch.testing.assert_close(information[0], independent, rtol=2e-3, atol=0.2)
    assert score.shape == (1, 2)


@pytest.mark.parametrize("method", [one_drawn, few_drawn, any_drawn], ids=lambda f: f.__name__)
def test_the_score_is_the_gradient_and_can_be_differentiated(method) -> None:
    log_weights, case, design = problem(
        np.random.default_rng(5), 6, 1 if method is one_drawn else 3
    )
    operands = padded(log_weights, case, design)
    beta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    moved = operands[0] + operands[3] @ beta
    value, score, information = method(moved, *operands[1:])
    (slope,) = torch.autograd.grad(value.sum(), beta, retain_graph=True)
    torch.testing.assert_close(slope, score[0])
    (curvature,) = torch.autograd.grad(score[0, 0], beta, retain_graph=True)
    torch.testing.assert_close(-curvature, information[0, 0])


def strata_of(sizes: list[int], cases: list[int], wallenius: bool = False) -> Strata:
    rng = np.random.default_rng(sum(sizes))
    labels = torch.tensor(np.repeat(np.arange(len(sizes)), sizes))
    design = torch.tensor(rng.normal(size=(len(labels), 2)))
    events = torch.cat([torch.arange(n) < k for n, k in zip(sizes, cases, strict=True)]).double()
    shuffled = torch.tensor(rng.permutation(len(labels)))
    ones, offset = (
        torch.ones(len(labels), dtype=torch.float64),
        torch.tensor(rng.normal(size=len(labels))),
    )
    columns = design[shuffled], events[shuffled], offset[shuffled], labels[shuffled], ones
    return Strata.of(*columns, torch.arange(len(labels)), ("a", "b"), wallenius)


def test_every_stratum_is_in_one_tile_and_has_its_own_likelihood() -> None:
    sizes, cases = [2, 3, 3, 9, 10, 80, 5, 5, 5], [1, 2, 1, 4, 9, 30, 0, 5, 2]
    strata, beta = strata_of(sizes, cases), torch.tensor([0.4, -0.7], dtype=torch.float64)
    assert strata.units == 7  # two strata have no case or no control
    seen, methods = [], set()
    for _, tile in strata.tiles():
        methods.add((tile.method, tile.sign))
        for place, stratum in enumerate(tile.strata.tolist()):
            mine = strata.numbers == stratum
            log_weights = (strata.design @ beta + strata.offset)[mine].numpy()
            if mine.sum() < 20:
                arrays = log_weights, strata.events[mine].numpy(), strata.design[mine].numpy()
                expected = listed(*arrays)
                for found, wanted in zip(tile.derivatives(beta), expected, strict=True):
                    np.testing.assert_allclose(found[place], wanted, atol=1e-11)
            seen.append(stratum)
    assert sorted(seen) == list(range(7))
    assert methods - {(FEW, 1)} == {(ONE, 1), (ONE, -1), (ANY, 1)}


def test_wallenius_strata_equal_all_orders_of_the_cases() -> None:
    strata, beta = strata_of([4, 6, 6], [2, 3, 1], True), torch.tensor([1.0, 0.5]).double()
    for _, tile in strata.tiles():
        assert tile.method == (ONE if tile.drawn.sum() == len(tile.strata) else WALLENIUS)
        assert tile.method in METHODS
        for place, stratum in enumerate(tile.strata.tolist()):
            mine = strata.numbers == stratum
            log_weights = (strata.design @ beta + strata.offset)[mine].numpy()
            expected = one_by_one(log_weights, strata.events[mine].numpy())
            assert float(tile.derivatives(beta)[0][place]) == pytest.approx(expected, abs=1e-10)


def test_batches_hold_every_row_once_and_little_padding() -> None:
    sizes = torch.randint(1, 400, (300,), generator=torch.Generator().manual_seed(0))
    seen = torch.zeros(int(sizes.sum()))
    places = 0
    for _, batch in batches(sizes, sizes % 2, 5000):
        assert batch.rows.numel() <= max(5000, int(sizes.max()))
        seen[batch.rows[batch.present > 0]] += 1
        places += batch.rows.numel()
    assert bool((seen == 1).all())
    assert places <= 1.13 * len(seen)
    assert bool((padded_size(sizes) >= sizes).all())


def test_grouping_sorts_labels_and_keeps_the_order_of_rows() -> None:
    order, numbers, sizes = grouped(torch.tensor([7, -2, 7, 7, 5]))
    assert (order.tolist(), numbers.tolist(), sizes.tolist()) == (
        [1, 4, 0, 2, 3],
        [0, 1, 2, 2, 2],
        [1, 1, 3],
    )
