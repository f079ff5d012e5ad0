"""The options of the study of subsets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diffurn_studies.subsets.contenders import CONTENDERS


@dataclass(frozen=True)
class Options:
    """What the study measures.

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
        unknown = [name for name in self.contenders if name not in CONTENDERS]
        if unknown or not self.contenders or len(set(self.contenders)) < len(self.contenders):
            raise ValueError(
                f"contenders are {', '.join(self.contenders) or 'none'}, but must be one or more "
                f"of {', '.join(CONTENDERS)}, each once"
            )
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}, but must be at least 2")
        if not (self.scale > 0 and self.temperature > 0):
            given = f"scale is {self.scale} and temperature {self.temperature}"
            raise ValueError(f"{given}, but both must be above 0")
        for name, least in {"seeds": 1, "gradients": 40, "draws": 200, "timed_rows": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least {least}")

    def quick(self) -> Options:
        return replace(self, seeds=2, gradients=2_000, draws=20_000)
