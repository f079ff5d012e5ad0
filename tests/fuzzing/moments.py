"""Means, variances and covariances: against the reference (Fisher), closed forms, and inequalities
that hold for both laws.
"""

from __future__ import annotations

import numpy as np

from fuzzing.families import Floats
from fuzzing.trial import Trial, Values
from support import tolerances
from support.tolerances import EPS, Tolerances

MOST_GROUPS = 12  # of a covariance matrix
TINY = 1e-290  # 10¹² balls times the smallest number with all its digits


def promised(trial: Trial) -> Tolerances:
    return tolerances.FISHER if trial.is_fisher else tolerances.WALLENIUS


def rounding(trial: Trial, mean: Floats) -> Floats:
    """Errors of a mean near a whole number: relative to it below 1, then absolute, until the
    rounding of large numbers exceeds that.
    """
    size = np.abs(mean)
    return promised(trial).mean * np.minimum(size, 1) + promised(trial).sum_of_means * size


def error_of_mean(trial: Trial) -> Floats:
    """What is promised, and the reference's own error: 1e-15 of m·p, its independent binomial's
    mean, and more than that for Fisher's mean where a group is hardly ever drawn.
    """
    own = 1e-14 * (trial.batch.drawable * trial.reference.p).astype(float)
    return promised(trial).mean * trial.reference.mean + own + promised(trial).mean_floor


def check_mean(trial: Trial) -> None:
    mean, batch = trial.get("mean"), trial.batch
    lowest, highest = trial.support
    trial.expect("mean is finite", np.isfinite(mean), "mean[{index}]", mean, "a finite number")
    slack = rounding(trial, highest)
    inside = (mean >= lowest - slack) & (mean <= highest + slack)
    trial.expect(
        "mean lies within the support",
        inside,
        "mean[{index}]",
        mean,
        np.clip(mean, lowest, highest),
    )
    total = mean.astype(np.longdouble).sum(-1)
    close = np.abs(total - batch.draws) <= promised(trial).sum_of_means * batch.draws
    trial.expect("means sum to the draws", close, "mean.sum()", total.astype(float), batch.draws)
    if trial.is_fisher:
        exact, reference = trial.reference.mean, trial.reference
        trial.expect(
            "mean is right",
            np.abs(mean - exact) <= error_of_mean(trial),
            "mean[{index}]",
            mean,
            exact,
        )
        # Of a group that is nearly always drawn, the few balls left behind are as accurate, but for
        # the rounding of m.
        behind = (batch.drawable * reference.q).astype(float)
        error = promised(trial).mean * behind + rounding(trial, batch.drawable)
        trial.expect(
            "mean of nearly full groups is right",
            np.abs(mean - exact) <= error,
            "mean[{index}]",
            mean,
            exact,
        )
    _check_order_of_shares(trial, mean)


def _check_order_of_shares(trial: Trial, mean: Values) -> None:
    """Under both laws a ball is the likelier to be drawn the heavier it is; balls of one weight are
    equally likely.
    """
    sizes, weights = trial.batch.drawable, trial.batch.log_weights
    order = np.argsort(np.where(sizes > 0, weights, -np.inf), axis=1, kind="stable")
    sizes, weights = np.take_along_axis(sizes, order, 1), np.take_along_axis(weights, order, 1)
    share = np.take_along_axis(mean, order, 1) / np.maximum(sizes, 1)
    light, heavy, both = share[:, :-1], share[:, 1:], (sizes[:, :-1] > 0) & (sizes[:, 1:] > 0)
    tied = weights[:, :-1] == weights[:, 1:]
    # Rounding of m·p near m is not relative to a small mean, hence EPS.
    slack = 2 * promised(trial).mean * heavy + 8 * EPS
    with np.errstate(invalid="ignore"):
        fine = ~both | ((light <= heavy + slack) & (~tied | (heavy <= light + slack)))
    trial.expect(
        "heavier balls are drawn more often, tied ones equally often", fine, "mean", light, heavy
    )


def check_closed_forms(trial: Trial) -> None:
    """One draw is a categorical variable; equal weights are the central law."""
    batch, mean = trial.batch, trial.get("mean")
    sizes = batch.drawable.astype(np.longdouble)
    total = np.maximum(sizes.sum(-1, keepdims=True), 1)
    log_weights = np.where(sizes > 0, batch.exact_log_weights, -np.inf)
    top = np.where(
        np.isfinite(log_weights.max(-1, keepdims=True)), log_weights.max(-1, keepdims=True), 0
    )
    weight = sizes * np.exp(log_weights - top)
    single = weight / np.maximum(weight.sum(-1, keepdims=True), 1e-300)
    is_single, is_central = (
        batch.draws == 1,
        (np.where(sizes > 0, batch.log_weights, top) == top).all(-1),
    )
    exact = np.where(is_single[:, None], single, batch.draws[:, None] * sizes / total).astype(float)
    known = (is_single | is_central)[:, None]
    close = np.abs(mean - exact) <= promised(trial).mean * exact + promised(trial).mean_floor
    trial.expect("mean has its closed form", ~known | close, "mean[{index}]", mean, exact)


def covariance_floor(trial: Trial) -> Floats:
    return promised(trial).covariance_floor * np.maximum(1, trial.batch.population / 1e6)


def check_variance(trial: Trial) -> None:
    mean, variance = trial.get("mean"), trial.get("variance")
    trial.expect(
        "variance is finite",
        np.isfinite(variance),
        "variance[{index}]",
        variance,
        "a finite number",
    )
    trial.expect(
        "variance is not negative", ~(variance < 0), "variance[{index}]", variance, "at least 0"
    )
    low, high = bounds_of_variance(trial, mean)
    largest = np.maximum(variance.max(-1, keepdims=True), 0)
    slack = promised(trial).covariance * largest + covariance_floor(trial)[:, None]
    trial.expect(
        "variance is not below what its mean allows",
        variance >= low - slack,
        "variance[{index}]",
        variance,
        low,
    )
    trial.expect(
        "variance is not above what its mean allows",
        variance <= high + slack,
        "variance[{index}]",
        variance,
        high,
    )
    if trial.is_fisher:
        exact = np.diagonal(trial.reference.covariance, axis1=1, axis2=2)
        error = promised(trial).covariance * exact.max(
            -1, keepdims=True
        ) + 1e-13 * trial.reference.spread.max(-1, keepdims=True)
        trial.expect(
            "variance is right",
            np.abs(variance - exact) <= error,
            "variance[{index}]",
            variance,
            exact,
        )


def bounds_of_variance(trial: Trial, mean: Floats) -> tuple[Floats, Floats]:
    """A whole number of mean μ has a variance of at least {μ}(1 - {μ}), {μ} its fraction.

    A count between a and b is, under Fisher's law, a plus b - a independent Bernoulli variables,
    because its generating function has real roots only: Var ≤ (μ - a)(b - μ)/(b - a). Under
    Wallenius' law balls of one group may be positively correlated, and only the bound for any
    variable between a and b holds, without the denominator. The rounding of μ is allowed for; it
    matters where μ is large.
    """
    lowest, highest = trial.support
    error, fraction = rounding(trial, mean), mean - np.floor(mean)
    low = np.maximum(0, fraction * (1 - fraction) - error)
    width = np.maximum(highest - lowest, 1) if trial.is_fisher else 1
    low = np.where(highest == lowest, 0.0, low)
    high = (np.maximum(mean - lowest, 0) + error) * (np.maximum(highest - mean, 0) + error) / width
    return low, np.where(highest == lowest, 0.0, high)


def check_covariance(trial: Trial) -> None:
    if trial.batch.groups > MOST_GROUPS:
        return
    covariance, tolerance, floor = (
        trial.get("covariance_matrix"),
        promised(trial),
        covariance_floor(trial)[:, None, None],
    )
    entry = "covariance_matrix[{index}]"
    trial.expect(
        "covariance is finite", np.isfinite(covariance), entry, covariance, "a finite number"
    )
    largest = np.abs(covariance).max((1, 2), keepdims=True)
    symmetric = (
        np.abs(covariance - covariance.swapaxes(1, 2)) <= tolerance.symmetry * largest + floor
    )
    trial.expect("covariance is symmetric", symmetric, entry, covariance, covariance.swapaxes(1, 2))
    rows = covariance.astype(np.longdouble).sum(-1).astype(float)
    zero = np.abs(rows) <= tolerance.row_sums * trial.batch.groups * largest[..., 0] + floor[..., 0]
    trial.expect(
        "rows of the covariance sum to zero", zero, "covariance_matrix.sum(-1)[{index}]", rows, "0"
    )
    slack, own = tolerance.covariance * largest + floor, np.eye(trial.batch.groups, dtype=bool)
    if (
        trial.is_fisher or trial.batch.groups == 2
    ):  # three of Wallenius' groups may be positively correlated
        trial.expect(
            "covariance of two groups is not positive",
            own | ~(covariance > slack),
            entry,
            covariance,
            "at most 0",
        )
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    positive = np.maximum(variance, 0)[:, :, None] + slack
    schwarz = covariance**2 <= positive * positive.swapaxes(1, 2) * (1 + 8 * EPS)
    trial.expect(
        "covariance obeys Cauchy and Schwarz", schwarz, entry, covariance, "at most √(Var Var)"
    )
    if trial.is_fisher:
        agree = np.abs(variance - trial.get("variance")) <= slack[..., 0]
        trial.expect(
            "variance is the diagonal of the covariance",
            agree,
            "covariance_matrix.diagonal()[{index}]",
            variance,
            trial.get("variance"),
        )
        exact, spread = trial.reference.covariance, trial.reference.spread.max(-1)[:, None, None]
        error = tolerance.covariance * np.abs(exact).max((1, 2), keepdims=True) + 1e-13 * spread
        trial.expect(
            "covariance is right", np.abs(covariance - exact) <= error, entry, covariance, exact
        )
        _check_exchange(trial, covariance)


def _check_exchange(trial: Trial, covariance: Values) -> None:
    """Moving a ball from j to i: ω_i E[(m_i - X_i) X_j] = ω_j E[(m_j - X_j) X_i] (Fisher), which no
    quadrature enters.
    """
    mean, sizes = trial.get("mean"), trial.batch.drawable
    log_weights = np.where(sizes > 0, trial.batch.exact_log_weights, 0.0)
    ratio = np.exp(np.minimum(log_weights[:, :, None] - log_weights[:, None, :], 0)).astype(
        float
    )  # ω_i over the heavier of the two
    left = (sizes - mean)[:, :, None] * mean[:, None, :] - covariance
    both = ratio * left
    largest = np.abs(covariance).max((1, 2), keepdims=True)
    tolerance = promised(trial)
    error = (
        8 * EPS * sizes[:, :, None] * mean[:, None, :]
        + 3 * tolerance.mean * np.abs(left)
        + tolerance.covariance * largest
    )
    error = ratio * error + TINY * sizes[:, :, None] * sizes[:, None, :].astype(float)
    pair = (sizes[:, :, None] > 0) & (sizes[:, None, :] > 0) & ~np.eye(sizes.shape[1], dtype=bool)
    fine = ~pair | (np.abs(both - both.swapaxes(1, 2)) <= error + error.swapaxes(1, 2))
    trial.expect(
        "means and covariances balance every exchange",
        fine,
        "covariance_matrix[{index}]",
        both,
        both.swapaxes(1, 2),
    )
