"""The options of the study of random partitions: clustering, and two tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

Method = Literal["mixture", "vade", "bounds", "exact"]
METHODS: dict[Method, str] = {
    "mixture": "Gaussian mixture of the autoencoder's latents",
    "vade": "VaDE: each item has its own cluster",
    "bounds": "random partition, the paper's bounds and relaxed draws",
    "exact": "random partition, exact probabilities and unbiased gradients",
}
_AT_LEAST_ONE = (
    *("seeds", "epochs", "batch_size", "annealing_steps", "evaluate_every", "latent"),
    *("pretraining_epochs", "mixture_fits"),
)


@dataclass(frozen=True)
class Options:
    """The models of the clustering. Defaults are those of the authors' code, unless said otherwise.

    Attributes:
        dataset: mnist, fashion-mnist or digits.
        data: folder of its idx files; by default DIFFURN_DATA/<dataset>, or a download.
        methods: keys of `METHODS`.
        seeds: models of each method. Those of one seed start from the same autoencoder and mixture.
        epochs: passes of each model over the training part.
        batch_size: items of a step; they are partitioned together.
        learning_rate: of Adam.
        widths: hidden layers of the encoder; the decoder mirrors them.
        latent: dimensions of the latent space.
        beta: the weight of the divergence of the latents, from a tenth of it on.
        gamma: the weight of the divergence of the sizes in the paper's objective.
        delta: the weight of the divergence of the order in the paper's objective.
        hottest: temperature at the start.
        coldest: temperature at the end of the annealing, which is exponential.
        annealing_steps: of the temperature and of beta.
        draws: partitions for each gradient of the exact divergence.
        pretraining_epochs: of the autoencoder, which only reconstructs. (The authors also have a
            contrastive pretraining.)
        pretraining_rate: of its Adam.
        mixture_fits: fits of the first mixture, the likeliest of which is taken.
        evaluate_every: epochs between evaluations and checkpoints.
        seed: of everything beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = ("data", "device")

    dataset: Literal["mnist", "fashion-mnist", "digits"] = "mnist"
    data: str | None = None
    methods: tuple[Method, ...] = ("mixture", "vade", "bounds", "exact")
    seeds: int = 5
    epochs: int = 1024
    batch_size: int = 256
    learning_rate: float = 1e-4
    widths: tuple[int, ...] = (500, 500, 2000)
    latent: int = 10
    beta: float = 1.0
    gamma: float = 1.0
    delta: float = 0.01
    hottest: float = 1.0
    coldest: float = 0.5
    annealing_steps: int = 100_000
    draws: int = 4
    pretraining_epochs: int = 50
    pretraining_rate: float = 1e-3
    mixture_fits: int = 10
    evaluate_every: int = 16
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ValueError("methods must be at least one, each named once")
        _require_at_least_one(self, _AT_LEAST_ONE)
        if self.draws < 2:
            raise ValueError(f"draws is {self.draws}, but must be at least 2")
        _require_positive(self, ("learning_rate", "pretraining_rate", "beta", "hottest", "coldest"))

    def quick(self) -> Options:
        """The same methods on scikit-learn's digits, with small networks."""
        return replace(
            self,
            dataset="digits",
            data=None,
            seeds=2,
            epochs=30,
            learning_rate=1e-3,
            widths=(128, 128, 256),
            annealing_steps=100,
            pretraining_epochs=100,
            mixture_fits=3,
            evaluate_every=10,
        )


TASK_METHODS = {
    "shared": "all neurons for both tasks",
    "halves": "a fixed half of the neurons for each task",
    "released": "random partition as in the authors' code: no noise, a relaxed order",
    "gumbel": "random partition, Gumbel-Softmax and NeuralSort",
    "conditional": "random partition, exact draws and conditional gradients",
}


@dataclass(frozen=True)
class MultitaskOptions:
    """The models of the multitask study. Defaults are those of the authors' code.

    Attributes:
        dataset: mnist, fashion-mnist or digits, of which two are on each canvas.
        data: folder of its idx files; by default DIFFURN_DATA/<dataset>, or a download.
        methods: keys of `TASK_METHODS`.
        noises: levels of noise on the right digit, the probability that a pixel of it is black.
        seeds: models of each method and level. Those of one seed start from the same shared layers.
        epochs: passes of each model over the training part.
        batch_size: pictures of a step.
        learning_rate: of Adam.
        neurons: of the last shared layer.
        weight: of the regulariser: the logarithm of the number of orders that lead to a partition,
            which balances its sizes; without a random partition the mean of the neurons.
        hottest: temperature at the start.
        coldest: temperature at the end of the annealing, which is exponential.
        annealing_steps: of the temperature.
        evaluate_every: epochs between evaluations.
        budget_seconds: stop training after this time; the same command continues from there.
        seed: of everything beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = ("data", "budget_seconds", "device")

    dataset: Literal["mnist", "fashion-mnist", "digits"] = "mnist"
    data: str | None = None
    methods: tuple[str, ...] = tuple(TASK_METHODS)
    noises: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    seeds: int = 5
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-4
    neurons: int = 50
    weight: float = 0.015
    hottest: float = 1.0
    coldest: float = 0.5
    annealing_steps: int = 100_000
    evaluate_every: int = 10
    budget_seconds: float | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in TASK_METHODS]
        if unknown or not self.methods or len(set(self.methods)) < len(self.methods):
            raise ValueError(
                f"methods are {', '.join(self.methods) or 'none'}, but must be one or more of "
                f"{', '.join(TASK_METHODS)}, each once"
            )
        levels = sorted(set(self.noises))
        if not levels or list(self.noises) != levels or not 0 <= levels[0] <= levels[-1] <= 1:
            raise ValueError(f"noises are {self.noises}, but must rise, from 0 to 1")
        _require_at_least_one(
            self, ("seeds", "epochs", "batch_size", "annealing_steps", "evaluate_every")
        )
        if self.neurons < 2:
            raise ValueError(f"neurons is {self.neurons}, but must be at least 2, one for a task")
        if self.weight < 0:
            raise ValueError(f"weight is {self.weight}, but must be 0 or more")
        _require_positive(self, ("learning_rate", "hottest", "coldest"))

    def quick(self) -> MultitaskOptions:
        """The same methods on scikit-learn's digits, at three levels of noise."""
        return replace(
            self,
            dataset="digits",
            data=None,
            noises=(0.0, 0.5, 1.0),
            seeds=1,
            epochs=5,
            batch_size=64,
            learning_rate=3e-3,
            annealing_steps=100,
            evaluate_every=1,
        )


def _require_at_least_one(options: object, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} is {getattr(options, name)}, but must be at least 1")


def _require_positive(options: object, names: tuple[str, ...]) -> None:
    for name in names:
        if not getattr(options, name) > 0:
            raise ValueError(f"{name} is {getattr(options, name)}, but must be above 0")
