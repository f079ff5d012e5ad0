"""Bootstrap: the fit repeated on rows, or clusters of rows, that are drawn anew with replacement.

Interval ends are percentiles of the repeated estimates, at levels that are widened as Student's t
widens those of a normal distribution (Hesterberg 2015, *What teachers should know about the
bootstrap*): with few rows plain percentiles are too close together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diffurn._numerics.beta import student_quantile
from diffurn.inference.solving.estimates import Estimates
from diffurn.inference.solving.likelihood import Objective, Progress
from diffurn.inference.solving.rowwise import Clusters
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.solution import Solution, solve_sample

FEWEST, MOST = 99, 100_000
# The repeated fits of a batch hold about this many counts at once.
_CELLS = 2_000_000


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Repeated estimates.

    Attributes:
        values: the coefficients, ``(D, resamples, k)``: ±inf where a resample sets no bound, nan
            where it says nothing.
        number: how many rows or clusters were drawn in each resample, ``(D,)``.
        parameters: estimated parameters (for clusters, one), ``(D,)``.
        unit: ``"rows"`` or ``"clusters"``.
        seed: of the random numbers.
    """

    values: Tensor
    number: Tensor
    parameters: Tensor
    unit: str
    seed: int

    def pick(self, data_sets: Tensor) -> Bootstrap:
        return replace(
            self,
            values=self.values[data_sets],
            number=self.number[data_sets],
            parameters=self.parameters[data_sets],
        )

    @property
    def words(self) -> str:
        """For a single data set."""
        return (
            f"percentiles of {self.values.shape[1]:,} fits to {int(self.number[0]):,} {self.unit} "
            f"drawn with replacement, seed {self.seed}"
        )

    def interval(self, values: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """Widened percentiles of repeated values ``(D, resamples, k)``: ``(D, k)`` each."""
        spare = self.number - self.parameters
        wide = student_quantile(level, spare) * (self.number / spare).sqrt()
        outside = 0.5 * torch.erfc(wide / math.sqrt(2))  # the probability beyond each end
        return _quantile(values, outside), _quantile(values, 1 - outside)


def check_resamples(resamples: int) -> None:
    if isinstance(resamples, bool) or not FEWEST <= resamples <= MOST:
        raise ValueError(
            f"resamples is {resamples}, but must be a whole number from {FEWEST} to {MOST:,}"
        )


@torch.no_grad()
def bootstrapped(
    solution: Solution,
    estimates: Estimates,
    sample: Sample,
    clusters: Clusters | None,
    resamples: int,
    seed: int,
    progress: Progress | None = None,
) -> Bootstrap:
    """The fit of every data set, repeated."""
    generator = torch.Generator().manual_seed(seed)
    sets, rows, groups = sample.counts.shape
    at_once = max(1, _CELLS // (rows * groups * sample.parameters))
    values, numbers = [], []
    for d in range(sets):
        here = torch.tensor([d])
        one = sample.pick(here)
        informative = torch.where(one.undetermined, one.frequencies, 0.0)[0].cpu()
        frequencies, drawn = _resampled(informative, clusters, resamples, generator)
        parts = []
        for part in frequencies.split(at_once):
            parts.append(_repeated(solution, estimates, one, d, part.to(sample.counts.device)))
            if progress is not None:
                progress(d * resamples + sum(map(len, parts)), sets * resamples)
        values.append(torch.cat(parts))
        numbers.append(drawn)
    number = torch.tensor(numbers, dtype=torch.float64, device=sample.counts.device)
    parameters = solution.finite_parameters if clusters is None else torch.ones_like(number)
    unit = "rows" if clusters is None else "clusters"
    return Bootstrap(torch.stack(values), number, parameters.double(), unit, seed)


def _resampled(
    frequencies: Tensor, clusters: Clusters | None, resamples: int, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Frequencies of the rows in every resample, ``(resamples, R)``, and the number of draws."""
    if clusters is None:
        return _drawn(frequencies, resamples, generator), int(frequencies.sum())
    numbers = clusters.numbers.cpu()
    sizes = torch.zeros(clusters.total, dtype=frequencies.dtype)
    present = (sizes.index_add(0, numbers, frequencies) > 0).to(frequencies.dtype)
    times = _drawn(present, resamples, generator)
    return times[:, numbers] * frequencies, int(present.sum())


def _drawn(weights: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    """Multinomial counts ``(resamples, k)``: as many draws as the weights add up to, with these
    weights. One binomial variable after another.
    """
    left = torch.full((resamples,), float(weights.sum()), dtype=torch.float64)
    remaining = weights.flip(0).cumsum(0).flip(0)
    result = torch.zeros(resamples, len(weights), dtype=torch.float64)
    for k in torch.nonzero(weights).flatten().tolist():
        share = (weights[k] / remaining[k]).clamp(max=1)
        result[:, k] = torch.binomial(left, share.expand_as(left).contiguous(), generator=generator)
        left = left - result[:, k]
    return result


def _repeated(
    solution: Solution, estimates: Estimates, sample: Sample, d: int, frequencies: Tensor
) -> Tensor:
    """Coefficients of the fits with these frequencies ``(B, R)``: ``(B, k)``."""
    many = sample.pick(torch.zeros(len(frequencies), dtype=torch.int64))
    many = replace(many, frequencies=frequencies, process_group=None)
    p = sample.parameters
    fresh = Objective(
        solution.objective.model,
        many.merged(solution.objective.model.averages),
        sample.counts.new_zeros(len(frequencies), p, p),
        solution.objective.penalty,
    )
    repeated = solve_sample(fresh)
    contrasts = estimates.contrasts[d].expand(len(frequencies), -1, -1)
    if repeated.blocks is None:
        shift = torch.where(repeated.escape == 0, 0.0, repeated.escape * torch.inf)
    else:
        shift = _shift(contrasts, repeated)
    return Estimates.of(repeated, contrasts, shift).value


def _shift(contrasts: Tensor, repeated: Solution) -> Tensor:
    """0, ±inf or nan for every contrast of a group with a group or a mean of groups, ``(B, k)``."""
    assert repeated.blocks is not None
    order, absent = repeated.blocks.order(), repeated.objective.urns.absent
    k = contrasts.shape[-1]
    anchor = (torch.eye(k).to(contrasts) - contrasts) > 1e-12  # (B, group, members of its anchor)
    compared = torch.where(anchor, order, 0.0)
    lowest = torch.where(anchor, order, torch.inf).amin(-1)
    highest = torch.where(anchor, order, -torch.inf).amax(-1)
    # Relative to a mean of groups that are not comparable with each other, nothing is known.
    known = (lowest == highest) & ~compared.isnan().any(-1) & ~absent
    return torch.where(known, highest, torch.nan)


def _quantile(values: Tensor, share: Tensor) -> Tensor:
    """The quantile at a share per data set ``(D,)`` of values ``(D, B, k)`` that are not nan; the
    order statistic at or beyond it, so that infinite values are never averaged.
    """
    ordered = torch.where(values.isnan(), torch.inf, values).sort(1).values
    number = (~values.isnan()).sum(1)
    place = share.unsqueeze(-1) * (number + 1)
    place = torch.where(share.unsqueeze(-1) < 0.5, place.floor(), place.ceil()) - 1
    place = torch.minimum(place.clamp(min=0), (number - 1).clamp(min=0)).to(torch.int64)
    picked = ordered.gather(1, place.unsqueeze(1)).squeeze(1)
    enough = number > 0.5 * values.shape[1]
    return torch.where(enough & ~share.isnan().unsqueeze(-1), picked, torch.nan)
