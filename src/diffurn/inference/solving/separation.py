"""Maxima at infinity: which coefficients the counts bound from both sides, from one side, or not at
all.

Groups with weights of their own. Draw an arrow from group j to group k if in some row a ball of j
was drawn while a ball of k was left: ω_j / ω_k cannot be zero then. The likelihood has a finite
maximum exactly if every group can be reached from every other group (Ford's condition for the
Bradley-Terry model, L. R. Ford, 1957; it holds for urns as well, since the counts of a row lie on a
face of their polytope that is cut out by such exchanges). Otherwise the groups fall into blocks.
Ratios within a block are finite. Between blocks, a one-way path makes the ratio infinite, and
without a path the ratio is undetermined. In the limit, the distribution of each row is a product
over blocks: each block is an urn of its own.

Covariates. Along β + t·d the likelihood never falls exactly if no row has a ball drawn while a ball
of greater z · d was left: the counts of the row maximise Σ x_j (z_j · d). In the limit t → ∞,
groups of a row with different values of z · d are drawn independently. Newton's method finds such a
direction d by following it; the functions below check it against the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from diffurn.inference.solving.rows import EXACT, Rows
from diffurn.inference.solving.sample import Sample

# --- blocks of groups


@dataclass(frozen=True, eq=False)
class Blocks:
    """Groups whose ratios of weights are finite form a block.

    Attributes:
        reach: reach[j, k]: the counts keep ω_j / ω_k away from zero, ``(D, c, c)``.
        labels: for each group the first group of its block, ``(D, c)``.
    """

    reach: Tensor
    labels: Tensor

    @classmethod
    def of(cls, arrows: Tensor) -> Blocks:
        """From arrows ``(D, c, c)``, by repeated squaring; every group reaches itself."""
        if bool(arrows.all()):
            return cls(arrows, torch.zeros_like(arrows[..., 0], dtype=torch.int64))
        groups = arrows.shape[-1]
        reach = (arrows | torch.eye(groups, dtype=torch.bool, device=arrows.device)).float()
        for _ in range((groups - 1).bit_length()):
            reach = (reach @ reach).clamp(max=1)
        reached = reach > 0
        return cls(reached, (reached & reached.mT).float().argmax(-1))

    @property
    def number(self) -> Tensor:
        """How many blocks there are, ``(D,)``."""
        groups = torch.arange(self.labels.shape[-1], device=self.labels.device)
        return (self.labels == groups).sum(-1)

    @property
    def same(self) -> Tensor:
        """Whether two groups belong to one block, ``(D, c, c)``."""
        return self.labels.unsqueeze(-1) == self.labels.unsqueeze(-2)

    @property
    def gauge(self) -> Tensor:
        """Projection onto the indicators of the blocks, ``(D, c, c)``; the likelihood of the limit
        is constant along them.
        """
        if self.connected:
            return torch.full_like(self.reach, 1 / self.labels.shape[-1], dtype=torch.float64)
        same = self.same.double()
        return same / same.sum(-1, keepdim=True)

    @cached_property
    def whole(self) -> Tensor:
        """Data sets with a single block, ``(D,)``."""
        return (self.labels == 0).all(-1)

    @cached_property
    def connected(self) -> bool:
        """Whether every data set has a single block; then no group is absent."""
        return bool(self.whole.all())

    def pick(self, data_sets: Tensor) -> Blocks:
        return Blocks(self.reach[data_sets], self.labels[data_sets])

    def order(self) -> Tensor:
        """log(ω_j / ω_k) as far as the blocks decide it, ``(D, c, c)``: 0 within a block, ±inf
        along a one-way path, nan without a path.
        """
        forth, back = self.reach, self.reach.mT
        one_way = torch.where(forth, torch.inf, torch.where(back, -torch.inf, torch.nan))
        return torch.where(forth & back, 0.0, one_way).double()

    def contracted(self, groups: Tensor) -> Blocks:
        """The blocks if the chosen groups ``(D, c)`` have finite ratios with each other."""
        return Blocks.of(self.reach | (groups.unsqueeze(-1) & groups.unsqueeze(-2)))


def _arrows(sample: Sample, source: Tensor, target: Tensor) -> Tensor:
    """j → k if in a row that occurred j has `source` and k has `target`, both ``(D, R, c)``."""
    often = (source * sample.frequencies.unsqueeze(-1)).float()
    return sample.summed(often.mT @ target.float())[0] > 0


def preferences(sample: Sample) -> Tensor:
    """j → k if in some row a ball of j was drawn while a ball of k was left, ``(D, c, c)``."""
    return _arrows(sample, sample.counts > 0, sample.counts < sample.group_sizes)


def meetings(sample: Sample) -> Tensor:
    """j → k if both compete in some row, ``(D, c, c)``: comparable, given a penalty."""
    competing = sample.competing
    return _arrows(sample, competing, competing)


def main_block(blocks: Blocks, sample: Sample) -> Tensor:
    """The groups to which a centred fit is relative, ``(D, c)``: the block of most groups; among
    equals, the one of most draws.
    """
    drawn, _ = sample.totals
    absent = sample.absent
    same = blocks.same & ~absent.unsqueeze(-1) & ~absent.unsqueeze(-2)
    members, draws = same.sum(-1).double(), (same.double() @ drawn.unsqueeze(-1)).squeeze(-1)
    most = members == members.amax(-1, keepdim=True)
    best = torch.where(most, draws, -1.0).argmax(-1)
    return same.gather(1, best[:, None, None].expand(-1, 1, same.shape[-1])).squeeze(1)


# --- directions of covariates


def scales(sample: Rows) -> Tensor:
    """The size of each feature, ``(D, p)``; it makes coefficients comparable."""
    return sample.gram().diagonal(dim1=-2, dim2=-1).sqrt()


def null_projection(sample: Rows, scale: Tensor) -> Tensor:
    """Projection onto the directions of β on which no row depends, ``(D, p, p)``."""
    unit = torch.where(scale > 0, scale, 1.0)
    values, vectors = torch.linalg.eigh(sample.gram() / (unit.unsqueeze(-1) * unit.unsqueeze(-2)))
    basis = torch.where((values < EXACT).unsqueeze(-2), vectors / unit.unsqueeze(-1), 0.0)
    # Scaling back makes the columns of the basis non-orthogonal.
    q, s, _ = torch.linalg.svd(basis, full_matrices=False)
    significant = s > 1e-12 * s.amax(-1, keepdim=True).clamp(min=1e-300)
    kept = torch.where(significant.unsqueeze(-2), q, 0.0)
    return kept @ kept.mT


def cleaned(direction: Tensor, scale: Tensor, noise: float) -> Tensor:
    """A direction ``(D, p)`` without the components that are noise relative to the largest, each in
    units of its feature.
    """
    size = (direction * scale).abs()
    return torch.where(size > noise * size.amax(-1, keepdim=True), direction, 0.0)
