"""The paper's thought experiment: can a few unconstrained categoricals do what an urn does?

An urn of m = (10, 7, 8) balls from which n = 9 are drawn is imitated by one Gumbel-Softmax
categorical over the counts 0, …, m_j of each group. *In parallel* the three know nothing of one
another; *in sequence* a small network infers the weights of each from the counts before it; or the
last group is simply given what is left. All are trained on the urn's own law, by maximum likelihood
over all outcomes: better than any model they would be part of could train them. Nothing keeps them
from Σx ≠ n (or, with the rest for the last group, from x₃ < 0 or x₃ > m₃), so the question is how
often that happens, and the answer is both summed over all outcomes and counted in draws.

Run it with ``diffurn reproduce categorical``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax, log_softmax

from diffurn import FisherHypergeometric, GumbelSoftmax
from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.drawing import plain
from diffurn_studies.harness.paper import paper
from diffurn_studies.harness.runner import Engine, Progress, Results, Table, Workspace

NAME = "categorical"
GROUP_SIZES, DRAWS = (10, 7, 8), 9
WAYS = {
    "parallel": "three categoricals in parallel",
    "sequence": "three categoricals in sequence",
    "rest": "two in sequence, the rest for the third",
    "urn-exact": "the urn, exact",
    "urn-merged": "the urn, merged groups (the paper's)",
}
COLOURS = {"parallel": "#D55E00", "sequence": "#0072B2", "rest": "#009E73", "urn": "black"}


@dataclass(frozen=True)
class Options:
    """What `run` trains and draws.

    Attributes:
        weights: ω of the urn; the paper leaves it open.
        draws: counted draws of each.
        steps: of Adam.
        learning_rate: of Adam.
        hidden: units in the layer of the networks that infer weights in sequence.
        seed: of initial weights and draws.
    """

    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    draws: int = 100_000
    steps: int = 3_000
    learning_rate: float = 0.01
    hidden: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.weights) <= 0:
            raise ValueError(f"weights are {self.weights}, but must be above 0")
        if min(self.draws, self.steps, self.hidden) < 1 or not self.learning_rate > 0:
            given = (
                f"draws is {self.draws}, steps {self.steps}, hidden {self.hidden} and "
                f"learning_rate {self.learning_rate}"
            )
            raise ValueError(f"{given}, but all must be above 0")

    @classmethod
    def quick(cls) -> Options:
        return cls(draws=10_000, steps=300)


class Categoricals(nn.Module):
    """One categorical a group over its counts 0, …, m; their logits depend on the counts before, if
    they are in sequence.

    Args:
        in_sequence: whether they do.
        last_takes_rest: leave the last group out: its count is n less the others.
        hidden: units of the networks.
    """

    def __init__(self, in_sequence: bool, last_takes_rest: bool, hidden: int) -> None:
        super().__init__()
        self.last_takes_rest = last_takes_rest
        sizes = GROUP_SIZES[:-1] if last_takes_rest else GROUP_SIZES
        self.logits = nn.ParameterList([torch.zeros(size + 1) for size in sizes])
        inferred = list(enumerate(sizes))[1:] if in_sequence else []
        self.networks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(place, hidden), nn.Tanh(), nn.Linear(hidden, size + 1, bias=False)
                )
                for place, size in inferred
            ]
        )

    def group_logits(self, group: int, before: Tensor) -> Tensor:
        logits: Tensor = self.logits[group].expand(*before.shape[:-1], -1)
        return (
            logits + self.networks[group - 1](before / DRAWS)
            if group and len(self.networks)
            else logits
        )

    def log_prob(self, counts: Tensor) -> Tensor:
        """Of whole counts (K, 3); the last column is not looked at if it is the rest."""
        total = torch.zeros(len(counts))
        for group in range(len(self.logits)):
            law = log_softmax(self.group_logits(group, counts[:, :group]), -1)
            total = total + law.gather(-1, counts[:, group, None].long()).squeeze(-1)
        return total

    def sample(self, number: int) -> Tensor:
        """Straight-through Gumbel-Softmax draws, turned from one-hots into counts."""
        counts = torch.zeros(number, 0)
        for group in range(len(self.logits)):
            one_hot = gumbel_softmax(self.group_logits(group, counts), hard=True)
            counts = torch.cat(
                [counts, one_hot @ torch.arange(float(one_hot.shape[-1])).unsqueeze(-1)], -1
            )
        return (
            torch.cat([counts, DRAWS - counts.sum(-1, keepdim=True)], -1)
            if self.last_takes_rest
            else counts
        )

    def outcomes(self) -> Tensor:
        """Every outcome that has a probability, possible in the urn or not."""
        ranges = [torch.arange(float(len(logits))) for logits in self.logits]
        outcomes = torch.cartesian_prod(*ranges)
        return (
            torch.cat([outcomes, DRAWS - outcomes.sum(-1, keepdim=True)], -1)
            if self.last_takes_rest
            else outcomes
        )


def valid(counts: Tensor) -> Tensor:
    """Whether counts could have come out of the urn."""
    sizes = counts.new_tensor(GROUP_SIZES)
    return (counts.sum(-1) == DRAWS) & (counts >= 0).all(-1) & (counts <= sizes).all(-1)


def units(options: Options) -> list[str]:
    return list(WAYS)


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    torch.manual_seed(options.seed * 100_003 + units(options).index(unit))
    urn = FisherHypergeometric(GROUP_SIZES, DRAWS, weights=torch.tensor(options.weights))
    if unit.startswith("urn"):
        urn.estimator = GumbelSoftmax(conditionals="exact" if unit == "urn-exact" else "merged")
        return {
            "parameters": len(GROUP_SIZES),
            "invalid_draws": _invalid_share(urn.rsample((options.draws,))),
        }
    model = Categoricals(unit != "parallel", unit == "rest", options.hidden)
    return train(options, model, urn, workspace)


def _invalid_share(counts: Tensor) -> float:
    return float((~valid(counts)).double().mean())


def train(
    options: Options, model: Categoricals, urn: FisherHypergeometric, workspace: Workspace
) -> dict[str, Any]:
    """Maximum likelihood, with the share of invalid outcomes on the way."""
    possible = urn.enumerate_support()
    probabilities = urn.log_prob(possible).exp()
    optimiser = torch.optim.Adam(model.parameters(), options.learning_rate)
    record: dict[str, Any] = {"steps": [], "invalid": [], "divergence": []}
    keep_every = max(1, options.steps // 60)
    for step in range(options.steps + 1):
        divergence = (probabilities * (probabilities.log() - model.log_prob(possible))).sum()
        if step % keep_every == 0 or step == options.steps:
            seen = {"invalid": invalid_probability(model), "divergence": float(divergence.detach())}
            for name, value in {"steps": step, **seen}.items():
                record[name].append(value)
            workspace.scalars(step, **seen)
        if step < options.steps:
            optimiser.zero_grad()
            divergence.backward()
            optimiser.step()
    with torch.no_grad():
        outcomes = model.outcomes()
        totals = torch.zeros(sum(GROUP_SIZES) + 1).index_add(
            0, outcomes.sum(-1).long(), model.log_prob(outcomes).exp()
        )
        drawn = _invalid_share(model.sample(options.draws))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {**record, "parameters": parameters, "invalid_draws": drawn, "totals": totals.tolist()}


def invalid_probability(model: Categoricals) -> float:
    """Summed over all outcomes."""
    outcomes = model.outcomes()
    with torch.no_grad():
        return float(model.log_prob(outcomes).exp()[~valid(outcomes)].sum())


def table(results: Results) -> list[Table]:
    stated = paper("categorical")["parameters"]
    rows: list[list[str | int | float | None]] = []
    for unit, record in results.records.items():
        trained = "invalid" in record
        theirs = (
            stated["urn"]
            if unit.startswith("urn")
            else stated["categorical"]
            if unit == "parallel"
            else None
        )
        shares = [
            f"{100 * record['invalid'][place]:.2f} %" if trained else "0 %" for place in (0, -1)
        ]
        rows.append(
            [
                WAYS[unit],
                *shares,
                f"{100 * record['invalid_draws']:.2f} %"
                if trained
                else f"{100 * record['invalid_draws']:g} %",
                f"{record['divergence'][-1]:.3f}" if trained else None,
                record["parameters"],
                theirs,
                None if theirs is None else record["parameters"] - theirs,
            ]
        )
    columns = [
        "way",
        "invalid, untrained",
        "invalid, trained",
        "invalid among draws",
        "KL to the urn",
        "parameters",
        "paper",
        "difference",
    ]
    notes = [
        f"m = {GROUP_SIZES}, n = {DRAWS}, ω = {results.options.weights}; {results.options.draws:,} "
        "hard draws each, after "
        f"{results.options.steps:,} steps of training on the urn's own law. Invalid: Σx is not n, "
        "or a count is below 0 or above its m.",
        "KL(urn ‖ categoricals) in nats. In parallel no training can do better than the urn's own "
        "marginals: weights that are always valid "
        "put everything on one outcome. In sequence training makes invalid draws rare, never "
        "impossible.",
        "Parameters: the paper counts Σm for a sequence of categoricals; a group of m balls has m "
        "+ 1 possible counts, hence the "
        "difference. Those of a sequence include the networks that infer its weights.",
    ]
    return [Table("Unconstrained categoricals in place of an urn", columns, rows, notes)]


def figure(results: Results) -> dict[str, Figure]:
    """What the totals are instead of n, and how invalid draws become rarer with training."""
    figure = Figure(figsize=(11, 4.2), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    for index, unit in enumerate(("parallel", "sequence")):
        totals = results.records[unit]["totals"]
        left.bar(
            [total + (index - 0.5) * 0.4 for total in range(len(totals))],
            totals,
            0.4,
            color=COLOURS[unit],
            label=WAYS[unit],
        )
    left.annotate(
        "the urn: always n = 9",
        (DRAWS, 1),
        (-8, -2),
        textcoords="offset points",
        size=9,
        ha="right",
        va="top",
    )
    left.set(
        xlabel="Σx of a draw", ylabel="probability, after training", yscale="log", ylim=(1e-6, 2)
    )
    left.set_xticks(range(0, sum(GROUP_SIZES) + 1, 3))
    left.legend(frameon=False, fontsize=9, loc="upper right")
    for unit in ("parallel", "sequence", "rest"):
        record = results.records[unit]
        right.plot(record["steps"], record["invalid"], color=COLOURS[unit], label=WAYS[unit])
    right.set(
        yscale="log",
        xlabel="step of training on the urn's law",
        ylabel="share of invalid draws",
        ylim=(None, 1.3),
    )
    right.text(0.02, 0.03, "the urn: none, before any training", transform=right.transAxes, size=9)
    right.legend(frameon=False, fontsize=9)
    for panel in (left, right):
        plain(panel)
    return {"categorical": figure}


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)
