"""Cells of constructors and of single calls of an urn: probabilities, moments, draws, tails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import kl_divergence

from benchmarks.alone.urns import Urns
from benchmarks.ours import Cell, Inputs, Run, marginals
from diffurn import FisherHypergeometric, WalleniusHypergeometric

LAWS: dict[str, type[FisherHypergeometric] | type[WalleniusHypergeometric]] = {
    "fisher": FisherHypergeometric,
    "wallenius": WalleniusHypergeometric,
}


@dataclass(frozen=True)
class Operation:
    """A call of an urn.

    Attributes:
        run: of the urn and counts.
        has_gradient: whether the gradient of the result in the weights is computed, too.
    """

    run: Callable[[Any, Tensor], Any]
    has_gradient: bool = False


OPERATIONS = {
    "log_prob": Operation(lambda urn, x: urn.log_prob(x)),
    "log_prob + gradient": Operation(lambda urn, x: urn.log_prob(x), True),
    "mean": Operation(lambda urn, x: urn.mean),
    "mean + gradient": Operation(lambda urn, x: urn.mean.square(), True),
    "variance": Operation(lambda urn, x: urn.variance),
    "covariance_matrix": Operation(lambda urn, x: urn.covariance_matrix),
    "sample": Operation(lambda urn, x: urn.sample()),
    "sample((100,))": Operation(lambda urn, x: urn.sample((100,))),
    "rsample + gradient": Operation(lambda urn, x: urn.rsample().square(), True),
    "marginals.log_prob": Operation(lambda urn, x: marginals(urn).log_prob(x)),
    "marginals.cdf": Operation(lambda urn, x: marginals(urn).cdf(x)),
    "marginals.icdf": Operation(lambda urn, x: marginals(urn).icdf(0.3)),
    "mode": Operation(lambda urn, x: urn.mode),
    "entropy": Operation(lambda urn, x: urn.entropy()),
    "entropy + gradient": Operation(lambda urn, x: urn.entropy(), True),
    "log_normalizer": Operation(lambda urn, x: urn.log_normalizer),
    "kl_divergence": Operation(lambda urn, x: kl_divergence(urn, _mirrored(urn))),
}
# Costs of Wallenius' law grow with c² and B; on wide and large batches only these are measured.
CHEAP = ("log_prob", "mean", "sample")
# These may be called with weights instead of log-weights, which takes other paths of autograd.
WITH_WEIGHTS = ("log_prob + gradient", "mean", "mean + gradient", "sample", "rsample + gradient")
KEPT = ("log_prob", "mean", "sample", "rsample + gradient")
SMALL = Urns(3, 10, 15, 1, "list")
LARGE = Urns(3, 2000, 1800, 1000)
URNS = (
    SMALL,
    Urns(2, 20, 12, 64, "list"),
    Urns(8, 20, 40, 8, "list"),
    LARGE,
    Urns(3, 10**6, 900_000, 1),
    Urns(50, 1000, 15_000, 100),
    Urns(3, 200, 180, 10_000, "batch"),
)


def _mirrored(urn: Any) -> Any:
    return type(urn)(urn.group_sizes, urn.draws, log_weights=urn.log_weights.flip(-1))


def constructors() -> Iterator[Cell]:
    """Arguments are checked, as by default."""
    for law, parameter, learned in (
        ("fisher", "log_weights", False),
        ("wallenius", "log_weights", False),
        ("fisher", "weights", False),
        ("fisher", "weights", True),
    ):
        for urns in URNS:

            def prepare(
                inputs: Inputs,
                law: str = law,
                parameter: str = parameter,
                learned: bool = learned,
                urns: Urns = urns,
            ) -> Run:
                build, _ = _builder(law, urns, inputs.device, parameter, learned)
                return build

            gradient = ", requires_grad" * learned
            name = f"constructor, {law}, {parameter}{gradient}: {urns.words()}"
            yield Cell(name, urns.batch, prepare)


def operations() -> Iterator[Cell]:
    """Of urns that are built anew in every run, as a model with learned weights does."""
    for law in LAWS:
        for urns in URNS:
            for name, operation in OPERATIONS.items():
                if _is_measured(name, law, urns):
                    yield _of_operation(name, operation, law, urns)
                if law == "fisher" and name in WITH_WEIGHTS:
                    yield _of_operation(name, operation, law, urns, parameter="weights")


def _is_measured(name: str, law: str, urns: Urns) -> bool:
    if law == "fisher":
        return True
    return name in CHEAP if urns in URNS[-2:] else name != "log_normalizer"


def kept_urns() -> Iterator[Cell]:
    """Of an urn that was built once."""
    for law in LAWS:
        for urns in (SMALL, LARGE):
            for name in KEPT:
                yield _of_operation(name, OPERATIONS[name], law, urns, keeps=True)


def _of_operation(
    name: str,
    operation: Operation,
    law: str,
    urns: Urns,
    parameter: str = "log_weights",
    keeps: bool = False,
) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        build, weights = _builder(law, urns, inputs.device, parameter, operation.has_gradient)
        x = urns.counts(inputs.device)
        if keeps:
            kept = build()
            return lambda: _result(operation, kept, weights, x)
        return lambda: _result(operation, build(), weights, x)

    variant = f", {parameter}" * (parameter != "log_weights") + ", kept urn" * keeps
    return Cell(f"{name}, {law}{variant}: {urns.words()}", urns.batch, prepare)


def _builder(
    law: str, urns: Urns, device: torch.device, parameter: str, learned: bool
) -> tuple[Run, Tensor]:
    """A function that builds the urns, and the tensor of their weights."""
    sizes, draws = urns.sizes(device)
    log_weights = urns.log_weights(device)
    weights = log_weights.exp() if parameter == "weights" else log_weights
    weights.requires_grad_(learned)
    arguments: Mapping[str, Any] = {parameter: weights}
    return lambda: LAWS[law](sizes, draws, **arguments), weights


def _result(operation: Operation, urn: Any, weights: Tensor, x: Tensor) -> Any:
    result = operation.run(urn, x)
    return torch.autograd.grad(result.sum(), weights)[0] if operation.has_gradient else result


def many_draws() -> Iterator[Cell]:
    """Many draws of one kept urn, and of one urn whose weights change or stay between calls."""
    for dtype, groups, number in (
        (torch.float32, 3, 2_000_000),
        (torch.float64, 3, 2_000_000),
        (torch.float32, 10, 500_000),
    ):
        urns = Urns(groups, 200, 60 * groups, 1, "list", dtype)

        def prepare(inputs: Inputs, urns: Urns = urns, number: int = number) -> Run:
            urn = _builder("fisher", urns, inputs.device, "log_weights", False)[0]()
            return lambda: urn.sample((number,))

        yield Cell(f"{number:,} draws, fisher, kept urn: {urns.words()}", number, prepare)
    urns = Urns(3, 200, 180, 1, "list", torch.float32)
    for change in (0.0, 1e-3):

        def prepare_changing(inputs: Inputs, change: float = change) -> Run:
            build, log_weights = _builder("fisher", urns, inputs.device, "log_weights", False)

            def run() -> Any:
                log_weights[0] += change
                return build().sample((20_000,))

            return run

        weights = "new weights every time" if change else "the same weights every time"
        yield Cell(f"20,000 draws, fisher, {weights}: {urns.words()}", 20_000, prepare_changing)


def wide_urns() -> Iterator[Cell]:
    """Draws of urns with many balls or many groups."""
    many_balls, many_groups = Urns(10, 10**6, 3 * 10**6, 2000), Urns(1000, 10, 3000, 100)
    for name in ("sample", "rsample + gradient"):
        for urns in (many_balls, many_groups):
            yield _of_operation(name, OPERATIONS[name], "fisher", urns)


def wallenius() -> Iterator[Cell]:
    """Moments and draws of Wallenius' law on kept urns of three groups, small to large."""
    batches = {"log_prob": 20_000, "sample": 20_000, "mean": 500, "covariance_matrix": 500}
    for group_size in (10, 200, 10**6):
        for name, batch in batches.items():
            urns = Urns(3, group_size, 9 * group_size // 10, batch)
            yield _of_operation(name, OPERATIONS[name], "wallenius", urns, keeps=True)


def cdf_along_m() -> Iterator[Cell]:
    """Its cost should not depend on m. Entropy of a thousand urns likewise."""
    for groups in (2, 3):
        for group_size in (10**2, 10**3, 10**6, 10**9):
            urns = Urns(groups, group_size, 9 * group_size // 10, 10_000 // groups)
            yield _of_operation("marginals.cdf", OPERATIONS["marginals.cdf"], "fisher", urns)
    for group_size in (200, 10**9):
        urns = Urns(3, group_size, 9 * group_size // 10, 1000)
        yield _of_operation("entropy", OPERATIONS["entropy"], "fisher", urns)
