"""Which algorithm `diffurn._dispatch` chooses, and that it reads no value where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from diffurn import FisherHypergeometric, WalleniusHypergeometric, _dispatch
from diffurn._fisher.equal_weights import EqualWeights
from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.sampling.tables import AliasTables
from diffurn._fisher.tabulated import Tabulated
from diffurn._kernels import dispatch as kernels
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.outcomes import OutcomeTable
from diffurn._wallenius.sequential import Sequential
from support.distributions import GeneralFisher, GeneralWallenius

SMALL, LARGE = ([4, 3, 5], 6), ([4000, 3000, 5000], 6000)


@pytest.fixture(autouse=True)
def without_c_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be faster than tables for these urns."""
    monkeypatch.setattr(kernels, "HAS_NATIVE", False)


def weights(*shape: int, device: torch.device, learned: bool = False) -> Tensor:
    return torch.rand(*shape, 3, device=device).add(0.5).requires_grad_(learned)


def on_cpu(device: torch.device) -> bool:
    return device.type == "cpu"


# --------------------------------------------------------------------------------------------------
# Fisher's law
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True], ids=["constant", "learned"])
def test_a_small_urn_is_tabulated(learned: bool, device: torch.device) -> None:
    urn = FisherHypergeometric(*SMALL, weights=weights(device=device, learned=learned))
    assert type(_dispatch.fisher_for_values(urn)) is Tabulated
    assert type(_dispatch.fisher_for_draws(urn, 10)) is Tabulated
    assert type(_dispatch.fisher_for_chains(urn, 10)) is Tabulated
    assert type(_dispatch.fisher(urn)) is Quadrature


def test_a_large_urn_is_computed_by_quadratures(device: torch.device) -> None:
    urn = FisherHypergeometric(*LARGE, weights=weights(device=device))
    assert type(_dispatch.fisher_for_values(urn)) is Quadrature
    assert type(_dispatch.fisher_for_draws(urn, 10)) is Quadrature
    assert type(_dispatch.fisher_for_chains(urn, 10)) is Quadrature


def test_unread_sizes_and_sizes_changed_in_place_rule_tables_out(device: torch.device) -> None:
    own = weights(device=device)
    changed = FisherHypergeometric(*SMALL, weights=own)
    changed.group_sizes.add_(1)
    many = (
        torch.tensor([SMALL[0]] * 200, device=device),
        torch.tensor([SMALL[1]] * 200, device=device),
    )
    for urn in (
        GeneralFisher(*SMALL, weights=own),
        changed,
        FisherHypergeometric(*many, weights=own),  # so many numbers are not read
    ):
        assert type(_dispatch.fisher_for_values(urn)) is Quadrature
        assert type(_dispatch.fisher_for_draws(urn, 10)) is Quadrature


def test_a_long_batch_of_small_urns_is_not_tabulated(device: torch.device) -> None:
    """Tables of three groups cost more than quadratures there; those of two groups do not."""
    one, two = torch.ones(1, 3, device=device), torch.ones(1, 2, device=device)
    three_groups = FisherHypergeometric(*SMALL, weights=one.expand(10**5, 3) * 1.5)
    two_groups = FisherHypergeometric([4, 3], 5, weights=two.expand(10**5, 2) * 1.5)
    assert not isinstance(_dispatch.fisher_for_draws(three_groups, 1), Tabulated)
    assert type(_dispatch.fisher_for_draws(two_groups, 1)) is Tabulated


@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
@pytest.mark.parametrize("urn", [SMALL, LARGE], ids=["small", "large"])
def test_equal_weights_have_closed_forms(
    urn: tuple[list[int], int], parameter: str, device: torch.device
) -> None:
    same = torch.full((3,), 1.5, device=device)
    x = torch.tensor(urn[0], dtype=torch.float64, device=device) / 2
    equal = FisherHypergeometric(*urn, **{parameter: same})
    assert type(_dispatch.fisher_for_values(equal)) is EqualWeights
    assert type(_dispatch.fisher_for_values(equal, x)) is EqualWeights
    assert type(_dispatch.fisher_for_draws(equal, 10)) is not EqualWeights


def test_closed_forms_are_not_used_where_a_derivative_is_asked_for(device: torch.device) -> None:
    same = torch.full((3,), 1.5, device=device)
    learned = FisherHypergeometric(*LARGE, weights=same.clone().requires_grad_())
    assert type(_dispatch.fisher_for_values(learned)) is Quadrature
    with torch.no_grad():
        assert type(_dispatch.fisher_for_values(learned)) is EqualWeights
    x = torch.tensor([2000.0, 1500.0, 2500.0], device=device, requires_grad=True)
    constant = FisherHypergeometric(*LARGE, weights=same)
    assert type(_dispatch.fisher_for_values(constant, x)) is Quadrature
    with torch.autograd.forward_ad.dual_level():
        assert type(_dispatch.fisher_for_values(constant)) is Quadrature


def test_closed_forms_need_weights_that_were_checked_and_not_changed(device: torch.device) -> None:
    same = torch.full((3,), 1.5, device=device)
    unchecked = FisherHypergeometric(*LARGE, weights=same, validate_args=False)
    assert type(_dispatch.fisher_for_values(unchecked)) is Quadrature
    urn = FisherHypergeometric(*LARGE, weights=same)
    same[0] = 7.0
    assert type(_dispatch.fisher_for_values(urn)) is Quadrature
    assert float(urn.mean[0]) > 2000


def test_many_draws_of_one_urn_come_from_alias_tables(device: torch.device) -> None:
    urn = FisherHypergeometric([40, 30, 50], 60, weights=weights(device=device))
    number = 50_000 if on_cpu(device) else 50_000_000  # where kernels draw, tables pay later
    law = _dispatch.fisher_for_draws(urn, number)
    assert type(law) is AliasTables
    assert law.kind == "outcomes"
    larger = _dispatch.fisher_for_draws(
        FisherHypergeometric(*LARGE, weights=weights(device=device)), 100 * number
    )
    assert type(larger) is AliasTables
    assert larger.kind == ("tree" if on_cpu(device) else "chain")
    assert type(_dispatch.fisher_for_draws(urn, 2)) is Quadrature
    assert type(_dispatch.fisher_for_chains(urn, number)) is Quadrature  # they need conditionals


def test_tables_of_huge_urns_do_not_pay_however_many_draws(device: torch.device) -> None:
    urn = FisherHypergeometric([10**12] * 3, 10**12, weights=weights(device=device))
    assert type(_dispatch.fisher_for_draws(urn, 10**9)) is Quadrature


def test_an_impossible_urn_that_was_not_checked_gets_no_tables(device: torch.device) -> None:
    own = torch.tensor([1.0, 0.0, 0.0], device=device)
    urn = GeneralFisher(*SMALL, weights=own, validate_args=False)
    assert type(_dispatch.fisher_for_draws(urn, 10**6)) is Quadrature
    assert _dispatch.fisher_for_draws(urn, 10**6).sample(2, torch.float64).isnan().all()


# --------------------------------------------------------------------------------------------------
# Wallenius' law
# --------------------------------------------------------------------------------------------------


def test_moments_of_a_small_urn_come_from_dynamic_programming(device: torch.device) -> None:
    for learned in (False, True):
        urn = WalleniusHypergeometric(*SMALL, weights=weights(device=device, learned=learned))
        assert type(_dispatch.wallenius_for_moments(urn)) is Sequential
    assert type(_dispatch.wallenius(urn)) is Integral


def test_moments_of_other_urns_are_integrals(device: torch.device) -> None:
    own = weights(device=device)
    for urn in (
        WalleniusHypergeometric(*LARGE, weights=own),
        GeneralWallenius(*SMALL, weights=own),
    ):
        assert type(_dispatch.wallenius_for_moments(urn)) is Integral


def test_derivatives_of_wide_weights_are_integrals(device: torch.device) -> None:
    """Dynamic programming differentiates by squares of weights, which would overflow."""
    for span, law in ((290.0, Sequential), (310.0, Integral)):
        wide = torch.tensor([0.0, span, 1.0], device=device)
        learned = WalleniusHypergeometric(*SMALL, log_weights=wide.clone().requires_grad_())
        constant = WalleniusHypergeometric(*SMALL, log_weights=wide)
        expected = law if on_cpu(device) else Sequential  # on a GPU weights are not read
        assert type(_dispatch.wallenius_for_moments(learned)) is expected
        assert type(_dispatch.wallenius_for_moments(constant)) is Sequential


def test_probabilities_of_a_small_urn_come_from_dynamic_programming(device: torch.device) -> None:
    expected = Sequential if on_cpu(device) else Integral  # on a GPU weights are not read
    urn = WalleniusHypergeometric(*SMALL, weights=weights(device=device))
    assert type(_dispatch.wallenius_for_values(urn, 1)) is expected
    long = WalleniusHypergeometric([10, 7, 8], 9, weights=weights(10_000, device=device))
    assert type(_dispatch.wallenius_for_values(long, 10_000)) is Integral
    assert type(_dispatch.wallenius_for_values(long, 10 * 10_000)) is expected


def test_probabilities_that_are_differentiated_or_tiny_are_integrals(device: torch.device) -> None:
    learned = WalleniusHypergeometric(*SMALL, weights=weights(device=device, learned=True))
    assert type(_dispatch.wallenius_for_values(learned, 1)) is Integral
    deep = WalleniusHypergeometric(
        *SMALL, log_weights=torch.tensor([0.0, 120.0, 0.0], device=device)
    )
    assert type(_dispatch.wallenius_for_values(deep, 1)) is Integral
    large = WalleniusHypergeometric(*LARGE, weights=weights(device=device))
    assert type(_dispatch.wallenius_for_values(large, 10**6)) is Integral


def test_many_draws_of_one_urn_of_few_outcomes_come_from_a_table(device: torch.device) -> None:
    own = weights(device=device)
    for urn in (
        WalleniusHypergeometric(*SMALL, weights=own),
        GeneralWallenius(*SMALL, weights=own),
    ):
        assert type(_dispatch.wallenius_for_draws(urn, 3000)) is OutcomeTable
        assert type(_dispatch.wallenius_for_draws(urn, 100)) is not OutcomeTable
        assert type(_dispatch.wallenius_for_draws(urn.expand([2]), 3000)) is not OutcomeTable
    large = WalleniusHypergeometric(*LARGE, weights=own)
    assert type(_dispatch.wallenius_for_draws(large, 3000)) is Integral


def test_an_impossible_urn_that_was_not_checked_gets_no_table(device: torch.device) -> None:
    own = torch.tensor([1.0, 0.0, 0.0], device=device)
    urn = WalleniusHypergeometric(*SMALL, weights=own, validate_args=False)
    law = _dispatch.wallenius_for_draws(urn, 3000)
    assert type(law) is not OutcomeTable
    assert urn.sample((3000,)).isnan().all()


# --------------------------------------------------------------------------------------------------
# Without values
# --------------------------------------------------------------------------------------------------

CHOICES: dict[str, Callable[[Any], Any]] = {
    "fisher": _dispatch.fisher,
    "fisher_for_values": _dispatch.fisher_for_values,
    "fisher_for_draws": lambda urn: _dispatch.fisher_for_draws(urn, 10**6),
    "fisher_for_chains": lambda urn: _dispatch.fisher_for_chains(urn, 4),
    "wallenius": _dispatch.wallenius,
    "wallenius_for_values": lambda urn: _dispatch.wallenius_for_values(urn, 10**6),
    "wallenius_for_moments": _dispatch.wallenius_for_moments,
    "wallenius_for_draws": lambda urn: _dispatch.wallenius_for_draws(urn, 10**6),
}
# Sizes as numbers, of which all of these choose without a look at the weights; or as tensors.
GIVEN = {"numbers": lambda device: SMALL, "tensors": lambda device: tensors_of(SMALL, device)}
every_choice = pytest.mark.parametrize("choice", CHOICES)
in_both_forms = pytest.mark.parametrize("given", GIVEN)


def tensors_of(urn: tuple[list[int], int], device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.tensor(urn[0], device=device), torch.tensor(urn[1], device=device)


def chosen(choice: str, sizes: Any, own: Tensor) -> Any:
    law = FisherHypergeometric if choice.startswith("fisher") else WalleniusHypergeometric
    return CHOICES[choice](law(*sizes, weights=own))


@pytest.mark.filterwarnings(
    r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning",
    r"ignore:.*should not be instantiated.*:DeprecationWarning",
)
@in_both_forms
@every_choice
def test_no_value_is_read_while_torch_compiles(
    choice: str, given: str, device: torch.device
) -> None:
    """In one graph: reading a value would break it."""
    sizes, own, kinds = GIVEN[given](device), weights(2, device=device), []

    def step(own: Tensor) -> Tensor:
        law = chosen(choice, sizes, own)
        kinds.append(type(law).__name__)
        return own + law.groups

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    assert compiled(own).shape == own.shape
    of_tables = {"Tabulated", "Sequential"} if given == "numbers" else set()
    assert set(kinds) <= {"Quadrature", "Integral"} | of_tables


@in_both_forms
@every_choice
def test_no_value_is_read_under_vmap(choice: str, given: str, device: torch.device) -> None:
    sizes, own, kinds = GIVEN[given](device), weights(2, device=device), []

    def step(own: Tensor) -> Tensor:
        law = chosen(choice, sizes, own)
        kinds.append(type(law))
        return own + law.groups

    assert vmap(step)(own).shape == own.shape
    assert set(kinds) <= {Quadrature, Integral, Tabulated, Sequential}
