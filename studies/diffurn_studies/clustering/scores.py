"""Scores of a clustering, from the table that counts items by cluster and class."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Scores(NamedTuple):
    """Attributes:
    accuracy: share of items in the cluster of their class, for the best matching of clusters
        with classes.
    nmi: mutual information divided by the mean of the two entropies.
    ari: adjusted Rand index.
    classes: the class that each cluster is matched with.
    """

    accuracy: float
    nmi: float
    ari: float
    classes: list[int]


def confusion(clusters: Tensor, labels: Tensor, number: int) -> Tensor:
    """Counts items by model, cluster and class, (S, number, number), from cluster numbers (S, N)
    and labels (N,).
    """
    models = len(clusters)
    places = (
        torch.arange(models, device=clusters.device).unsqueeze(1) * number + clusters
    ) * number + labels
    return torch.bincount(places.flatten(), minlength=models * number * number).view(
        models, number, number
    )


def score(table: Tensor) -> Scores:
    """The scores of one table (clusters, classes); the Hungarian method matches clusters with
    classes.

    Example:
        >>> score(torch.tensor([[0, 5], [4, 1]])).accuracy
        0.9
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped, unused-ignore]

    table = table.double().cpu()
    total = table.sum()
    clusters, classes = linear_sum_assignment(table.numpy(), maximize=True)
    accuracy = float(table[clusters, classes].sum() / total)
    return Scores(
        accuracy, _normalised_information(table / total), _adjusted_rand(table), classes.tolist()
    )


def _entropy(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p).sum()


def _normalised_information(p: Tensor) -> float:
    own, other = _entropy(p.sum(1)), _entropy(p.sum(0))
    information = (own + other - _entropy(p)).clamp(min=0)
    return float(information / (0.5 * (own + other))) if own + other > 0 else 1.0


def _pairs(counts: Tensor) -> Tensor:
    return (counts * (counts - 1) / 2).sum()


def _adjusted_rand(table: Tensor) -> float:
    together, own, other = _pairs(table), _pairs(table.sum(1)), _pairs(table.sum(0))
    chance = own * other / _pairs(table.sum())
    return (
        float((together - chance) / (0.5 * (own + other) - chance))
        if own + other > 2 * chance
        else 1.0
    )


def correlation(first: Tensor, second: Tensor) -> float:
    """Pearson's correlation; 0 if one of the two is constant."""
    first, second = first.double() - first.double().mean(), second.double() - second.double().mean()
    scale = first.norm() * second.norm()
    return float(first @ second / scale) if scale > 1e-12 else 0.0
