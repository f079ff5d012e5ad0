r"""The most probable partition: the order by scores, cut where dynamic programming says.

**Given the sizes, the items in descending order of their scores are the most probable.** Take a
partition in which an item a of a subset has a lower score than an item b of a later subset, and any
order that leads to it. In it a comes before b. Exchange the two. The probability of an order is
∏ w_i / ∏ (the weight of the items from i on). The first product stays. In the second, the factors
of the places after that of a, up to that of b, hold w_a in place of w_b, so they are smaller. So
every order of the partition has a more probable partner that leads to the partition with a and b
exchanged. The partners differ, so that partition is more probable.

What is left are the cuts. With items i, …, j - 1 of the sorted ones in subset k, the
log-probability is a sum over subsets of

.. math:: \log \binom{m_k}{j - i} + (j - i) \log ω_k
          + \log P(\text{items } i, …, j - 1 \text{ come before all later ones}),

so dynamic programming over (k, j) finds the best of all cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diffurn._numerics.batching import in_chunks
from diffurn._wallenius.probabilities import log_share_arrived

# An integrand is cut off so many nats below its peak, and summed at so many nodes.
_DEPTH, _NODES = 35.0, 160
# The step of the table in the smallest deviation of an integrand in log time.
_STEP = 0.7
# Cuts share a table of arrivals if the log-weights of the items behind them differ by less.
_NATS_OF_A_TABLE = 20.0
# Pairs of cuts whose integrals are computed at once.
_PAIRS = 1 << 14


def most_probable(
    log_scores: Tensor, mask: Tensor, log_weights: Tensor, group_sizes: Tensor
) -> Tensor:
    """The subset of each item, int64 ``(..., n)``; -1 for missing items.

    It takes O(n² (K + 200)) time, and memory for n² numbers, or some thousand n if that is more.

    Args:
        log_scores: s, finite, ``(..., n)``, float64.
        mask: which items exist, ``(..., n)``.
        log_weights: finite log ω, ``(..., K)``.
        group_sizes: m, ``(..., K)``; 0 for a subset of weight zero.
    """
    items = log_scores.shape[-1]
    work = (items + 1) * max(items + 1, _table_length(items))
    operands = (log_scores, mask, log_weights, group_sizes)
    return in_chunks(_of_rows, *operands, events=(1, 1, 1, 1), work=work)


def _of_rows(log_scores: Tensor, mask: Tensor, log_weights: Tensor, sizes: Tensor) -> Tensor:
    shape, items = log_scores.shape, log_scores.shape[-1]
    log_scores, mask, log_weights, sizes = (
        x.reshape(x.shape[:-1].numel(), x.shape[-1]) for x in (log_scores, mask, log_weights, sizes)
    )
    order = torch.where(mask, log_scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    number = mask.sum(-1)
    log_first = _log_prob_of_first(log_scores.gather(-1, order), number)
    cuts = _best_cuts(log_first, _log_terms_of_sizes(log_weights, sizes, items), number)
    rank = order.argsort(-1)
    labels = (rank.unsqueeze(-1) >= cuts.unsqueeze(-2)).sum(-1)
    return torch.where(mask, labels, -1).reshape(shape)


def _log_terms_of_sizes(log_weights: Tensor, sizes: Tensor, items: int) -> Tensor:
    """log C(m_k, x) + x log ω_k for x = 0, …, n, shape ``(B, K, n + 1)``."""
    x = torch.arange(items + 1, dtype=sizes.dtype, device=sizes.device)
    m = sizes.unsqueeze(-1)
    left = (m - x).clamp(min=0)
    terms = torch.lgamma(m + 1) - torch.lgamma(x + 1) - torch.lgamma(left + 1)
    return torch.where(x <= m, terms + x * log_weights.unsqueeze(-1), -torch.inf)


def _best_cuts(log_first: Tensor, log_sizes: Tensor, number: Tensor) -> Tensor:
    """The first places of the subsets 1, …, K - 1, shape ``(B, K - 1)``.

    Args:
        log_first: log P(items i, …, j - 1 come before all later ones), ``(B, n + 1, n + 1)``.
        log_sizes: the terms of the sizes, ``(B, K, n + 1)``.
        number: the items of each row, ``(B,)``.
    """
    rows, subsets, length = log_sizes.shape
    j = torch.arange(length, device=log_sizes.device)
    size = (j - j.unsqueeze(-1)).clamp(min=0)  # [i, j]
    best = torch.where(j == 0, 0.0, -torch.inf).to(log_sizes.dtype).expand(rows, length)
    starts = []
    for k in range(subsets):
        # Before any j below i, log_first is -inf.
        values, start = (best.unsqueeze(-1) + log_sizes[:, k, size] + log_first).max(-2)
        best = values
        starts.append(start)
    cut, cuts = number, []
    for start in reversed(starts[1:]):
        cut = start.gather(-1, cut.unsqueeze(-1)).squeeze(-1)
        cuts.append(cut)
    return torch.stack(cuts[::-1], -1) if cuts else number.new_zeros(rows, 0)


def _step(items: int) -> float:
    # The integrand of d items has a curvature of at most 2 d + 2 at its peak.
    return _STEP / math.sqrt(2 * items + 2)


def _table_length(items: int) -> int:
    nats = _DEPTH + _NATS_OF_A_TABLE + math.log(items + 1) + 5
    return math.ceil(nats / _step(items)) + 1


def _log_prob_of_first(log_scores: Tensor, number: Tensor) -> Tensor:
    r"""log P(items i, …, j - 1 come before all later ones), ``(B, n + 1, n + 1)``; -inf for j < i.

    An item of weight w arrives at an exponential time of that rate. So the probability is
    ∫ ∏_{i ≤ a < j} (1 - e^{-w_a t}) W e^{-W t} dt, W being the weight of the items from j on. The
    logarithm of the product is a difference of cumulative sums, which all pairs share in a table
    over log times u. The integrand is log-concave in u. Its peak is from -log W to
    log(j - i + 1) - log W.

    Args:
        log_scores: s in descending order, missing items last, ``(B, n)``.
        number: the items of each row, ``(B,)``.
    """
    items = log_scores.shape[-1]
    place = torch.arange(items + 1, device=log_scores.device)
    i, j = place.unsqueeze(-1), place
    is_cut = j <= number[:, None, None]
    result = torch.where(is_cut & (i <= j), 0.0, -torch.inf).to(log_scores.dtype)
    if not items:
        return result
    known = torch.where(place[:-1] < number.unsqueeze(-1), log_scores, -torch.inf)
    behind = known.flip(-1).logcumsumexp(-1).flip(-1)  # log W before item j, (B, n)
    depth = torch.where(behind > -torch.inf, behind[:, :1] - behind, 0.0)
    block = torch.div(depth, _NATS_OF_A_TABLE, rounding_mode="floor")
    inner = (i < j) & (j < number[:, None, None])
    for current in block.unique().tolist():
        of_block = torch.cat([block, block[:, :1] - 1], -1) == current
        pairs = (inner & of_block.unsqueeze(-2)).nonzero()
        if not len(pairs):
            continue
        lowest = -behind[:, 0] + current * _NATS_OF_A_TABLE - _DEPTH
        table = _Arrivals(known, behind, lowest)
        found = torch.cat([table.log_prob(*part.unbind(-1)) for part in pairs.split(_PAIRS)])
        result[pairs.unbind(-1)] = found
    return result


class _Arrivals:
    """log P(items 0, …, i - 1 have arrived) at evenly spaced log times, ``(B, n + 1, T)``."""

    def __init__(self, log_scores: Tensor, behind: Tensor, lowest: Tensor) -> None:
        items = log_scores.shape[-1]
        self.length, self.step = _table_length(items), _step(items)
        self.behind, self.lowest = behind, lowest
        t = torch.arange(self.length, dtype=log_scores.dtype, device=log_scores.device)
        u = lowest.unsqueeze(-1) + self.step * t
        log_times = (log_scores.unsqueeze(-1) + u.unsqueeze(-2)).clamp(-700.0, 700.0)
        arrived = log_share_arrived(log_times).cumsum(-2)
        self.table = torch.cat([torch.zeros_like(arrived[:, :1]), arrived], -2).flatten()
        self.stride = items + 1

    def log_prob(self, row: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """For pairs of places ``(P,)``."""
        first, last = ((row * self.stride + place) * self.length for place in (i, j))
        log_later = self.behind[row, j]
        lowest = self.lowest[row]

        def log_density(node: Tensor) -> Tensor:  # (P, N)
            arrived = self.table[last.unsqueeze(-1) + node] - self.table[first.unsqueeze(-1) + node]
            log_time = (log_later + lowest).unsqueeze(-1) + self.step * node
            return arrived + log_time - log_time.exp()

        def value(node: Tensor) -> Tensor:  # (P,)
            return log_density(node.unsqueeze(-1)).squeeze(-1)

        low, high = torch.zeros_like(row), torch.full_like(row, self.length - 1)
        last_node = self.length - 1

        def falls(node: Tensor) -> Tensor:
            return value((node + 1).clamp(max=last_node)) <= value(node)

        peak = self._first(falls, low, high)
        bottom = value(peak) - _DEPTH
        start = self._first(lambda node: value(node) >= bottom, low, peak)
        end = self._first(lambda node: value(node) <= bottom, peak, high)
        stride = (end - start) // (_NODES - 1) + 1
        nodes = torch.arange(_NODES, device=row.device)
        node = start.unsqueeze(-1) + stride.unsqueeze(-1) * nodes
        inside = node < self.length
        density = log_density(node.clamp(max=self.length - 1))
        total = torch.where(inside, density, -torch.inf).logsumexp(-1)
        return (total + torch.log(self.step * stride)).clamp(max=0.0)

    def _first(self, is_reached: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
        """The first node from low on at which a condition holds, by bisection; or high."""
        for _ in range(self.length.bit_length()):
            middle = (low + high) // 2
            reached = is_reached(middle) | (middle >= high)
            low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
        return high
