"""The conditional likelihood of events within strata, as a loss for networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffurn._fisher import regression
from diffurn._numerics.ragged import batches, grouped
from diffurn._validation import require_one_of
from diffurn._wallenius.probabilities import log_prob as wallenius_log_prob

# Rows of a batch of strata: more than these are computed in several batches.
_ROWS = 1 << 20
_NONE, _ONE, _ALL_BUT_ONE, _ANY = range(4)


def conditional_log_likelihood(
    scores: Tensor, events: Any, strata: Any = None, *, model: str = "fisher"
) -> Tensor:
    r"""The exact log-likelihood of the events in each stratum, given their number,

    .. math:: \log P = \sum_{i \in \text{events}} s_i
              - \log \sum_{A: |A| = n} \exp \sum_{i \in A} s_i,

    differentiable (twice) in the scores, for strata of any sizes with any number n of events. With
    one event per stratum it is the log of a softmax. Its negative sum is a loss for deep choice
    models and rankings, and Cox's exact partial likelihood with ties if each stratum holds the rows
    at risk at one time.

    Args:
        scores: s, the log-odds of each row up to a constant of its stratum, ``(N,)``, finite.
        events: 1 (or True) for a row that was chosen or had the event, else 0, ``(N,)``.
        strata: integers that say which rows belong together, in any order, ``(N,)``. None: all rows
            are one stratum.
        model: ``"fisher"``; or ``"wallenius"``: rows are chosen one after another, in an order that
            is not known.

    Returns:
        One number for each stratum, in the order of the sorted integers, ``(S,)``. It is 0 where no
        row or every row is an event.

    Example:
        A network that scores seven alternatives in two choice sets:

        >>> import torch
        >>> from diffurn import conditional_log_likelihood
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(),
        ...                               torch.nn.Linear(8, 1))
        >>> features = torch.randn(7, 2)
        >>> chosen = torch.tensor([1, 0, 1, 0, 0, 1, 0])
        >>> choice_set = torch.tensor([0, 0, 0, 0, 1, 1, 1])
        >>> scores = network(features).squeeze(-1)
        >>> loss = -conditional_log_likelihood(scores, chosen, choice_set).mean()
        >>> loss.backward()
        >>> network[0].weight.grad.shape
        torch.Size([8, 2])
    """
    require_one_of("model", model, ("fisher", "wallenius"))
    if scores.ndim != 1:
        raise ValueError(f"scores has shape {tuple(scores.shape)}, but must be (rows,)")
    happened = _rows("events", events, scores).double()
    labels = torch.zeros_like(happened) if strata is None else _rows("strata", strata, scores)
    order, numbers, sizes = grouped(labels)
    values, happened = scores[order].double(), happened[order]
    count = torch.zeros_like(sizes, dtype=torch.float64).index_add(0, numbers, happened)
    kinds = _kinds(count, sizes, model)
    found, places = [], []
    for kind, batch in batches(sizes, kinds, _ROWS):
        log_weights, drawn = values[batch.rows], happened[batch.rows] * batch.present
        found.append(_log_prob(kind, log_weights, batch.present, drawn, model))
        places.append(batch.groups)
    if not found:
        return scores.sum() * scores.new_zeros(0)
    return torch.cat(found)[torch.cat(places).argsort()].to(scores.dtype)


def _rows(name: str, values: Any, scores: Tensor) -> Tensor:
    tensor = torch.as_tensor(values, device=scores.device)
    if tensor.shape != scores.shape:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, but scores has shape {tuple(scores.shape)}"
        )
    return tensor


def _kinds(count: Tensor, sizes: Tensor, model: str) -> Tensor:
    kinds = torch.full_like(sizes, _ANY)
    if model == "fisher":
        kinds = torch.where(count == sizes - 1, _ALL_BUT_ONE, kinds)
    kinds = torch.where(count == 1, _ONE, kinds)
    return torch.where((count == 0) | (count == sizes), _NONE, kinds)


def _log_prob(kind: int, scores: Tensor, present: Tensor, drawn: Tensor, model: str) -> Tensor:
    """Of each stratum of a batch ``(B, c)``."""
    if kind == _NONE:
        return 0 * scores.sum(-1)
    if kind == _ALL_BUT_ONE:
        scores, drawn = -scores, present - drawn
    if kind in (_ONE, _ALL_BUT_ONE):
        log_share = torch.log_softmax(torch.where(present > 0, scores, -torch.inf), -1)
        return torch.where(drawn > 0, log_share, 0.0).sum(-1)
    if model == "wallenius":
        heaviest = torch.where(present > 0, scores, -torch.inf).amax(-1, keepdim=True).detach()
        return wallenius_log_prob(scores - heaviest, present, drawn)
    return regression.log_prob(scores, present, drawn)
