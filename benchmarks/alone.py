"""Cells of jobs that no peer offers: constructors, kept urns, estimators, training steps, tails,
tests, fits of whole tables.

Every cell uses the public interface only (see `benchmarks.ours`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import kl_divergence

from benchmarks.cells import short
from benchmarks.ours import Cell, Inputs, Run, marginals
from diffurn import (
    CovarianceST,
    FisherHypergeometric,
    GumbelSoftmax,
    WalleniusHypergeometric,
    exact_test,
    fit,
)
from diffurn.estimators import Estimator

LAWS: dict[str, type[FisherHypergeometric] | type[WalleniusHypergeometric]] = {
    "fisher": FisherHypergeometric,
    "wallenius": WalleniusHypergeometric,
}
ESTIMATORS: dict[str, Estimator] = {
    "covariance": CovarianceST(),
    "merged Gumbel": GumbelSoftmax(1.0, conditionals="merged"),
    "exact Gumbel": GumbelSoftmax(1.0, conditionals="exact"),
}


@dataclass(frozen=True)
class Urns:
    """A batch of urns whose groups are all of one size.

    Attributes:
        groups: c.
        group_size: m.
        draws: n.
        batch: B, how many log-weight vectors.
        given: how sizes and draws are given: as a "list" and an int, a "tensor" and an int, or a
            "batch" of tensors with sizes for every urn.
        dtype: of the weights.
    """

    groups: int
    group_size: int
    draws: int
    batch: int
    given: str = "tensor"
    dtype: torch.dtype = torch.float64

    def words(self) -> str:
        sizes = f"c = {self.groups:,}, m = {short(self.group_size)}, n = {short(self.draws)}"
        precision = "" if self.dtype == torch.float64 else f", {str(self.dtype)[6:]}"
        return f"{sizes}, B = {short(self.batch)}{precision}, sizes as a {self.given}"

    def sizes(self, device: torch.device) -> tuple[Any, Any]:
        """Group sizes and draws, as they are given."""
        if self.given == "list":
            return [self.group_size] * self.groups, self.draws
        if self.given == "tensor":
            return torch.full((self.groups,), self.group_size, device=device), self.draws
        sizes = torch.full((self.batch, self.groups), self.group_size, device=device)
        return sizes, torch.full((self.batch,), self.draws, device=device)

    def log_weights(self, device: torch.device) -> Tensor:
        shape = (self.groups,) if self.batch == 1 else (self.batch, self.groups)
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
        return drawn.to(device, self.dtype)

    def counts(self, device: torch.device) -> Tensor:
        """The draws divided evenly over the groups."""
        share, rest = divmod(self.draws, self.groups)
        counts = torch.full((self.groups,), share, dtype=self.dtype)
        counts[:rest] += 1
        return counts.to(device).expand(self.log_weights(device).shape)


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


def cells() -> list[Cell]:
    """All cells of this file."""
    urns = (constructors, operations, kept_urns, many_draws, wallenius, cdf_along_m)
    learning = (estimators, training_steps, compiled_steps, exact_tests, fits)
    return [cell for part in (*urns, *learning) for cell in part()]


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


def estimators() -> Iterator[Cell]:
    """On the urns for which the paper's released code was timed, and one on which that runs out of
    memory.
    """
    timed = (Urns(3, 200, 180, 2000), Urns(50, 100, 500, 256), Urns(2, 10, 10, 64))
    for name, estimator in ESTIMATORS.items():
        for urns in timed:
            for has_gradient in (False, True):
                yield _of_estimator(name, estimator, urns, has_gradient)
    large = Urns(10, 6000, 20_000, 128)
    yield _of_estimator("merged Gumbel", ESTIMATORS["merged Gumbel"], large, True)


def _of_estimator(name: str, estimator: Estimator, urns: Urns, has_gradient: bool) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        sizes, draws = urns.sizes(inputs.device)
        weights = urns.log_weights(inputs.device).requires_grad_()

        def run() -> Tensor:
            with torch.set_grad_enabled(has_gradient):
                urn = FisherHypergeometric(sizes, draws, log_weights=weights, estimator=estimator)
                drawn = urn.rsample()
            return torch.autograd.grad(drawn.square().sum(), weights)[0] if has_gradient else drawn

        return run

    what = "rsample + gradient" if has_gradient else "rsample"
    return Cell(f"{what}, {name} estimator: {urns.words()}", urns.batch, prepare)


STEPS: dict[str, Callable[[FisherHypergeometric], Tensor]] = {
    "rsample": lambda urn: urn.rsample().square().sum(),
    "rank_indicators": lambda urn: urn.rank_indicators(0)[1].square().sum(),
    "mean": lambda urn: urn.mean.square().sum(),
    "log_prob of a draw": lambda urn: urn.log_prob(urn.sample()).sum(),
}
_NEEDS_NO_ESTIMATOR = ("mean", "log_prob of a draw")
SMALL_URNS = tuple(
    Urns(groups, size, draws, 64, "list", torch.float32)
    for groups, size, draws in ((2, 10, 10), (3, 10, 15), (5, 5, 12))
)


def training_steps() -> Iterator[Cell]:
    """Forward and backward pass of 64 small urns, built anew in every step."""
    for step in STEPS:
        for name in ESTIMATORS:
            if name == "covariance" or step not in _NEEDS_NO_ESTIMATOR:
                for urns in SMALL_URNS:
                    yield _of_step(step, name, urns, is_compiled=False)


def compiled_steps() -> Iterator[Cell]:
    """The same under `torch.compile`."""
    for name in ESTIMATORS:
        yield _of_step("rsample", name, SMALL_URNS[0], is_compiled=True)


def _of_step(step: str, name: str, urns: Urns, is_compiled: bool) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        sizes, draws = urns.sizes(inputs.device)
        weights = urns.log_weights(inputs.device).requires_grad_()

        def loss(weights: Tensor) -> Tensor:
            urn = FisherHypergeometric(
                sizes, draws, log_weights=weights, estimator=ESTIMATORS[name]
            )
            return STEPS[step](urn)

        way = torch.compile(loss, fullgraph=True) if is_compiled else loss

        def run() -> Tensor:
            return torch.autograd.grad(way(weights), weights)[0]

        run()  # compiles
        return run

    compiled = "compiled " * is_compiled
    return Cell(f"{compiled}step: {step}, {name} estimator: {urns.words()}", urns.batch, prepare)


def exact_tests() -> Iterator[Cell]:
    """Fisher's exact test of a hundred thousand 2×2 tables."""
    for alternative in ("two-sided", "less"):
        for largest in (30, 10**6):

            def prepare(
                inputs: Inputs, alternative: Any = alternative, largest: int = largest
            ) -> Run:
                generator = torch.Generator().manual_seed(0)
                tables = torch.randint(0, largest, (100_000, 2, 2), generator=generator)
                tables = tables.to(inputs.device)
                return lambda: exact_test(tables, alternative=alternative)

            name = f"exact_test, {alternative}: 100,000 tables with counts below {short(largest)}"
            yield Cell(name, 100_000, prepare)


def fits() -> Iterator[Cell]:
    """Fits of whole tables: rows with sizes of their own, many data sets at once, repeated rows,
    other laws and penalties, covariates.
    """
    yield _fit_of_rows("fit", 10_000, 10)
    yield _fit_of_rows("fit", 1_000_000, 4)
    yield _fit_of_rows("fit", 2000, 3)
    yield _fit_of_rows("fit, wallenius", 2000, 3, model="wallenius")
    yield _fit_of_rows("fit, Firth's penalty", 2000, 3, penalty="firth")
    yield _fit_with_covariates(2000, 3)
    many = [4000, 3000, 5000, 2500], 6000, [0.0, 1.0, -0.5, 0.5]
    for interval in ("wald", "profile"):
        name = f"fit, {interval} intervals: 20,000 data sets of one row, 4 groups"
        yield _fit_of_draws(name, *many, (20_000, 1), interval=interval)
    one = [20, 30, 25], 30, [0.0, 1.0, -0.5]
    yield _fit_of_draws("fit: 1,000,000 draws of one urn", *one, (1_000_000,))


def _rows(inputs: Inputs, rows: int, groups: int) -> tuple[Tensor, Tensor]:
    """Counts and group sizes of rows with m and n of their own, for log ω between -1 and 1."""

    def draw() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        sizes = torch.randint(5, 100, (rows, groups), generator=generator)
        draws = 1 + ((sizes.sum(-1) - 2) * torch.rand(rows, generator=generator)).long()
        log_weights = torch.linspace(-1, 1, groups, dtype=torch.float64)
        torch.manual_seed(0)
        return FisherHypergeometric(sizes, draws, log_weights=log_weights).sample(), sizes

    counts, sizes = inputs.kept(f"rows-{rows}-{groups}", draw)
    return counts.to(inputs.device), sizes.to(inputs.device)


def _fit_of_rows(name: str, rows: int, groups: int, **options: Any) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        counts, sizes = _rows(inputs, rows, groups)
        return lambda: fit(counts, sizes, **options)

    return Cell(f"{name}: {rows:,} rows, {groups} groups", rows, prepare)


def _fit_with_covariates(rows: int, groups: int) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        counts, sizes = _rows(inputs, rows, groups)
        generator = torch.Generator().manual_seed(1)
        covariates = torch.randn(rows, groups, 2, dtype=torch.float64, generator=generator)
        covariates = covariates.to(inputs.device)
        return lambda: fit(counts, sizes, covariates=covariates)

    return Cell(f"fit, two covariates: {rows:,} rows, {groups} groups", rows, prepare)


def _fit_of_draws(
    name: str,
    sizes: list[int],
    draws: int,
    log_weights: list[float],
    shape: tuple[int, ...],
    **options: Any,
) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        group_sizes = torch.tensor(sizes, device=inputs.device)
        weights = torch.tensor(log_weights, dtype=torch.float64, device=inputs.device)

        def draw() -> Tensor:
            torch.manual_seed(0)
            return FisherHypergeometric(group_sizes, draws, log_weights=weights).sample(shape)

        counts = inputs.kept("draws-" + "-".join(map(str, (*sizes, draws))), draw)
        return lambda: fit(counts, group_sizes, **options)

    return Cell(name, shape[0], prepare)
