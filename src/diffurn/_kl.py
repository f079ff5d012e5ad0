"""Divergences, registered with `torch.distributions.kl_divergence`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions.kl import register_kl

from diffurn import _fisher as exact
from diffurn._numerics.tracing import can_check
from diffurn.fisher import FisherHypergeometric


@register_kl(FisherHypergeometric, FisherHypergeometric)  # type: ignore[untyped-decorator]
def _kl_fisher_fisher(p: FisherHypergeometric, q: FisherHypergeometric) -> Tensor:
    """Exact; +inf where the draws differ or q never draws what p does. Different group sizes are
    not comparable here.
    """
    if p.event_shape != q.event_shape or (
        can_check() and not bool((p.group_sizes == q.group_sizes).all())
    ):
        raise NotImplementedError(
            f"KL needs equal group sizes, got {p.group_sizes.tolist()} and {q.group_sizes.tolist()}"
        )
    value = exact.kl_divergence(p.tilted, q.tilted)
    may_be_drawn = (p.log_weights > -torch.inf) & (p.group_sizes > 0) & (p.draws > 0).unsqueeze(-1)
    impossible = (may_be_drawn & (q.log_weights == -torch.inf)).any(-1) | (p.draws != q.draws)
    return torch.where(impossible, torch.inf, value).to(p.dtype)
