"""One unit of the clustering study: all models of one version of the data, trained side by side."""

from __future__ import annotations

import base64
import os
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.clustering.images import CLASSES, kept_items, load_images
from diffurn_studies.clustering.mixtures import fit_mixture, fit_mixtures
from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.pretraining import (
    Autoencoder,
    pretrain,
    read_vade_weights,
    start_from,
)
from diffurn_studies.clustering.priors import Prior
from diffurn_studies.clustering.records import version_name
from diffurn_studies.clustering.scores import confusion, correlation, score
from diffurn_studies.clustering.training import Schedule, Training, assigned_clusters
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.harness.records import RunError, rounded
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.stacked.steps import Batches
from diffurn_studies.stacked.training import BLOCK, Clock, train


class Member(NamedTuple):
    """One model of a stack."""

    version: float
    prior: Prior
    seed: int


def members(options: Options, version: float) -> list[Member]:
    return [
        Member(version, prior, seed) for prior in options.priors for seed in range(options.seeds)
    ]


class Part(NamedTuple):
    """The training or the test part of a version of the data."""

    images: Tensor  # (N, pixels), bytes, of all classes complete
    items: Tensor  # the images that this version keeps
    labels: Tensor  # of these, on the CPU


class Stack:
    """The models of one version: their data, their training and their record so far."""

    def __init__(self, options: Options, version: float, workspace: Workspace) -> None:
        self.options, self.version, self.workspace = options, version, workspace
        self.device = workspace.device
        self.clock = Clock(options.budget_seconds)
        self.members = members(options, version)
        self.shape, self.train, self.test = self._data()
        self.steps_per_epoch = len(self.train.items) // options.batch_size
        if self.steps_per_epoch == 0:
            raise RunError(f"a batch of {options.batch_size} is larger than the training data")
        self.training = self._training()
        self.found: list[dict[str, Any]] = [
            {"epochs": [], "accuracy": [], "elbo": [], "stopped_after": None, "final": None}
            for _ in self.members
        ]

    def run(self) -> dict[str, Any]:
        """Trains from the last checkpoint, or from the start, to the end; the unit's record."""
        saved = self.workspace.load_checkpoint()
        if saved is None:
            self._initialise()
            self._evaluate(torch.full((len(self.members),), torch.nan))
            self._save()
        else:
            self.training.load_state(saved["training"])
            self.found = saved["found"]
        steps, between = (
            epochs * self.steps_per_epoch
            for epochs in (self.options.epochs, self.options.evaluate_every)
        )
        train(
            self.training, steps, between, self.clock, self._at_mark, self._note_broken, self._save
        )
        return self._record()

    def _record(self) -> dict[str, Any]:
        counts = {
            name: part.labels.bincount(minlength=CLASSES).tolist()
            for name, part in (("train", self.train), ("test", self.test))
        }
        models = [
            {"version": member.version, "prior": str(member.prior), "seed": member.seed, **found}
            for member, found in zip(self.members, self.found, strict=True)
        ]
        return {
            "models": models,
            "class_counts": {version_name(self.version): counts},
            "shape": list(self.shape),
        }

    # --- the start ---------------------------------------------------------------------------

    def _data(self) -> tuple[tuple[int, int], Part, Part]:
        """The shape of an image, and both parts."""
        try:
            images = load_images(self.options.dataset, self.options.data)
        except ValueError as error:
            raise RunError(str(error)) from error
        parts = []
        for pixels, labels in (
            (images.train, images.train_labels),
            (images.test, images.test_labels),
        ):
            items = kept_items(labels, self.version, self.options.reduced, self.options.seed)
            parts.append(Part(pixels.to(self.device), items.to(self.device), labels[items]))
        return images.shape, parts[0], parts[1]

    def _seed(self, seed: int) -> int:
        return (self.options.seed * 1_009 + round(1000 * self.version)) * 1_009 + seed

    def _training(self) -> Training:
        options, length = self.options, self.steps_per_epoch
        model = VaDE(
            [member.prior for member in self.members],
            self.train.images.shape[1],
            options.widths,
            options.latent,
            CLASSES,
            options.batch_size,
            fused=options.compiled,
        ).to(self.device)
        seeds = [self._seed(member.seed) for member in self.members]
        batches = Batches(
            [self.train.items] * len(seeds),
            seeds,
            options.batch_size,
            BLOCK,
            options.latent,
            CLASSES,
        )
        annealing = ExponentialAnnealing(
            options.hottest,
            options.coldest,
            max(1, round(options.annealing * options.epochs * length)),
        )
        schedule = Schedule(
            options.learning_rate,
            options.decay,
            options.decay_epochs * length,
            options.smallest_rate,
            annealing,
            options.held_epochs * length,
        )
        half = options.half and self.device.type == "cuda"
        return Training(model, self.train.images, batches, schedule, options.compiled, half)

    def _initialise(self) -> None:
        """Sets every model to an autoencoder and a mixture."""
        autoencoder, rows = self._autoencoder()
        seeds = range(1 if self.options.one_mixture else self.options.seeds)
        kept = self.train.images[self.train.items]
        latents = [autoencoder.latents(kept, rows[seed]) for seed in seeds]
        self.clock.tell(f"fitting {len(seeds)} mixtures")
        mixtures = fit_mixtures(
            latents,
            CLASSES,
            [self.options.seed + seed for seed in seeds],
            os.cpu_count() or 1,
            self.options.mixture_urn,
            partial(fit_mixture, fits=self.options.mixture_fits),
        )
        place = [member.seed for member in self.members]
        start_from(
            self.training.model,
            autoencoder,
            [rows[seed] for seed in place],
            [mixtures[min(seed, len(mixtures) - 1)] for seed in place],
            [self._seed(seed) for seed in place],
        )

    def _autoencoder(self) -> tuple[Autoencoder, list[int]]:
        """Autoencoders, and the number of the one that each seed takes."""
        options = self.options
        try:
            if options.pretrained is None:
                return self._pretrained(), list(range(options.seeds))
            released = read_vade_weights(
                options.pretrained, self.train.images.shape[1], options.widths, options.latent
            )
        except ValueError as error:
            raise RunError(str(error)) from error
        return released.to(self.device), [0] * options.seeds

    def _pretrained(self) -> Autoencoder:
        options = self.options
        self.clock.tell(f"pretraining {options.seeds} autoencoders")
        return pretrain(
            self.train.images,
            [self.train.items] * options.seeds,
            [self._seed(seed) for seed in range(options.seeds)],
            options.widths,
            options.latent,
            options.layer_epochs,
            options.joint_epochs,
            options.batch_size,
            options.pretraining_rate,
        )

    # --- on the way --------------------------------------------------------------------------

    @property
    def _epoch(self) -> int:
        return self.training.step // self.steps_per_epoch

    def _at_mark(self) -> None:
        self._evaluate(self.training.read_measures()[:, 0])
        if self._epoch == self.options.epochs:
            self._keep_pictures()
        self._report()

    def _note_broken(self, models: list[int]) -> None:
        for model in models:
            self.found[model]["stopped_after"] = self._epoch
            member = self.members[model]
            self.clock.tell(
                f"the model of seed {member.seed} with the prior {member.prior} broke down in "
                f"epoch {self._epoch}"
            )

    def _save(self) -> None:
        self.workspace.save_checkpoint({"training": self.training.state(), "found": self.found})

    def _evaluate(self, losses: Tensor) -> None:
        """Notes the scores of the running models on the test part."""
        model = self.training.model
        clusters = assigned_clusters(model, self.test.images[self.test.items])
        tables = confusion(clusters, self.test.labels.to(self.device), CLASSES).cpu()
        shares = model.expected_shares().cpu()
        weights = model.log_weights.detach().double().softmax(-1).cpu()
        elbo = (-losses).tolist()
        for i in self._running():
            self._note(self.found[i], tables[i], weights[i], shares[i], elbo[i])

    def _running(self) -> list[int]:
        rows: list[int] = self.training.active.nonzero().squeeze(1).tolist()
        return rows

    def _note(
        self, found: dict[str, Any], table: Tensor, weights: Tensor, shares: Tensor, elbo: float
    ) -> None:
        scores, sizes, frequencies = score(table), table.sum(1), table.sum(0)
        of_matched_class = frequencies[scores.classes]
        found["epochs"].append(self._epoch)
        found["accuracy"].append(round(scores.accuracy, 4))
        found["elbo"].append(None if elbo != elbo else round(elbo, 3))
        found["final"] = {
            "accuracy": round(scores.accuracy, 6),
            "nmi": round(scores.nmi, 6),
            "ari": round(scores.ari, 6),
            "classes": scores.classes,
            "sizes": sizes.tolist(),
            "weights": rounded(weights.tolist()),
            "shares": rounded(shares.tolist()),
            "correlation": {
                name: round(correlation(values, of_matched_class), 4)
                for name, values in (("sizes", sizes), ("weights", weights), ("shares", shares))
            },
        }

    def _keep_pictures(self) -> None:
        """Keeps the decoded cluster means of the models of seed 0, as bytes."""
        model = self.training.model
        with torch.no_grad():
            decoded = model.decode(model.means).sigmoid()
        pictures = (decoded * 255).round().to(torch.uint8).cpu()
        for i in self._running():
            if self.members[i].seed == 0:
                self.found[i]["pictures"] = base64.b64encode(pictures[i].numpy().tobytes()).decode()

    def _report(self) -> None:
        """Tells and logs the mean accuracy of each prior."""
        means = {}
        for prior in self.options.priors:
            values = [
                self.found[i]["accuracy"][-1]
                for i in self._running()
                if self.members[i].prior == prior
            ]
            if values:
                means[str(prior)] = sum(values) / len(values)
        listed = ", ".join(f"{prior} {100 * value:.1f}" for prior, value in means.items())
        self.clock.tell(
            f"{version_name(self.version)}, epoch {self._epoch}: accuracy "
            f"{listed}{self.clock.speed(self.training.step)}"
        )
        self.workspace.scalars(
            self._epoch,
            **{f"accuracy-{100 * self.version:g}/{prior}": value for prior, value in means.items()},
        )
