"""Evaluates trained pair VAEs on fresh pairs: the number of independent latents, losses, latents
and images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffurn_studies.harness.pictures import packed
from diffurn_studies.harness.records import rounded
from diffurn_studies.pairs.sampler import Pairs, uniforms_per_pair
from diffurn_studies.pairs.scores import Latents
from diffurn_studies.pairs.training import Draws, PairTraining, facts_of
from diffurn_studies.pairs.vae import Losses, PairVAE, standard_kl
from diffurn_studies.stacked.steps import to_gumbel_

ACTIVE_NATS = 0.01
LOSS_PAIRS, PROFILE_PAIRS, PICTURED_PAIRS = 4096, 512, 6
TRAVERSED = (-2.0, 2.0, 7)  # from, to, steps


def fresh_draws(training: PairTraining, pairs: int, seed: int, latent: int) -> Draws:
    """The randomness of `pairs` pairs, (1, N, …), the same for every model."""
    device = training.temperature.device
    generator = torch.Generator(device).manual_seed(seed)
    uniforms = torch.rand(
        1, pairs, uniforms_per_pair(len(training.source.sizes)), generator=generator, device=device
    )
    normal = torch.randn(1, 2, pairs, latent, generator=generator, device=device)
    gumbel = torch.rand(1, pairs, latent + 1, generator=generator, device=device)
    if training.batches.sort_noise is not None:
        sorts = torch.rand(1, pairs, latent, generator=generator, device=device)
        gumbel = torch.cat([gumbel, sorts], -1)
    to_gumbel_(gumbel)
    return Draws(uniforms, normal, gumbel)


class _Batch(NamedTuple):
    """A part of the pairs, for every model."""

    start: int
    draws: Draws
    pairs: Pairs
    pictures: Tensor


def _batches(training: PairTraining, draws: Draws, size: int) -> Iterator[_Batch]:
    models = len(training.temperature)
    for start in range(0, draws.uniforms.shape[1], size):
        part = slice(start, start + size)
        some = Draws(draws.uniforms[:, part], draws.normal[:, :, part], draws.gumbel[:, part])
        same = Draws(*(values.expand(models, *values.shape[1:]) for values in some))
        pairs = training.source.pairs(same.uniforms)
        yield _Batch(start, same, pairs, training.source.pictures(pairs))


@torch.no_grad()
def evaluate(
    training: PairTraining, draws: Draws, chunk: int = 256
) -> tuple[list[dict[str, Any]], Latents]:
    """The entry `final` of every model's record, and the latents of the whole stack."""
    model = training.model
    losses, profiles, costs, counts = [], [], [], []
    rows: list[tuple[np.ndarray, ...]] = []
    for batch in _batches(training, draws, chunk):
        own = model.posterior(batch.pictures)
        independent = model.independent(
            own, batch.draws.gumbel, facts_of(batch.pairs), training.temperature
        )
        if batch.start < LOSS_PAIRS:
            losses.append(
                torch.stack(
                    model.losses_given(
                        batch.pictures,
                        own,
                        independent,
                        batch.draws.normal,
                        model.choice_kl(own, independent),
                    ),
                    -1,
                )
            )
            costs.append(standard_kl(own).mean((1, 2)))
        if batch.start < PROFILE_PAIRS:
            profiles.append(model.profile(batch.pictures, batch.draws.normal))
        counts.append(_summaries(model.count_log_probs(own)))
        halves = [values.transpose(1, 2).half().cpu().numpy() for values in own]
        pairs = batch.pairs.factors.to(torch.uint8).cpu().numpy(), batch.pairs.shared.cpu().numpy()
        rows.append((*halves, independent.round().bool().cpu().numpy(), *pairs))
    means, log_variances, chosen, factors, shared = (
        np.concatenate(parts, 1) for parts in zip(*rows, strict=True)
    )
    active = (torch.stack(costs).mean(0) > ACTIVE_NATS).sum(-1).tolist()
    common = zip(
        torch.stack(losses).mean(0).tolist(),
        active,
        torch.stack(profiles).mean(0).tolist(),
        strict=True,
    )
    found = torch.cat(counts, 2).cpu().numpy()
    log_priors = model.log_prior().tolist()
    finals = []
    for number, (method, numbers) in enumerate(zip(model.methods, common, strict=True)):
        final = _final(*numbers, chosen[number], shared[number])
        if method.draws:
            final |= _urns(found[:, number], shared[number].sum(-1), model.latent)
            has_prior = method.prior is not None
            final["log_prior"] = rounded(log_priors[number]) if has_prior else None
        finals.append(final)
    return finals, Latents(means, log_variances, chosen, factors, shared)


def _summaries(log_probs: Tensor) -> Tensor:
    """Mode and mean of k̂ by its distribution, (2, S, B)."""
    k = torch.arange(log_probs.shape[-1], dtype=log_probs.dtype, device=log_probs.device)
    return torch.stack([k[log_probs.argmax(-1)], log_probs.exp() @ k])


def _urns(found: np.ndarray, truly: np.ndarray, latents: int) -> dict[str, Any]:
    """For every true s: how many pairs have each mode of k̂, and the averages over pairs of the mean
    of k̂ and of its square. `found` are mode and mean, (2, N).
    """
    modes, means = found
    by_mode, by_mean = {}, {}
    for number in np.unique(truly):
        own = truly == number
        by_mode[str(number)] = np.bincount(modes[own].astype(int), minlength=latents + 1).tolist()
        by_mean[str(number)] = [
            rounded(float(np.mean(means[own].astype(float) ** power))) for power in (1, 2)
        ]
    return {"modes": by_mode, "means": by_mean}


def _final(
    losses: list[float],
    active: int,
    profile: list[float],
    independent: np.ndarray,
    shared: np.ndarray,
) -> dict[str, Any]:
    named = dict(zip(Losses._fields, losses, strict=True))
    counts = {}
    truly = shared.sum(-1)
    for number in np.unique(truly):
        counts[str(number)] = np.bincount(
            independent[truly == number].sum(-1), minlength=independent.shape[-1] + 1
        ).tolist()
    numbers = {name: rounded(named[name]) for name in ("loss", "reconstruction", "kl")}
    return {**numbers, "active": active, "counts": counts, "profile": rounded(profile)}


@torch.no_grad()
def pictures_of(
    training: PairTraining, draws: Draws, models: Sequence[int]
) -> dict[int, dict[str, str]]:
    """For the given models: pairs with their reconstructions from the posterior means, and
    traversals of the latents of the first image.
    """
    model = training.model
    batch = next(_batches(training, draws, PICTURED_PAIRS))
    own = model.posterior(batch.pictures)
    independent = model.independent(
        own, batch.draws.gumbel, facts_of(batch.pairs), training.temperature
    )
    means = model.aggregated(own, independent).mean
    decoded = model.decode(means.flatten(1, 2)).sigmoid().unflatten(1, means.shape[1:3])
    # (S, pairs, original or reconstruction, views, H, W, C)
    pairs = torch.stack([batch.pictures, decoded], 1).permute(0, 3, 1, 2, 4, 5, 6)
    traversed = _traversals(model, own.mean[:, 0, 0])
    return {
        model: {"pairs": _packed(pairs[model]), "traversals": _packed(traversed[model])}
        for model in models
    }


def _traversals(model: PairVAE, start: Tensor) -> Tensor:
    """(S, d, steps, H, W, C): one latent at a time runs through the values of `TRAVERSED`; the
    others stay as in `start` (S, d).
    """
    values = torch.linspace(*TRAVERSED, device=start.device)
    latents = start.shape[-1]
    turn = torch.eye(latents, device=start.device).bool()[:, None]  # (d, 1, d)
    z = torch.where(turn, values[:, None], start[:, None, None])
    pixels = model.decode(z.flatten(1, 2)).sigmoid()
    return pixels.reshape(len(start), latents, len(values), *pixels.shape[2:])


def _packed(pictures: Tensor) -> str:
    return packed((pictures * 255).round().to(torch.uint8).cpu().numpy())
