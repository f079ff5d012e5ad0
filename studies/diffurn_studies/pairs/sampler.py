"""Draws pairs that share some of their factors: which factors, and their values."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Sampler = Literal["exact", "loose", "fixed"]
RANDOM = -1


class Pairs(NamedTuple):
    """The factors of two views, which of them are equal, and one that is known to differ."""

    factors: Tensor  # (..., 2, F), int64
    shared: Tensor  # (..., F), bool: equal in both views
    known: Tensor  # (...), int64: one of the factors that change, or any factor if none changes


def uniforms_per_pair(factors: int) -> int:
    """Number of uniforms that `draw_pairs` takes for one pair: three for each factor, and two for
    the number of factors that change.
    """
    return 3 * factors + 2


def draw_pairs(
    uniforms: Tensor, sizes: Tensor, shared: Tensor | int, sampler: Sampler = "exact"
) -> Pairs:
    """Pairs in which some of the F factors change from the first to the second view.

    The first view's values are uniform. With the ``exact`` sampler k = F - s factors change, each
    to one of its other values, all equally likely: exactly s are shared. They are a uniformly
    random subset of the factors. With the ``fixed`` sampler they are the last k factors in the
    order of the data set, so that the first s are shared in every pair. The ``loose`` sampler is
    that of disentanglement_lib (Locatello et al., *Weakly-Supervised Disentanglement Without
    Compromises*, ICML 2020): k factors or only one, by a fair coin, are drawn again and may get
    their old value, so that s or more are shared. For a random s, k is uniform from 1 to F - 1 for
    each pair. `known` is uniform among the factors chosen to change.

    A pure function of its tensors, without CPU–GPU synchronisation. It does not check their values.

    Args:
        uniforms: from 0 to less than 1, ``(..., uniforms_per_pair(F))``.
        sizes: values of each factor, at least two, ``(F,)``, int64.
        shared: s, from 0 to F, or -1 for a random number; an integer or a tensor that broadcasts to
            the batch ``(...)``.
        sampler: ``exact``, ``fixed`` or ``loose``.

    Example:
        >>> uniforms = torch.rand(100, uniforms_per_pair(3))
        >>> pairs = draw_pairs(uniforms, torch.tensor([4, 5, 6]), shared=2)
        >>> pairs.factors.shape, pairs.shared.sum(-1).unique()
        (torch.Size([100, 2, 3]), tensor([2]))
    """
    factors = len(sizes)
    _require(uniforms, factors, shared, sampler)
    order, first, second, number, coin = uniforms.split([factors, factors, factors, 1, 1], -1)
    ranks, changing = _ranks(order), _changing(number, coin, factors, shared, sampler)
    from_last = torch.arange(factors - 1, -1, -1, device=order.device)
    changed = (from_last if sampler == "fixed" else ranks) < changing
    old = _whole(first, sizes)
    # loose: any value; otherwise one of the other values, all equally likely
    new = (
        _whole(second, sizes)
        if sampler == "loose"
        else (old + 1 + _whole(second, sizes - 1)) % sizes
    )
    views = torch.stack([old, torch.where(changed, new, old)], -2)
    # Ranks are a uniform permutation, so the factor of the smallest rank is a uniform choice.
    known = torch.where(changed, ranks, ranks + factors).argmin(-1)
    return Pairs(views, views[..., 0, :] == views[..., 1, :], known)


def _require(uniforms: Tensor, factors: int, shared: Tensor | int, sampler: str) -> None:
    if uniforms.shape[-1] != (numbers := uniforms_per_pair(factors)):
        raise ValueError(
            f"uniforms has shape {tuple(uniforms.shape)}, but a pair of {factors} factors takes "
            f"{numbers} numbers"
        )
    if isinstance(shared, int) and not (shared == RANDOM or 0 <= shared <= factors):
        raise ValueError(
            f"shared is {shared}, but must be from 0 to {factors}, or {RANDOM} for a random number"
        )
    if sampler not in get_args(Sampler):
        raise ValueError(f"there is no sampler {sampler!r}: choose {', '.join(get_args(Sampler))}")


def _changing(
    number: Tensor, coin: Tensor, factors: int, shared: Tensor | int, sampler: Sampler
) -> Tensor:
    """How many factors are chosen to change, (..., 1)."""
    random = 1 + (number * (factors - 1)).long()
    given = torch.full_like(random, shared) if isinstance(shared, int) else shared.unsqueeze(-1)
    changing = torch.where(given == RANDOM, random, factors - given)
    return torch.where(coin < 0.5, 1, changing) if sampler == "loose" else changing


def _ranks(order: Tensor) -> Tensor:
    """The position of each number in ascending order; of equal numbers the earlier comes first. For
    few numbers this is faster than sorting.
    """
    one, other = order.unsqueeze(-1), order.unsqueeze(-2)
    position = torch.arange(order.shape[-1], device=order.device)
    return ((other < one) | ((other == one) & (position < position.unsqueeze(-1)))).sum(-1)


def _whole(uniforms: Tensor, sizes: Tensor) -> Tensor:
    """⌊u·size⌋. The result is below the size: u ≤ 1 - ε, so u·size is not rounded up to it."""
    return (uniforms * sizes).long()
