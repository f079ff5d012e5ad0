"""The options of the Kolmogorov-Smirnov study."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Options:
    """What the study draws and tests.

    Attributes:
        samples: draws per urn and sampler.
        second_weights: ω₂ of the main study.
        draws: n of the first sensitivity study; the paper shows its values only in a plot, so these
            are ours.
        second_sizes: m₂ of the second sensitivity study, likewise ours.
        level_seeds: repetitions of the level study, per ω₂.
        seed: of all draws.
    """

    samples: int = 50_000
    second_weights: tuple[float, ...] = tuple(float(weight) for weight in range(1, 11))
    draws: tuple[int, ...] = tuple(range(50, 501, 50))
    second_sizes: tuple[int, ...] = tuple(range(50, 501, 50))
    level_seeds: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.level_seeds < 2:
            raise ValueError(
                f"samples is {self.samples} and level_seeds {self.level_seeds}, but they must be "
                "at least 1 and 2"
            )
        if not self.second_weights or min(self.second_weights) <= 0:
            raise ValueError(
                f"second_weights are {self.second_weights}, but must be one or more numbers above 0"
            )
        if not self.draws or not 1 <= min(self.draws) <= max(self.draws) <= 599:
            raise ValueError(
                f"draws are {self.draws}, but must be one or more whole numbers from 1 to 599, one "
                "less than there are balls"
            )
        if not self.second_sizes or min(self.second_sizes) < 1:
            raise ValueError(
                f"second_sizes are {self.second_sizes}, but must be one or more whole numbers "
                "above 0"
            )

    def quick(self) -> Options:
        return replace(
            self,
            samples=5_000,
            second_weights=(1.0, 2.0, 5.0, 10.0),
            draws=(50, 200, 500),
            second_sizes=(50, 200, 500),
            level_seeds=40,
        )
