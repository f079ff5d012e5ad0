"""Unconstrained categoricals in place of an urn: the model, and its training on the urn's law."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax, log_softmax

from diffurn import FisherHypergeometric
from diffurn_studies.categorical.options import Options
from diffurn_studies.harness.workspace import Workspace

GROUP_SIZES, DRAWS = (10, 7, 8), 9


class Categoricals(nn.Module):
    """One categorical per group, over its counts 0, …, m.

    Args:
        in_sequence: the logits depend on the counts of earlier groups, through small networks.
        last_takes_rest: the last group has no categorical; its count is n less the others.
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
        """log-probability of whole counts (K, 3); the last column is ignored if it is the rest."""
        total = torch.zeros(len(counts))
        for group in range(len(self.logits)):
            law = log_softmax(self.group_logits(group, counts[:, :group]), -1)
            total = total + law.gather(-1, counts[:, group, None].long()).squeeze(-1)
        return total

    def sample(self, number: int) -> Tensor:
        """Counts from straight-through Gumbel-Softmax draws."""
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
        """Every outcome of the categoricals, possible in the urn or not."""
        ranges = [torch.arange(float(len(logits))) for logits in self.logits]
        outcomes = torch.cartesian_prod(*ranges)
        return (
            torch.cat([outcomes, DRAWS - outcomes.sum(-1, keepdim=True)], -1)
            if self.last_takes_rest
            else outcomes
        )


def valid(counts: Tensor) -> Tensor:
    """Whether the urn can give these counts."""
    sizes = counts.new_tensor(GROUP_SIZES)
    return (counts.sum(-1) == DRAWS) & (counts >= 0).all(-1) & (counts <= sizes).all(-1)


def invalid_share(counts: Tensor) -> float:
    """The share of draws that the urn cannot give."""
    return float((~valid(counts)).double().mean())


def invalid_probability(model: Categoricals) -> float:
    """The probability of counts that the urn cannot give, summed over all outcomes."""
    outcomes = model.outcomes()
    with torch.no_grad():
        return float(model.log_prob(outcomes).exp()[~valid(outcomes)].sum())


def train(
    options: Options, model: Categoricals, urn: FisherHypergeometric, workspace: Workspace
) -> dict[str, Any]:
    """Maximum likelihood on the urn's law; the record has the invalid share on the way."""
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
        drawn = invalid_share(model.sample(options.draws))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {**record, "parameters": parameters, "invalid_draws": drawn, "totals": totals.tolist()}
