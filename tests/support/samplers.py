"""The samplers of Fisher's law on urns of the table, one by one and as the distribution chooses
them.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from diffurn import FisherHypergeometric
from diffurn._fisher.sampling import rejection
from diffurn._fisher.sampling.choice import _table_cells
from diffurn._fisher.sampling.tree import Tree
from diffurn._fisher.urn import TiltedUrn
from support import oracles
from support.urns import SMALL, URNS, Urn, support_size

MOST_CELLS = 1 << 20  # of the tables a test builds


def distribution(
    urn: Urn, device: torch.device, dtype: torch.dtype = torch.float64, copies: tuple[int, ...] = ()
) -> FisherHypergeometric:
    log_weights = torch.tensor(urn.log_weights, dtype=dtype, device=device).repeat(*copies, 1)
    return FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)


def tilted(urn: Urn, device: torch.device) -> TiltedUrn:
    return distribution(urn, device).tilted


def cells_of(urn: TiltedUrn) -> float:
    return _table_cells(urn.log_odds.reshape(1, -1), urn.group_sizes.reshape(1, -1))


def by_tree(urn: TiltedUrn, number: int) -> Tensor:
    return drawn_from(Tree.build(*urn), number, urn.draws.device)


def drawn_from(tree: Tree, number: int, device: torch.device) -> Tensor:
    counts = torch.empty(number, tree.groups, dtype=torch.int64, device=device)
    tree.fill(counts)
    return counts


def by_rejection(urn: TiltedUrn, number: int) -> Tensor:
    return rejection.draw_by_rejection(*(operand.expand(number, *operand.shape) for operand in urn))


def by_blocks(urn: TiltedUrn, number: int) -> Tensor:
    """By rejection as if groups were many: half of them decide, half of those the next time, while
    there are four or more.
    """
    with patch.multiple(rejection, _FEWEST_GROUPS_FOR_BLOCKS=4, _GROUPS_PER_DECIDING=2):
        return by_rejection(urn, number)


TABLED = tuple(urn for urn in URNS if cells_of(tilted(urn, torch.device("cpu"))) <= MOST_CELLS)
FEW_OUTCOMES = tuple(urn for urn in SMALL if support_size(urn) <= 800)


def outcomes_and_probabilities(urn: Urn) -> tuple[np.ndarray, np.ndarray]:
    """From the oracle, to 60 digits."""
    listed = oracles.enumeration(urn)
    return np.array(listed.outcomes).reshape(-1, urn.groups), np.array(
        [float(p) for p in listed.probabilities]
    )
