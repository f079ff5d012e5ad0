"""Urns of the tables as distributions of the library, and what their results must satisfy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.distributions import Distribution

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from support.urns import Urn


class _UnreadSizes:
    """An urn whose sizes are not read on the CPU, as if they were tensors on a GPU.

    Neither tables nor dynamic programming can compute it.
    """

    _composition = None


class GeneralFisher(_UnreadSizes, FisherHypergeometric):
    """Fisher's law without tables over the support."""


class GeneralWallenius(_UnreadSizes, WalleniusHypergeometric):
    """Wallenius' law without dynamic programming."""


def fisher(
    urn: Urn, device: torch.device, dtype: torch.dtype = torch.float64
) -> FisherHypergeometric:
    sizes, draws = (
        torch.tensor(urn.group_sizes, device=device),
        torch.tensor(urn.draws, device=device),
    )
    return FisherHypergeometric(
        sizes, draws, log_weights=torch.tensor(urn.log_weights, dtype=dtype, device=device)
    )


def wallenius(
    urn: Urn,
    device: torch.device,
    dtype: torch.dtype = torch.float64,
    copies: Sequence[int] = (),
    kind: type[WalleniusHypergeometric] = WalleniusHypergeometric,
) -> WalleniusHypergeometric:
    log_weights = torch.tensor(urn.log_weights, dtype=dtype, device=device).repeat(*copies, 1)
    return kind(urn.group_sizes, urn.draws, log_weights=log_weights)


def assert_possible(counts: Tensor, urn: Urn) -> None:
    """Integers, 0 ≤ x ≤ m, Σx = n, and nothing of a group of weight zero."""
    assert counts.shape[-1] == urn.groups
    whole = counts.detach().to(torch.int64)
    assert (whole == counts).all(), "not integers"
    assert (whole >= 0).all()
    assert (whole <= torch.tensor(urn.drawable, device=counts.device)).all()
    assert (whole.sum(-1) == urn.draws).all()


def assert_dtype(
    urn: Distribution,
    found: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    dtype: torch.dtype,
) -> None:
    """Results are those of float64, the reference, rounded once; draws are possible and have the
    dtype, too.
    """
    for name, result in found.items():
        assert result.dtype == dtype, name
        torch.testing.assert_close(
            result, reference[name].to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-12
        )
    for counts in (urn.sample((50,)), urn.rsample((50,)), urn.enumerate_support()):
        assert counts.dtype == dtype
        assert bool(urn.support.check(counts).all())


def error(ours: float, exact: mpf) -> float:
    """|ours - exact|, rounded once; equal infinities do not differ, NaN differs infinitely."""
    if math.isnan(ours):
        return math.inf
    return 0.0 if ours == exact else float(abs(mpf(ours) - exact))


def assert_log_probs(ours: Tensor, exact: Iterable[mpf], tolerance: float) -> None:
    """Each within tolerance·max(1, |log p|); of what is impossible exactly -inf."""
    for value, reference in zip(ours.tolist(), exact, strict=True):
        allowed = tolerance * max(1.0, abs(float(reference))) if mp.isfinite(reference) else 0.0
        assert error(value, reference) <= allowed, (value, mp.nstr(reference, 20))
