"""The table of estimators on the page about random partitions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from _pages import Markdown
from torch import Tensor

from diffurn import (
    ConditionalST,
    CovarianceST,
    Estimator,
    RandomPartition,
    TwoStageGumbel,
    score_surrogate,
)

SCORES, WEIGHTS = [0.3, -0.3, 2.0, 1.0, -1.0], [0.0, 1.0, -2.0, 0.3]
SUBSETS = len(WEIGHTS)
DRAWS = 10_000
ROWS: dict[str, Estimator | None] = {
    "ConditionalST()": ConditionalST(),
    "CovarianceST()": CovarianceST(),
    "TwoStageGumbel(1.0)": TwoStageGumbel(1.0),
    "TwoStageGumbel(0.5)": TwoStageGumbel(0.5),
    'TwoStageGumbel(1.0, conditionals="merged")': TwoStageGumbel(1.0, conditionals="merged"),
    "score_surrogate(partition, f, 2)": None,
}


def linear(memberships: Tensor) -> Tensor:
    i, k = torch.arange(float(len(SCORES))).unsqueeze(-1), torch.arange(float(SUBSETS))
    return (memberships * torch.cos(3 * i + 2 * k)).sum((-1, -2))


def curved(memberships: Tensor) -> Tensor:
    together = (memberships[..., 0, :] * memberships[..., 1, :]).sum(-1)
    return (linear(memberships) - 1).square() + together


def estimator_table() -> Markdown:
    """Bias and spread of gradients, relative to the length of the exact one."""
    lines = [
        "| estimator | linear f: bias | spread | curved f: bias | spread |",
        "|:--|--:|--:|--:|--:|",
    ]
    for name, estimator in ROWS.items():
        cells = [f"{number:.2f}" for f in (linear, curved) for number in _judged(estimator, f)]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return Markdown("\n".join(lines))


def _judged(estimator: Estimator | None, f: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    leaves = _leaves(1)
    labels = torch.cartesian_prod(*[torch.arange(SUBSETS)] * len(SCORES))
    probability = RandomPartition(*leaves).log_prob(labels).exp()
    exact = _gradient((probability * f(_memberships(labels))).sum(), leaves)[0]

    # That of CovarianceST is slow, and has less variance.
    leaves = _leaves(DRAWS // 100 if isinstance(estimator, CovarianceST) else DRAWS)
    if estimator is None:
        loss = score_surrogate(RandomPartition(*leaves), lambda x: f(_memberships(x)), 2)
    else:
        loss = f(RandomPartition(*leaves, estimator=estimator).rsample())
    found = _gradient(loss.sum(), leaves)
    size = exact.norm()
    return float((found.mean(0) - exact).norm() / size), float(found.std(0).norm() / size)


def _leaves(number: int) -> list[Tensor]:
    return [
        torch.tensor(values, dtype=torch.float64).repeat(number, 1).requires_grad_()
        for values in (SCORES, WEIGHTS)
    ]


def _gradient(loss: Tensor, leaves: list[Tensor]) -> Tensor:
    return torch.cat(torch.autograd.grad(loss, leaves), -1)


def _memberships(labels: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(labels, SUBSETS).double()
