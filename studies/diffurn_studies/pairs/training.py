"""Trains a stack of pair VAEs, each on its own pairs, which are drawn on the device during
training.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.pairs.factors import FactorImages
from diffurn_studies.pairs.sampler import Pairs, Sampler, draw_pairs, uniforms_per_pair
from diffurn_studies.pairs.vae import Facts, Losses, Noise, PairVAE
from diffurn_studies.stacked.steps import Blocks, StackedAdam, to_gumbel_
from diffurn_studies.stacked.training import BLOCK, StackTraining

# Between the seed of a model's draws and that of the noise of its sort.
_SORTING = 2**40


class Draws(NamedTuple):
    """The randomness of some pairs of every model: uniforms for the pairs, normals and Gumbel
    variates for the latents.
    """

    uniforms: Tensor  # (S, B, ·)
    normal: Tensor  # (S, 2, B, d)
    gumbel: Tensor  # (S, B, ·), see `Differences`


class PairDraws(Blocks):
    """Randomness for training: uniforms for the pairs, and noise for their latents.

    Args:
        seeds: one per model; equal seeds give equal draws.
        batch_size: pairs per step.
        factors: number of factors of the data set.
        latent: d.
        sorts: whether a method sorts stochastically. Its noise has generators of its own, so that
            the other methods have the same noise beside it and without it.
        device: of the draws.
        block: the largest number of steps that `refill` can prepare at once.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        batch_size: int,
        factors: int,
        latent: int,
        sorts: bool,
        device: torch.device,
        block: int = BLOCK,
    ) -> None:
        def numbers(*shape: int) -> Tensor:
            return torch.zeros(len(seeds), block, *shape, device=device)

        uniforms = numbers(batch_size, uniforms_per_pair(factors))
        super().__init__(
            seeds, uniforms, numbers(2, batch_size, latent), numbers(batch_size, latent + 1)
        )
        self.sort_noise = numbers(batch_size, latent) if sorts else None
        self._sorters = [
            torch.Generator(device).manual_seed(seed + _SORTING) for seed in seeds if sorts
        ]

    def _fill_own(self, model: int, steps: int, generator: torch.Generator) -> None:
        self.own[model, :steps].uniform_(generator=generator)

    def refill(self, steps: int) -> None:
        super().refill(steps)
        if self.sort_noise is not None:
            for own, generator in zip(self.sort_noise, self._sorters, strict=True):
                own[:steps].uniform_(generator=generator)
            to_gumbel_(self.sort_noise[:, :steps])

    def next(self) -> tuple[Tensor, Tensor, Tensor]:
        """The Gumbel variates are those of the urns, then those of stochastic sorts."""
        if self.sort_noise is None:
            return super().next()
        sorts = self.sort_noise.index_select(1, self.position).squeeze(1)
        own, normal, gumbel = super().next()
        return own, normal, torch.cat([gumbel, sorts], -1)

    def state(self) -> dict[str, Any]:
        sorters = [generator.get_state() for generator in self._sorters]
        return {**super().state(), "sorters": sorters}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        for generator, saved in zip(self._sorters, state["sorters"], strict=True):
            generator.set_state(saved.cpu())


@dataclass(eq=False)
class Source:
    """The source of every model's pairs.

    Args:
        images: the data set.
        sizes: of its factors, on the device.
        shared: how many factors the pairs of each model share, (S,), -1 for a random number.
        sampler: see `draw_pairs`.
        alike: one key per model; models with equal keys always have the same pairs, whose images
            are computed once.
    """

    images: FactorImages
    sizes: Tensor
    shared: Tensor
    sampler: Sampler
    alike: Sequence[Hashable]

    def __post_init__(self) -> None:
        kinds = list(dict.fromkeys(self.alike))
        firsts = [self.alike.index(kind) for kind in kinds]
        self._firsts = torch.tensor(firsts, device=self.sizes.device)
        self._kinds = torch.tensor(
            [kinds.index(kind) for kind in self.alike], device=self.sizes.device
        )

    def pairs(self, uniforms: Tensor) -> Pairs:
        """The pairs of every model, from uniforms (S, B, ·)."""
        return draw_pairs(uniforms, self.sizes, self.shared.unsqueeze(-1), self.sampler)

    def pictures(self, pairs: Pairs) -> Tensor:
        """(S, 2, B, H, W, C)."""
        factors = pairs.factors.transpose(1, 2)
        return self.images.images(factors.index_select(0, self._firsts)).index_select(
            0, self._kinds
        )


def facts_of(pairs: Pairs) -> Facts:
    return Facts(pairs.known, (~pairs.shared).sum(-1))


class PairTraining(StackTraining):
    """The state of a stack of pair VAEs in training.

    Args:
        model: the stack, on its device.
        source: of the pairs.
        draws: the randomness.
        rates: learning rate of every model, (S,).
        annealings: of every model's temperature.
        compiled: whether ``torch.compile`` fuses the operations of a step.
    """

    model: PairVAE
    batches: PairDraws

    def __init__(
        self,
        model: PairVAE,
        source: Source,
        draws: PairDraws,
        rates: Tensor,
        annealings: Sequence[ExponentialAnnealing],
        compiled: bool = False,
    ) -> None:
        optimizer = StackedAdam(list(model.parameters()), rates, compiled)
        super().__init__(model, draws, optimizer, len(Losses._fields), compiled)
        self.source, self.annealings = source, annealings
        self.temperature = torch.ones_like(rates)

    def _measures(self, own: Tensor, normal: Tensor, gumbel: Tensor) -> Tensor:
        pairs = self.source.pairs(own)
        losses = self.model.losses(
            self.source.pictures(pairs), Noise(normal, gumbel), facts_of(pairs), self.temperature
        )
        return torch.stack(losses, -1)

    def _follow_schedules(self) -> None:
        self.temperature.copy_(
            torch.tensor([annealing(self.step) for annealing in self.annealings])
        )
