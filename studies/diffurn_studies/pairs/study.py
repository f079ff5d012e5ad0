"""The paper's second study: weak supervision. Two images share an unknown number s of their seven
generative factors; which, and how many?

LabelVAE, AdaVAE and HGVAE (`diffurn_studies.pairs.views`) on pairs that share exactly s factors.
The paper trains on mpi3d_toy; the default here are arm scenes, drawn on the fly with the same
factors, and Sprites can be given by path. Every model has its own pairs and noise by its seed, the
same for all methods; figures are of fresh pairs, the same for all models. There is no held-out part
of the factor grid, as there is none in the paper's code base.

All models with one s, or with any (``--set together=true``, best on a GPU), are one stack in one
program, and one unit of work; a second unit scores their latents, without the device. Run it with
``diffurn reproduce pairs``.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.machine import wait_for
from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.runner import Engine, Progress, Results, RunError, Table, Workspace
from diffurn_studies.pairs import figure as pairs_figure
from diffurn_studies.pairs import tables as pairs_tables
from diffurn_studies.pairs.evaluation import evaluate, fresh_draws, pictures_of
from diffurn_studies.pairs.factors import FactorImages, load_factors
from diffurn_studies.pairs.sampler import RANDOM, Sampler
from diffurn_studies.pairs.scores import Latents, downstream
from diffurn_studies.pairs.stored import held
from diffurn_studies.pairs.training import PairDraws, PairTraining, Source
from diffurn_studies.pairs.vae import Losses, PairVAE
from diffurn_studies.pairs.views import method_named
from diffurn_studies.stacked.training import BLOCK, Clock, tensor_cores, train

NAME = "pairs"
LATENTS_FILE = "latents.npz"
NO_SCORES = {
    "shared_accuracy": None,
    "independent_accuracy": None,
    "whole_accuracy": None,
    "disentanglement": None,
}


@dataclass(frozen=True)
class Options:
    """What `run` trains.

    Attributes:
        dataset: arm, sprites or mpi3d_toy.
        data: its npz file, or the folder that holds it; by default DIFFURN_DATA/<dataset>, or a
            download (mpi3d_toy).
        shared: numbers of shared factors, one data set each; -1 is a random number for each pair.
        methods: label, ada, oracle, hypergeometric, with details such as
            -covariance-log1p-once-lr1e-4 (see `method_named`).
        seeds: models of each method and number.
        steps: of training.
        batch_size: pairs a step.
        latent: dimensions of the latent space.
        channels: of the first convolution; the networks' other widths follow.
        first_temperature: of draw and sort at the start; methods say where it ends.
        annealing_steps: until it has ended.
        sampler: exact, or disentanglement_lib's loose one.
        evaluate_every: steps between two points of the training curves.
        test_pairs: fresh pairs for every figure.
        score_train: those of them that train the classifiers; the others test them.
        together: models of all numbers of shared factors in one stack.
        held: arm scenes are drawn once and kept, 12.7 GB, instead of every time anew: faster on a
            GPU, and rounded to bytes.
        timed_models: models in a stack of each method whose speed is measured; 0 leaves that out.
        timed_steps: how many steps of them are timed.
        half: networks compute in bfloat16 (on a GPU).
        pictures: keep reconstructions and traversals of one model of each method, half a megabyte
            each.
        workers: processes that score; 0 takes all cores.
        budget_seconds: stop training after so many seconds; the same command then goes on from
            there.
        compiled: fuse the small operations of a step by torch.compile; takes a minute to start, for
            long runs on a GPU.
        seed: of everything beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = (
        "data",
        "pictures",
        "workers",
        "budget_seconds",
        "compiled",
        "device",
    )

    dataset: Literal["arm", "sprites", "mpi3d_toy"] = "arm"
    data: str | None = None
    shared: tuple[int, ...] = (0, 1, 3, 5)
    methods: tuple[str, ...] = ("label", "ada", "hypergeometric")
    seeds: int = 3
    steps: int = 100_000
    batch_size: int = 64
    latent: int = 10
    channels: int = 32
    first_temperature: float = 10.0
    annealing_steps: int = 50_000
    sampler: Sampler = "exact"
    evaluate_every: int = 1_000
    test_pairs: int = 15_000
    score_train: int = 10_000
    together: bool = False
    held: bool = False
    timed_models: int = 0
    timed_steps: int = 200
    half: bool = True
    pictures: bool = True
    workers: int = 0
    budget_seconds: float | None = None
    compiled: bool = False
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in self.methods:
            method_named(name)
        for name in ("methods", "shared"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"{name} are {', '.join(map(str, values)) or 'none'}, but must be at least "
                    "one, each named once"
                )
        for number in self.shared:
            if number < RANDOM:
                raise ValueError(
                    f"shared are numbers of factors, or {RANDOM} for a random number, not {number}"
                )
        for name in (
            "seeds",
            "steps",
            "batch_size",
            "latent",
            "channels",
            "evaluate_every",
            "score_train",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.test_pairs <= self.score_train:
            raise ValueError(
                f"test_pairs is {self.test_pairs}, but must be more than score_train, which is "
                f"{self.score_train}"
            )

    @classmethod
    def quick(cls) -> Options:
        return cls(
            shared=(1, 5),
            methods=(
                "label-lr1e-3",
                "ada-lr1e-3",
                "hypergeometric-covariance-log1p-once-lr1e-3-detached",
            ),
            seeds=1,
            steps=600,
            batch_size=16,
            channels=8,
            annealing_steps=300,
            evaluate_every=100,
            test_pairs=900,
            score_train=600,
        )


class Member(NamedTuple):
    """One model of a stack."""

    method: str
    shared: int
    seed: int


def number_name(shared: int) -> str:
    return "srandom" if shared == RANDOM else f"s{shared}"


def stacks(options: Options) -> dict[str, list[Member]]:
    """The models that are trained side by side, by the names of the stacks."""
    numbers = (
        {"all": options.shared}
        if options.together
        else {number_name(shared): (shared,) for shared in options.shared}
    )
    return {
        name: [
            Member(method, shared, seed)
            for shared in own
            for method in options.methods
            for seed in range(options.seeds)
        ]
        for name, own in numbers.items()
    }


def stages(options: Options) -> list[list[str]]:
    """Training first, and scores of what it left."""
    timed = ["speed"] if options.timed_models else []
    return [
        [f"train-{name}" for name in stacks(options)] + timed,
        [f"score-{name}" for name in stacks(options)],
    ]


def units(options: Options) -> list[str]:
    return [unit for stage in stages(options) for unit in stage]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    if unit == "speed":
        with tensor_cores(workspace.device):
            return _speeds(options, workspace)
    kind, _, name = unit.partition("-")
    if kind == "score":
        return _score(options, name, workspace)
    with tensor_cores(workspace.device):
        return Study(options, name, workspace).run()


def _images(options: Options) -> FactorImages:
    try:
        return load_factors(options.dataset, options.data)
    except ValueError as error:
        raise RunError(str(error)) from error


def _source(
    options: Options, images: FactorImages, chosen: list[Member], device: torch.device
) -> Source:
    if (most := max(member.shared for member in chosen)) > len(images.sizes):
        raise RunError(f"shared is {most}, but {options.dataset} has {len(images.sizes)} factors")
    there = images.to(device)
    if options.held and options.dataset == "arm":
        there = held(there, device)
    numbers = torch.tensor([member.shared for member in chosen], device=device)
    alike = [(member.shared, member.seed) for member in chosen]
    return Source(there, torch.tensor(images.sizes, device=device), numbers, options.sampler, alike)


def _training(
    options: Options, chosen: list[Member], source: Source, seeds: list[int]
) -> PairTraining:
    device = source.sizes.device
    methods = [method_named(member.method) for member in chosen]
    compute = torch.bfloat16 if options.half and device.type == "cuda" else torch.float32
    starts = [options.seed * 1_009 + member.seed for member in chosen]
    model = PairVAE(
        methods, starts, source.images.shape, options.latent, options.channels, compute
    ).to(device)
    draws = PairDraws(seeds, options.batch_size, len(source.images.sizes), options.latent, device)
    rates = torch.tensor([method.learning_rate for method in methods], device=device)
    annealings = [
        ExponentialAnnealing(
            options.first_temperature, method.final_temperature, options.annealing_steps
        )
        for method in methods
    ]
    return PairTraining(model, source, draws, rates, annealings, options.compiled)


def _seed(options: Options, shared: int, seed: int) -> int:
    """Of one model's pairs and noise, the same for all methods; -1 for those of the test."""
    return (options.seed * 1_009 + shared + 2) * 1_009 + seed + 2


class Study:
    """A stack on its way: training and what was found so far."""

    def __init__(self, options: Options, name: str, workspace: Workspace) -> None:
        self.options, self.name, self.workspace = options, name, workspace
        self.clock = Clock(options.budget_seconds)
        self.members = stacks(options)[name]
        source = _source(options, _images(options), self.members, workspace.device)
        self.training = _training(
            options,
            self.members,
            source,
            [_seed(options, member.shared, member.seed) for member in self.members],
        )
        self.draws = fresh_draws(
            self.training, options.test_pairs, _seed(options, RANDOM, -1), options.latent
        )
        fields = ("step", *Losses._fields)
        self.found: list[dict[str, Any]] = [
            {"stopped_after": None, "curve": {name: [] for name in fields}} for _ in self.members
        ]
        self.saved_step = 0

    def run(self) -> dict[str, Any]:
        if saved := self.workspace.load_checkpoint():
            self.training.load_state(saved["training"])
            self.found, self.saved_step = saved["found"], self.training.step
        train(
            self.training,
            self.options.steps,
            self.options.evaluate_every,
            self.clock,
            self._at_mark,
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

    def _at_mark(self) -> None:
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
                f"{self.members[model]} broke down {where}; its last good checkpoint is that of "
                f"step {self.saved_step}"
            )

    def _save(self) -> None:
        self.workspace.save_checkpoint({"training": self.training.state(), "found": self.found})
        self.saved_step = self.training.step

    def _report(self) -> None:
        """Mean loss and k̂ of every method."""
        told: list[str] = []
        logged: dict[str, float] = {}
        for shared in dict.fromkeys(member.shared for member in self.members):
            told.append(number_name(shared))
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
                    told.append(f"{method} {loss:.1f} k {independent:.2f}")
                    logged |= {
                        f"loss-{number_name(shared)}/{method}": loss,
                        f"independent-{number_name(shared)}/{method}": independent,
                    }
        step = self.training.step
        self.clock.tell(f"step {step}: {' '.join(told)}{self.clock.speed(step)}")
        self.workspace.scalars(step, **logged)

    def _models(self, finals: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Pictures are large, so they are kept of the first seed and one number of shared factors
        alone.
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
                {**_setting(member), **found, "final": final, "pictures": pictures.get(i)}
            )
        return models

    def _keep(self, latents: Latents) -> None:
        """For the unit that scores."""
        running = self.training.active.cpu().numpy()
        np.savez_compressed(
            self.workspace.directory / LATENTS_FILE, running=running, **latents._asdict()
        )


def _setting(member: Member) -> dict[str, Any]:
    method = method_named(member.method)
    return {
        "method": member.method,
        "shared": None if member.shared == RANDOM else member.shared,
        "seed": member.seed,
        "learning_rate": method.learning_rate,
        "final_temperature": method.final_temperature,
        "beta": method.beta,
    }


def _score(options: Options, name: str, workspace: Workspace) -> dict[str, Any]:
    file = workspace.directory.parent / f"train-{name}" / LATENTS_FILE
    try:
        with np.load(file) as content:
            found = Latents(**{field: content[field] for field in Latents._fields})
            running = content["running"].tolist()
    except (OSError, KeyError, ValueError) as error:
        advice = "delete the record of the training unit to make them anew"
        raise RunError(
            f"{file}, the latents to score, cannot be read: {error}; {advice}"
        ) from error
    sizes = (found.factors.max((0, 1, 2)) + 1).tolist()
    workers = options.workers or os.cpu_count() or 1
    scores = []
    for number, (member, whole) in enumerate(zip(stacks(options)[name], running, strict=True)):
        own = (
            downstream(found.of_model(number), options.score_train, sizes, workers)
            if whole
            else NO_SCORES
        )
        scores.append({**_setting(member), **own})
    return {"models": scores}


def _speeds(options: Options, workspace: Workspace) -> dict[str, Any]:
    """Milliseconds a step and model of every method, in a stack of its own."""
    images, milliseconds = _images(options), {}
    for method in options.methods:
        stack = [
            Member(method, min(3, len(images.sizes)), seed) for seed in range(options.timed_models)
        ]
        source = _source(options, images, stack, workspace.device)
        training = _training(options, stack, source, list(range(len(stack))))
        training.advance(min(BLOCK, 10))  # compiles, captures, warms up
        milliseconds[method] = rounded(
            _timed(training, options.timed_steps, workspace.device) / len(stack)
        )
    return {
        "milliseconds": milliseconds,
        "models": options.timed_models,
        "batch_size": options.batch_size,
    }


def _timed(training: PairTraining, steps: int, device: torch.device) -> float:
    """Milliseconds a step."""
    wait_for(device)
    start, first = time.perf_counter(), training.step
    while training.step < first + steps:
        training.advance(min(first + steps, training.step + BLOCK))
    wait_for(device)
    return 1000 * (time.perf_counter() - start) / steps


def table(results: Results) -> list[Table]:
    return pairs_tables.tables(results.records, results.options)


def figure(results: Results) -> dict[str, Figure]:
    return pairs_figure.figures(results.records, results.options)


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)
