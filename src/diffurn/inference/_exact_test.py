"""Fisher's exact test of a 2×2 table, its conditional odds ratio and its exact confidence interval,
for batches of tables of any size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from diffurn._fisher.marginals import Marginal
from diffurn._fisher.moments import log_mass, mean
from diffurn._fisher.quadrature import Quadrature
from diffurn._numerics.batching import in_chunks
from diffurn._validation import (
    as_float64_tensor,
    as_integer_tensor,
    require,
    require_broadcast,
    require_one_of,
)

Alternative = Literal["two-sided", "less", "greater"]
# Outcomes that are more probable than the observed one by less than this count as equally probable,
# since the probabilities of symmetric outcomes differ by rounding.
_TIE = 1e-7
# Elements per table of the largest intermediate tensor, the terms of a tail.
_WORK = 64
_MOST_STEPS = 80
# Newton's method converges quadratically: after a step this small only rounding errors are left.
_SMALL_STEP = 1e-10


class ConfidenceInterval(NamedTuple):
    """The ends of an interval; each has the shape of the batch."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class ExactTest:
    """The result of `exact_test`.

    Attributes:
        p_value: float64, of the shape of the batch, as are all tensors but the table.
        log_p_value: its logarithm, finite where the p-value underflows.
        odds: the odds ratio under the null hypothesis.
        alternative: the alternative hypothesis.
        table: the counts, ``(..., 2, 2)``.
    """

    p_value: Tensor
    log_p_value: Tensor
    odds: Tensor
    alternative: Alternative
    table: Tensor = field(repr=False)

    @cached_property
    def odds_ratio(self) -> Tensor:
        """The conditional maximum likelihood estimate: the odds ω for which the observed count is
        the mean.

        It is 0 or inf at the ends of the support, and nan where a margin is zero.
        """
        with torch.no_grad():
            return in_chunks(_conditional_estimate, self.table, events=(2,), work=_WORK)

    def confidence_interval(
        self, level: float = 0.95, alternative: Alternative | None = None
    ) -> ConfidenceInterval:
        """The odds that the exact one-sided tests do not reject. The ends are 0 or inf where the
        observed count is at an end of its support.

        Args:
            level: the confidence level, between 0 and 1. The error probability of a two-sided
                interval is divided equally between its ends.
            alternative: "less" gives the ends 0 and an upper bound, "greater" a lower bound and
                inf; by default the alternative of the test.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but must lie between 0 and 1, such as 0.95")
        alternative = self.alternative if alternative is None else alternative
        require_one_of("alternative", alternative, get_args(Alternative))
        outside = torch.tensor(
            (1 - level) / (2 if alternative == "two-sided" else 1),
            dtype=torch.float64,
            device=self.table.device,
        )
        observed = self.table[..., 0, 0]
        low, high = torch.zeros_like(observed), torch.full_like(observed, torch.inf)
        # P(X ≥ x) grows with ω. It is α at the lower end; P(X ≤ x) is α at the upper end.
        if alternative != "less":
            low = _odds_at(self.table, observed - 1, torch.logit(outside))
        if alternative != "greater":
            high = _odds_at(self.table, observed, -torch.logit(outside))
        return ConfidenceInterval(low, high)


def exact_test(table: Any, odds: Any = 1.0, alternative: Alternative = "two-sided") -> ExactTest:
    r"""Fisher's exact test that the odds ratio of a 2×2 table is `odds`, given both margins.

    With the margins fixed, the count X in the first cell follows Fisher's noncentral hypergeometric
    distribution; m are the row totals, n is the total of the first column, and the weights are
    (ω, 1). The two-sided p-value is the probability of all outcomes that are at most as probable as
    the observed one (up to a relative 1e-7, so that rounding does not split ties). The p-value of
    "less" is P(X ≤ x), that of "greater" is P(X ≥ x). A table with a margin of zero has no
    information: p = 1, and the odds ratio is nan. The cost does not grow with the counts, and
    `log_p_value` stays finite where the p-value underflows.

    References: R. A. Fisher, *The logic of inductive inference* (1935); J. Cornfield, *A
    statistical problem arising from retrospective studies* (1956), for the interval.

    Args:
        table: counts, integers ≥ 0, shape ``(..., 2, 2)``.
        odds: the odds ratio ω > 0 under the null hypothesis; it broadcasts with the batch of
            tables.
        alternative: "two-sided", "less" (the true odds ratio is smaller) or "greater".

    Example:
        >>> test = exact_test([[8, 2], [1, 5]])
        >>> print(f"{test.p_value:.6f} {test.odds_ratio:.4f}")
        0.034965 15.4658
        >>> low, high = test.confidence_interval(0.95)
        >>> print(f"{low:.4f} {high:.1f}")
        1.0088 1059.6
    """
    require_one_of("alternative", alternative, get_args(Alternative))
    device = table.device if isinstance(table, Tensor) else torch.device("cpu")
    null = as_float64_tensor("odds", odds, device).detach()
    counts = as_integer_tensor("table", table, device, check=True).double()
    if counts.shape[-2:] != (2, 2):
        raise ValueError(
            f"table has shape {tuple(counts.shape)}, but its last two dimensions must be 2 and 2"
        )
    described = {"table": counts.shape[:-2], "odds": null.shape}
    batch = require_broadcast(described, *described.values())
    require(
        "odds", null, (null > 0) & (null < torch.inf), "the odds must be a positive finite number"
    )
    counts, null = counts.expand(*batch, 2, 2), null.expand(batch)
    with torch.no_grad():
        log_p = in_chunks(_LOG_P_VALUES[alternative], counts, null.log(), events=(2, 0), work=_WORK)
    return ExactTest(log_p.exp(), log_p, null, alternative, counts)


def _first_column(table: Tensor, log_odds: Tensor) -> Quadrature:
    """The urn of the first column, whose groups are the rows."""
    log_weights = torch.stack([log_odds, torch.zeros_like(log_odds)], -1)
    return Quadrature(log_weights, table.sum(-1), table[..., 0].sum(-1))


def _first_cell(table: Tensor, log_odds: Tensor) -> Marginal:
    """The distribution of the first cell, given the margins."""
    log_odds, sizes, draws = _first_column(table, log_odds).tilted
    own, others = (log_odds[..., 0], sizes[..., 0]), (log_odds[..., 1:], sizes[..., 1:])
    total, average = log_mass(log_odds, sizes, draws), mean(log_odds.detach(), sizes, draws)
    return Marginal(*own, *others, draws, total, average[..., 0])


def _log_p_less(table: Tensor, log_odds: Tensor) -> Tensor:
    return _first_cell(table, log_odds).log_tails(table[..., 0, 0])[0]


def _log_p_greater(table: Tensor, log_odds: Tensor) -> Tensor:
    return _first_cell(table, log_odds).log_tails(table[..., 0, 0] - 1)[1]


def _log_p_two_sided(table: Tensor, log_odds: Tensor) -> Tensor:
    cell, x = _first_cell(table, log_odds), table[..., 0, 0]
    threshold = cell.log_prob(x) + _TIE
    peak = _peak(cell)
    left = x < peak
    matching = _first_as_improbable(cell, threshold, peak, left)
    # Two tails: up to the lower of the two points, and from the upper one on.
    lower_end, upper_start = torch.where(left, x, matching), torch.where(left, matching, x)
    lower, upper = cell.log_tails(lower_end)[0], cell.log_tails(upper_start - 1)[1]
    return torch.where(cell.log_prob(peak) <= threshold, 0.0, torch.logaddexp(lower, upper)).clamp(
        max=0
    )


def _peak(cell: Marginal) -> Tensor:
    """The most probable count. It is less than one away from the mean, since the count is a sum of
    independent Bernoulli variables.
    """
    below = torch.floor(cell.mean).maximum(cell.lowest)
    above = (below + 1).minimum(cell.highest)
    return torch.where(cell.log_prob(above) > cell.log_prob(below), above, below)


def _first_as_improbable(cell: Marginal, threshold: Tensor, peak: Tensor, upward: Tensor) -> Tensor:
    """The first count away from the peak with log P ≤ threshold, or the one after the end of the
    support; by bisection.
    """
    sign = torch.where(upward, 1.0, -1.0)
    near = torch.zeros_like(peak)
    far = torch.where(upward, cell.highest - peak, peak - cell.lowest) + 1
    for _ in range((int(far.max()) - 1).bit_length() if far.numel() else 0):
        middle = torch.floor((near + far) / 2)
        improbable = cell.log_prob(peak + sign * middle) <= threshold
        near, far = torch.where(improbable, near, middle), torch.where(improbable, middle, far)
    return peak + sign * far


_LOG_P_VALUES = {"two-sided": _log_p_two_sided, "less": _log_p_less, "greater": _log_p_greater}


def _rough_log_odds_ratio(table: Tensor) -> Tensor:
    """The log odds ratio with half a count added to each cell."""
    cells = (table + 0.5).log()
    return cells[..., 0, 0] + cells[..., 1, 1] - cells[..., 0, 1] - cells[..., 1, 0]


def _smallest_first(table: Tensor) -> tuple[Tensor, Tensor]:
    """The table with rows and columns swapped so that its first cell is the smallest, and whether
    this inverts its odds ratio.
    """
    smallest = table.flatten(-2).argmin(-1)
    row, column = smallest // 2, smallest % 2
    table = torch.where((row == 1)[..., None, None], table.flip(-2), table)
    return torch.where((column == 1)[..., None, None], table.flip(-1), table), row != column


def _conditional_estimate(table: Tensor) -> Tensor:
    """Newton's method for E_ω[X] = x in log ω, applied to logit(E[X] / highest).

    This function is nearly linear: its slope is at most 1, since X is a sum of independent
    Bernoulli variables, and rarely below ½. The smallest cell has the mean with the smallest error,
    and its support begins at zero.
    """
    table, inverted = _smallest_first(table)
    x, log_odds = table[..., 0, 0], _rough_log_odds_ratio(table)
    highest = torch.minimum(table[..., 0, :].sum(-1), table[..., 0].sum(-1))
    interior = (x > 0) & (x < highest)
    target = torch.where(interior, torch.log(x / (highest - x)), 0.0)
    for _ in range(_MOST_STEPS):
        column = _first_column(table, log_odds)
        average, variance = column.mean()[..., 0], column.variance()[..., 0]
        slope = (variance * highest / (average * (highest - average))).clamp(0.25, 1.0)
        error = target - torch.log(average / (highest - average))
        step = torch.where(interior, error / slope, 0.0)
        log_odds = log_odds + step
        if bool((step.abs() <= _SMALL_STEP * (1 + log_odds.abs())).all()):
            break
    extreme = torch.where(highest == 0, torch.nan, torch.where(x > 0, torch.inf, -torch.inf))
    log_odds = torch.where(interior, log_odds, extreme)
    return torch.where(inverted, -log_odds, log_odds).exp()


def _odds_at(table: Tensor, x: Tensor, logit: Tensor) -> Tensor:
    """The odds ω with logit P_ω(X > x) = logit; 0 or inf where P is 1 or 0 for every ω."""
    return in_chunks(_solve_odds, table, x, logit, events=(2, 0, 0), work=_WORK)


def _solve_odds(table: Tensor, x: Tensor, logit: Tensor) -> Tensor:
    """Newton's method in log ω within a bracket. The slope of logit P is
    E[X | X > x] - E[X | X ≤ x], which is at least one.
    """
    log_odds = _rough_log_odds_ratio(table)
    cell = _first_cell(table, log_odds)
    never, always = x >= cell.highest, x < cell.lowest
    settled = never | always
    inside = x.clamp(cell.lowest, (cell.highest - 1).maximum(cell.lowest))
    low, high = torch.full_like(log_odds, -torch.inf), torch.full_like(log_odds, torch.inf)
    for _ in range(_MOST_STEPS):
        excess, slope = _logit_and_slope(table, log_odds, inside)
        excess, slope = torch.where(settled, 0.0, excess - logit), torch.where(settled, 1.0, slope)
        # The root lies between here and the root of a line with the smallest possible slope.
        low = torch.where(excess < 0, log_odds, low.maximum(log_odds - excess))
        high = torch.where(excess > 0, log_odds, high.minimum(log_odds - excess))
        step = excess / slope.clamp(min=1)
        proposal = log_odds - step
        log_odds = torch.where((proposal >= low) & (proposal <= high), proposal, 0.5 * (low + high))
        if bool((step.abs() <= _SMALL_STEP * (1 + log_odds.abs())).all()):
            break
    return torch.where(never, torch.inf, torch.where(always, 0.0, log_odds.exp()))


def _logit_and_slope(table: Tensor, log_odds: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """logit P(X > x) and its derivative in the log-odds."""
    with torch.enable_grad():
        log_odds = log_odds.detach().requires_grad_()
        lower, upper = _first_cell(table, log_odds).log_tails(x)
        logit = upper - lower
        (slope,) = torch.autograd.grad(logit.sum(), log_odds)
    return logit.detach(), slope
