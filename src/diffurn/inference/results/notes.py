"""Sentences about a fit: what was left out, which figures to distrust, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diffurn.inference.results.words import listed, rows_left_out

if TYPE_CHECKING:
    from diffurn.inference.results.fit_result import FitResult

# Below this p-value of the goodness of fit, rows differ by more than chance.
DOUBTFUL_FIT = 0.01
FEW_CLUSTERS = 20


def notes_on(result: FitResult) -> list[str]:
    """Sentences about a single data set. Options are written as in Python."""
    notes = rows_left_out(*map(int, result.left_out.tolist())) + list(result.remarks)
    if not bool(result.converged.all()):
        notes.append("Newton's method did not converge; do not trust these figures.")
    if result.solution.blocks is None:
        notes += _about_coefficients(result)
    else:
        notes += _about_groups(result, result.solution.blocks.reach[0].tolist())
        notes += _about_the_mean(result)
    return notes + _about_errors(result)


# --- what the counts do not determine


def _about_groups(result: FitResult, reach: list[list[bool]]) -> list[str]:
    """`reach[j][k]`: the counts keep ω_j / ω_k away from zero."""
    groups, available = result.groups, result.available.tolist()
    notes = [
        f"{name} has no ball in any row: its weight cannot be estimated."
        for name, balls in zip(groups, available, strict=True)
        if balls == 0
    ]
    here = [j for j, balls in enumerate(available) if balls > 0]
    blocks = _blocks(here, reach)
    if len(blocks) == 1:
        return notes
    drawn, left = result.observed.tolist(), (result.available - result.observed).tolist()
    for block in blocks:
        names = listed([groups[j] for j in block])
        above = [k for k in here if k not in block and reach[k][block[0]]]
        below = [k for k in here if k not in block and reach[block[0]][k]]
        # Every group is drawn after a group that was always drawn, so that one is not listed.
        after = [groups[k] for k in above if left[k] > 0]
        if all(drawn[j] == 0 for j in block):
            notes.append(f"{names} was never drawn: its weight has no bound from below.")
        elif all(left[j] == 0 for j in block):
            notes.append(f"{names} was always drawn: its weight has no bound from above.")
        elif after:
            notes.append(f"{names}: drawn only after all of {listed(after)} had been.")
        elif not above and not below:
            notes.append(
                f"{names}: never in competition with the other groups, so not comparable with them."
            )
    pairs = [(reach[a[0]][b[0]], reach[b[0]][a[0]]) for a in blocks for b in blocks]
    if any(not forth and not back for forth, back in pairs):
        notes.append("Ratios of weights shown as ? are not determined by these counts.")
    if any(forth != back for forth, back in pairs):
        notes.append(f"{_finite_by_penalty(result)} gives finite estimates.")
    return notes


def _finite_by_penalty(result: FitResult) -> str:
    penalty = f'penalty="{_remedy(result)}"'
    if result.reference is not None:
        return penalty
    return f'{penalty}, with reference="{_suggested(result)}" to keep the figures comparable,'


def _about_the_mean(result: FitResult) -> list[str]:
    """Without a reference, ω is relative to a mean that depends on the groups in it."""
    if result.reference is not None:
        return []
    inside = result.baseline
    if len(inside) == 1 and len(result.groups) > 1:
        return [
            f"ω is relative to {inside[0]}, since no other group has a finite ratio to it; "
            f'reference="{inside[0]}" says so in every fit.'
        ]
    if len(inside) < sum(balls > 0 for balls in result.available.tolist()):
        return [
            f"The mean is over {listed(inside)} only, the largest set of groups with finite ratios "
            f'of ω; reference="{_suggested(result)}" makes the figures independent of the set.'
        ]
    if result.penalty is None:
        return []
    if result._without_penalty_finite:
        return []
    return [
        f"Without the {result.penalty} penalty some ω are 0, infinite or not comparable. With it "
        "they are finite and belong to the mean, so every ω differs from a fit without it; "
        f'reference="{_suggested(result)}" makes the two comparable.'
    ]


def _suggested(result: FitResult) -> str:
    """The group of the mean that was drawn most often."""
    drawn = dict(zip(result.groups, result.observed.tolist(), strict=True))
    left = dict(zip(result.groups, (result.available - result.observed).tolist(), strict=True))
    return max(result.baseline, key=lambda name: (min(drawn[name], left[name]), drawn[name]))


def _about_coefficients(result: FitResult) -> list[str]:
    escape = result.solution.escape[0].tolist()
    infinite = [name for name, step in zip(result.names, escape, strict=True) if step != 0]
    if not infinite:
        return []
    return [
        "The covariates separate the balls drawn from the balls left: no finite estimate of "
        f'{listed(infinite)}; penalty="{_remedy(result)}" gives one.'
    ]


def _remedy(result: FitResult) -> str:
    return "firth" if result.model == "fisher" else "ridge"


def _blocks(here: Sequence[int], reach: list[list[bool]]) -> list[list[int]]:
    """Groups that reach each other, in the order of their first members."""
    blocks: list[list[int]] = []
    for j in here:
        mine = next((block for block in blocks if reach[j][block[0]] and reach[block[0]][j]), None)
        if mine is None:
            blocks.append([j])
        else:
            mine.append(j)
    return blocks


# --- standard errors


def is_overdispersed(result: FitResult) -> bool:
    """Whether the rows of a single data set differ by more than chance."""
    fit = result.goodness_of_fit()
    return float(fit.p_value) < DOUBTFUL_FIT and float(fit.dispersion) > 1


def _about_errors(result: FitResult) -> list[str]:
    kind, errors, notes = result.covariance_kind, result.solution.errors, []
    if kind == "model" and is_overdispersed(result):
        notes.append(
            'Remedies for overdispersion: covariance="scaled" (all variances larger by one '
            'factor), covariance="HC1" (independent rows), cluster="COLUMN" (rows that belong '
            'together) and interval="bootstrap" (rows or clusters drawn anew).'
        )
    if kind == "cluster" and 1 < int(errors.number[0]) < FEW_CLUSTERS:
        notes.append(
            f"Cluster-robust standard errors from {int(errors.number[0])} clusters are themselves "
            "uncertain; intervals tend to be too short."
        )
    if kind != "model" and not float(errors.degrees[0]) > 0:
        notes.append(
            f"covariance {kind} has no degrees of freedom left here, so there are no standard "
            "errors; it needs more rows or clusters than parameters."
        )
    if result.bootstrap is not None and result.reference is None:
        silent = result.bootstrap.values.isnan().all(-1).sum(-1)
        number, total = int(silent[0]), result.bootstrap.values.shape[1]
        if number:
            notes.append(
                f"{number:,} of {total:,} resamples say nothing about the mean of ω, because a "
                "group was never (or always) drawn in them; "
                f'reference="{_suggested(result)}" uses more of them.'
            )
    if kind not in ("model", "scaled") and bool(result.coefficients.isinf().any()):
        notes.append(
            "The bounds of infinite estimates are those of the profile likelihood, which is not "
            "robust."
        )
    return notes
