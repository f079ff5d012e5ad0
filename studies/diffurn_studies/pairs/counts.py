"""The law of k̂, the number of independent latents, and latents that are chosen by it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def independent_log_probs(log_weights: Tensor, latents: int) -> Tensor:
    r"""log P(k̂ = k) for k = 0, …, d: Fisher's distribution for m = (d, d), n = d over its whole
    support.

    .. math:: P(k) ∝ \binom{d}{k} \binom{d}{d - k} (ω_1 / ω_2)^k

    Example:
        >>> independent_log_probs(torch.zeros(2), latents=2).exp()  # C(2, k)² / C(4, 2)
        tensor([0.1667, 0.6667, 0.1667])
    """
    ways = [2 * math.log(math.comb(latents, k)) for k in range(latents + 1)]
    coefficients = torch.tensor(ways, dtype=log_weights.dtype, device=log_weights.device)
    counts = torch.arange(latents + 1, dtype=log_weights.dtype, device=log_weights.device)
    log_ratio = log_weights[..., 0] - log_weights[..., 1]
    return torch.log_softmax(coefficients + counts * log_ratio.unsqueeze(-1), -1)


def count_divergence(log_probs: Tensor, log_prior: Tensor) -> Tensor:
    """KL(q‖p) of distributions of k̂, (...), from log q and log p over k̂ = 0, …, d, (..., d + 1).

    With q and p by `independent_log_probs` this is ``kl_divergence`` of two urns.

    Example:
        >>> q = independent_log_probs(torch.tensor([1.0, 0.0]), latents=2)
        >>> count_divergence(q, q)
        tensor(0.)
    """
    return (log_probs.exp() * (log_probs - log_prior)).sum(-1)


def drawn_indicators(log_weights: Tensor, gumbel: Tensor, temperature: Tensor | None) -> Tensor:
    """1[i ≤ k̂] for i = 1, …, d, for one draw k̂ of every urn. The gradient is that of Gumbel-Softmax
    at a temperature, or without one that of P(k̂ ≥ i).
    """
    log_probs = independent_log_probs(log_weights, gumbel.shape[-1] - 1)
    perturbed = log_probs + gumbel
    soft = log_probs.exp() if temperature is None else torch.softmax(perturbed / temperature, -1)
    counts = torch.arange(perturbed.shape[-1], device=perturbed.device)
    hard = (counts == perturbed.argmax(-1, keepdim=True)).to(soft.dtype)
    return at_least(hard + (soft - soft.detach()))


def at_least(of_counts: Tensor) -> Tensor:
    """Σ_{k ≥ i} y_k for i = 1, …, d, from y over the counts 0, …, d."""
    return of_counts[..., 1:].flip(-1).cumsum(-1).flip(-1)


def largest(scores: Tensor, number: Tensor) -> Tensor:
    """1 for the `number` (...) largest of the scores (..., d), 0 for the others; of equal scores
    the first come first.
    """
    scores = scores.detach()
    above = scores.unsqueeze(-2) > scores.unsqueeze(-1)
    items = torch.arange(scores.shape[-1], device=scores.device)
    tied_before = (scores.unsqueeze(-2) == scores.unsqueeze(-1)) & (items < items.unsqueeze(-1))
    return ((above | tied_before).sum(-1) < number.unsqueeze(-1)).to(scores.dtype)


def log_divergences(divergences: Tensor) -> Tensor:
    """Their logarithms, finite also for latents whose posteriors are equal."""
    return divergences.clamp(min=torch.finfo(divergences.dtype).tiny).log()


def log_sets(number: Tensor, latents: int) -> Tensor:
    """The logarithm of how many sets of so many latents there are.

    Example:
        >>> log_sets(torch.tensor([0.0, 1.0, 2.0]), latents=4).exp()
        tensor([1., 4., 6.])
    """
    everything = math.lgamma(latents + 1)
    return everything - torch.lgamma(number + 1) - torch.lgamma(latents - number + 1)
