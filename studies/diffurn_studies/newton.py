"""Newton's method for the minimum of a smooth function of a few log-weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# A direction with a curvature below this share of the largest is flat: multiplying all weights by
# one factor changes nothing.
_FLAT = 1e-9
# The length of the last step.
_CLOSE = 1e-10


def minimiser(objective: Callable[[Tensor], Tensor], start: Tensor, iterations: int = 50) -> Tensor:
    """Minimises an objective ``(..., c)`` to ``(...)`` for many rows at once; each value depends on
    its own row only.

    Negative curvature is taken for positive, so that no step climbs. No step is longer than one,
    and flat directions are left alone. Ends when no step is longer than 1e-10.

    Example:
        >>> minimiser(lambda x: (x - 2).square().sum(-1), torch.zeros(1, 3))
        tensor([[2., 2., 2.]])
    """
    x: Tensor = start.detach().clone()
    for _ in range(iterations):
        x.requires_grad_()
        (slope,) = torch.autograd.grad(objective(x).sum(), x, create_graph=True)
        rows = [
            torch.autograd.grad(slope[..., j].sum(), x, retain_graph=True)[0]
            for j in range(x.shape[-1])
        ]
        curvature, directions = torch.linalg.eigh(torch.stack(rows, -1))
        size = curvature.abs()
        inverse = torch.where(size > _FLAT * size.amax(-1, keepdim=True), 1 / size, 0.0)
        step = directions @ (inverse.unsqueeze(-1) * (directions.mT @ slope.detach().unsqueeze(-1)))
        step = step.squeeze(-1)
        length = step.norm(dim=-1, keepdim=True)
        x = x.detach() - step / length.clamp(min=1)
        if length.max() < _CLOSE:
            return x
    raise ValueError(
        f"Newton's method did not settle in {iterations} steps: the last one was "
        f"{float(length.max()):.1e} long"
    )
