"""In words: what the counts leave open."""

from __future__ import annotations

from collections.abc import Sequence

from diffurn.inference.solution import Solution


def notes_on(solution: Solution, groups: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Sentences about a single data set: groups without balls, separated groups, coefficients at
    infinity, a fit that did not end.
    """
    notes = (
        []
        if bool(solution.optimum.converged.all())
        else ["Newton's method did not converge; do not trust these figures."]
    )
    if solution.blocks is None:
        return notes + _about_coefficients(solution, names)
    sample = solution.objective.sample
    absent = sample.absent[0].tolist()
    notes += [
        f"{name} has no ball in any row: its weight cannot be estimated."
        for name, gone in zip(groups, absent, strict=True)
        if gone
    ]
    reach = solution.blocks.reach[0].tolist()
    here = [j for j in range(len(groups)) if not absent[j]]
    blocks = _blocks(here, reach)
    if len(blocks) == 1:
        return notes
    taken, available = sample.totals
    drawn, left = taken[0].tolist(), (available - taken)[0].tolist()
    for block in blocks:
        listed = _listed([groups[j] for j in block])
        above = [k for k in here if k not in block and reach[k][block[0]]]
        below = [k for k in here if k not in block and reach[block[0]][k]]
        after = [
            groups[k] for k in above if left[k] > 0
        ]  # of a group that was always drawn this goes without saying
        if all(drawn[j] == 0 for j in block):
            notes.append(f"{listed} was never drawn: its weight has no bound from below.")
        elif all(left[j] == 0 for j in block):
            notes.append(f"{listed} was always drawn: its weight has no bound from above.")
        elif after:
            notes.append(f"{listed}: drawn only after all of {_listed(after)} had been.")
        elif not above and not below:
            notes.append(
                f"{listed}: never in competition with the other groups, so not comparable with "
                "them."
            )
    if any(not reach[a[0]][b[0]] and not reach[b[0]][a[0]] for a in blocks for b in blocks):
        notes.append("Ratios of weights shown as nan are not determined by these counts.")
    if any(reach[a[0]][b[0]] != reach[b[0]][a[0]] for a in blocks for b in blocks):
        notes.append(f'penalty="{_remedy(solution)}" gives finite estimates.')
    return notes


def _about_coefficients(solution: Solution, names: tuple[str, ...]) -> list[str]:
    infinite = [
        name for name, step in zip(names, solution.escape[0].tolist(), strict=True) if step != 0
    ]
    if not infinite:
        return []
    remedy = f'penalty="{_remedy(solution)}" gives one'
    return [
        "The covariates separate what was drawn from what was left: no finite estimate of "
        f"{_listed(infinite)}; {remedy}."
    ]


def _remedy(solution: Solution) -> str:
    return "firth" if solution.objective.law.name == "fisher" else "ridge"


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


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
