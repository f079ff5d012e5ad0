"""Wallenius' law: mode, entropy and divergences, which are sums over the support, against the same
sums in eighty digits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from support import wallenius_oracles as oracles
from support.distributions import GeneralWallenius, error, wallenius
from support.tolerances import WALLENIUS_SMALL
from support.urns import Urn
from support.wallenius_oracles import SMALL, AtOnce, Balls, DrawByDraw, draw_by_draw

every_small_urn = pytest.mark.parametrize("urn", SMALL, ids=str)
# By dynamic programming where it pays, and by integrals.
both_ways = pytest.mark.parametrize("kind", [WalleniusHypergeometric, GeneralWallenius])

Law = type[FisherHypergeometric] | type[WalleniusHypergeometric]
ORACLES: dict[Law, type[DrawByDraw]] = {
    WalleniusHypergeometric: DrawByDraw,
    FisherHypergeometric: AtOnce,
}
# At least one of the two is Wallenius' law.
PAIRS: list[tuple[Law, Law]] = [
    (WalleniusHypergeometric, WalleniusHypergeometric),
    (WalleniusHypergeometric, FisherHypergeometric),
    (FisherHypergeometric, WalleniusHypergeometric),
]
every_pair = pytest.mark.parametrize(
    ("p", "q"), PAIRS, ids=[f"{p.__name__[0]}-from-{q.__name__[0]}" for p, q in PAIRS]
)
THREE = Urn("three", (4, 3, 5), 6, (0.3, -1.1, 0.6))


def build(law: Law, urn: Urn, log_weights: Tensor) -> Distribution:
    return law(urn.group_sizes, urn.draws, log_weights=log_weights)


def other_weights(urn: Urn) -> Urn:
    """The same groups with other weights; groups of weight zero stay so."""
    changed = tuple(lw + 0.7 * (-1) ** j * (1 + j % 3) for j, lw in enumerate(urn.log_weights))
    return Urn(urn.name, urn.group_sizes, urn.draws, changed)


# --------------------------------------------------------------------------------------------------
# Mode and entropy
# --------------------------------------------------------------------------------------------------


@both_ways
@every_small_urn
def test_the_mode_is_the_most_probable_outcome(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    mode = wallenius(urn, device, kind=kind).mode
    assert mode.dtype == torch.float64
    assert tuple(mode.long().tolist()) == draw_by_draw(Balls.of_urn(urn)).mode


@pytest.mark.parametrize(
    ("sizes", "draws", "mode"),
    [((1, 1, 1, 1), 2, [1, 1, 0, 0]), ((3, 3, 3), 4, [2, 1, 1]), ((5, 5), 5, [3, 2])],
)
def test_a_tied_ball_goes_to_the_earlier_group_as_in_fishers_law(
    sizes: tuple[int, ...], draws: int, mode: list[int], device: torch.device
) -> None:
    weights = torch.full((len(sizes),), 1.7, device=device)
    for law in (WalleniusHypergeometric, FisherHypergeometric):
        assert law(sizes, draws, weights=weights).mode.tolist() == mode


@both_ways
@every_small_urn
def test_entropy_keeps_ten_digits(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    exact = draw_by_draw(Balls.of_urn(urn)).entropy
    ours = wallenius(urn, device, kind=kind).entropy().item()
    assert error(ours, exact) <= max(WALLENIUS_SMALL.entropy * float(exact), 1e-12)


def test_entropy_has_the_slope_of_the_exact_entropy(device: torch.device) -> None:
    leaf = torch.tensor(THREE.log_weights, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(build(WalleniusHypergeometric, THREE, leaf).entropy(), leaf)
    for group in range(THREE.groups):
        exact = oracles.slope(lambda balls: DrawByDraw(balls).entropy, Balls.of_urn(THREE), group)
        assert error(gradient[group].item(), exact) <= 1e-10


# --------------------------------------------------------------------------------------------------
# Divergences
# --------------------------------------------------------------------------------------------------


def allowed(p: DrawByDraw, q: DrawByDraw) -> float:
    """Each log-probability has an error relative to itself."""
    sizes = [
        probability * (2 + abs(p.log_prob(x)) + abs(q.log_prob(x)))
        for x, probability in p.law.items()
    ]
    return WALLENIUS_SMALL.log_prob * float(mp.fsum(sizes))


@every_pair
@every_small_urn
def test_divergences_keep_ten_digits(urn: Urn, p: Law, q: Law, device: torch.device) -> None:
    first, second = urn, other_weights(urn)
    exact = [ORACLES[law](Balls.of_urn(own)) for law, own in ((p, first), (q, second))]
    ours = kl_divergence(
        *(
            build(law, own, torch.tensor(own.log_weights, device=device))
            for law, own in ((p, first), (q, second))
        )
    )
    assert error(ours.item(), oracles.divergence(*exact)) <= allowed(*exact)


@every_pair
def test_divergences_have_the_slopes_of_the_exact_ones(
    p: Law, q: Law, device: torch.device
) -> None:
    first, second = THREE, other_weights(THREE)
    leaves = [
        torch.tensor(own.log_weights, device=device, requires_grad=True) for own in (first, second)
    ]
    ours = kl_divergence(build(p, first, leaves[0]), build(q, second, leaves[1]))
    gradients = torch.autograd.grad(ours, leaves)
    fixed = ORACLES[p](Balls.of_urn(first)), ORACLES[q](Balls.of_urn(second))
    functions: list[Callable[[Balls], mpf]] = [
        lambda balls: oracles.divergence(ORACLES[p](balls), fixed[1]),
        lambda balls: oracles.divergence(fixed[0], ORACLES[q](balls)),
    ]
    for own, function, gradient in zip((first, second), functions, gradients, strict=True):
        for group in range(own.groups):
            exact = oracles.slope(function, Balls.of_urn(own), group)
            assert error(gradient[group].item(), exact) <= 1e-10 * max(1.0, abs(float(exact)))


@every_pair
def test_a_divergence_is_infinite_where_only_the_first_draws_a_group(
    p: Law, q: Law, device: torch.device
) -> None:
    some = torch.tensor([0.3, 0.1, 0.2], device=device)
    none = torch.tensor([0.3, -torch.inf, 0.2], device=device)
    urn = Urn("some", (4, 3, 5), 6, tuple(some.tolist()))
    assert kl_divergence(build(p, urn, some), build(q, urn, none)).item() == torch.inf
    assert kl_divergence(build(p, urn, none), build(q, urn, some)).isfinite()
    never = build(p, urn, none), build(q, urn, none)
    assert kl_divergence(*never).isfinite()


@every_pair
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_divergence_from_an_urn_of_other_draws_is_infinite(
    dtype: torch.dtype, p: Law, q: Law, device: torch.device
) -> None:
    weights = torch.ones(3, dtype=dtype, device=device)
    found = kl_divergence(p([4, 3, 5], 6, weights=weights), q([4, 3, 5], 5, weights=weights))
    assert found.item() == torch.inf
    assert (found.dtype, found.device) == (dtype, weights.device)


@every_pair
@pytest.mark.parametrize(
    "shapes",
    [((5,), ()), ((), (5,)), ((4,), ()), ((), (4,)), ((2, 1), (3,)), ((3,), (2, 1))],
    ids=str,
)
def test_divergences_of_batches_are_those_of_their_urns(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], p: Law, q: Law, device: torch.device
) -> None:
    """Also where the batch is as long as the support, here of four outcomes."""
    urn = Urn("four-outcomes", (3, 4), 3, (0.0, 0.0))
    weights = [torch.randn(*shape, 2, device=device) for shape in shapes]
    batch = torch.broadcast_shapes(*shapes)
    found = kl_divergence(*(build(law, urn, own) for law, own in zip((p, q), weights, strict=True)))
    assert found.shape == batch
    rows = [own.expand(*batch, 2).reshape(-1, 2) for own in weights]
    for ours, first, second in zip(found.flatten(), *rows, strict=True):
        alone = kl_divergence(build(p, urn, first), build(q, urn, second))
        torch.testing.assert_close(ours, alone, rtol=1e-12, atol=1e-12)


@every_pair
def test_an_urn_of_other_draws_in_a_batch_leaves_the_others_finite(
    p: Law, q: Law, device: torch.device
) -> None:
    """Or divergences of such a batch are refused; they are not all infinite."""
    weights = torch.tensor([[1.0, 2.0], [1.0, 2.0]], device=device)
    first, second = p([3, 4], [3, 3], weights=weights), q([3, 4], [3, 2], weights=weights.flip(-1))
    try:
        found = kl_divergence(first, second)
    except NotImplementedError:
        return
    alone = kl_divergence(
        p([3, 4], 3, weights=weights[0]), q([3, 4], 3, weights=weights[0].flip(-1))
    )
    torch.testing.assert_close(found, torch.stack([alone, torch.full_like(alone, torch.inf)]))


@every_pair
def test_divergences_need_equal_group_sizes(p: Law, q: Law, device: torch.device) -> None:
    weights = torch.ones(2, device=device)
    with pytest.raises(NotImplementedError, match=r"equal group sizes, got \[3, 4\] and \[3, 5\]"):
        kl_divergence(p([3, 4], 3, weights=weights), q([3, 5], 3, weights=weights))


# --------------------------------------------------------------------------------------------------
# The contract of all three
# --------------------------------------------------------------------------------------------------

SUMS: dict[str, Callable[[WalleniusHypergeometric], Tensor]] = {
    "mode": lambda urn: urn.mode,
    "entropy": lambda urn: urn.entropy(),
    "KL divergence": lambda urn: kl_divergence(
        urn, FisherHypergeometric(urn.group_sizes, urn.draws, weights=0 * urn.weights + 1)
    ),
}
every_sum = pytest.mark.parametrize("name", SUMS)


@every_sum
def test_a_batch_has_the_values_of_its_urns(name: str, device: torch.device) -> None:
    log_weights = torch.randn(2, 3, 3, device=device)
    found = SUMS[name](WalleniusHypergeometric([4, 3, 5], 6, log_weights=log_weights))
    for i in range(2):
        for j in range(3):
            alone = WalleniusHypergeometric([4, 3, 5], 6, log_weights=log_weights[i, j])
            torch.testing.assert_close(found[i, j], SUMS[name](alone), rtol=1e-12, atol=1e-12)


@every_sum
def test_values_in_float32_are_those_of_float64_rounded_once(
    name: str, device: torch.device
) -> None:
    weights = torch.tensor([1.0, 1.0009765625, 1.0], device=device)  # the same in both dtypes
    sizes, draws = [30, 40, 50], 60
    ours = SUMS[name](WalleniusHypergeometric(sizes, draws, weights=weights.float()))
    exact = SUMS[name](WalleniusHypergeometric(sizes, draws, weights=weights))
    assert ours.dtype == torch.float32
    torch.testing.assert_close(
        ours, exact.float(), rtol=2 * torch.finfo(torch.float32).eps, atol=0.0
    )


@every_sum
def test_values_of_an_impossible_urn_that_was_not_checked_are_nan(
    name: str, device: torch.device
) -> None:
    weights = torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device)
    urn = WalleniusHypergeometric([5, 5], 8, weights=weights, validate_args=False)
    found = SUMS[name](urn)
    assert found[0].isnan().all()
    assert not found[1].isnan().any()


@every_sum
def test_an_urn_of_too_many_outcomes_is_refused_in_one_sentence(
    name: str, device: torch.device
) -> None:
    urn = WalleniusHypergeometric([10**4] * 3, 10**4, weights=torch.ones(3, device=device))
    with pytest.raises(
        NotImplementedError,
        match=f"the {name} of Wallenius' law is computed over the whole support, but .* has more "
        "than 1,000,000 outcomes",
    ):
        SUMS[name](urn)


@every_sum
def test_a_batch_of_different_sizes_is_refused_in_one_sentence(
    name: str, device: torch.device
) -> None:
    urn = WalleniusHypergeometric([[3, 4], [4, 4]], 3, weights=torch.ones(2, 2, device=device))
    with pytest.raises(
        NotImplementedError, match=f"the {name} of Wallenius' law .* the same group sizes"
    ):
        SUMS[name](urn)
