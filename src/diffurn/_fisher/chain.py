"""The chain rule over the groups of small urns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.conditionals import Conditional, central_differences
from diffurn._fisher.constants import IMPOSSIBLE
from diffurn._fisher.tabulated import Law, SmallUrn, row_of


class Chain(NamedTuple):
    """The conditional laws of the groups one after the other, exact or `merged`, each over the same
    rising counts.
    """

    urn: SmallUrn
    law: Law | None  # None: all later groups as one, which two groups are anyhow

    @classmethod
    def build(cls, urn: SmallUrn, merged: bool) -> Chain:
        return cls(urn, None if merged or urn.composition.groups == 2 else urn.law())

    def conditional(self, group: int, draws_left: Tensor) -> Conditional:
        """α of a group's counts for the draws left ``(number, ...)``, differentiable in these as
        `conditionals.conditional` has it.
        """
        if self.law is not None and group < self.urn.composition.groups - 2:
            log_weights = self._exact(self.law, group, draws_left)
        else:
            log_weights = self._merged(group, draws_left)
        log_weights = torch.where(log_weights > 0.5 * IMPOSSIBLE, log_weights, -torch.inf)
        lowest = torch.full_like(draws_left.detach(), self.urn.composition.window[0])
        return Conditional(lowest, log_weights.expand(*draws_left.shape, log_weights.shape[-1]))

    def _exact(self, law: Law, group: int, draws_left: Tensor) -> Tensor:
        if group == 0:
            return law.first.flip(-1)
        n, own = draws_left.detach(), law.own[group].flip(-1)
        index = n.to(torch.int64).unsqueeze(-1) + self.urn.constant("surplus - rising")
        rest = law.rest[group].expand(*n.shape, -1).gather(-1, index.clamp(min=0))
        log_weights = torch.where(index >= 0, own + rest, IMPOSSIBLE)
        if draws_left.requires_grad:
            slope = -central_differences(rest.detach(), log_weights.detach() > 0.5 * IMPOSSIBLE)
            log_weights = log_weights + (draws_left - n).unsqueeze(-1) * slope
        return log_weights

    def _merged(self, group: int, draws_left: Tensor) -> Tensor:
        log_weights = self.urn.log_weights
        later = log_weights[..., group + 1 :]
        if later.shape[-1] > 1:
            later = (later + self.urn.constant("log shares", group)).logsumexp(-1, keepdim=True)
        ratio, counts = log_weights[..., group : group + 1] - later, self.urn.constant("rising")
        if group == 0:
            return torch.addcmul(self.urn.constant("merged"), counts, ratio)
        law = torch.addcmul(self._row("merged rows", group, draws_left), counts, ratio)
        if draws_left.requires_grad:
            law = law + (draws_left - draws_left.detach()).unsqueeze(-1) * self._row(
                "slopes", group, draws_left
            )
        return law

    def _row(self, name: str, group: int, draws_left: Tensor) -> Tensor:
        """The row of a table ``(..., N + 1, W)`` that belongs to the draws left."""
        return row_of(self.urn.constant(name, group), draws_left.detach().to(torch.int64))
