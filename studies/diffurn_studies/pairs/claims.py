"""The paper's claims about the methods, judged by the records: its own metrics first."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from diffurn_studies.clustering.scores import correlation
from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.tables import Cell, Table
from diffurn_studies.pairs.methods import Method
from diffurn_studies.pairs.records import (
    CHOICES,
    ERRORS,
    Model,
    counts_of,
    fixed_settings,
    known,
    mean_independent,
    methods_of,
    select,
    settings_of,
    shown_shared,
)

BASELINES = ("label", "adaptive")
# ŝ follows s if it rises by at least this fraction of the rise of s.
FOLLOWS = 0.5
TITLE = "Pairs: the claims under test"
COLUMNS = ["claim", "method", "k̂ by", "at every s", "over all s", "figures by s"]


class _Claim(NamedTuple):
    """A comparison of a value with the best that any baseline has."""

    text: str
    value: str
    choice: str
    is_error: bool  # errors must be smaller, accuracies at least as large


def claims_of(models: Sequence[Model]) -> Table:
    """The table of claims: those of the paper in its own metrics, then ours."""
    factors = models[0]["factors"]
    tested = [method for method in methods_of(models) if method.kind == "hypergeometric"]
    baselines = [method for method in methods_of(models) if method.kind in BASELINES]
    rows = _compared(models, _errors("MSE(s, ŝ)", ERRORS[1]), tested, baselines)
    rows += _following(models, tested, baselines)
    accuracies = [
        _Claim(f"{part} at least the baselines'", name, "draw", False)
        for part, name in (("I", "independent_accuracy"), ("S", "shared_accuracy"))
    ]
    rows += _compared(models, accuracies, tested, baselines)
    ours = _errors(_mse(models), ERRORS[0])
    rows += _compared(models, ours, tested, baselines)
    rows = [row for row in rows if row[2] == "draw" or _has_recorded(models, str(row[2]))]
    notes = [
        "At every s: the method's mean over seeds against the best that any LabelVAE or AdaVAE of "
        "this study has at that s. Over all s: the means over the fixed s, against the one "
        "baseline with the best mean. Open (–) if figures are missing.",
        f"The first claims are in the paper's metrics. MSE({factors}−s, k̂) is ours. For a draw it "
        "cannot fall below the floor in the table of numbers.",
        f"ŝ follows s: from the smallest to the largest s its mean rises by at least {FOLLOWS:g} "
        "of the rise of s; r is the correlation of s with mean ŝ over models.",
        _papers_note(),
    ]
    if None in settings_of(models):
        notes.append(
            "In pairs: within the models of random s, by the true s of each pair; r is over pairs."
        )
    return Table(TITLE, COLUMNS, rows, notes)


def verdict_of(models: Sequence[Model]) -> list[str]:
    """The claims in the paper's metrics, and those in ours."""
    rows = claims_of(models).rows
    ours = {f"{_mse(models)} below the baselines'": {"draw": "by draws", "mode": "by the mode"}}
    papers = dict.fromkeys(
        str(row[0]) for row in rows if row[0] not in ours and "not follow" not in str(row[0])
    )

    def told(claim: str, choice: str) -> str | None:
        found = [row for row in rows if row[0] == claim and row[2] == choice]
        return _told(claim, [(row[3], row[4]) for row in found]) if found else None

    first = [told(claim, "draw") for claim in papers]
    second = [
        f"{choice} {sentence}"
        for claim, choices in ours.items()
        for name, choice in choices.items()
        if (sentence := told(claim, name))
    ]
    told_of_urns = [
        f"HGVAE {where}: {'; '.join(filter(None, sentences))}."
        for where, sentences in (("in the paper's metrics", first), ("in ours", second))
        if any(sentences)
    ]
    return told_of_urns + _told_of_partitions(models)


def _told_of_partitions(models: Sequence[Model]) -> list[str]:
    """The best DRPM-VAE beside the best of the other methods; nothing without a DRPM-VAE."""
    kinds = {
        "DRPM-VAE": ("partition",),
        "HGVAE": ("hypergeometric",),
        "a baseline": BASELINES,
    }
    found = {name: _smallest_error(models, own) for name, own in kinds.items()}
    if found["DRPM-VAE"] is None:
        return []
    told = [f"{name} {error:.2f}" for name, error in found.items() if error is not None]
    return [f"{_mse(models)} by the mode over all s, the best of each: {', '.join(told)}."]


def _smallest_error(models: Sequence[Model], kinds: Sequence[str]) -> float | None:
    """The smallest mean error over all s of a method of these kinds that has them all."""
    settings, errors = settings_of(models), []
    for method in methods_of(models):
        by_shared = [
            known(select(models, shared, method), f"{ERRORS[0]}_mode") for shared in settings
        ]
        if method.kind in kinds and all(by_shared):
            errors.append(statistics.fmean(map(statistics.fmean, by_shared)))
    return min(errors, default=None)


def _told(claim: str, verdicts: Sequence[tuple[Cell, Cell]]) -> str:
    """Whether a claim holds at every s, over all s or not at all, for each variant of a method."""
    sentence = re.sub(" (below|at least) ", r" is \1 ", claim)
    everywhere, over_all = ([own[place] is True for own in verdicts] for place in (0, 1))
    if len(verdicts) > 1 and "follows" in claim:
        return f"{sentence} for {sum(over_all)} of {len(verdicts)} variants"
    if len(verdicts) > 1:
        return (
            f"{sentence} over all s for {sum(over_all)} of {len(verdicts)} variants, "
            f"at every s for {sum(everywhere)}"
        )
    if everywhere[0]:
        return f"{sentence} at every s"
    if over_all[0]:
        return sentence if "follows" in claim else f"{sentence} over all s, not at every s"
    if None in verdicts[0][1:]:
        return f"whether {sentence} is open"
    return sentence.replace(" is ", " is not ").replace("ŝ follows", "ŝ does not follow")


def _mse(models: Sequence[Model]) -> str:
    return f"MSE({models[0]['factors']}−s, k̂)"


def _has_recorded(models: Sequence[Model], choice: str) -> bool:
    """Whether the modes or means of k̂ were recorded; early runs kept draws alone."""
    name = f"{ERRORS[0]}_{choice}"
    drawing = [model for model in models if model["method"].draws]
    return bool(known(drawing, name))


def _errors(text: str, name: str) -> list[_Claim]:
    return [
        _Claim(f"{text} below the baselines'", f"{name}_{choice}", choice, True)
        for choice in CHOICES
    ]


def _papers_note() -> str:
    """Whether HGVAE's accuracies are at least the baselines' in the paper's own table."""
    stated = paper("pairs_downstream")["by_method"]
    told = []
    for letter, part in (("I", "independent"), ("S", "shared")):
        figures = {
            shared: (own[part]["mean"], max(stated[name][shared][part]["mean"] for name in others))
            for shared, own in stated["HGVAE"].items()
            if part in own
            for others in [("LabelVAE", "AdaVAE")]
        }
        listed = ", ".join(
            f"{shared}: {mine:.2f}{'≥' if mine >= theirs else '<'}{theirs:.2f}"
            for shared, (mine, theirs) in figures.items()
        )
        told.append(f"{letter} at s = {listed}")
    return f"In the paper's own table HGVAE has {'; '.join(told)}."


def _compared(
    models: Sequence[Model],
    claims: Sequence[_Claim],
    tested: Sequence[Method],
    baselines: Sequence[Method],
) -> list[list[Cell]]:
    return [
        [claim.text, method.label, claim.choice, *_judged(models, claim, method, baselines)]
        for claim in claims
        for method in tested
    ]


def _judged(
    models: Sequence[Model], claim: _Claim, method: Method, baselines: Sequence[Method]
) -> list[Cell]:
    """Both verdicts, and the figures. A verdict is open if a figure is missing and the others do
    not refute the claim.
    """
    values = {
        each: {
            shared: known(select(models, shared, each), claim.value)
            for shared in settings_of(models)
        }
        for each in (method, *baselines)
    }
    wanted = [  # S has no value where nothing is shared, I none where everything is
        shared
        for shared in settings_of(models)
        if claim.is_error or any(own[shared] for own in values.values())
    ] or settings_of(models)
    figures: dict[str, str] = {}
    verdicts: list[bool | None] = []
    for shared in wanted:
        own = [values[each][shared] for each in (method, *baselines)]
        verdict, figure = _outcome(
            claim, [statistics.fmean(found) if found else None for found in own]
        )
        verdicts.append(verdict)
        figures[shown_shared(shared)] = figure
    fixed = [shared for shared in wanted if shared is not None] or wanted
    over_all = [
        statistics.fmean(statistics.fmean(values[each][shared]) for shared in fixed)
        if all(values[each][shared] for shared in fixed)
        else None
        for each in (method, *baselines)
    ]
    holds_over_all, figure = _outcome(claim, over_all)
    if len(fixed) > 1:
        figures["all"] = figure
    everywhere = False if False in verdicts else None if None in verdicts else True
    return [everywhere, holds_over_all, _by_shared(figures)]


def _outcome(claim: _Claim, means: Sequence[float | None]) -> tuple[bool | None, str]:
    """Verdict and figures of the method's value, the first, against the baselines'."""
    own, *others = means
    rivals = [value for value in others if value is not None]
    if own is None or not rivals or len(rivals) < len(others):
        return None, "–"
    if claim.is_error:
        holds = own < min(rivals)
        return holds, f"{own:.2f}{'<' if holds else '≥'}{min(rivals):.2f}"
    holds = own >= max(rivals)
    return holds, f"{own:.3f}{'≥' if holds else '<'}{max(rivals):.3f}"


def _by_shared(figures: Mapping[Any, str]) -> str | None:
    return (
        "s = " + ", ".join(f"{shared}: {figure}" for shared, figure in figures.items())
        if figures
        else None
    )


def _following(
    models: Sequence[Model], tested: Sequence[Method], baselines: Sequence[Method]
) -> list[list[Cell]]:
    """Whether ŝ follows s over the data sets, and within the models of random s."""
    rows: list[list[Cell]] = []
    judges = {"": _followed}
    if None in settings_of(models):
        judges[" in pairs"] = _followed_in_pairs
    for where, judge in judges.items():
        for text, methods, expected in (
            (f"ŝ does not follow s{where}", baselines, False),
            (f"ŝ follows s{where}", tested, True),
        ):
            for method in methods:
                follows, figures = judge(models, method)
                holds = None if follows is None else follows is expected
                rows.append([text, method.label, "draw", None, holds, figures])
    return rows


def _followed(models: Sequence[Model], method: Method) -> tuple[bool | None, str | None]:
    """Whether mean ŝ follows s over the data sets."""
    own = [
        model
        for model in models
        if model["method"] == method and model["shared"] is not None and model["final"] is not None
    ]
    means = {
        shared: statistics.fmean(known(select(own, shared), "estimate"))
        for shared in fixed_settings(own)
    }
    shared = torch.tensor([float(model["shared"]) for model in own])
    return _rise(means, correlation(shared, torch.tensor(known(own, "estimate"))))


def _followed_in_pairs(models: Sequence[Model], method: Method) -> tuple[bool | None, str | None]:
    """Whether ŝ follows s within the models of random s."""
    counts = counts_of(select(models, None, method))
    means = {
        shared: len(numbers) - 1 - mean_independent(numbers) for shared, numbers in counts.items()
    }
    return _rise(means, _correlation_over_pairs(counts))


def _correlation_over_pairs(counts: Mapping[int, Sequence[int]]) -> float:
    """The correlation of s and ŝ = d − k̂."""
    cells = [
        (shared, -number, times)
        for shared, numbers in counts.items()
        for number, times in enumerate(numbers)
    ]
    shared, estimate, times = torch.tensor(cells, dtype=torch.float64).reshape(-1, 3).T
    return correlation(*(values.repeat_interleave(times.long()) for values in (shared, estimate)))


def _rise(means: Mapping[int, float], r: float) -> tuple[bool | None, str | None]:
    figures = _by_shared({shared: f"{mean:.2f}" for shared, mean in means.items()})
    if len(means) < 2:
        return None, figures
    least, largest = min(means), max(means)
    rise = means[largest] - means[least]
    follows = rise >= FOLLOWS * (largest - least)
    return follows, f"{figures}; rises by {rise:.2f} of {largest - least}, r = {r:.2f}"
