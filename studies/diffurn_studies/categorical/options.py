"""The options of the thought experiment with categoricals."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Options:
    """What the study trains and draws.

    Attributes:
        weights: ω of the urn; the paper does not say.
        draws: from each model and from the urn, of which the invalid ones are counted.
        steps: of Adam.
        learning_rate: of Adam.
        hidden: units in the layer of the networks that infer weights in sequence.
        seed: of initial weights and draws.
    """

    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    draws: int = 100_000
    steps: int = 3_000
    learning_rate: float = 0.01
    hidden: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.weights) <= 0:
            raise ValueError(f"weights are {self.weights}, but must be above 0")
        if min(self.draws, self.steps, self.hidden) < 1 or not self.learning_rate > 0:
            given = (
                f"draws is {self.draws}, steps {self.steps}, hidden {self.hidden} and "
                f"learning_rate {self.learning_rate}"
            )
            raise ValueError(f"{given}, but all must be above 0")

    def quick(self) -> Options:
        return replace(self, draws=10_000, steps=300)
