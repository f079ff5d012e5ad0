"""Covariates that separate: directions in which the likelihood rises for ever, and the law at their
end.

Along β + t·d the likelihood rises for ever exactly if no row has a ball taken while one of greater
features · d was left: the counts of the row maximise Σ x_j (features_j · d). In the limit t → ∞
groups of a row with different values of features · d are drawn independently. Newton's method finds
such a d by running after it; here it is checked against the counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn.inference.sample import Sample

# A direction found by Newton's method is good to a few digits: enough to tell which groups tie
# along it. The ties, taken as exact, then give the direction to rounding.
TIE = 1e-3
EXACT = 1e-9


def gram(sample: Sample) -> Tensor:
    """Σ f zᵀz of features z centred in their row, over groups that could vary, ``(D, p, p)``:
    singular where β is not identified.
    """
    centred = sample.centred_features.flatten(1, 2)
    weight = sample.frequencies.repeat_interleave(sample.counts.shape[-1], 1).unsqueeze(-1)
    return sample.summed(centred.mT @ (weight * centred))[0]


def scales(sample: Sample) -> Tensor:
    """The size of each feature, ``(D, p)``, so that coefficients can be compared."""
    return gram(sample).diagonal(dim1=-2, dim2=-1).sqrt()


def null_projection(sample: Sample, scale: Tensor) -> Tensor:
    """Projection onto the directions of β that no row of the sample sees, ``(D, p, p)``."""
    unit = torch.where(scale > 0, scale, 1.0)
    values, vectors = torch.linalg.eigh(gram(sample) / (unit.unsqueeze(-1) * unit.unsqueeze(-2)))
    basis = torch.where((values < EXACT).unsqueeze(-2), vectors / unit.unsqueeze(-1), 0.0)
    # the columns of the basis are no longer orthogonal once scaled back
    q, s, _ = torch.linalg.svd(basis, full_matrices=False)
    kept = torch.where(
        (s > 1e-12 * s.amax(-1, keepdim=True).clamp(min=1e-300)).unsqueeze(-2), q, 0.0
    )
    return kept @ kept.mT


def cleaned(direction: Tensor, scale: Tensor, noise: float) -> Tensor:
    """A direction ``(D, p)`` without the components that are noise beside the largest, each in
    units of its feature.
    """
    size = (direction * scale).abs()
    return torch.where(size > noise * size.amax(-1, keepdim=True), direction, 0.0)


def _along(sample: Sample, direction: Tensor) -> tuple[Tensor, Tensor]:
    """features · direction ``(D, R, c)`` and, for scale, the size of its terms within each row
    ``(D, R)``.
    """
    assert sample.features is not None
    extent = sample.features.amax(-2) - sample.features.amin(-2)
    return (sample.features @ direction[:, None, :, None]).squeeze(-1), (
        extent @ direction.abs().unsqueeze(-1)
    ).squeeze(-1)


def separates(sample: Sample, direction: Tensor, tolerance: float) -> Tensor:
    """Whether the likelihood never falls along a direction ``(D, p)``, and rises at all;
    ``(D,)``.
    """
    happened = sample.undetermined.unsqueeze(-1)
    values, scale = _along(sample, direction)
    lowest_taken = torch.where((sample.counts > 0) & happened, values, torch.inf).amin(-1)
    highest_left = torch.where(
        (sample.counts < sample.group_sizes) & happened, values, -torch.inf
    ).amax(-1)
    never_falls = ~sample.undetermined | (lowest_taken - highest_left >= -tolerance * scale)
    competing = sample.competing
    highest, lowest = (
        torch.where(competing, sign * values, -torch.inf).amax(-1) for sign in (1, -1)
    )
    rises = sample.undetermined & (highest + lowest > tolerance * scale)
    falling, rising = sample.summed((~never_falls).sum(-1), rises.sum(-1))
    return (falling == 0) & (rising > 0)


def refined(labels: Tensor, sample: Sample, direction: Tensor) -> Tensor:
    """Labels ``(D, R, c)`` that also tell apart groups of a row with different features ·
    direction.
    """
    values, scale = _along(sample, direction)
    tied = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs() <= 2 * TIE * scale[..., None, None]
    return (tied & (labels.unsqueeze(-1) == labels.unsqueeze(-2))).float().argmax(-1)
