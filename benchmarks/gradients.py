"""Which estimator when: bias, spread, time and memory of every gradient through a draw, against the
exact gradient.

For each problem, an urn and a function f of its counts, ∇E[f(x)] in log ω is known exactly: by
summing over all outcomes where they can be listed, from exact moments and marginals where they
cannot. Each estimator is asked for many independent one-draw gradients G, and judged by

- relative bias ‖mean G - ∇‖ / ‖∇‖, with its standard error and with the noise's own share taken
  out,
- spread, the standard deviation of one draw's G relative to ‖∇‖,
- time and peak memory of draw, f and backward, per draw.

Run it with ``diffurn bench gradients``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from benchmarks.measure import peak_tensor_bytes
from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax, score_surrogate
from diffurn_studies.harness.drawing import legend_below
from diffurn_studies.harness.machine import environment, usable_device, wait_for
from diffurn_studies.harness.tables import Table

Objective = Callable[[Tensor], Tensor]
# One marker and colour a family of estimators, told apart by colour-blind readers too.
STYLES: dict[str, dict[str, Any]] = {
    "covariance": {"marker": "o", "color": "#0072B2"},
    "score": {"marker": "s", "color": "#E69F00"},
    "score, covariance control": {"marker": "P", "color": "#E69F00"},
    "gumbel exact": {"marker": "^", "color": "#009E73"},
    "gumbel exact, Rao 8": {"marker": "*", "color": "#009E73"},
    "gumbel exact, draws left cut": {"marker": "X", "color": "#56B4E9"},
    "gumbel merged": {"marker": "v", "color": "#D55E00"},
}
# Anything smaller is drawn at the edge.
SMALLEST_SPREAD, SMALLEST_BIAS = 1e-2, 1e-3
# Draws of one leave-one-out group; its estimate is as good as that many draws, which the spread
# accounts for.
SCORE_GROUP = 10


@dataclass(frozen=True)
class Problem:
    """E[f(x)] of one urn: `expectation` computes it exactly and differentiably."""

    urn: str
    function: str
    group_sizes: tuple[int, ...]
    draws: int
    weights: tuple[float, ...]
    f: Objective
    expectation: Callable[[FisherHypergeometric, Objective], Tensor]

    def exact_gradient(self, device: torch.device) -> Tensor:
        log_weights = self.log_weights(device).requires_grad_()
        urn = FisherHypergeometric(self.group_sizes, self.draws, log_weights=log_weights)
        return torch.autograd.grad(self.expectation(urn, self.f), log_weights)[0]

    def log_weights(self, device: torch.device) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64, device=device).log()


def by_enumeration(urn: FisherHypergeometric, f: Objective) -> Tensor:
    outcomes = urn.enumerate_support()
    return (urn.log_prob(outcomes).exp() * f(outcomes)).sum()


def of_first_group(urn: FisherHypergeometric, f: Objective) -> Tensor:
    """For f that looks at the first count only: a sum over ten standard deviations of its
    marginal.
    """
    mean, reach = urn.mean.detach()[0], 10 * urn.variance.detach()[0].sqrt()
    counts = torch.arange(
        float((mean - reach).floor()),
        float((mean + reach).ceil()),
        dtype=mean.dtype,
        device=mean.device,
    )
    outcomes = counts.unsqueeze(-1) * torch.ones_like(urn.mean)
    return (urn.marginals.log_prob(outcomes)[:, 0].exp() * f(outcomes)).sum()


def of_squared_distance(
    target: tuple[float, ...],
) -> Callable[[FisherHypergeometric, Objective], Tensor]:
    def expectation(urn: FisherHypergeometric, f: Objective) -> Tensor:
        return (urn.variance + (urn.mean - urn.mean.new_tensor(target)).square()).sum()

    return expectation


def linear(x: Tensor) -> Tensor:
    return x[..., 0] - 2 * x[..., 1]


def squared_distance(target: tuple[float, ...]) -> Objective:
    return lambda x: (x - x.new_tensor(target)).square().sum(-1)


def product(goal: float) -> Objective:
    return lambda x: (x[..., 0] * x[..., 1] - goal).square()


def threshold(at: float, width: float) -> Objective:
    """Close to the indicator of x₀ ≥ at, but with a derivative that straight-through estimators can
    use.
    """
    return lambda x: torch.sigmoid((x[..., 0] - at) / width)


def problems() -> list[Problem]:
    """The urns of the design's own comparison, small and large, and one too large to list."""
    weights = (1.0, 3.0, 1.0)
    small, large, huge = ((5,) * 3, 6), ((200,) * 3, 180), ((100_000,) * 3, 90_000)
    listed = [
        ("m = 5", *small, "linear", linear),
        ("m = 5", *small, "squared distance", squared_distance((2.0, 2.0, 2.0))),
        ("m = 5", *small, "product", product(3.0)),
        ("m = 5", *small, "threshold", threshold(1.5, 0.25)),
        ("m = 200", *large, "linear", linear),
        ("m = 200", *large, "squared distance", squared_distance((50.0, 80.0, 50.0))),
        ("m = 200", *large, "product", product(3000.0)),
        ("m = 200", *large, "threshold", threshold(46.5, 1.0)),
    ]
    target = (25_000.0, 40_000.0, 25_000.0)
    return [
        *(
            Problem(urn, function, m, n, weights, f, by_enumeration)
            for urn, m, n, function, f in listed
        ),
        Problem("m = 100,000", "linear", *huge, weights, linear, lambda urn, f: f(urn.mean)),
        Problem(
            "m = 100,000",
            "squared distance",
            *huge,
            weights,
            squared_distance(target),
            of_squared_distance(target),
        ),
        Problem(
            "m = 100,000", "threshold", *huge, weights, threshold(22_100.0, 20.0), of_first_group
        ),
    ]


# An estimator under test: per-draw gradients (number, c) for a problem, and how many draws each row
# stands for.
Estimate = Callable[[Problem, int, torch.device], tuple[Tensor, int]]


def pathwise(estimator: Any) -> Estimate:
    def estimate(problem: Problem, number: int, device: torch.device) -> tuple[Tensor, int]:
        log_weights = problem.log_weights(device).repeat(number, 1).requires_grad_()
        urns = FisherHypergeometric(
            problem.group_sizes,
            problem.draws,
            log_weights=log_weights,
            estimator=estimator,
            validate_args=False,
        )
        return torch.autograd.grad(problem.f(urns.rsample()).sum(), log_weights)[0], 1

    return estimate


def by_score(control_variate: Any) -> Estimate:
    def estimate(problem: Problem, number: int, device: torch.device) -> tuple[Tensor, int]:
        log_weights = (
            problem.log_weights(device).repeat(max(2, number // SCORE_GROUP), 1).requires_grad_()
        )
        urns = FisherHypergeometric(
            problem.group_sizes, problem.draws, log_weights=log_weights, validate_args=False
        )
        return torch.autograd.grad(
            score_surrogate(urns, problem.f, SCORE_GROUP, control_variate).sum(), log_weights
        )[0], SCORE_GROUP

    return estimate


def estimators() -> dict[str, Estimate]:
    found = {
        "covariance": pathwise(CovarianceST()),
        "score": by_score(None),
        "score, covariance control": by_score("covariance"),
    }
    for temperature in (1.0, 0.5, 0.1):
        for conditionals in ("exact", "merged"):
            found[f"gumbel {conditionals}, τ = {temperature}"] = pathwise(
                GumbelSoftmax(temperature, conditionals=conditionals)
            )
    found["gumbel exact, τ = 0.1, Rao 8"] = pathwise(GumbelSoftmax(0.1, rao_blackwell=8))
    found["gumbel exact, τ = 1.0, draws left cut"] = pathwise(
        GumbelSoftmax(1.0, through_draws_left=False)
    )
    return found


@dataclass(frozen=True)
class Judgement:
    """What one estimator does on one problem."""

    urn: str
    function: str
    estimator: str
    draws: int
    bias: float
    bias_error: float
    spread: float
    microseconds_per_draw: float
    kilobytes_per_draw: float


@dataclass(frozen=True)
class Options:
    """What `run` measures.

    Attributes:
        draws: one-draw gradients per estimator and problem.
        slow_draws: the same for exact Gumbel chains on urns of 200 balls a group and more, where
            every count costs a quadrature.
        seed: of all draws.
        device: where to run.
    """

    draws: int = 100_000
    slow_draws: int = 4_000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        usable_device(self.device)


def _cases() -> Iterator[tuple[Problem, str, Estimate, bool]]:
    """Every problem with every estimator that can be asked for it, and whether it is slow there."""
    for problem in problems():
        for name, estimate in estimators().items():
            slow = name.startswith("gumbel exact") and max(problem.group_sizes) > 100
            if not (
                slow and max(problem.group_sizes) > 1000
            ):  # thousands of quadratures a draw: not a choice one has there
                yield problem, name, estimate, slow


def number_of_judgements() -> int:
    return sum(1 for _ in _cases())


def run(options: Options) -> Iterator[Judgement]:
    """Judges every estimator on every problem, one after another."""
    device = torch.device(options.device)
    for problem, name, estimate, slow in _cases():
        torch.manual_seed(options.seed)
        yield _judge(problem, name, estimate, options.slow_draws if slow else options.draws, device)


def _judge(
    problem: Problem, name: str, estimate: Estimate, number: int, device: torch.device
) -> Judgement:
    truth = problem.exact_gradient(device)
    batch = max(20, min(number, 2_000_000 // sum(problem.group_sizes)))
    estimate(problem, batch, device)  # warm-up
    rows, per_row, seconds = [], 1, 0.0
    for _ in range(max(1, round(number / batch))):
        start = time.perf_counter()
        gradients, per_row = estimate(problem, batch, device)
        wait_for(device)
        seconds += time.perf_counter() - start
        rows.append(gradients)
    gradients = torch.cat(rows)
    variance = gradients.var(0).sum()
    scale = truth.norm()
    error = (variance / len(gradients)).sqrt() / scale
    distance = (gradients.mean(0) - truth).norm() / scale
    drawn = len(gradients) * per_row
    return Judgement(
        urn=problem.urn,
        function=problem.function,
        estimator=name,
        draws=drawn,
        bias=float((distance.square() - error.square()).clamp(min=0).sqrt()),
        bias_error=float(error),
        spread=float((variance * per_row).sqrt() / scale),
        microseconds_per_draw=1e6 * seconds / drawn,
        kilobytes_per_draw=peak_tensor_bytes(lambda: estimate(problem, batch, device), device)
        / 1024
        / batch,
    )


def report(options: Options, judgements: list[Judgement]) -> dict[str, Any]:
    """What is committed: the figures with the command and the environment they came from."""
    return {
        "command": f"diffurn bench gradients --draws {options.draws} --slow-draws "
        f"{options.slow_draws} --seed {options.seed}",
        "environment": environment(torch.device(options.device)),
        "judgements": [asdict(judgement) for judgement in judgements],
    }


def tables(judgements: list[Judgement]) -> Iterator[Table]:
    """One table a problem, the least biased estimator first."""
    for (urn, function), group in _by_problem(judgements).items():
        rows = []
        for j in sorted(group, key=lambda j: (round(j.bias, 3), j.spread)):
            costs = f"{j.microseconds_per_draw:.1f}", f"{j.kilobytes_per_draw:.2f}"
            rows.append(
                [j.estimator, f"{j.bias:.3f}", f"{j.bias_error:.3f}", f"{j.spread:.2f}", *costs]
            )
        yield Table(
            f"{function}, {urn}",
            ["estimator", "bias", "± error", "spread", "µs / draw", "kB / draw"],
            rows,
        )


def _by_problem(judgements: list[Judgement]) -> dict[tuple[str, str], list[Judgement]]:
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in judgements:
        groups.setdefault((judgement.urn, judgement.function), []).append(judgement)
    return groups


def _family(estimator: str) -> str:
    """The name without its temperature."""
    return ", ".join(part for part in estimator.split(", ") if not part.startswith("τ"))


def _temperature(estimator: str) -> float:
    return float(estimator.partition("τ = ")[2].partition(",")[0] or 1.0)


def figure(judgements: list[Judgement]) -> Figure:
    """Bias against spread for every problem: the lower left corner is where one wants to be."""
    problems = _by_problem(judgements)
    urns, functions = (list(dict.fromkeys(key[i] for key in problems)) for i in (0, 1))
    figure = Figure(
        figsize=(2.9 * len(functions), 2.6 * len(urns) + 0.6), layout="constrained", dpi=160
    )
    panels = figure.subplots(len(urns), len(functions), squeeze=False, sharex=True, sharey=True)
    for row, urn in enumerate(urns):
        for column, function in enumerate(functions):
            panel = panels[row, column]
            panel.set_visible((urn, function) in problems)
            panel.set_title(f"{function}, {urn}", size=9)
            for judgement in problems.get((urn, function), []):
                _spot(panel, judgement)
    panels[0, 0].set(
        xscale="log", yscale="log", xlim=(SMALLEST_SPREAD / 2, 50), ylim=(SMALLEST_BIAS / 2, 3)
    )
    for panel in panels[-1]:
        panel.set_xlabel("spread of one draw / |∇|", size=9)
    figure.supylabel("bias / |∇|   (hollow: within two standard errors of zero)", size=9)
    handles = [
        Line2D([], [], linestyle="", label=family, **style) for family, style in STYLES.items()
    ]
    legend_below(
        figure, handles, 3, fontsize=8, title="Gumbel: the smaller, the colder (τ = 1, 0.5, 0.1)"
    )
    return figure


def _spot(panel: Any, judgement: Judgement) -> None:
    style = STYLES[_family(judgement.estimator)]
    aside = 1.35 ** list(STYLES).index(
        _family(judgement.estimator)
    )  # estimators without any spread would hide one another
    spread = judgement.spread if judgement.spread > SMALLEST_SPREAD else SMALLEST_SPREAD * aside
    bias = max(
        judgement.bias, judgement.bias_error, SMALLEST_BIAS
    )  # below its error a bias is only bounded
    filled = judgement.bias > max(2 * judgement.bias_error, SMALLEST_BIAS)
    size = 60 * _temperature(judgement.estimator) ** 0.6
    face = style["color"] if filled else "none"
    panel.scatter(
        spread, bias, size, face, marker=style["marker"], edgecolor=style["color"], linewidth=1.1
    )
