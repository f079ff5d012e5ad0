"""Trains a stack of pair VAEs side by side, each on pairs of its own, drawn on the device as training goes on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffurn.data.factors import FactorImages
from diffurn.data.pairs import Pairs, Sampler, draw_pairs, uniforms_per_pair
from diffurn.estimators import ExponentialAnnealing
from diffurn.experiments.stack_training import BLOCK, StackTraining
from diffurn.models.pair_vae import Facts, Losses, Noise, PairVAE
from diffurn.models.stacked import StackedAdam, to_gumbel_


class Draws(NamedTuple):
    """The randomness of some steps or pairs of every model: uniforms for the pairs, normals and Gumbel variates for the latents."""

    uniforms: Tensor  # (S, …, B, ·)
    normal: Tensor  # (S, …, 2, B, d)
    gumbel: Tensor  # (S, …, B, d + 1)


class PairDraws:
    """Randomness for training, block by block, each model from a generator of its own on the device.

    A model's draws depend on its seed and the lengths of the blocks alone, not on the models beside it.

    Args:
        seeds: one a model; equal seeds give equal draws.
        batch_size: pairs a step.
        factors: of the data set.
        latent: d.
        device: where they are.
        block: the most steps that `refill` may prepare at once.
    """

    def __init__(self, seeds: Sequence[int], batch_size: int, factors: int, latent: int, device: torch.device, block: int = BLOCK) -> None:
        models = len(seeds)
        self._block = block
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._buffers = Draws(
            torch.zeros(models, block, batch_size, uniforms_per_pair(factors), device=device),
            torch.zeros(models, block, 2, batch_size, latent, device=device),
            torch.zeros(models, block, batch_size, latent + 1, device=device),
        )
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def refill(self, steps: int) -> None:
        """Prepares the next `steps` steps of every model, from position 0 on."""
        if not 0 < steps <= self._block:
            raise ValueError(f"a block has 1 to {self._block} steps, not {steps}")
        for model, generator in enumerate(self._generators):
            self._buffers.uniforms[model, :steps].uniform_(generator=generator)
            self._buffers.normal[model, :steps].normal_(generator=generator)
            self._buffers.gumbel[model, :steps].uniform_(generator=generator)
        to_gumbel_(self._buffers.gumbel[:, :steps])
        self.position.zero_()

    def next(self) -> Draws:
        """Those of the next step, without a word to the host."""
        now = Draws(*(buffer.index_select(1, self.position).squeeze(1) for buffer in self._buffers))
        self.position.add_(1)
        return now

    def state(self) -> list[Tensor]:
        """For a checkpoint between two blocks."""
        return [generator.get_state() for generator in self._generators]

    def load_state(self, state: Sequence[Tensor]) -> None:
        for generator, saved in zip(self._generators, state, strict=True):
            generator.set_state(saved.cpu())


@dataclass(eq=False)
class Source:
    """Where every model's pairs come from.

    Args:
        images: the data set.
        sizes: of its factors, on the device.
        shared: how many factors the pairs of each model share, (S,), -1 for a random number.
        sampler: see `draw_pairs`.
        alike: what tells which models' pairs are always the same, one key a model: their pictures are made once.
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
        self._kinds = torch.tensor([kinds.index(kind) for kind in self.alike], device=self.sizes.device)

    def pairs(self, uniforms: Tensor) -> Pairs:
        """Of every model, from uniforms (S, B, ·)."""
        return draw_pairs(uniforms, self.sizes, self.shared.unsqueeze(-1), self.sampler)

    def pictures(self, pairs: Pairs) -> Tensor:
        """(S, 2, B, H, W, C)."""
        factors = pairs.factors.transpose(1, 2)
        return self.images.images(factors.index_select(0, self._firsts)).index_select(0, self._kinds)


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
        compiled: whether ``torch.compile`` fuses the many small operations of a step.
    """

    def __init__(
        self,
        model: PairVAE,
        source: Source,
        draws: PairDraws,
        rates: Tensor,
        annealings: Sequence[ExponentialAnnealing],
        compiled: bool = False,
    ) -> None:
        super().__init__(model, len(rates), len(Losses._fields), rates.device)
        self.pair_vae, self.source, self.draws, self.annealings = model, source, draws, annealings
        self.temperature = torch.ones_like(rates)
        self.optimizer = StackedAdam(list(model.parameters()), rates, compiled)
        self._losses = torch.compile(self._losses_of, fullgraph=True, dynamic=False) if compiled else self._losses_of

    def _losses_of(self, draws: Draws, temperature: Tensor) -> Tensor:
        pairs = self.source.pairs(draws.uniforms)
        losses = self.pair_vae.losses(self.source.pictures(pairs), Noise(draws.normal, draws.gumbel), facts_of(pairs), temperature)
        return torch.stack(losses, -1)

    def _train_step(self) -> None:
        measures = self._losses(self.draws.next(), self.temperature)
        self.optimizer.step(torch.where(self.active, measures[:, 0], 0.0).sum())
        self.sums += measures.detach()

    def _prepare(self, steps: int) -> None:
        self.draws.refill(steps)
        self.temperature.copy_(torch.tensor([annealing(self.step) for annealing in self.annealings]))

    def _moments(self, parameter: nn.Parameter) -> Sequence[Tensor]:
        return self.optimizer.moments(parameter)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "optimizer": self.optimizer.state(), "draws": self.draws.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.optimizer.load_state(state["optimizer"])
        self.draws.load_state(state["draws"])
