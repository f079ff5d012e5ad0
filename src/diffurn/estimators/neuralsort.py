"""Relaxed sorting, and selection of the k̂ largest items for a learned k̂."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn.estimators.noise import gumbel_noise


def neuralsort(
    scores: Tensor, temperature: float | Tensor, hard: bool = False, stochastic: bool = False
) -> Tensor:
    r"""The relaxed permutation matrix ``(..., d, d)`` that sorts `scores` in descending order.

    Row i selects the i-th largest score:

    .. math:: \hat P_{i,:} = \mathrm{softmax}\big(((d + 1 - 2i) s - A_s 1) / τ\big),
              \qquad A_s[j, k] = |s_j - s_k|.

    Reference: Grover, Wang, Zweig, Ermon, *Stochastic Optimization of Sorting Networks via
    Continuous Relaxations* (ICLR 2019).

    Args:
        scores: s, shape ``(..., d)``.
        temperature: τ > 0; rows become one-hot as τ → 0.
        hard: a true permutation forward, the relaxed matrix backward. The permutation comes from
            argsort, so ties cannot select an item twice.
        stochastic: whether to add Gumbel noise to the scores. The result is then a relaxed draw
            from the Plackett-Luce law with log-weights s.

    Example:
        >>> neuralsort(torch.tensor([1.0, 3.0, 2.0]), temperature=1e-3)
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [1., 0., 0.]])
    """
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature is {temperature}, but must be > 0")
    if stochastic:
        scores = scores + gumbel_noise(scores.shape, scores)
    items = scores.shape[-1]
    distances = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs().sum(-1)
    scaling = items - 1 - 2 * torch.arange(items, dtype=scores.dtype, device=scores.device)
    logits = scaling.unsqueeze(-1) * scores.unsqueeze(-2) - distances.unsqueeze(-2)
    relaxed = torch.softmax(logits / temperature, -1)
    if not hard:
        return relaxed
    order = scores.detach().argsort(dim=-1, descending=True, stable=True)
    permutation = torch.zeros_like(relaxed).scatter(-1, order.unsqueeze(-1), 1.0)
    return permutation + (relaxed - relaxed.detach())


def select_top(permutation: Tensor, indicators: Tensor) -> Tensor:
    """Whether each item is among the first k̂, Σ_i b_i P[i, :], shape ``(..., d)``.

    Args:
        permutation: P, a (relaxed) permutation matrix, shape ``(..., d, d)``.
        indicators: b, the rank indicators b_i = 1[i ≤ k̂] of a count k̂, shape ``(..., d)``.

    Example:
        >>> order = neuralsort(torch.tensor([1.0, 3.0, 2.0]), temperature=1e-3)
        >>> select_top(order, indicators=torch.tensor([1.0, 1.0, 0.0]))  # the two largest
        tensor([0., 1., 1.])
    """
    return (indicators.unsqueeze(-2) @ permutation).squeeze(-2)
