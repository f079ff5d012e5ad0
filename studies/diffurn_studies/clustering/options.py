"""The options of the clustering study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from diffurn_studies.clustering.images import CLASSES
from diffurn_studies.clustering.mixtures import SharedUrn
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Prior, Uniform

QUICK_EPOCHS = 100
_AT_LEAST_ONE = (
    "seeds",
    "epochs",
    "batch_size",
    "decay_epochs",
    "evaluate_every",
    "latent",
    "mixture_fits",
    "mixture_starts",
)


@dataclass(frozen=True)
class Options:
    """What the study trains.

    Attributes:
        dataset: mnist, fashion-mnist or digits.
        data: folder of its idx files; by default DIFFURN_DATA/<dataset>, or a download.
        pretrained: npz file of VaDE's released autoencoder; by default an autoencoder is trained
            for every version and seed.
        versions: one version of the data for each number, the share of the classes in `reduced`
            that is kept.
        reduced: the classes of which a version keeps a share; the paper reduces half of the
            classes, and does not say which.
        priors: over the assignments.
        seeds: models of each version and prior; seed s is that of the mixture, of the batches and
            of the noise.
        epochs: passes of each model over its data.
        batch_size: samples per step; they share an urn.
        learning_rate: of Adam.
        decay: factor on the learning rate every `decay_epochs` epochs; VaDE has 0.9 every 10 epochs
            and starts at 0.002.
        decay_epochs: epochs between two such factors.
        smallest_rate: the learning rate at which the decay ends.
        hottest: temperature of the Gumbel-Softmax at the start.
        coldest: temperature at the end of the annealing, which is exponential.
        annealing: share of all steps until the temperature is `coldest`.
        widths: hidden layers of the encoder; the decoder mirrors them.
        latent: dimensions of the latent space.
        evaluate_every: epochs between evaluations.
        one_mixture: all seeds start from the mixture of seed 0, which is fitted to the latents of
            a `pretrained` autoencoder. Otherwise each seed has a mixture of its own.
        mixture_fits: fits of a mixture whose items share no urn, the likeliest of which is taken.
        mixture_balls: if given, the items share an urn when the mixture is fitted, with this many
            balls of each cluster per item, more than 1/K (`SharedUrn`).
        mixture_starts: fits of such a mixture, the best of which is taken.
        held_epochs: epochs during which the cluster weights stay equal, whatever the prior.
        layer_epochs: epochs of our own pretraining for each layer.
        joint_epochs: epochs of our own pretraining for all layers together.
        pretraining_rate: learning rate of our own pretraining.
        half: networks compute in bfloat16, on a GPU.
        budget_seconds: stop after so many seconds; the same command then goes on from there.
        compiled: fuse the small operations of a step by torch.compile. That takes a minute to
            start, and is for long runs on a GPU.
        seed: of the items that are left out, and of everything else beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = ("data", "budget_seconds", "compiled", "device")

    dataset: Literal["mnist", "fashion-mnist", "digits"] = "mnist"
    data: str | None = None
    pretrained: str | None = None
    versions: tuple[float, ...] = (1.0, 0.8, 0.6)
    reduced: tuple[int, ...] = (0, 1, 2, 3, 4)
    priors: tuple[Prior, ...] = (Uniform(), Categorical(), Hypergeometric())
    seeds: int = 5
    epochs: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-3
    decay: float = 1.0
    decay_epochs: int = 10
    smallest_rate: float = 2e-4
    hottest: float = 1.0
    coldest: float = 0.5
    annealing: float = 0.5
    widths: tuple[int, ...] = (500, 500, 2000)
    latent: int = 10
    evaluate_every: int = 10
    one_mixture: bool = False
    mixture_fits: int = 1
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
        if not self.priors or len(set(self.priors)) < len(self.priors):
            raise ValueError("priors must be at least one, each named once")
        for share in self.versions:
            if not 0 < share <= 1:
                raise ValueError(
                    f"versions are shares of the items kept, above 0 and up to 1, not {share}"
                )
        if not self.reduced or set(self.reduced) - set(range(CLASSES)):
            raise ValueError(
                f"reduced are {self.reduced}, but must be one or more classes from 0 to "
                f"{CLASSES - 1}"
            )
        if self.one_mixture and self.pretrained is None:
            raise ValueError(
                "one_mixture needs pretrained: autoencoders of our own differ from seed to seed, "
                "and so do their mixtures"
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
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")

    @property
    def mixture_urn(self) -> SharedUrn | None:
        if self.mixture_balls is None:
            return None
        return SharedUrn(self.mixture_balls, self.mixture_starts)

    def quick(self) -> Options:
        """The same priors on scikit-learn's digits, with small networks and every other version."""
        return replace(
            self,
            dataset="digits",
            pretrained=None,
            one_mixture=False,
            versions=self.versions[::2],
            seeds=2,
            epochs=QUICK_EPOCHS,
            learning_rate=2e-3,
            widths=(128, 128, 256),
            evaluate_every=25,
            held_epochs=self.held_epochs * QUICK_EPOCHS // self.epochs,
            layer_epochs=20,
            joint_epochs=500,
            pretraining_rate=0.3,
        )
