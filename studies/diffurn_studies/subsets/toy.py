"""Small problems whose laws and gradients are known exactly: draws, scores, and gradients."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffurn.nn import SubsetSampler
from diffurn_studies.subsets.contenders import (
    CONTENDERS,
    Contender,
    Law,
    Loss,
    SfessCode,
    clamped_log_prob,
)
from diffurn_studies.subsets.options import Options

# Gradients that are computed at once.
_ROWS = 4_000
LAWS: tuple[Law, Law] = ("fisher", "wallenius")


@dataclass(frozen=True)
class Size:
    """k of d items; of small ones all subsets are listed."""

    items: int
    k: int

    @property
    def name(self) -> str:
        return f"{self.k} of {self.items}"

    @property
    def is_small(self) -> bool:
        return math.comb(self.items, self.k) <= 1000


SIZES = (Size(6, 3), Size(10, 5), Size(784, 50))


@dataclass(frozen=True)
class Problem:
    """Logits and losses; all contenders get the same.

    Args:
        size: of the subsets.
        logits: (d).
        losses: by name.
        subsets: all of them, if there are few.
    """

    size: Size
    logits: Tensor
    losses: dict[str, Loss]
    subsets: Tensor | None

    @classmethod
    def random(cls, size: Size, scale: float, generator: torch.Generator) -> Problem:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        logits, goal = scale * normal(size.items), normal(size.items)
        losses: dict[str, Loss] = {"distance": lambda x: (x - goal).square().sum(-1)}
        if not size.is_small:
            return cls(size, logits, losses, None)
        matrix = normal(size.items, size.items) / math.sqrt(size.items)
        losses |= {
            "quadratic": lambda x: ((x - goal) @ matrix).square().sum(-1),
            "threshold": lambda x: torch.sigmoid(4 * ((x * goal).sum(-1) - goal.sum() / 2)),
        }
        chosen = torch.tensor(list(itertools.combinations(range(size.items), size.k)))
        zeros = torch.zeros(len(chosen), size.items, dtype=torch.float64)
        return cls(size, logits, losses, zeros.scatter(-1, chosen, 1.0))

    def gradient(self, loss: str, law: Law) -> Tensor:
        """The exact gradient of the expected loss."""
        logits, sampler = self.logits.clone().requires_grad_(), SubsetSampler(self.size.k, law)
        if self.subsets is not None:
            probabilities = sampler.log_prob(logits, self.subsets).exp()
            value = probabilities @ self.losses[loss](self.subsets)
        else:  # linear on zeros and ones, since x² = x
            nothing, ones = torch.zeros_like(logits), torch.eye(self.size.items).to(logits)
            slopes = self.losses[loss](ones) - self.losses[loss](nothing)
            value = sampler.inclusion(logits) @ slopes
        (slope,) = torch.autograd.grad(value, logits)
        return slope


def run_seed(options: Options, seed: int) -> dict[str, Any]:
    """All sizes, contenders and losses for the problems of one seed."""
    generator = torch.Generator().manual_seed(options.seed * 100_003 + seed)
    torch.manual_seed(options.seed * 100_003 + seed)
    found = {}
    for size in SIZES:
        problem = Problem.random(size, options.scale, generator)
        exact = {
            loss: {law: problem.gradient(loss, law) for law in LAWS} for loss in problem.losses
        }
        found[size.name] = {
            name: {
                "draws": _draws(options, CONTENDERS[name](options.temperature), problem),
                "gradients": {
                    loss: _gradients(
                        options, CONTENDERS[name](options.temperature), problem, loss, exact[loss]
                    )
                    for loss in problem.losses
                },
            }
            for name in options.contenders
        }
    return found


# Draws and scores.


def _draws(options: Options, contender: Contender, problem: Problem) -> dict[str, Any]:
    """Total variation of the draws to each law, and the mean score of the law that is scored."""
    number = _number(options.draws, problem)
    drawn = contender.draw(problem.logits, problem.size.k, number)
    record: dict[str, Any] = {"whole": float((drawn.sum(-1) == problem.size.k).double().mean())}
    if problem.subsets is not None:
        record |= {law: _total_variation(problem, drawn, law) for law in LAWS}
    if contender.scored is not None:
        record["score"] = _mean_score(contender, problem, drawn[: number // 4])
    return record


def _number(asked: int, problem: Problem) -> int:
    """Fewer for a large problem, whose every draw costs more."""
    return asked if problem.subsets is not None else max(2, asked // 20)


def _total_variation(problem: Problem, drawn: Tensor, law: Law) -> dict[str, float]:
    """Of the shares to the law, and its mean if the draws were of this law."""
    assert problem.subsets is not None
    digits = 2.0 ** torch.arange(problem.size.items, dtype=torch.float64)
    codes, places = (problem.subsets @ digits).sort()
    found = torch.searchsorted(codes, drawn.double() @ digits).clamp(max=len(codes) - 1)
    valid = codes[found] == drawn.double() @ digits
    shares = torch.zeros(len(codes), dtype=torch.float64).index_add(
        0, places[found[valid]], torch.ones(int(valid.sum()), dtype=torch.float64)
    ) / len(drawn)
    probabilities = SubsetSampler(problem.size.k, law).log_prob(problem.logits, problem.subsets)
    probabilities = probabilities.exp()
    invalid = 1 - shares.sum()
    noise = (probabilities * (1 - probabilities) / (2 * math.pi * len(drawn))).sqrt().sum()
    variation = 0.5 * ((shares - probabilities).abs().sum() + invalid)
    return {"variation": float(variation), "noise": float(noise)}


def _mean_score(contender: Contender, problem: Problem, drawn: Tensor) -> dict[str, float]:
    """The length of the mean score, and the length that it has by chance if its mean is zero."""
    assert contender.scored is not None
    logits = problem.logits.expand(len(drawn), -1).clone().requires_grad_()
    if isinstance(contender, SfessCode):
        log_prob = clamped_log_prob(logits, drawn, problem.size.k)
    else:
        log_prob = SubsetSampler(problem.size.k, contender.scored).log_prob(logits, drawn)
    (scores,) = torch.autograd.grad(log_prob.sum(), logits)
    noise = (scores.var(0).sum() / len(scores)).sqrt()
    return {"length": float(scores.mean(0).norm()), "noise": float(noise)}


# Gradients.


def _gradients(
    options: Options,
    contender: Contender,
    problem: Problem,
    loss: str,
    exact: dict[Law, Tensor],
) -> dict[str, Any]:
    """Bias and spread, relative to the length of the exact gradient; the bias to each law's."""
    number, found = _number(options.gradients, problem), []
    for start in range(0, number, _ROWS):
        rows = min(_ROWS, number - start)
        logits = problem.logits.expand(rows, -1).clone().requires_grad_()
        value = contender.expectation(problem.losses[loss], logits, problem.size.k, options.samples)
        found.append(rows * torch.autograd.grad(value, logits)[0])
    gradients = torch.cat(found)
    # A constant added to all logits changes nothing, so this part of a gradient is of no effect.
    gradients = gradients - gradients.mean(-1, keepdim=True)
    mean, variance = gradients.mean(0), gradients.var(0).sum()
    record: dict[str, Any] = {}
    for law, slope in exact.items():
        length = slope.norm()
        record[law] = {
            "bias": float((mean - slope).norm() / length),
            "noise": float((variance / number).sqrt() / length),
            "spread": float(variance.sqrt() / length),
            "cosine": float(mean @ slope / (mean.norm() * length)),
        }
    return record


# Time.


def run_speed(options: Options) -> dict[str, Any]:
    """Milliseconds of a step of each contender: draws, loss and gradient for a batch of rows."""
    torch.manual_seed(options.seed)
    found: dict[str, dict[str, float]] = {}
    for size in SIZES:
        logits = torch.randn(options.timed_rows, size.items).requires_grad_()
        goal = torch.randn(size.items)
        found[size.name] = {
            name: _milliseconds(options, CONTENDERS[name](options.temperature), logits, goal, size)
            for name in options.contenders
        }
    return {"milliseconds": found}


def _milliseconds(
    options: Options, contender: Contender, logits: Tensor, goal: Tensor, size: Size
) -> float:
    """The shortest of some steps."""
    times = []
    for _ in range(8):
        start = time.perf_counter()
        value = contender.expectation(
            lambda x: (x - goal).square().sum(-1), logits, size.k, options.samples
        )
        torch.autograd.grad(value, logits)
        times.append(1000 * (time.perf_counter() - start))
    return round(min(times[1:]), 3)
