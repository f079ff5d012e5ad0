"""The numbers of the tab of subsets: both laws of k of d items, and Gumbel top-k draws."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from diffurn.nn import SubsetSampler


@dataclass(frozen=True)
class Choice:
    """k of some items with weights. An impossible one is refused with a sentence for the page."""

    weights: tuple[float, ...]
    k: int

    def __post_init__(self) -> None:
        if self.k >= len(self.weights):
            raise ValueError(
                f"{self.k} of {len(self.weights)} items leave nothing to choose. Choose fewer, or "
                "add items."
            )

    @property
    def logits(self) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64).log()


@dataclass(frozen=True)
class Laws:
    """All subsets (N, d) as zeros and ones, with their probabilities (N,) and the inclusion
    probabilities (d,) by Fisher's and by Wallenius' law.
    """

    subsets: Tensor
    fisher: Tensor
    wallenius: Tensor
    inclusion_fisher: Tensor
    inclusion_wallenius: Tensor


@lru_cache(maxsize=8)
def laws_of(choice: Choice) -> Laws:
    """Both laws, by listing all subsets.

    Example:
        >>> laws_of(Choice((1.0, 1.0, 2.0), 1)).fisher
        tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    """
    items = range(len(choice.weights))
    chosen = torch.tensor(list(itertools.combinations(items, choice.k)))
    subsets = torch.zeros(len(chosen), len(items), dtype=torch.float64).scatter(-1, chosen, 1.0)
    samplers = SubsetSampler(choice.k), SubsetSampler(choice.k, law="wallenius")
    probabilities = (sampler.log_prob(choice.logits, subsets).exp() for sampler in samplers)
    return Laws(
        subsets, *probabilities, *(sampler.inclusion(choice.logits) for sampler in samplers)
    )


def top_k_shares(choice: Choice, num_samples: int, seed: int) -> Tensor:
    """The share of each subset among the k largest of logits with Gumbel noise, (N,)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_samples, len(choice.weights))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    top = (choice.logits - uniform.log().neg().log()).topk(choice.k).indices
    drawn = torch.zeros(shape, dtype=torch.float64).scatter(-1, top, 1.0)
    return (drawn @ laws_of(choice).subsets.mT == choice.k).double().mean(0)


def entropy(probabilities: Tensor) -> float:
    """In nats."""
    return math.fsum((-probabilities * probabilities.clamp(min=1e-300).log()).tolist())
