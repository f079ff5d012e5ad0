"""The options of the study, and the models that they ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL_BY_INDEX, Method
from diffurn_studies.pairs.sampler import RANDOM, Sampler

_AT_LEAST_ONE = (
    "seeds",
    "steps",
    "batch_size",
    "latent",
    "channels",
    "evaluate_every",
    "score_train",
)


@dataclass(frozen=True)
class Options:
    """Options of one run. The defaults are the paper's settings. The folder `arms` holds the
    options of every published run.

    Attributes:
        dataset: arm, sprites or mpi3d_toy.
        data: its npz file, or the folder that holds it; the default is DIFFURN_DATA/<dataset>, or a
            download (mpi3d_toy).
        shared: numbers of shared factors, one data set each; -1 is a random number for each pair.
        methods: the methods to compare (see `diffurn_studies.pairs.methods`).
        seeds: models of each method and each number of shared factors.
        steps: of training.
        batch_size: pairs per step.
        latent: dimension of the latent space.
        channels: of the first convolution; the networks' other widths follow from it.
        first_temperature: of draw and sort at the first step; the last one is set by the method.
        annealing_steps: steps until the last temperature is reached.
        sampler: fixed, the first s factors are shared in every pair; exact, a random subset of s
            factors in each pair; or loose, that of disentanglement_lib.
        evaluate_every: steps between two points of the training curves.
        test_pairs: fresh pairs for the evaluation.
        score_train: test pairs that train the classifiers; the others test them.
        together: train the models of all numbers of shared factors in one stack.
        held: render all arm scenes once and keep them (12.7 GB, rounded to bytes) instead of
            rendering them in every step (on a GPU).
        timed_models: models per stack in the measurement of speed; 0 measures no speed.
        timed_steps: steps in the measurement of speed.
        half: networks compute in bfloat16 (on a GPU).
        pictures: record reconstructions and traversals of one model of each method, half a megabyte
            each.
        workers: processes that score; 0 takes all cores.
        budget_seconds: stop training after this time; the same command continues from there.
        compiled: fuse the operations of a step by torch.compile, which takes about a minute.
        seed: base of all seeds.
        device: torch device for training.
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
    methods: tuple[Method, ...] = (LABEL_BY_INDEX, ADAPTIVE, HYPERGEOMETRIC)
    seeds: int = 3
    steps: int = 300_000
    batch_size: int = 64
    latent: int = 10
    channels: int = 32
    first_temperature: float = 10.0
    annealing_steps: int = 50_000
    sampler: Sampler = "fixed"
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
        self._require_distinct("methods", [method.label for method in self.methods])
        self._require_distinct("shared", [str(number) for number in self.shared])
        for number in self.shared:
            if number < RANDOM:
                raise ValueError(
                    f"shared holds {number}, but must hold numbers of factors, or {RANDOM} for a "
                    "random number"
                )
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.test_pairs <= self.score_train:
            raise ValueError(
                f"test_pairs is {self.test_pairs}, but must be more than score_train, which is "
                f"{self.score_train}"
            )

    def _require_distinct(self, name: str, values: list[str]) -> None:
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"{name} are {', '.join(values) or 'none'}, but must be at least one, each named "
                "once"
            )

    def quick(self) -> Options:
        """The same methods in small networks, within two minutes on two cores.

        At the paper's learning rates a model learns nothing in 400 steps, so all rates are at least
        1e-3.
        """
        methods = [
            replace(method, learning_rate=max(1e-3, method.learning_rate))
            for method in self.methods
        ]
        few = len(self.shared) <= 2
        return replace(
            self,
            shared=self.shared if few else (self.shared[1], self.shared[-1]),
            methods=tuple(dict.fromkeys(methods)),
            seeds=1,
            steps=min(400, self.steps),
            batch_size=16,
            channels=8,
            annealing_steps=200,
            evaluate_every=100,
            test_pairs=900,
            score_train=600,
            together=False,
            held=False,
            timed_models=min(2, self.timed_models),
            timed_steps=20,
        )


class Member(NamedTuple):
    """One model of a stack."""

    method: Method
    shared: int
    seed: int

    def __str__(self) -> str:
        shared = "random" if self.shared == RANDOM else self.shared
        return f"{self.method.label}, s = {shared}, seed {self.seed}"


def number_name(shared: int) -> str:
    """For names of units and logs."""
    return "srandom" if shared == RANDOM else f"s{shared}"


def stacks(options: Options) -> dict[str, list[Member]]:
    """The models that are trained together, by the names of their stacks."""
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
