"""The options of the study of subsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from diffurn_studies.subsets.contenders import CONTENDERS


@dataclass(frozen=True)
class Options:
    """What the study measures on small problems.

    Attributes:
        contenders: ways to draw and to estimate gradients.
        seeds: random problems, each with logits and losses of its own.
        samples: draws per gradient.
        gradients: of each contender and loss, from which bias and variance are computed.
        draws: of which the total variation to the laws is computed.
        scale: standard deviation of the logits.
        temperature: of relaxations and of I-MLE's noise.
        timed_rows: rows of a batch that is timed.
        seed: of everything beside `seeds`.
    """

    contenders: tuple[str, ...] = tuple(CONTENDERS)
    seeds: int = 5
    samples: int = 4
    gradients: int = 20_000
    draws: int = 200_000
    scale: float = 1.0
    temperature: float = 1.0
    timed_rows: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        _require_contenders(self.contenders)
        if not (self.scale > 0 and self.temperature > 0):
            given = f"scale is {self.scale} and temperature {self.temperature}"
            raise ValueError(f"{given}, but both must be above 0")
        least = {"seeds": 1, "samples": 2, "gradients": 40, "draws": 200, "timed_rows": 1}
        _require_at_least(self, least)

    def quick(self) -> Options:
        return replace(self, seeds=2, gradients=2_000, draws=20_000)


Kind = Literal["regression", "pixels", "pixels-each", "vae", "neighbours"]


@dataclass(frozen=True)
class TrainingOptions:
    """What the study trains.

    Attributes:
        task: regression (terms of an equation), pixels (one mask for all images), pixels-each (a
            mask for each image), vae (a latent of several subsets) or neighbours (of an image).
        k: items of a subset.
        contenders: ways to draw and to estimate gradients.
        seeds: of initial weights, batches and draws; the same for all contenders.
        samples: draws per gradient.
        steps: of Adam.
        batch_size: items per step.
        rates: learning rates to choose from, by the validation loss.
        temperatures: of relaxations and of I-MLE's noise, chosen with the rates.
        tuning_steps: of Adam for each such choice.
        tuning_seeds: for each such choice; none of them is among `seeds`.
        latents: subsets of the latent of a vae; each is of as many items.
        hidden: layers of the networks.
        noise: of the regression, relative to the time derivative.
        dataset: mnist, fashion-mnist or digits.
        data: folder of its idx files; by default DIFFURN_DATA/<dataset>, or a download.
        repeats: gradients of one batch, from which their variance is computed.
        timed_steps: steps that are timed.
        seed: of everything beside `seeds`.
        device: where to train.
    """

    # These may change when a run is resumed.
    FREE: ClassVar[tuple[str, ...]] = ("data", "device")

    task: Kind = "regression"
    k: int = 3
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    seeds: int = 5
    samples: int = 4
    steps: int = 2_000
    batch_size: int = 128
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)
    temperatures: tuple[float, ...] = (0.5, 1.0)
    tuning_steps: int = 1_000
    tuning_seeds: int = 1
    latents: int = 1
    hidden: tuple[int, ...] = (512, 256)
    noise: float = 0.2
    dataset: Literal["mnist", "fashion-mnist", "digits"] = "mnist"
    data: str | None = None
    repeats: int = 50
    timed_steps: int = 20
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        _require_contenders(self.contenders)
        for name in ("rates", "temperatures"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                raise ValueError(f"{name} are {values}, but must be one or more numbers above 0")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden is {self.hidden}, but must be one or more sizes of layers")
        if self.noise < 0:
            raise ValueError(f"noise is {self.noise}, but must be 0 or more")
        least = {"seeds": 1, "samples": 2, "steps": 1, "batch_size": 1, "tuning_steps": 1}
        least |= {"tuning_seeds": 1}
        _require_at_least(self, least | {"k": 1, "latents": 1, "repeats": 2, "timed_steps": 1})

    def on_digits(self, k: int, latents: int = 1) -> TrainingOptions:
        """On scikit-learn's digits with small networks, for a CPU."""
        return replace(
            self,
            k=k,
            latents=latents,
            dataset="digits",
            steps=2_000,
            tuning_steps=2_000,
            tuning_seeds=2,
            rates=(1e-3, 3e-3, 1e-2),
            hidden=(128, 64),
        )

    def quick(self) -> TrainingOptions:
        """Few steps, on scikit-learn's digits."""
        return replace(
            self,
            k=min(self.k, 5),
            seeds=2,
            steps=150,
            tuning_steps=50,
            tuning_seeds=1,
            batch_size=32,
            rates=self.rates[-1:],
            temperatures=self.temperatures[-1:],
            latents=min(self.latents, 8),
            hidden=(64,),
            dataset="digits",
            repeats=10,
            timed_steps=5,
        )


def _require_contenders(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"contenders are {', '.join(names) or 'none'}, but must be one or more of "
            f"{', '.join(CONTENDERS)}, each once"
        )


def _require_at_least(options: object, least: dict[str, int]) -> None:
    for name, value in least.items():
        if getattr(options, name) < value:
            raise ValueError(f"{name} is {getattr(options, name)}, but must be at least {value}")
