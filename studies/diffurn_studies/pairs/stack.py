"""Trains one stack of models and records the result: a unit of work of the study."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.harness.records import RunError, rounded
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.pairs.datasets import load_factors
from diffurn_studies.pairs.evaluation import evaluate, fresh_draws, pictures_of
from diffurn_studies.pairs.factors import FactorImages, held
from diffurn_studies.pairs.methods import sorts_stochastically
from diffurn_studies.pairs.options import Member, Options, number_name, stacks
from diffurn_studies.pairs.sampler import RANDOM
from diffurn_studies.pairs.scores import Latents
from diffurn_studies.pairs.training import PairDraws, PairTraining, Source
from diffurn_studies.pairs.vae import Losses, PairVAE
from diffurn_studies.stacked.training import BLOCK, Clock, train

LATENTS_FILE = "latents.npz"


def load_images(options: Options) -> FactorImages:
    try:
        return load_factors(options.dataset, options.data)
    except ValueError as error:
        raise RunError(str(error)) from error


def source_of(
    options: Options, images: FactorImages, members: list[Member], device: torch.device
) -> Source:
    """The pairs of the given models."""
    if (most := max(member.shared for member in members)) > len(images.sizes):
        raise RunError(f"shared is {most}, but {options.dataset} has {len(images.sizes)} factors")
    there = images.to(device)
    if options.held and options.dataset == "arm" and device.type == "cuda":
        there = held(there, device)
    numbers = torch.tensor([member.shared for member in members], device=device)
    alike = [(member.shared, member.seed) for member in members]
    return Source(there, torch.tensor(images.sizes, device=device), numbers, options.sampler, alike)


def training_of(
    options: Options, members: list[Member], source: Source, seeds: list[int]
) -> PairTraining:
    """The stack of the given models at step 0; `seeds` are those of their pairs and noise."""
    device = source.sizes.device
    methods = [member.method for member in members]
    compute = torch.bfloat16 if options.half and device.type == "cuda" else torch.float32
    starts = [options.seed * 1_009 + member.seed for member in members]
    model = PairVAE(
        methods, starts, source.images.shape, options.latent, options.channels, compute
    ).to(device)
    factors, sorts = len(source.images.sizes), any(map(sorts_stochastically, methods))
    draws = PairDraws(seeds, options.batch_size, factors, options.latent, sorts, device)
    rates = torch.tensor([method.learning_rate for method in methods], device=device)
    annealings = [
        ExponentialAnnealing(
            options.first_temperature, method.final_temperature, options.annealing_steps
        )
        for method in methods
    ]
    return PairTraining(model, source, draws, rates, annealings, options.compiled)


def draw_seed(options: Options, shared: int, seed: int) -> int:
    """The seed of one model's pairs and noise, the same for all methods; `seed` is -1 for the test
    pairs.
    """
    return (options.seed * 1_009 + shared + 2) * 1_009 + seed + 2


def setting_of(member: Member) -> dict[str, Any]:
    """The fields that identify a model in records."""
    return {
        "method": asdict(member.method),
        "label": member.method.label,
        "shared": None if member.shared == RANDOM else member.shared,
        "seed": member.seed,
    }


class StackUnit:
    """A stack in training, with everything recorded so far.

    Args:
        options: of the run.
        name: of the stack.
        workspace: of the unit.
    """

    def __init__(self, options: Options, name: str, workspace: Workspace) -> None:
        self.options, self.workspace = options, workspace
        self.clock = Clock(options.budget_seconds)
        self.members = stacks(options)[name]
        source = source_of(options, load_images(options), self.members, workspace.device)
        self.training = training_of(
            options,
            self.members,
            source,
            [draw_seed(options, member.shared, member.seed) for member in self.members],
        )
        self.draws = fresh_draws(
            self.training, options.test_pairs, draw_seed(options, RANDOM, -1), options.latent
        )
        fields = ("step", *Losses._fields)
        self.found: list[dict[str, Any]] = [
            {"stopped_after": None, "curve": {name: [] for name in fields}} for _ in self.members
        ]
        self.saved_step = 0

    def run(self) -> dict[str, Any]:
        """Trains from the last checkpoint, if there is one, to the last step; returns the
        record.
        """
        if saved := self.workspace.load_checkpoint():
            self.training.load_state(saved["training"])
            self.found, self.saved_step = saved["found"], self.training.step
        train(
            self.training,
            self.options.steps,
            self.options.evaluate_every,
            self.clock,
            self.note_losses,
            self._note_broken,
            self._save,
        )
        finals, latents = evaluate(self.training, self.draws)
        self._keep(latents)
        source = self.training.source.images
        return {
            "dataset": self.options.dataset,
            "factors": list(source.names),
            "shape": list(source.shape),
            "steps": self.options.steps,
            "models": self._models(finals),
        }

    def note_losses(self) -> None:
        """Adds a point to the training curves."""
        measures = self.training.read_measures().tolist()
        for found, values, running in zip(
            self.found, measures, self.training.active.tolist(), strict=True
        ):
            if running:
                found["curve"]["step"].append(self.training.step)
                for name, value in zip(Losses._fields, values, strict=True):
                    found["curve"][name].append(rounded(value))
        self._report()

    def _note_broken(self, models: list[int]) -> None:
        for model in models:
            self.found[model]["stopped_after"] = self.training.step
            where = f"between steps {max(0, self.training.step - BLOCK)} and {self.training.step}"
            self.clock.tell(
                f"{self.members[model]}: broke down {where}; its last good checkpoint is that of "
                f"step {self.saved_step}"
            )

    def _save(self) -> None:
        self.workspace.save_checkpoint({"training": self.training.state(), "found": self.found})
        self.saved_step = self.training.step

    def _report(self) -> None:
        """Prints and logs the mean loss and the mean k̂ of every method."""
        told: list[str] = []
        logged: dict[str, float] = {}
        for shared in dict.fromkeys(member.shared for member in self.members):
            of_methods: list[str] = []
            for method in self.options.methods:
                chosen = [
                    found
                    for found, member in zip(self.found, self.members, strict=True)
                    if member[:2] == (method, shared)
                ]
                last = [
                    (found["curve"]["loss"][-1], found["curve"]["independent"][-1])
                    for found in chosen
                    if found["curve"]["step"]
                ]
                if last:
                    loss, independent = np.mean(last, 0)
                    of_methods.append(f"{method.label} {loss:.1f}, {independent:.2f}")
                    tag = re.sub(r"[^\w.-]+", "-", method.label).strip("-")
                    logged |= {
                        f"loss-{number_name(shared)}/{tag}": loss,
                        f"independent-{number_name(shared)}/{tag}": independent,
                    }
            told.append(f"{number_name(shared)}: {'; '.join(of_methods)}")
        step = self.training.step
        self.clock.tell(
            f"step {step:,} of {self.options.steps:,}, loss and k̂ with {' | '.join(told)}"
            f"{self.clock.speed(step)}"
        )
        self.workspace.scalars(step, **logged)

    def _models(self, finals: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The models of the record. Images are large, so they are recorded for the first seed and
        one number of shared factors only.
        """
        shared = self.options.shared[len(self.options.shared) // 2]
        whole = [found["stopped_after"] is None for found in self.found]
        shown = [
            i
            for i, member in enumerate(self.members)
            if whole[i] and member.seed == 0 and member.shared == shared
        ]
        pictures = (
            pictures_of(self.training, self.draws, shown) if shown and self.options.pictures else {}
        )
        models = []
        for i, (member, found) in enumerate(zip(self.members, self.found, strict=True)):
            final = finals[i] if whole[i] else None
            models.append(
                {**setting_of(member), **found, "final": final, "pictures": pictures.get(i)}
            )
        return models

    def _keep(self, latents: Latents) -> None:
        """Writes the latents for the unit that scores them."""
        running = self.training.active.cpu().numpy()
        np.savez_compressed(
            self.workspace.directory / LATENTS_FILE, running=running, **latents._asdict()
        )
