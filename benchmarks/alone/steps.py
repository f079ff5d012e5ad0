"""Cells of gradients through draws: estimators, training steps, compiled steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.alone.urns import Urns
from benchmarks.ours import Cell, Inputs, Run
from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax
from diffurn.estimators import Estimator

ESTIMATORS: dict[str, Estimator] = {
    "covariance": CovarianceST(),
    "merged Gumbel": GumbelSoftmax(1.0, conditionals="merged"),
    "exact Gumbel": GumbelSoftmax(1.0, conditionals="exact"),
}


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


def _of_step(step: str, estimator: str, urns: Urns, is_compiled: bool) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        sizes, draws = urns.sizes(inputs.device)
        weights = urns.log_weights(inputs.device).requires_grad_()

        def loss(weights: Tensor) -> Tensor:
            urn = FisherHypergeometric(
                sizes, draws, log_weights=weights, estimator=ESTIMATORS[estimator]
            )
            return STEPS[step](urn)

        way = torch.compile(loss, fullgraph=True) if is_compiled else loss

        def run() -> Tensor:
            return torch.autograd.grad(way(weights), weights)[0]

        run()  # compiles
        return run

    name = f"{'compiled ' * is_compiled}step: {step}, {estimator} estimator: {urns.words()}"
    return Cell(name, urns.batch, prepare, is_compiled)
