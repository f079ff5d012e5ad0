"""Fisher's law of any urn by quadrature, and the base class of faster algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._fisher import marginals, moments, relaxed
from diffurn._fisher.accuracy import WINDOW_NATS
from diffurn._fisher.conditionals import Conditional, conditional, merged
from diffurn._fisher.mode import mode
from diffurn._fisher.sampling.rejection import draw_each
from diffurn._fisher.tilt import log_tilt
from diffurn._law import Chain, Noise, Relaxation, most_balls
from diffurn._numerics.autograd import ClosedForm
from diffurn._numerics.tracing import reading_numbers


class FisherLaw:
    """The base of algorithms for Fisher's law; methods not overridden use `general`."""

    @property
    def general(self) -> Quadrature:
        raise NotImplementedError

    @property
    def groups(self) -> int:
        return self.general.groups

    def largest(self, group: int) -> int:
        return self.general.largest(group)

    def log_prob(self, x: Tensor) -> Tensor:
        return self.general.log_prob(x)

    def mean(self) -> Tensor:
        return self.general.mean()

    def variance(self) -> Tensor:
        return self.general.variance()

    def covariance(self) -> Tensor:
        return self.general.covariance()

    def entropy(self) -> Tensor:
        return self.general.entropy()

    def mode(self) -> Tensor:
        return self.general.mode()

    def marginal_log_prob(self, x: Tensor) -> Tensor:
        return self.general.marginal_log_prob(x)

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.general.log_tails(x)

    def tail(self, group: int) -> Tensor:
        return self.general.tail(group)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        return self.general.sample(num_samples, dtype)

    def rsample(self, num_samples: int) -> Tensor:
        return self.general.rsample(num_samples)

    def rsample_with_tail(self, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        return self.rsample(num_samples), self.tail(group)

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        return self.general.chain(num_samples, order, merged, temperature)

    def relaxed(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        how: Relaxation,
        drawn: Callable[[Chain, Noise], Tensor],
    ) -> Tensor | None:
        law = self.general
        if not relaxed.has_kernel(law.draws.device, law.groups, how):
            return None

        def redrawn(urns: tuple[Tensor, Tensor, Tensor], number: int, noise: Noise) -> Tensor:
            order = range(urns[0].shape[-1])
            chain = Quadrature(*urns).chain(number, order, how.merged, how.temperature)
            return chain.in_order(drawn(chain, noise))

        return relaxed.draw(*law.operands, num_samples, order, how, redrawn)


@dataclass(frozen=True)
class Quadrature(FisherLaw):
    """Fisher's law of any urn.

    Args:
        log_weights: finite log ω, ``(..., c)``; carries the gradient.
        group_sizes: m, ``(..., c)``; groups that are never drawn have no balls.
        draws: n, ``(...)``.
    """

    log_weights: Tensor
    group_sizes: Tensor
    draws: Tensor

    @property
    def general(self) -> Quadrature:
        return self

    @property
    def groups(self) -> int:
        return self.log_weights.shape[-1]

    def largest(self, group: int) -> int:
        return most_balls(self.group_sizes, group)

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights, group sizes and draws, for functions of any tilt."""
        return self.log_weights, self.group_sizes, self.draws

    @property
    def tilted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tilted log-odds, group sizes and draws: the arguments of `moments` and `marginals`."""
        return self._tilted_by(self._log_tilt())

    def _log_tilt(self) -> Tensor:
        return log_tilt(self.log_weights.detach(), self.group_sizes, self.draws)

    def _tilted_by(self, tilt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.log_weights + tilt.unsqueeze(-1), self.group_sizes, self.draws

    def log_prob(self, x: Tensor) -> Tensor:
        return moments.log_prob(*self.operands, x)

    def log_normalizer(self) -> Tensor:
        """log Σ_x ∏_j C(m_j, x_j) ω_j^x_j."""
        # log Z = Σ m log(1 + rω) - n log r + log P(S = n), where the first two terms cancel. So
        # log(1 + rω) of common groups (rω > 1) is written as log rω + log(1 + 1/(rω)).
        tilt = self._log_tilt()
        tilted = self._tilted_by(tilt)
        log_odds = tilted[0]
        common = (log_odds > 0) & (self.group_sizes > 0)
        often = torch.where(common, self.group_sizes, 0.0)
        given = (often * torch.where(common, self.log_weights, 0.0)).sum(-1)
        weights = given + (often.sum(-1) - self.draws) * tilt
        rarer = torch.where(common, -log_odds, log_odds)
        odds = (self.group_sizes * softplus(rarer, threshold=50)).sum(-1)
        return weights + odds + moments.log_mass(*tilted)

    def mean(self) -> Tensor:
        return moments.mean_anywhere(*self.operands)

    def variance(self) -> Tensor:
        return moments.variance(*self.operands)

    def covariance(self) -> Tensor:
        return moments.covariance(*self.operands)

    def entropy(self) -> Tensor:
        return marginals.entropy(*self.tilted)

    def mode(self) -> Tensor:
        return mode(self.log_weights.detach(), self.group_sizes, self.draws)

    def marginal_log_prob(self, x: Tensor) -> Tensor:
        return marginals.marginal_log_prob(*self.tilted, x)

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return marginals.Marginal.of_each_group(*self.tilted).log_tails(x)

    def tail(self, group: int) -> Tensor:
        draws = self.draws
        counts = torch.arange(1, self.largest(group) + 1, dtype=draws.dtype, device=draws.device)
        return marginals.marginal_tail(*self.tilted, group, counts)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        return draw_each(*self.operands, num_samples, dtype)

    def rsample(self, num_samples: int) -> Tensor:
        return _Draws.of(*self.operands, num_samples)

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        return _Chain.build(self, num_samples, order, merged, temperature)


class _Draws(ClosedForm):
    """Draws whose derivative is that of the mean, the covariance."""

    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, num_samples: Any) -> Tensor:
        return draw_each(log_odds, group_sizes, draws, num_samples, log_odds.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        total = grads[0].squeeze(0) if len(grads[0]) == 1 else grads[0].sum(0)
        log_odds, group_sizes, draws = ctx.saved_tensors[:3]
        if torch.compiler.is_compiling() and log_odds.device.type == "cpu":
            from diffurn._fisher.sampling import compiled

            product = compiled.covariance_product(log_odds, group_sizes, draws, total)
        else:
            product = moments.covariance_product(log_odds, group_sizes, draws, total)
        return product, None, None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        product = moments.covariance_product(*ctx.saved_tensors[:3], tangents[0])
        return product.expand(ctx.constants[0], *tangents[0].shape)


class GivenDraws(_Draws):
    """Given draws ``(num_samples, ..., c)``, with the derivative of the mean."""

    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, counts: Any) -> Tensor:
        given: Tensor = counts
        return given.view_as(given)

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        product = moments.covariance_product(*ctx.saved_tensors[:3], tangents[0])
        return product.expand(ctx.saved_tensors[3].shape)


@dataclass(frozen=True)
class _Chain:
    """Rows ``(R, c)`` of urns with their groups in the chain's order; see `Chain`."""

    log_odds: Tensor
    group_sizes: Tensor
    draws: Tensor
    places: Tensor  # the place in the chain of each group of the urn, (R, c)
    shape: torch.Size
    copies: int  # how often rows repeat the same urns in one order, so that first laws agree
    merged: bool
    nats: float

    @classmethod
    def build(
        cls,
        law: Quadrature,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> _Chain:
        groups, device = law.groups, law.draws.device
        shape = torch.Size((num_samples, *law.log_weights.shape))
        log_odds, sizes = (x.expand(shape).reshape(-1, groups) for x in law.tilted[:2])
        draws = law.draws.expand(shape[:-1]).reshape(-1)
        if order is None:
            orders = torch.rand(len(draws), groups, device=device).argsort(-1)
        else:
            orders = torch.tensor(list(order), device=device).expand(len(draws), -1)
        copies = max(1, num_samples) if order is not None else 1
        rows = log_odds.gather(-1, orders), sizes.gather(-1, orders), draws
        nats = WINDOW_NATS * max(1.0, float(temperature))
        return cls(*rows, orders.argsort(-1), shape, copies, merged, nats)

    @property
    def groups(self) -> int:
        return self.log_odds.shape[-1]

    def conditional(self, place: int, draws_left: Tensor) -> Conditional:
        if place:
            return self._of_rows(place, len(draws_left), draws_left)
        law = self._of_rows(0, len(draws_left) // self.copies, draws_left)
        return Conditional(law.lowest.repeat(self.copies), law.log_weights.repeat(self.copies, 1))

    def _of_rows(self, place: int, rows: int, draws_left: Tensor) -> Conditional:
        log_odds, sizes = self.log_odds[:rows], self.group_sizes[:rows]
        later = log_odds[:, place + 1 :], sizes[:, place + 1 :]
        if self.merged:
            later = merged(*later)
        own = log_odds[:, place], sizes[:, place]
        return reading_numbers(conditional, *own, *later, draws_left[:rows], self.nats)

    def in_order(self, counts: Tensor) -> Tensor:
        # Adding zero gives the count of a single group, which is a constant, the gradient 0.
        counts = counts + 0 * self.log_odds.sum(-1, keepdim=True)
        return counts.gather(-1, self.places).reshape(self.shape)
