"""Cells of k-subsets: urns whose groups have one ball each, beside floors and other algorithms.

The floors draw a subset that does not follow Fisher's law (a Gumbel top-k follows Wallenius' law),
or have no gradient. They bound what any sampler takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.alone.urns import Urns
from benchmarks.ours import Cell, Inputs, Run
from diffurn import FisherHypergeometric, WalleniusHypergeometric

_SIZES = ((1, 30, 5), (64, 30, 5), (64, 64, 8), (64, 784, 50), (256, 1024, 128))
# A probability is measured for one urn of ten thousand groups as well.
_WALLENIUS = ((64, 64, 8), (1, 784, 50), (1, 10_000, 1000))


def _subsets(batch: int, groups: int, draws: int) -> Urns:
    return Urns(groups, 1, draws, batch, dtype=torch.float32)


def _words(batch: int, groups: int, draws: int) -> str:
    return f"{draws} of {groups:,}, B = {batch}"


# --------------------------------------------------------------------------------------------------
# Draws with gradients
# --------------------------------------------------------------------------------------------------


def _ours(urns: Urns, log_weights: Tensor) -> Tensor:
    sizes, draws = urns.sizes(log_weights.device)
    return FisherHypergeometric(sizes, draws, log_weights=log_weights).rsample()


def _gumbel_top_k(urns: Urns, log_weights: Tensor) -> Tensor:
    """The k largest of log ω + Gumbel noise; backward through their softmax."""
    noisy = log_weights - torch.empty_like(log_weights).exponential_().log()
    soft = torch.softmax(noisy, -1) * urns.draws
    chosen = noisy.topk(urns.draws).indices
    hard = torch.zeros_like(soft).scatter(-1, chosen, 1.0)
    return soft + (hard - soft).detach()


def _multinomial(urns: Urns, log_weights: Tensor) -> Tensor:
    """`torch.multinomial` without replacement, which has no gradient of its own."""
    soft = torch.softmax(log_weights, -1)
    hard = torch.zeros_like(soft).scatter(-1, torch.multinomial(soft.detach(), urns.draws), 1.0)
    return soft + (hard - soft).detach()


_SAMPLERS: dict[str, Callable[[Urns, Tensor], Tensor]] = {
    "diffurn": _ours,
    "floor: Gumbel top-k straight-through": _gumbel_top_k,
    "floor: torch.multinomial": _multinomial,
}


def draws() -> Iterator[Cell]:
    for size in _SIZES:
        for name, sampler in _SAMPLERS.items():
            yield _of_sampler(name, sampler, *size)


def _of_sampler(
    name: str, sampler: Callable[[Urns, Tensor], Tensor], batch: int, groups: int, number: int
) -> Cell:
    urns = _subsets(batch, groups, number)

    def prepare(inputs: Inputs) -> Run:
        log_weights = urns.log_weights(inputs.device).requires_grad_()
        values = torch.linspace(-1, 1, groups, device=inputs.device)

        def run() -> Tensor:
            drawn = sampler(urns, log_weights)
            return torch.autograd.grad((drawn * values).sum(), log_weights)[0]

        return run

    words = _words(batch, groups, number)
    return Cell(f"subset, draw + gradient, {name}: {words}", batch, prepare)


# --------------------------------------------------------------------------------------------------
# Normalisers
# --------------------------------------------------------------------------------------------------


def log_polynomial(log_weights: Tensor, draws: int) -> Tensor:
    """log e_n(ω) by the dynamic programme of SIMPLE and others, item after item, O(c n)."""
    shape = (*log_weights.shape[:-1], draws + 1)
    table = torch.full(shape, -torch.inf, dtype=log_weights.dtype, device=log_weights.device)
    table[..., 0] = 0.0
    for log_weight in log_weights.unbind(-1):
        with_it = table[..., :-1] + log_weight.unsqueeze(-1)
        table = torch.cat([table[..., :1], torch.logaddexp(table[..., 1:], with_it)], -1)
    return table[..., -1]


def log_polynomial_by_fourier(log_weights: Tensor, draws: int) -> Tensor:
    """log e_n(ω) by the law of the sum of independent single balls, from its characteristic
    function at c + 1 points, O(c²). Its error is absolute, so small masses are lost.
    """
    p, points = torch.sigmoid(log_weights), log_weights.shape[-1] + 1
    turns = torch.arange(points, dtype=p.dtype, device=p.device) * (2 * math.pi / points)
    steps = torch.polar(torch.ones_like(turns), turns) - 1
    each = [torch.log1p(row * steps.unsqueeze(-1)).sum(-1) for row in p.reshape(-1, points - 1)]
    values = (torch.stack(each) - 1j * draws * turns).exp()
    mass = values.real.mean(-1).reshape(p.shape[:-1])
    return mass.log() + torch.nn.functional.softplus(log_weights).sum(-1)


_NORMALISERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "dynamic programming": log_polynomial,
    "Fourier transform": log_polynomial_by_fourier,
}


def normalisers() -> Iterator[Cell]:
    for size in ((1, 784, 50), (64, 784, 50)):
        for name in ("diffurn", *_NORMALISERS):
            yield _of_normaliser(name, *size)


def _of_normaliser(name: str, batch: int, groups: int, number: int) -> Cell:
    urns = Urns(groups, 1, number, batch)

    def prepare(inputs: Inputs) -> Run:
        log_weights, (sizes, n) = urns.log_weights(inputs.device), urns.sizes(inputs.device)
        if name == "diffurn":
            return lambda: FisherHypergeometric(sizes, n, log_weights=log_weights).log_normalizer
        return lambda: _NORMALISERS[name](log_weights, number)

    return Cell(f"subset, log_normalizer, {name}: {_words(batch, groups, number)}", batch, prepare)


# --------------------------------------------------------------------------------------------------
# Wallenius' law
# --------------------------------------------------------------------------------------------------


def wallenius() -> Iterator[Cell]:
    for size in _WALLENIUS:
        yield _of_wallenius("log_prob + gradient", *size)
    yield _of_wallenius("mean", 1, 784, 50)
    yield _of_wallenius("sample", 64, 784, 50)


def _of_wallenius(operation: str, batch: int, groups: int, number: int) -> Cell:
    urns = Urns(groups, 1, number, batch)

    def prepare(inputs: Inputs) -> Run:
        log_weights = urns.log_weights(inputs.device).requires_grad_("gradient" in operation)
        sizes, n = urns.sizes(inputs.device)
        counts = urns.counts(inputs.device)

        def run() -> Tensor:
            urn = WalleniusHypergeometric(sizes, n, log_weights=log_weights)
            if operation == "mean":
                return urn.mean
            if operation == "sample":
                return urn.sample()
            return torch.autograd.grad(urn.log_prob(counts).sum(), log_weights)[0]

        return run

    name = f"subset, {operation} of Wallenius: {_words(batch, groups, number)}"
    return Cell(name, batch, prepare)
