"""Temperature schedules for relaxed draws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExponentialAnnealing:
    r"""The temperature τ(t) = initial · (final / initial)^(t / steps) of training step t.

    From step `steps` on it stays at `final`.

    Reference: Sutter et al. (ICLR 2023), appendix.

    Args:
        initial: τ at step 0.
        final: τ from step `steps` on.
        steps: the number of training steps from `initial` to `final`.

    Example:
        >>> annealing = ExponentialAnnealing(initial=10.0, final=0.1, steps=100)
        >>> [round(annealing(step), 3) for step in (0, 50, 100, 1000)]
        [10.0, 1.0, 0.1, 0.1]
    """

    initial: float
    final: float
    steps: int

    def __post_init__(self) -> None:
        if not (self.initial > 0 and self.final > 0):
            raise ValueError(
                f"initial is {self.initial} and final is {self.final}, but both must be > 0"
            )
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}, but must be at least 1")

    def __call__(self, step: int) -> float:
        progress = min(max(step, 0), self.steps) / self.steps
        return float(self.initial * (self.final / self.initial) ** progress)
