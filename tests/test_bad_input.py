"""Bad input: a ValueError names the argument, the offending value, where it stands and the rule it
breaks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

from diffurn import FisherHypergeometric

NAN, INFINITY = math.nan, math.inf
GOOD: dict[str, Any] = {"group_sizes": [3, 5, 4], "draws": 5, "weights": [1.0, 2.0, 0.5]}


def build(device: torch.device, **changed: Any) -> FisherHypergeometric:
    """An urn that is good but for what is changed; weights on the device, the rest as a user would
    write it.
    """
    arguments = GOOD | changed
    if "log_weights" in changed and "weights" not in changed:
        del arguments["weights"]
    for name in ("weights", "log_weights"):
        if name in arguments:
            arguments[name] = torch.as_tensor(arguments[name], device=device)
    return FisherHypergeometric(**arguments)


def assert_says(error: pytest.ExceptionInfo[ValueError], *pieces: str) -> None:
    message = str(error.value)
    for piece in pieces:
        assert piece in message, f"{piece!r} is not in {message!r}"


INTEGER_RULE = "must be an integer from 0"
BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    # what is changed, and what the message must contain
    "negative-size": ({"group_sizes": [3, -5, 4]}, ("group_sizes", "(1,)", "-5", INTEGER_RULE)),
    "fractional-size": ({"group_sizes": [3, 5, 4.5]}, ("group_sizes", "(2,)", "4.5", INTEGER_RULE)),
    "nan-size": ({"group_sizes": [NAN, 5, 4]}, ("group_sizes", "(0,)", "nan", INTEGER_RULE)),
    "infinite-size": (
        {"group_sizes": [3, INFINITY, 4]},
        ("group_sizes", "(1,)", "inf", INTEGER_RULE),
    ),
    "size-beyond-float64-integers": (
        {"group_sizes": [3, 5, 2**60]},
        ("group_sizes", "(2,)", str(2**60), "2^53"),
    ),
    "1e30-balls": (
        {"group_sizes": [1e30, 5, 4]},
        ("group_sizes", "(0,)", "is 1e+30", "must be an integer from 0 to 2^53"),
    ),
    "10**30-balls": ({"group_sizes": [10**30, 5, 4]}, ("group_sizes", "(0,)", "is 1e+30", "2^53")),
    "10**400-balls": (
        {"group_sizes": [10**400, 5, 4]},
        ("group_sizes cannot be read as integers", "too large"),
    ),
    "2**63-balls-in-a-numpy-array": (
        {"group_sizes": np.array([3, 2**63, 4], np.uint64)},
        ("group_sizes", "(1,)", "9.22", "2^53"),
    ),
    "10**30-balls-in-a-numpy-array": (
        {"group_sizes": np.array([3, 10**30, 4], object)},
        ("group_sizes", "(1,)", "1e+30", "2^53"),
    ),
    "words-for-sizes": (
        {"group_sizes": ["3", "5", "4"]},
        ("group_sizes cannot be read as integers",),
    ),
    "ragged-sizes": (
        {"group_sizes": [[3, 5, 4], [3, 5]]},
        ("group_sizes cannot be read as integers",),
    ),
    "no-sizes": ({"group_sizes": None}, ("group_sizes cannot be read as integers", "NoneType")),
    "negative-size-in-a-batch": (
        {"group_sizes": [[3, 5, 4], [3, 5, -1]]},
        ("group_sizes", "(1, 2)", "-1", INTEGER_RULE),
    ),
    "negative-size-in-a-numpy-array": (
        {"group_sizes": np.array([3, -5, 4])},
        ("group_sizes", "(1,)", "-5", INTEGER_RULE),
    ),
    "boolean-sizes": (
        {"group_sizes": [True, True, True], "draws": 1},
        ("group_sizes", "bool", "must be integers"),
    ),
    "complex-sizes": (
        {"group_sizes": [3 + 0j, 5, 4]},
        ("group_sizes", "complex", "must be integers"),
    ),
    "negative-draws": ({"draws": -1}, ("draws", "-1", INTEGER_RULE)),
    "fractional-draws": ({"draws": 2.5}, ("draws", "2.5", INTEGER_RULE)),
    "nan-draws": ({"draws": NAN}, ("draws", "nan", INTEGER_RULE)),
    "infinite-draws": ({"draws": INFINITY}, ("draws", "inf", INTEGER_RULE)),
    "1e30-draws": ({"draws": 1e30}, ("draws is 1e+30", INTEGER_RULE)),
    "10**30-draws": ({"draws": 10**30}, ("draws is 1e+30", INTEGER_RULE)),
    "minus-10**30-draws": ({"draws": -(10**30)}, ("draws is -1e+30", INTEGER_RULE)),
    "no-draws": ({"draws": None}, ("draws cannot be read as integers", "NoneType")),
    "boolean-draws": ({"draws": True}, ("draws", "bool", "must be integers")),
    "complex-draws": ({"draws": 2j}, ("draws", "complex", "must be integers")),
    "fractional-draws-in-a-batch": ({"draws": [2, 2.5]}, ("draws", "(1,)", "2.5", INTEGER_RULE)),
    "more-draws-than-balls": (
        {"draws": 13},
        ("draws", "13", "cannot exceed the number of balls", "12"),
    ),
    "more-draws-than-balls-in-a-batch": (
        {"draws": [4, 12, 13]},
        ("draws", "(2,)", "13", "cannot exceed the number of balls", "12"),
    ),
    "draws-from-an-empty-urn": (
        {"group_sizes": [0, 0, 0], "draws": 1},
        ("draws", "1", "cannot exceed the number of balls", "0"),
    ),
    "more-draws-than-balls-of-weight": (
        {"weights": [1.0, 0.0, 0.5], "draws": 8},
        ("draws", "8", "positive weight", "7"),
    ),
    "more-draws-than-balls-of-log-weight": (
        {"log_weights": [0.0, -INFINITY, 0.5], "draws": 8},
        ("draws", "8", "positive weight", "7"),
    ),
    "all-weights-zero": (
        {"weights": [0.0, 0.0, 0.0], "draws": 1},
        ("draws", "1", "positive weight", "0"),
    ),
    "negative-weight": (
        {"weights": [1.0, -2.0, 0.5]},
        ("weights", "(1,)", "-2.0", "finite number ≥ 0"),
    ),
    "nan-weight": ({"weights": [1.0, 2.0, NAN]}, ("weights", "(2,)", "nan", "finite number ≥ 0")),
    "infinite-weight": (
        {"weights": [INFINITY, 2.0, 0.5]},
        ("weights", "(0,)", "inf", "finite number ≥ 0"),
    ),
    "nan-weight-in-a-batch": (
        {"weights": [[1.0, 2.0, 0.5], [NAN, 2.0, 0.5]]},
        ("weights", "(1, 0)", "nan", "finite number ≥ 0"),
    ),
    "boolean-weights": ({"weights": [True, True, True]}, ("weights", "bool", "real numbers")),
    "complex-weights": ({"weights": [1j, 1.0, 1.0]}, ("weights", "complex", "real numbers")),
    "nan-log-weight": (
        {"log_weights": [0.0, NAN, 0.5]},
        ("log_weights", "(1,)", "nan", "below +inf"),
    ),
    "infinite-log-weight": (
        {"log_weights": [0.0, INFINITY, 0.5]},
        ("log_weights", "(1,)", "inf", "below +inf"),
    ),
    "boolean-log-weights": (
        {"log_weights": [True, True, True]},
        ("log_weights", "bool", "real numbers"),
    ),
    "complex-log-weights": (
        {"log_weights": [1j, 1.0, 1.0]},
        ("log_weights", "complex", "real numbers"),
    ),
    "both-weights": (
        {"weights": [1.0, 1.0, 1.0], "log_weights": [0.0, 0.0, 0.0]},
        ("weights", "log_weights", "both"),
    ),
    "too-few-weights": (
        {"weights": [1.0, 2.0]},
        ("do not broadcast", "group_sizes (3,)", "weights (2,)"),
    ),
    "too-many-log-weights": (
        {"log_weights": [1.0] * 4},
        ("do not broadcast", "group_sizes (3,)", "log_weights (4,)"),
    ),
    "batches-that-do-not-broadcast": (
        {"group_sizes": [[3, 5, 4]] * 2, "weights": [[1.0, 2.0, 0.5]] * 5},
        ("do not broadcast", "group_sizes (2, 3)", "weights (5, 3)"),
    ),
    "draws-that-do-not-broadcast": (
        {"draws": [1, 2, 3, 4], "weights": [[1.0, 2.0, 0.5]] * 5},
        ("do not broadcast", "weights (5, 3)", "draws (4,)"),
    ),
    "sizes-without-groups": ({"group_sizes": 12}, ("group_sizes ()", "last dimension of groups")),
    "weights-without-groups": ({"weights": 1.0}, ("weights ()", "last dimension of groups")),
    "no-groups-at-all": ({"group_sizes": [], "weights": [], "draws": 0}, ("group_sizes",)),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_the_message_names_the_argument_the_value_and_the_rule_for(
    case: str, device: torch.device
) -> None:
    changed, pieces = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=r"\w") as error:
        build(device, **changed)
    assert_says(error, *pieces)


@pytest.mark.parametrize(
    "sizes",
    [[2.0**24 + 1, 5], np.array([2**24 + 1, 5], np.uint64), np.array([2**24 + 1, 5], object)],
    ids=repr,
)
def test_sizes_are_not_rounded_to_single_precision(sizes: Any) -> None:
    assert FisherHypergeometric(sizes, 3, weights=[1.0, 2.0]).group_sizes.tolist() == [2**24 + 1, 5]


def test_values_are_not_rounded_to_single_precision() -> None:
    urn = FisherHypergeometric([2**25, 5], 2**24 + 2, weights=torch.ones(2, dtype=torch.float64))
    assert urn.log_prob([2.0**24 + 1, 1.0]).item() == urn.log_prob([2**24 + 1, 1]).item()


def test_huge_integers_are_weights_of_the_default_dtype() -> None:
    assert (
        FisherHypergeometric([3, 5], 3, weights=[10**30, 10**30]).weights.tolist()
        == torch.full((2,), 1e30).tolist()
    )
    with pytest.raises(ValueError, match="weights cannot be read as real numbers"):
        FisherHypergeometric([3, 5], 3, weights=["1", "2"])


def test_neither_weights_nor_log_weights_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"weights or log_weights, got neither"):
        FisherHypergeometric([3, 5, 4], 5)


BAD_VALUES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "negative": ([-1, 3, 3], ("value", "(0,)", "-1", "integers from 0 to the size of their group")),
    "more-than-the-group-holds": (
        [4, 1, 0],
        ("value", "(0,)", "4", "integers from 0 to the size of their group"),
    ),
    "fractional": (
        [1.5, 1.5, 2.0],
        ("value", "(0,)", "1.5", "integers from 0 to the size of their group"),
    ),
    "nan": (
        [1.0, NAN, 2.0],
        ("value", "(1,)", "nan", "integers from 0 to the size of their group"),
    ),
    "infinite": (
        [1.0, INFINITY, 2.0],
        ("value", "(1,)", "inf", "integers from 0 to the size of their group"),
    ),
    "wrong-sum": ([1, 1, 1], ("value.sum(-1)", "3", "sum to the draws", "5")),
    "second-row": (
        [[1, 2, 2], [1, 2, 9]],
        ("value", "(1, 2)", "9", "integers from 0 to the size of their group"),
    ),
    "second-row-wrong-sum": (
        [[1, 2, 2], [1, 2, 3]],
        ("value.sum(-1)", "(1,)", "6", "sum to the draws", "5"),
    ),
    "wrong-last-dimension": ([1, 4], ("value", "(2,)", "last dimension", "3 groups")),
    "one-count-for-all-groups": ([5], ("value", "(1,)", "last dimension", "3 groups")),
    "a-number": (5, ("value", "()", "last dimension", "3 groups")),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_log_prob_names_what_is_wrong_with_a_value_that_is(case: str, device: torch.device) -> None:
    value, pieces = BAD_VALUES[case]
    with pytest.raises(ValueError, match="value") as error:
        build(device).log_prob(torch.tensor(value, device=device))
    assert_says(error, *pieces)


def test_log_prob_of_values_that_do_not_broadcast_restates_both_shapes(
    device: torch.device,
) -> None:
    urn = build(device, draws=[5, 5])
    with pytest.raises(ValueError, match=re.escape("value (3,), batch_shape (2,)")):
        urn.log_prob(torch.tensor([[1, 2, 2]] * 3, device=device))


def test_log_prob_of_complex_counts_is_an_error(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"value.*complex"):
        build(device).log_prob(torch.tensor([1.0, 2.0, 2.0 + 0j], device=device))


@pytest.mark.parametrize(("offending", "index"), [(0.5, 0), (NAN, 1), (INFINITY, 2)])
def test_marginal_log_prob_names_a_value_that_is_no_count(
    offending: float, index: int, device: torch.device
) -> None:
    value = torch.ones(3, device=device)
    value[index] = offending
    with pytest.raises(ValueError, match="value") as error:
        build(device).marginals.log_prob(value)
    assert_says(error, "value", f"({index},)", str(offending), "integer")


def test_marginal_log_prob_of_the_wrong_last_dimension_says_so(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"value.*\(2,\)"):
        build(device).marginals.log_prob(torch.tensor([1.0, 1.0], device=device))


@pytest.mark.parametrize("method", ["sample", "rsample"])
@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(torch.float32, 2**24), (torch.float16, 2**11), (torch.bfloat16, 2**8)],
    ids=str,
)
def test_draws_too_large_for_the_dtype_ask_for_float64(
    method: str, dtype: torch.dtype, largest: int, device: torch.device
) -> None:
    def urn(draws: int) -> FisherHypergeometric:
        return FisherHypergeometric(
            [10**8, 10**8], draws, weights=torch.ones(2, dtype=dtype, device=device)
        )

    with pytest.raises(ValueError, match="draws") as error:
        getattr(urn(largest + 1), method)()
    assert_says(error, "draws", str(largest + 1), str(dtype), str(largest), "float64")
    assert getattr(urn(largest), method)().double().sum().item() == largest


def test_expanding_to_a_shape_that_does_not_fit_is_an_error(device: torch.device) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"expand|size"):
        build(device, draws=[4, 5]).expand((3,))


# --------------------------------------------------------------------------------------------------
# Checks can be skipped
# --------------------------------------------------------------------------------------------------

CHECKED_ONLY = (  # shapes and dtypes are never skipped: there would be nothing to compute
    "negative-size",
    "fractional-size",
    "fractional-draws",
    "negative-draws",
    "more-draws-than-balls",
    "more-draws-than-balls-of-weight",
    "negative-weight",
    "nan-weight",
    "infinite-weight",
    "nan-log-weight",
    "infinite-log-weight",
)


@pytest.fixture
def torch_checks_nothing() -> Iterator[None]:
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    yield
    Distribution.set_default_validate_args(before)


@pytest.mark.parametrize("case", CHECKED_ONLY)
def test_without_validation_nothing_is_checked_for(case: str, device: torch.device) -> None:
    urn = build(device, **BAD_ARGUMENTS[case][0], validate_args=False)
    assert urn.batch_shape == ()
    assert urn.event_shape == (3,)


@pytest.mark.usefixtures("torch_checks_nothing")
@pytest.mark.parametrize("case", CHECKED_ONLY)
def test_torchs_global_switch_is_respected_for(case: str, device: torch.device) -> None:
    assert build(device, **BAD_ARGUMENTS[case][0]).event_shape == (3,)


@pytest.mark.usefixtures("torch_checks_nothing")
def test_validation_asked_for_overrides_torchs_global_switch(device: torch.device) -> None:
    with pytest.raises(ValueError, match="draws is 13"):
        build(device, draws=13, validate_args=True)


@pytest.mark.usefixtures("torch_checks_nothing")
def test_values_are_not_checked_when_torch_checks_nothing(device: torch.device) -> None:
    assert build(device).log_prob(torch.tensor([1.0, 1.0, 1.0], device=device)).item() == -INFINITY


def test_expanding_keeps_the_choice_to_check_values_or_not(
    device: torch.device,
) -> None:
    value = torch.tensor([1.0, 1.0, 1.0], device=device)
    assert (
        build(device, validate_args=False).expand((2,)).log_prob(value).tolist() == [-INFINITY] * 2
    )
    with pytest.raises(ValueError, match="value"):
        build(device).expand((2,)).log_prob(value)


def test_unchecked_fractional_values_use_the_gamma_function(device: torch.device) -> None:
    value = [1.5, 1.5, 2.0]
    urn = build(device, validate_args=False)
    expected = -urn.log_normalizer.item()
    for size, weight, x in zip(GOOD["group_sizes"], GOOD["weights"], value, strict=True):
        expected += (
            math.lgamma(size + 1)
            - math.lgamma(x + 1)
            - math.lgamma(size - x + 1)
            + x * math.log(weight)
        )
    assert urn.log_prob(torch.tensor(value, device=device)).item() == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
def test_unchecked_nan_weights_give_nan_not_a_plausible_number(
    parameter: str, device: torch.device
) -> None:
    # compiled and vectorised code is never checked: there a NaN must show
    urn = build(device, **{parameter: [1.0, NAN, 0.5]}, validate_args=False)
    assert bool(urn.mean.isnan().any())
    assert bool(urn.log_prob(torch.tensor([1.0, 2.0, 2.0], device=device)).isnan())


def test_unchecked_nan_values_give_nan_not_a_plausible_number(device: torch.device) -> None:
    assert bool(
        build(device, validate_args=False)
        .log_prob(torch.tensor([1.0, NAN, 2.0], device=device))
        .isnan()
    )
