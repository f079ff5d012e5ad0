"""Which weights the counts bound from both sides, from one side or not at all.

Draw an arrow from group j to group k if in some row a ball of j was taken while one of k was left:
ω_j / ω_k cannot be zero then. The likelihood has a finite maximum exactly if every group can be
reached from every other (Ford's condition for the Bradley-Terry model, L. R. Ford, 1957, holds for
urns as well: the counts of a row lie on a face of their polytope that is cut out by such
exchanges). Otherwise the groups fall into blocks. Within a block, ratios are finite; between
blocks, a one-way path makes the ratio infinite, no path leaves it open. In the limit the law of
each row is a product over blocks: each block is an urn of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn.inference.sample import Sample


def closure(arrows: Tensor) -> Tensor:
    """Which nodes reach which along arrows ``(..., c, c)``, every node itself, by repeated
    squaring.
    """
    nodes = arrows.shape[-1]
    reach = (arrows | torch.eye(nodes, dtype=torch.bool, device=arrows.device)).float()
    for _ in range((nodes - 1).bit_length()):
        reach = (reach @ reach).clamp(max=1)
    return reach > 0


def _arrows(sample: Sample, source: Tensor, target: Tensor) -> Tensor:
    """j → k if in some row j has `source` and k has `target`, both ``(D, R, c)``."""
    return sample.summed(source.float().mT @ target.float())[0] > 0


def preferences(sample: Sample) -> Tensor:
    """j → k if in some row a ball of j was taken while one of k was left, ``(D, c, c)``."""
    happened = (sample.frequencies > 0).unsqueeze(-1)
    return _arrows(
        sample, (sample.counts > 0) & happened, (sample.counts < sample.group_sizes) & happened
    )


def meetings(sample: Sample) -> Tensor:
    """j → k if both were in the urn in a row in which not everything was drawn, ``(D, c, c)``:
    comparable, given a penalty.
    """
    competing = sample.competing
    return _arrows(sample, competing, competing)


@dataclass(frozen=True)
class Blocks:
    """Groups whose ratios are finite belong to one block.

    Attributes:
        reach: reach[j, k]: the counts keep ω_j / ω_k away from zero, ``(D, c, c)``.
        labels: for each group the first group of its block, ``(D, c)``.
    """

    reach: Tensor
    labels: Tensor

    @classmethod
    def of(cls, arrows: Tensor) -> Blocks:
        reach = closure(arrows)
        return cls(reach, (reach & reach.mT).float().argmax(-1))

    @property
    def same(self) -> Tensor:
        return self.labels.unsqueeze(-1) == self.labels.unsqueeze(-2)

    @property
    def gauge(self) -> Tensor:
        """Projection onto the indicators of the blocks, along which the limit likelihood is
        constant.
        """
        same = self.same.double()
        return same / same.sum(-1, keepdim=True)

    @property
    def whole(self) -> Tensor:
        """Data sets with one block only, ``(D,)``."""
        return (self.labels == 0).all(-1)

    def pick(self, data_sets: Tensor) -> Blocks:
        return Blocks(self.reach[data_sets], self.labels[data_sets])

    def order(self) -> Tensor:
        """log(ω_j / ω_k) as far as the blocks decide it, ``(D, c, c)``: 0 within a block, ±inf
        along a one-way path, nan without one.
        """
        forth, back = self.reach, self.reach.mT
        one_way = torch.where(forth, torch.inf, torch.where(back, -torch.inf, torch.nan))
        return torch.where(forth & back, 0.0, one_way).double()

    def contracted(self, nodes: Tensor) -> Blocks:
        """The blocks if some groups ``(D, c)`` are tied to each other."""
        return Blocks.of(self.reach | (nodes.unsqueeze(-1) & nodes.unsqueeze(-2)))


def main_block(blocks: Blocks, sample: Sample) -> Tensor:
    """The groups against which a centred fit measures, ``(D, c)``: the block of most groups, among
    equals that of most draws.
    """
    drawn, _ = sample.totals
    same = blocks.same & ~sample.absent.unsqueeze(-1) & ~sample.absent.unsqueeze(-2)
    members, draws = same.sum(-1).double(), (same.double() @ drawn.unsqueeze(-1)).squeeze(-1)
    most = members == members.amax(-1, keepdim=True)
    best = torch.where(most, draws, -1.0).argmax(-1)
    return same.gather(1, best[:, None, None].expand(-1, 1, same.shape[-1])).squeeze(1)
