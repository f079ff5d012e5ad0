"""The tables of the study of subsets."""

from __future__ import annotations

import math
from typing import Any

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Cell, Table, mean_and_deviation
from diffurn_studies.subsets.contenders import CONTENDERS
from diffurn_studies.subsets.toy import SIZES

SPEED = "speed"
LAW_NAMES = {"fisher": "Fisher's", "wallenius": "Wallenius'", None: None}
# A bias of this many standard errors, or a mean score, is zero.
ERRORS = 3.0
# Errors of gradients that differ by at most this share are even.
_TIE = 0.03


def tables_of(results: Results) -> list[Table]:
    """All tables of the study."""
    return [
        claims(results),
        draws(results),
        *gradients(results),
        best(results),
        each_seed(results),
        times(results),
    ]


def verdict_of(results: Results) -> list[str]:
    """Whether the layer keeps its promises, whether the released codes do, and who is best."""
    told = []
    found = {row[0]: row for row in claims(results).rows}
    ours = [row for claim, row in found.items() if ":" not in str(claim)]
    if ours:
        kept = "; ".join(f"{row[0]}: {row[1]} (off on {row[2]})" for row in ours)
        told.append(f"Ours: {kept}.")
    for name in ("simple-code", "sfess-code"):
        words = CONTENDERS[name].words
        theirs = [row for claim, row in found.items() if str(claim).startswith(f"{words}: ")]
        if theirs:
            missed = "; ".join(f"{str(row[0]).split(': ')[1]}: {row[1]}" for row in theirs)
            told.append(f"{words}: {missed}.")
    judged = [row[-1] for row in best(results).rows if row[-1] is not None]
    if judged:
        told.append(
            f"Of one gradient from {results.options.samples} draws, an estimator of ours has the "
            f"smallest error for {judged.count('yes')} of {len(judged)} losses; "
            f"{judged.count('even')} are even."
        )
    return told


def seeds_of(results: Results) -> list[dict[str, Any]]:
    return [record for unit, record in results.records.items() if unit != SPEED]


def law_of(name: str) -> str:
    """The law whose gradient a contender estimates: that of its probabilities or of its draws. Of
    a relaxation without either, Fisher's is taken.
    """
    return CONTENDERS[name].scored or CONTENDERS[name].drawn or "fisher"


def in_errors(found: dict[str, float], value: str) -> float:
    """A length divided by the length that chance gives it."""
    return found[value] / found["noise"]


def bias_of(record: dict[str, Any], size: str, name: str, loss: str) -> dict[str, float]:
    found: dict[str, float] = record[size][name]["gradients"][loss][law_of(name)]
    return found


def losses_of(results: Results, size: str) -> list[str]:
    return list(next(iter(seeds_of(results)[0][size].values()))["gradients"])


# Claims.


def claims(results: Results) -> Table:
    """What the layer promises, and whether the field's contenders keep it on the same problems."""
    own = [name for name in results.options.contenders if CONTENDERS[name].ours]
    found = {
        "draws follow the law that is scored": [_far_draws(results, name) for name in own],
        "the mean score of the draws is zero": [_far_scores(results, name) for name in own],
        "unbiased estimators have no bias": [
            _biased(results, name) for name in own if CONTENDERS[name].unbiased
        ],
    }
    for name in ("simple-code", "sfess-code"):
        if name in results.options.contenders:
            words = CONTENDERS[name].words
            found[f"{words}: draws follow the law scored"] = [_far_draws(results, name)]
            found[f"{words}: its mean score is zero"] = [_far_scores(results, name)]
            found[f"{words}: has no bias"] = [_biased(results, name)]
    rows = [_claim(claim, each) for claim, each in found.items() if each]
    notes = [
        "Draws: the total variation to the law is at most what chance gives it, and five standard "
        "deviations more. Scores and gradients: the length of the mean is at most "
        f"{ERRORS:g} times the length that chance gives it. All seeds and problems count.",
    ]
    return Table("Subsets: claims", ["claim", "verdict", "problems that fail"], rows, notes)


def _claim(claim: str, found: list[tuple[int, int]]) -> list[Cell]:
    failed, all_of_them = (sum(column) for column in zip(*found, strict=True))
    return [claim, _yes(not failed), f"{failed} of {all_of_them}"]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _far_draws(results: Results, name: str) -> tuple[int, int]:
    """How many problems, of how many, have draws that differ from the law that is scored."""
    spread, law = 5 / math.sqrt(4 * results.options.draws), CONTENDERS[name].scored
    found = [
        record[size.name][name]["draws"][law]
        for record in seeds_of(results)
        for size in SIZES
        if size.is_small
    ]
    return sum(each["variation"] > each["noise"] + spread for each in found), len(found)


def _far_scores(results: Results, name: str) -> tuple[int, int]:
    found = [
        record[size.name][name]["draws"]["score"] for record in seeds_of(results) for size in SIZES
    ]
    return sum(in_errors(each, "length") > ERRORS for each in found), len(found)


def _biased(results: Results, name: str) -> tuple[int, int]:
    found = [
        bias_of(record, size.name, name, loss)
        for record in seeds_of(results)
        for size in SIZES
        for loss in losses_of(results, size.name)
    ]
    return sum(in_errors(each, "bias") > ERRORS for each in found), len(found)


# Draws and scores.


def draws(results: Results) -> Table:
    columns = ["contender", "draws from", "scores"]
    columns += [f"TV to the law, {size.name}" for size in SIZES if size.is_small]
    columns += [f"mean score, {size.name}" for size in SIZES]
    columns += [f"k items, {SIZES[-1].name}"]
    rows = [_draws_row(results, name) for name in results.options.contenders]
    noise = [
        f"{_mean([_any(record, size.name)['fisher']['noise'] for record in seeds_of(results)]):.4f}"
        for size in SIZES
        if size.is_small
    ]
    notes = [
        "TV: total variation of the draws to the law that is scored, or to the law that the draws "
        f"should have; mean ± deviation over seeds. Chance gives {' and '.join(noise)}.",
        "Mean score: length of the mean of ∇ log P over the draws, divided by the length that "
        "chance gives it, so about 1 where the mean is zero; mean over seeds. A contender without "
        "probabilities has none.",
        "k items: share of hard draws with k different items.",
    ]
    return Table("Subsets: draws and scores", columns, rows, notes)


def _draws_row(results: Results, name: str) -> list[Cell]:
    contender, law = CONTENDERS[name], CONTENDERS[name].scored or CONTENDERS[name].drawn
    found = {
        size: [record[size.name][name]["draws"] for record in seeds_of(results)] for size in SIZES
    }
    variations = [
        None
        if law is None
        else mean_and_deviation([each[law]["variation"] for each in found[size]], 4)
        for size in SIZES
        if size.is_small
    ]
    scores = [
        None
        if contender.scored is None
        else f"{_mean([in_errors(each['score'], 'length') for each in found[size]]):.2f}"
        for size in SIZES
    ]
    whole = f"{100 * _mean([each['whole'] for each in found[SIZES[-1]]]):.0f} %"
    names = [LAW_NAMES[contender.drawn], LAW_NAMES[contender.scored]]
    return [contender.words, *names, *variations, *scores, whole]


def _any(record: dict[str, Any], size: str) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(record[size].values()))["draws"]
    return found


# Gradients.


def gradients(results: Results) -> list[Table]:
    """Bias and spread by loss, a table for each size."""
    return [_gradients(results, size.name) for size in SIZES]


def _gradients(results: Results, size: str) -> Table:
    losses = losses_of(results, size)
    columns = ["contender"]
    columns += [f"{what}, {loss}" for loss in losses for what in ("bias", "spread")]
    rows: list[list[Cell]] = []
    for name in results.options.contenders:
        row: list[Cell] = [CONTENDERS[name].words]
        for loss in losses:
            found = [bias_of(record, size, name, loss) for record in seeds_of(results)]
            bias, noise = (_mean([each[value] for each in found]) for value in ("bias", "noise"))
            zero = all(in_errors(each, "bias") <= ERRORS for each in found)
            row += [f"< {bias + ERRORS * noise:.2g}" if zero else f"{bias:.3f}"]
            row += [f"{_mean([each['spread'] for each in found]):.2f}"]
        rows.append(row)
    notes = [
        f"Relative to the length of the exact gradient; means over {results.options.seeds} seeds. "
        f"Spread: standard deviation of one gradient from {results.options.samples} draws. A bias "
        f"within {ERRORS:g} standard errors of zero in every seed is given as a bound.",
        "SFESS's code takes the mean of all samples as their baseline. This alone shortens the "
        f"gradient by 1/{results.options.samples}.",
        "The exact gradient is that of the law whose probabilities the contender has, else of the "
        "law of its draws; for L2X, which has neither, of Fisher's law.",
    ]
    return Table(f"Subsets: gradients for {size}", columns, rows, notes)


def best(results: Results) -> Table:
    """Who estimates a gradient best from one set of draws, by loss."""
    rows: list[list[Cell]] = []
    for size in SIZES:
        for loss in losses_of(results, size.name):
            errors = {
                name: _mean(
                    [
                        math.hypot(found["bias"], found["spread"])
                        for found in (
                            bias_of(record, size.name, name, loss) for record in seeds_of(results)
                        )
                    ]
                )
                for name in results.options.contenders
            }
            row: list[Cell] = [size.name, loss]
            least = []
            for ours in (False, True):
                some = [name for name in errors if CONTENDERS[name].ours == ours]
                winner = min(some, key=errors.__getitem__, default=None)
                row += [None, None]
                if winner is not None:
                    row[-2:] = [CONTENDERS[winner].words, f"{errors[winner]:.2f}"]
                    least.append(errors[winner])
            rows.append([*row, _verdict(*least) if len(least) == 2 else None])
    columns = ["size", "loss", "best of the field", "error", "best of ours", "error of ours"]
    notes = [
        "Error: √(bias² + spread²) of one gradient, relative to the exact gradient. A gradient of "
        "zero has the error 1. With few draws a little bias often costs less than much spread; "
        "the unbiased estimators are best if many gradients are averaged. Errors within "
        f"{100 * _TIE:g} % of each other are even.",
    ]
    return Table("Subsets: best contender", [*columns, "ours is best"], rows, notes)


def _verdict(theirs: float, ours: float) -> str:
    if max(theirs, ours) <= (1 + _TIE) * min(theirs, ours):
        return "even"
    return _yes(ours < theirs)


def each_seed(results: Results) -> Table:
    """The bias of every contender, problem and seed, in standard errors."""
    rows: list[list[Cell]] = [
        [
            CONTENDERS[name].words,
            size.name,
            loss,
            *(
                f"{bias_of(record, size.name, name, loss)['bias']:.3f} "
                f"({in_errors(bias_of(record, size.name, name, loss), 'bias'):.1f})"
                for record in seeds_of(results)
            ),
        ]
        for name in results.options.contenders
        for size in SIZES
        for loss in losses_of(results, size.name)
    ]
    columns = ["contender", "size", "loss", *(f"seed {s}" for s in range(results.options.seeds))]
    notes = ["Relative bias, and in brackets how many times as long as chance alone makes it."]
    return Table("Subsets: bias of every seed", columns, rows, notes)


def times(results: Results) -> Table:
    found = results.records[SPEED]["milliseconds"]
    rows: list[list[Cell]] = [
        [CONTENDERS[name].words, *(f"{found[size.name][name]:.2f}" for size in SIZES)]
        for name in results.options.contenders
    ]
    notes = [
        f"Draws, loss and gradient for {results.options.timed_rows} rows of logits, "
        f"{results.options.samples} draws each, in float32, not compiled; the shortest of seven "
        "steps.",
    ]
    columns = ["contender", *(f"ms, {size.name}" for size in SIZES)]
    return Table("Subsets: time of a step", columns, rows, notes)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
