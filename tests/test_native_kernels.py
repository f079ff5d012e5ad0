"""C kernels on the CPU: the same numbers as PyTorch's operations, and only where these may be
replaced. `test_accuracy` and others compare both with oracles.
"""

from __future__ import annotations

import mpmath
import pytest
import torch
from torch import Tensor

from diffurn._fisher import moments, tilt
from diffurn._kernels import dispatch
from support.kernel_cases import (
    NATIVE,
    allowed_error,
    binomial_cases,
    log_binomial,
    plain,
)
from support.urns import URNS, Urn

if not dispatch.HAS_NATIVE:
    pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0", allow_module_level=True)

from diffurn._kernels.native import fisher as kernels


def operands(urns: list[Urn]) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, sizes and draws of urns with one number of groups."""
    return (
        torch.tensor([urn.log_weights for urn in urns], dtype=torch.float64),
        torch.tensor([urn.group_sizes for urn in urns], dtype=torch.float64),
        torch.tensor([urn.draws for urn in urns], dtype=torch.float64),
    )


@pytest.mark.parametrize("name", NATIVE)
def test_a_kernel_is_found_from_the_primitive_that_it_replaces(name: str) -> None:
    assert dispatch.native_kernel_of(NATIVE[name]) is getattr(kernels, name)


def assert_near(ours: Tensor, theirs: Tensor, allowed: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ((ours == theirs) | ((ours - theirs).abs() <= allowed)).all()


def assert_as_plain(urns: list[Urn]) -> None:
    log_weights, sizes, draws = operands(urns)
    wanted = plain("log_tilt", log_weights, sizes, draws)
    never = log_weights == -torch.inf
    log_odds = torch.where(never, 0.0, log_weights + wanted.unsqueeze(-1))
    sizes = torch.where(never, 0.0, sizes)
    # Tilts move the mean of the sum by their variance; both stop when it is right to a small part
    # of a standard deviation.
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    allowed = 1e-3 / spread.sqrt().clamp(min=0.5) + 1e-15 * wanted.abs()
    assert_near(kernels.log_tilt(log_weights, sizes, draws), wanted, allowed)
    own = kernels.centring_tilt(log_odds, sizes, draws)
    assert_near(own, plain("centring_tilt", log_odds, sizes, draws), allowed)

    urn = log_odds, sizes, draws
    wanted = plain("log_mass", *urn)
    assert_near(kernels.log_mass(*urn), wanted, 1e-13 * wanted.abs().clamp(min=1))
    wanted = plain("mean", *urn)
    assert_near(kernels.mean(*urn), wanted, 1e-13 * wanted)
    wanted = plain("mean_shift", *urn)
    assert_near(kernels.mean_shift(*urn), wanted, 1e-13 * (wanted.abs() + spread.unsqueeze(-1)))
    untilted = torch.where(never, 0.0, log_weights), sizes, draws
    wanted = plain("mean_anywhere", *untilted)
    assert_near(kernels.mean_anywhere(*untilted), wanted, 1e-13 * wanted)
    counts = torch.minimum(sizes, wanted.round())  # need not sum to n
    log_prob = plain("log_prob", *untilted, counts)
    error = 1e-12 * log_prob.abs().clamp(min=1) + 1e-15 * sizes.sum(-1)
    assert_near(kernels.log_prob(*untilted, counts), log_prob, error)
    vector = torch.randn_like(log_odds)
    for wanted, ours in (
        (plain("covariance_product", *urn, vector), kernels.covariance_product(*urn, vector)),
        (plain("variance", *urn), kernels.variance(*urn)),
    ):
        assert_near(ours, wanted, 1e-12 * wanted.abs().amax(-1, keepdim=True))


@pytest.mark.parametrize("groups", sorted({urn.groups for urn in URNS}))
def test_numbers_of_all_urns_are_those_of_the_plain_path(groups: int) -> None:
    assert_as_plain([urn for urn in URNS if urn.groups == groups])


def test_groups_beyond_one_tile_are_counted_too() -> None:
    for groups in (31, 32, 33, 67, 1027):
        spread = tuple(3.0 * ((7 * j) % groups) / groups for j in range(groups))
        gaps = tuple(5 * (j % 2) for j in range(groups))
        many = tuple(j % 19 for j in range(groups))
        assert_as_plain(
            [
                Urn("many", many, 4 * groups, spread),
                Urn("gaps", gaps, 2 * groups, tuple(20 * w for w in spread)),
                Urn("single balls", (1,) * groups, groups // 3, spread),
            ]
        )


def test_hard_tilts_reach_half_a_ball_below_the_draws() -> None:
    """Ties, and draws at the end of a group with much lighter ones behind it."""
    sizes = torch.tensor(
        [[37925558.0] * 4, [1e7, 2e7, 7.0, 1e7], [445511339.0, 21.0, 2279886477.0, 930856.0]]
    ).double()
    draws = torch.tensor([75851116.0, 30000004.0, 2280817333.0]).double()
    log_weights = torch.tensor([[0.0] * 4, [0.0, 0.0, 0.0, -50.0], [0.0, -23.4, 70.1, 23.4]])
    assert_tilted(log_weights.double(), sizes, draws)


def assert_tilted(log_weights: Tensor, sizes: Tensor, draws: Tensor) -> None:
    log_odds = log_weights + kernels.log_tilt(log_weights, sizes, draws).unsqueeze(-1)
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    missed = (sizes * torch.sigmoid(log_odds)).sum(-1) - (draws - 0.5)
    assert (missed.abs() < 0.01 * spread.sqrt() + 1e-15 * draws).all()


def test_tilts_of_random_urns_reach_half_a_ball_below_the_draws() -> None:
    for scale, most in ((1.0, 10), (30.0, 50), (300.0, 3), (1e5, 10**6)):
        sizes = torch.randint(0, most, (400, 6)).double()
        sizes[:, 0] += 1
        draws = (1 + torch.rand(400) * (sizes.sum(-1) - 1)).floor()
        log_weights = scale * torch.randn(400, 6)
        log_weights[::3, 1] = log_weights[::3, 2]  # equal weights
        assert_tilted(log_weights, sizes, draws)


@pytest.mark.parametrize(
    "function", ["log_tilt", "log_mass", "mean", "covariance_product", "variance"]
)
def test_draws_of_nan_give_nan(function: str) -> None:
    log_odds, sizes = torch.zeros(1, 3), torch.full((1, 3), 4.0)
    arguments = [log_odds, sizes, torch.full((1,), torch.nan)]
    arguments += [log_odds + 1] if function == "covariance_product" else []
    assert getattr(kernels, function)(*arguments).isnan().all()
    assert plain(function, *arguments).isnan().all()


def test_shapes_broadcast_and_strides_do_not_matter() -> None:
    sizes, draws = torch.tensor([[325.0, 285.0, 706.0, 885.0]]), torch.tensor([711.0])
    log_odds = torch.randn(4, 3).mT
    log_odds = log_odds + tilt.log_tilt(log_odds, sizes, draws).unsqueeze(-1)
    vectors = torch.randn(5, 1, 4)
    found = kernels.covariance_product(log_odds, sizes[0], draws, vectors)
    wanted = plain("covariance_product", log_odds.expand(5, 3, 4), sizes[0], draws, vectors)
    assert_near(found, wanted, torch.tensor(1e-11))
    wanted = plain("mean", log_odds.contiguous(), sizes, draws)
    assert_near(moments.mean_value(log_odds, sizes, draws), wanted, 1e-13 * wanted)
    assert kernels.log_tilt(log_odds[0], sizes, torch.stack([draws, draws - 1])).shape == (2, 1)


def test_empty_batches_have_no_results() -> None:
    log_odds, sizes, draws = torch.zeros(0, 4), torch.ones(4), torch.ones(1)
    assert kernels.mean(log_odds, sizes, draws).shape == (0, 4)
    assert kernels.log_tilt(log_odds, sizes, draws).shape == (0,)
    assert kernels.covariance_product(log_odds, sizes, draws, sizes).shape == (0, 4)
    assert kernels.binomial_log_pmf(log_odds, log_odds, log_odds).shape == (0, 4)


# --------------------------------------------------------------------------------------------------
# Binomial masses
# --------------------------------------------------------------------------------------------------


def as_columns(cases: list[tuple[float, int, float]]) -> list[Tensor]:
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*cases, strict=True)]


def test_binomial_masses_agree_with_fifty_digits() -> None:
    cases = binomial_cases()
    ours = kernels.binomial_log_pmf(*as_columns(cases)).tolist()
    with mpmath.workdps(50):
        for case, found in zip(cases, ours, strict=True):
            exact, mean = log_binomial(*case)
            assert abs(found - exact) <= allowed_error(case, exact, mean), case


def test_binomial_masses_of_impossible_counts_are_those_of_pytorch() -> None:
    nan, inf = torch.nan, torch.inf
    cases = [(nan, 5, 0.0), (1, nan, 0.0), (1, 5, nan), (nan, 0, 700.0), (-1, 5, 0.3)]
    cases += [(-1e-300, 5, 0.3), (6, 5, -0.3), (5.001, 5, -0.3), (inf, 5, 0.3), (-inf, 5, 0.3)]
    cases += [(1, 0, 2.0), (0, 0, 3.0), (0, 0, -900.0), (0, 5, -inf), (5, 5, inf), (0, 5, inf)]
    cases += [(5, 5, -inf), (2, 5, inf), (2, 5, -inf)]
    wanted = plain("binomial_log_pmf", *as_columns(cases))
    found = kernels.binomial_log_pmf(*as_columns(cases))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
