"""The paper's third study: deep clustering of handwritten digits (VaDE) with three priors over the
cluster assignments.

A uniform, a categorical and a hypergeometric prior, on three versions of the data: all classes
complete, or the digits 0 to 4 reduced to 80 % or 60 %, in the training and the test part alike. The
hypergeometric prior is the law of the counts of a batch, as in the paper, or that of its
assignments (`diffurn_studies.clustering.priors`). Training sees the training part only; every
figure is of the test part, whose images go to the likeliest cluster by q(c|x) at the mean of
q(z|x). The paper does not say which half of the classes it reduced, nor how it annealed the
temperature; here that is τ = 1 falling exponentially to 0.5 over the first half of training. Models
with the same version and seed start from the same autoencoder and mixture and see the same batches
and noise, whatever their prior.

All models of a version are one stack in one program, and one unit of work: a step takes a batch of
every model's own shuffle.

Run it with ``diffurn reproduce clustering``; VaDE's released autoencoder is used where ``--set
pretrained=PATH`` says where it is, and one of our own is trained otherwise.
"""

from __future__ import annotations

import base64
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.clustering import figure as clustering_figure
from diffurn_studies.clustering import tables as clustering_tables
from diffurn_studies.clustering.images import CLASSES, Images, kept_items, load_images
from diffurn_studies.clustering.mixtures import SharedUrn, fit_mixtures
from diffurn_studies.clustering.pretraining import (
    Autoencoder,
    pretrain,
    read_vade_weights,
    start_from,
)
from diffurn_studies.clustering.priors import prior_named
from diffurn_studies.clustering.records import REDUCED, version_name
from diffurn_studies.clustering.scores import confusion, correlation, scores
from diffurn_studies.clustering.training import Schedule, Training, assigned_clusters
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.runner import Engine, Progress, Results, RunError, Table, Workspace
from diffurn_studies.stacked.steps import Batches
from diffurn_studies.stacked.training import BLOCK, Clock, tensor_cores, train

NAME = "clustering"
DECAY_EPOCHS = 10


@dataclass(frozen=True)
class Options:
    """What `run` trains.

    Attributes:
        dataset: mnist, fashion-mnist or digits.
        data: folder of its idx files; by default DIFFURN_DATA/<dataset>, or a download.
        pretrained: npz of VaDE's released autoencoder; by default one is trained here for every
            version and seed.
        versions: the share of the items of the first five classes that is kept.
        priors: uniform, categorical, hypergeometric; the last with details such as -2n-soft-merged
            (see `prior_named`).
        seeds: models of each version and prior; seed s is that of the mixture fit, of the batches
            and of the noise.
        epochs: passes of each model over its own data.
        batch_size: samples a step, which share an urn.
        learning_rate: of Adam.
        decay: factor on the learning rate every ten epochs; VaDE has 0.9 and starts at 0.002.
        smallest_rate: where the decay ends.
        hottest: temperature of the Gumbel-Softmax at the start.
        coldest: and after the share `annealing` of all steps, falling exponentially.
        annealing: see there.
        widths: hidden layers of the encoder.
        latent: dimensions of the latent space.
        evaluate_every: epochs between evaluations.
        mixture_balls: of each cluster in an urn that all items share when the mixture is fitted,
            per item, more than 1/K (see `diffurn_studies.clustering.mixtures`); by default they
            share none, as in VaDE.
        mixture_starts: of such a fit, the best of which is taken.
        held_epochs: as long the cluster weights stay equal, whatever the prior; in the paper they
            are learned from the start.
        layer_epochs: of our own pretraining, each layer.
        joint_epochs: of our own pretraining, all layers together.
        pretraining_rate: of its gradient descent (see
            `diffurn_studies.clustering.pretraining.pretrain`).
        half: networks compute in bfloat16 (on a GPU).
        budget_seconds: stop after so many seconds; the same command then goes on from there.
        compiled: fuse the small operations of a step by torch.compile; takes a minute to start, for
            long runs on a GPU.
        seed: of the choice of items that are left out, and of everything else beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = ("data", "budget_seconds", "compiled", "device")

    dataset: Literal["mnist", "fashion-mnist", "digits"] = "mnist"
    data: str | None = None
    pretrained: str | None = None
    versions: tuple[float, ...] = (1.0, 0.8, 0.6)
    priors: tuple[str, ...] = ("uniform", "categorical", "hypergeometric")
    seeds: int = 5
    epochs: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-3
    decay: float = 1.0
    smallest_rate: float = 2e-4
    hottest: float = 1.0
    coldest: float = 0.5
    annealing: float = 0.5
    widths: tuple[int, ...] = (500, 500, 2000)
    latent: int = 10
    evaluate_every: int = 10
    mixture_balls: float | None = None
    mixture_starts: int = 4
    held_epochs: int = 0
    layer_epochs: int = 10
    joint_epochs: int = 50
    pretraining_rate: float = 0.1
    half: bool = True
    budget_seconds: float | None = None
    compiled: bool = False
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in self.priors:
            prior_named(name)
        for share in self.versions:
            if not 0 < share <= 1:
                raise ValueError(
                    f"versions are shares of the items kept, above 0 and up to 1, not {share}"
                )
        if not 0 < self.annealing <= 1:
            raise ValueError(
                f"annealing is {self.annealing}, but must be a share of the steps, above 0 and up "
                "to 1"
            )
        if self.mixture_balls is not None and not self.mixture_balls * CLASSES > 1:
            raise ValueError(
                f"mixture_balls is {self.mixture_balls}, but must be above {1 / CLASSES:g}, so "
                "that there is one for every item"
            )
        if self.held_epochs < 0:
            raise ValueError(
                f"held_epochs is {self.held_epochs}, but must be a number of epochs, 0 or more"
            )
        if not self.pretraining_rate > 0:
            raise ValueError(f"pretraining_rate is {self.pretraining_rate}, but must be above 0")
        for name in ("seeds", "epochs", "batch_size", "evaluate_every", "latent", "mixture_starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")

    @property
    def mixture_urn(self) -> SharedUrn | None:
        return (
            None
            if self.mixture_balls is None
            else SharedUrn(self.mixture_balls, self.mixture_starts)
        )

    @classmethod
    def quick(cls) -> Options:
        return cls(
            dataset="digits",
            versions=(1.0, 0.6),
            seeds=2,
            epochs=150,
            learning_rate=2e-3,
            widths=(128, 128, 256),
            evaluate_every=25,
            layer_epochs=20,
            joint_epochs=800,
            pretraining_rate=0.3,
        )


class Member(NamedTuple):
    """One model of the stack."""

    version: float
    prior: str
    seed: int


def members(options: Options, version: float) -> list[Member]:
    return [
        Member(version, prior, seed) for prior in options.priors for seed in range(options.seeds)
    ]


def units(options: Options) -> list[str]:
    return [f"kept-{100 * version:g}" for version in options.versions]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    version = options.versions[units(options).index(unit)]
    with tensor_cores(workspace.device):
        return Study(options, version, workspace).run()


class Study:
    """The stack of one version on its way: data, training and what was found so far."""

    def __init__(self, options: Options, version: float, workspace: Workspace) -> None:
        self.options, self.version, self.workspace, self.device = (
            options,
            version,
            workspace,
            workspace.device,
        )
        self.clock = Clock(options.budget_seconds)
        self.members = members(options, version)
        images = _data(options)
        self.shape = images.shape
        self.train, self.test = images.train.to(self.device), images.test.to(self.device)
        self.items = kept_items(images.train_labels, version, REDUCED, options.seed).to(self.device)
        self.test_items = kept_items(images.test_labels, version, REDUCED, options.seed).to(
            self.device
        )
        self.train_labels, self.test_labels = (
            images.train_labels[self.items.cpu()],
            images.test_labels[self.test_items.cpu()],
        )
        self.steps_per_epoch = len(self.items) // options.batch_size
        if self.steps_per_epoch == 0:
            raise RunError(f"a batch of {options.batch_size} is larger than the training data")
        self.found: list[dict[str, Any]] = [
            {"epochs": [], "accuracy": [], "elbo": [], "stopped_after": None, "final": None}
            for _ in self.members
        ]

    def run(self) -> dict[str, Any]:
        self.training = self._training()
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
        labels = {"train": self.train_labels, "test": self.test_labels}
        counts = {part: own.bincount(minlength=CLASSES).tolist() for part, own in labels.items()}
        models = [
            {**member._asdict(), **found}
            for member, found in zip(self.members, self.found, strict=True)
        ]
        return {
            "models": models,
            "class_counts": {version_name(self.version): counts},
            "shape": list(self.shape),
        }

    def _seed(self, seed: int) -> int:
        return (self.options.seed * 1_009 + round(1000 * self.version)) * 1_009 + seed

    def _training(self) -> Training:
        options, length = self.options, self.steps_per_epoch
        priors = [prior_named(member.prior) for member in self.members]
        model = VaDE(
            priors, self.train.shape[1], options.widths, options.latent, CLASSES, options.batch_size
        ).to(self.device)
        seeds = [self._seed(member.seed) for member in self.members]
        batches = Batches(
            [self.items] * len(seeds), seeds, options.batch_size, BLOCK, options.latent, CLASSES
        )
        annealing = ExponentialAnnealing(
            options.hottest,
            options.coldest,
            max(1, round(options.annealing * options.epochs * length)),
        )
        rate = options.learning_rate, options.decay, DECAY_EPOCHS * length, options.smallest_rate
        schedule = Schedule(*rate, annealing, options.held_epochs * length)
        return Training(
            model,
            self.train,
            batches,
            schedule,
            options.compiled,
            options.half and self.device.type == "cuda",
        )

    @property
    def _model(self) -> VaDE:
        return self.training.model

    def _initialise(self) -> None:
        """Autoencoders and mixtures, one mixture for every seed."""
        seeds = range(self.options.seeds)
        autoencoder, rows = self._autoencoder()
        latents = [autoencoder.latents(self.train[self.items], row) for row in rows]
        self.clock.tell(f"fitting {len(seeds)} mixtures")
        mixtures = fit_mixtures(
            latents,
            CLASSES,
            [self.options.seed + seed for seed in seeds],
            os.cpu_count() or 1,
            self.options.mixture_urn,
        )
        place = [member.seed for member in self.members]
        start_from(
            self._model,
            autoencoder,
            [rows[i] for i in place],
            [mixtures[i] for i in place],
            [self._seed(seed) for seed in place],
        )

    def _autoencoder(self) -> tuple[Autoencoder, list[int]]:
        """The autoencoders, and which of them each seed takes."""
        options = self.options
        try:
            if options.pretrained is None:
                return self._pretrained(), list(range(options.seeds))
            released = read_vade_weights(
                options.pretrained, self.train.shape[1], options.widths, options.latent
            )
        except ValueError as error:
            raise RunError(str(error)) from error
        return released.to(self.device), [0] * options.seeds

    def _pretrained(self) -> Autoencoder:
        options = self.options
        self.clock.tell(f"pretraining {options.seeds} autoencoders")
        return pretrain(
            self.train,
            [self.items] * options.seeds,
            [self._seed(seed) for seed in range(options.seeds)],
            options.widths,
            options.latent,
            options.layer_epochs,
            options.joint_epochs,
            options.batch_size,
            options.pretraining_rate,
        )

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
            self.clock.tell(f"{self.members[model]} broke down in epoch {self._epoch}")

    def _save(self) -> None:
        self.workspace.save_checkpoint({"training": self.training.state(), "found": self.found})

    def _evaluate(self, losses: Tensor) -> None:
        """Notes how the running models do on the test data."""
        clusters = assigned_clusters(self._model, self.test[self.test_items])
        tables = confusion(clusters, self.test_labels.to(self.device), CLASSES).cpu()
        shares, weights = (
            self._model.expected_shares().cpu(),
            self._model.log_weights.detach().double().softmax(-1).cpu(),
        )
        elbo = (-losses).tolist()
        for i in self._running():
            self._note(i, tables[i], weights[i], shares[i], elbo[i])

    def _running(self) -> list[int]:
        rows: list[int] = self.training.active.nonzero().squeeze(1).tolist()
        return rows

    def _note(
        self, model: int, table: Tensor, weights: Tensor, shares: Tensor, elbo: float
    ) -> None:
        found, score = self.found[model], scores(table)
        sizes, frequencies = table.sum(1), table.sum(0)
        of_matched_class = frequencies[score.classes]
        followers = {"sizes": sizes, "weights": weights, "shares": shares}
        found["epochs"].append(self._epoch)
        found["accuracy"].append(round(score.accuracy, 4))
        found["elbo"].append(None if elbo != elbo else round(elbo, 3))
        found["final"] = {
            "accuracy": round(score.accuracy, 6),
            "nmi": round(score.nmi, 6),
            "ari": round(score.ari, 6),
            "classes": score.classes,
            "sizes": sizes.tolist(),
            "weights": rounded(weights.tolist()),
            "shares": rounded(shares.tolist()),
            "correlation": {
                name: round(correlation(values, of_matched_class), 4)
                for name, values in followers.items()
            },
        }

    def _keep_pictures(self) -> None:
        """Decoded cluster means of the models of seed 0, as bytes."""
        with torch.no_grad():
            pictures = (
                (self._model.decode(self._model.means).sigmoid() * 255)
                .round()
                .to(torch.uint8)
                .cpu()
            )
        for i in self._running():
            if self.members[i].seed == 0:
                self.found[i]["pictures"] = base64.b64encode(pictures[i].numpy().tobytes()).decode()

    def _report(self) -> None:
        means = {}
        for prior in self.options.priors:
            values = [
                self.found[i]["accuracy"][-1]
                for i in self._running()
                if self.members[i].prior == prior
            ]
            if values:
                means[prior] = sum(values) / len(values)
        listed = ", ".join(f"{prior} {100 * value:.1f}" for prior, value in means.items())
        self.clock.tell(
            f"{version_name(self.version)}, epoch {self._epoch}: accuracy "
            f"{listed}{self.clock.speed(self.training.step)}"
        )
        self.workspace.scalars(
            self._epoch,
            **{f"accuracy-{100 * self.version:g}/{prior}": value for prior, value in means.items()},
        )


def _data(options: Options) -> Images:
    try:
        return load_images(options.dataset, options.data)
    except ValueError as error:
        raise RunError(str(error)) from error


def table(results: Results) -> list[Table]:
    return clustering_tables.tables(results.records, results.options)


def figure(results: Results) -> dict[str, Figure]:
    return clustering_figure.figures(results.records, results.options)


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)
