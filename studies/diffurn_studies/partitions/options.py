"""The options of the study of random partitions."""

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
    """What the study trains. Defaults are those of the authors' code, unless said otherwise.

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
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.draws < 2:
            raise ValueError(f"draws is {self.draws}, but must be at least 2")
        for name in ("learning_rate", "pretraining_rate", "beta", "hottest", "coldest"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be above 0")

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
