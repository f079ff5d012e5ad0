"""The options of the minimal example."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# The share of a data set that trains; the rest validates.
TRAINING_SHARE = 0.8


@dataclass(frozen=True)
class Options:
    """What the study trains.

    Attributes:
        seeds: repetitions with new data and new draws.
        second_weights: ω₂ of the data sets.
        samples: counts per data set; four fifths train, one fifth validates.
        epochs: passes over the training data.
        batch_size: counts per step, each compared with a draw of its own.
        optimiser: ``descent``, plain gradient descent, whose rate falls linearly to zero; or
            ``adam``, whose rate is multiplied by `decay` after every epoch, as in the paper's
            released script.
        learning_rate: of log ω at the first step.
        decay: factor on Adam's rate after every epoch.
        temperature: of the Gumbel estimators.
        seed: of data and draws.
    """

    seeds: int = 5
    second_weights: tuple[float, ...] = tuple(float(weight) for weight in range(1, 11))
    samples: int = 1_000
    epochs: int = 10
    batch_size: int = 10
    optimiser: Literal["descent", "adam"] = "descent"
    learning_rate: float = 2e-5
    decay: float = 0.99
    temperature: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        training = round(TRAINING_SHARE * self.samples)
        if not self.second_weights or min(self.second_weights) <= 0:
            raise ValueError(
                f"second_weights are {self.second_weights}, but must be one or more numbers above 0"
            )
        if self.seeds < 1 or self.epochs < 1:
            raise ValueError(
                f"seeds is {self.seeds} and epochs {self.epochs}, but both must be at least 1"
            )
        if not 1 <= self.batch_size <= training < self.samples:
            raise ValueError(
                f"batch_size is {self.batch_size}, but must be from 1 to the {training} of "
                f"{self.samples} samples that train"
            )
        if not (self.learning_rate > 0 and self.temperature > 0):
            raise ValueError(
                f"learning_rate is {self.learning_rate} and temperature {self.temperature}, but "
                "both must be above 0"
            )
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}, but must be above 0 and up to 1")

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step."""
        if self.optimiser == "adam":
            return self.learning_rate * self.decay ** (step // steps_per_epoch)
        return self.learning_rate * (1 - step / (self.epochs * steps_per_epoch))

    def quick(self) -> Options:
        return replace(self, seeds=1, second_weights=(1.0, 3.0, 10.0), samples=500)
