"""The samplers of Fisher's law on urns of the table, and random numbers that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher.sampling import rejection
from diffurn._fisher.sampling.tables import PlainUrns
from diffurn._fisher.sampling.tree import Tree
from support import oracles
from support.urns import SMALL, URNS, Urn, support_size

MOST_CELLS = 1 << 20  # of the tables a test builds


def distribution(
    urn: Urn, device: torch.device, dtype: torch.dtype = torch.float64, copies: tuple[int, ...] = ()
) -> FisherHypergeometric:
    log_weights = torch.tensor(urn.log_weights, dtype=dtype, device=device).repeat(*copies, 1)
    return FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)


def tilted(urn: Urn, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tilted log-odds, group sizes and draws."""
    return _dispatch.fisher(distribution(urn, device)).tilted


def cells_of(urn: Urn) -> float:
    """About the size of the urn's tables."""
    return PlainUrns.read(*distribution(urn, torch.device("cpu"))._operands()).cells


def by_tree(urn: tuple[Tensor, Tensor, Tensor], number: int) -> Tensor:
    return drawn_from(Tree.build(*urn), number, urn[2].device)


def drawn_from(tree: Tree, number: int, device: torch.device) -> Tensor:
    counts = torch.empty(number, tree.groups, dtype=torch.int64, device=device)
    tree.fill(counts)
    return counts


def by_rejection(urn: tuple[Tensor, Tensor, Tensor], number: int) -> Tensor:
    return rejection.draw_by_rejection(*(operand.expand(number, *operand.shape) for operand in urn))


class Chance(TorchFunctionMode):
    """While it is entered, some functions of torch that draw random numbers are replaced.

    Example:
        >>> with Chance({torch.rand: torch.zeros}):
        ...     torch.rand(2)
        tensor([0., 0.])
    """

    def __init__(self, replacements: Mapping[Any, Callable[..., Tensor]]) -> None:
        super().__init__()
        self.replacements = replacements

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        return self.replacements.get(function, function)(*arguments, **(options or {}))


def by_blocks(urn: tuple[Tensor, Tensor, Tensor], number: int) -> Tensor:
    """By rejection as if groups were many: half of them decide, half of those the next time, while
    there are four or more.
    """
    with patch.multiple(rejection, FEWEST_GROUPS_FOR_BLOCKS=4, _GROUPS_PER_DECIDING=2):
        return by_rejection(urn, number)


TABLED = tuple(urn for urn in URNS if cells_of(urn) <= MOST_CELLS)
FEW_OUTCOMES = tuple(urn for urn in SMALL if support_size(urn) <= 800)


def outcomes_and_probabilities(urn: Urn) -> tuple[np.ndarray, np.ndarray]:
    """From the oracle, to 60 digits."""
    listed = oracles.enumeration(urn)
    return np.array(listed.outcomes).reshape(-1, urn.groups), np.array(
        [float(p) for p in listed.probabilities]
    )
