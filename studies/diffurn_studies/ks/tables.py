"""The tables of the Kolmogorov-Smirnov study."""

from __future__ import annotations

import numpy as np

from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.ks.comparisons import COMPARISONS, LEVEL
from diffurn_studies.ks.figure import PARTS, of_part


def tables_of(results: Results) -> list[Table]:
    """All tables of the study."""
    return [
        _rejections(results),
        *(_part(results, part, *heading) for part, heading in PARTS.items()),
        _remark(results),
        _levels(results),
    ]


def verdict_of(results: Results) -> list[str]:
    """The paper's test, and the tests against Fisher's law."""
    papers, exact, merged = _rejections(results).rows
    _, tests, _, _, rejected, *_ = papers
    return [
        "The paper's test, in which the reference merges groups as the sampler does, rejects "
        f"{rejected} of {tests} comparisons; the paper reports 0 of 30.",
        f"Against Fisher's law, {merged[4]} of {tests} tests reject the merged chain and "
        f"{exact[4]} the exact sampler, where {exact[5]} are expected by chance.",
    ]


def _rejections(results: Results) -> Table:
    """Rejections of the main study, and the numbers to expect by chance."""
    main, level = of_part(results, "weight"), of_part(results, "level")
    stated = paper("ks")
    names = {
        "paper": "merged chain against SciPy, merged alike (the paper's test)",
        "exact": "exact sampler against Fisher's law",
        "merged": "merged chain against Fisher's law",
    }
    rows = []
    for comparison in COMPARISONS:
        rejected = {
            kind: sum(p <= LEVEL for record in main for p in record[comparison][kind])
            for kind in ("p_values", "corrected")
        }
        null = "paper" if comparison == "paper" else "exact"
        chance = {
            kind: sum(float(np.mean(record[null][kind])) for record in level)
            for kind in ("p_values", "corrected")
        }
        if comparison != "paper":
            chance["p_values"] = sum(sum(record["levels"]) for record in main)
        theirs = (
            stated["rejected_after_correction"]
            if comparison == "paper" and len(main) * 3 == stated["tests"]
            else None
        )
        difference = None if theirs is None else rejected["corrected"] - theirs
        row = [
            rejected["p_values"],
            f"{chance['p_values']:.2f}",
            rejected["corrected"],
            f"{chance['corrected']:.2f}",
            theirs,
            difference,
        ]
        rows.append([names[comparison], 3 * len(main), *row])
    columns = [
        "comparison",
        "tests",
        "rejected at 5 %",
        "expected",
        "rejected, corrected",
        "expected, corrected",
        "paper",
        "difference",
    ]
    notes = [
        f"{results.options.samples:,} draws per urn; m = (200, 200, 200), n = 180, ω = (1, ω₂, 1). "
        "Corrected: by Benjamini and Hochberg "
        "over the three groups of an urn, as in the paper. Expected: if the two laws compared were "
        "the same.",
        "The expected rejections by plain p-values against Fisher's law are exact; the others were "
        "measured with samples of equal laws, "
        f"{results.options.level_seeds} per urn. The two-sample test takes whole counts for "
        "continuous ones, so it rejects less often than "
        "it says.",
        "The paper's 30 of 30 compares the chain of merged groups with a reference that merges "
        "groups as well. It shows that the chain is "
        "implemented as intended, not that it draws from Fisher's law.",
    ]
    return Table("Kolmogorov-Smirnov tests, ω₂ varied", columns, rows, notes)


def _part(results: Results, part: str, symbol: str, urn: str) -> Table:
    rows: list[list[str | float]] = []
    for record in of_part(results, part):
        row: list[str | float] = [f"{record['value']:g}"]
        for comparison in COMPARISONS:
            row += [
                f"{max(record[comparison]['distances']):.4f}",
                _probability(min(record[comparison]["corrected"])),
            ]
        row += [" / ".join(f"{distance:.3f}" for distance in record["laws_apart"])]
        row += [" / ".join(f"{record['means'][law][0]:.1f}" for law in ("exact", "merged"))]
        rows.append(row)
    columns = [symbol]
    for name in ("paper's test", "exact sampler", "merged chain"):
        columns += [f"{name}: distance", f"{name}: p"]
    columns += ["laws apart, groups 1 / 2 / 3", "mean of group 1: Fisher / merged"]
    notes = [
        f"{urn} Distance: the largest of the three groups. p: the smallest of the three after "
        "correction. Laws apart: max |F - G| "
        "between Fisher's law and the chain's, computed without any draws.",
    ]
    if part != "weight":
        notes.append(f"The paper shows its values of {symbol} in a plot only; these are ours.")
    return Table(f"Kolmogorov-Smirnov distances, {symbol} varied", columns, rows, notes)


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 5e-4 else "< 0.001"


def _remark(results: Results) -> Table:
    rows = []
    for record in of_part(results, "weight"):
        remark = record["remark"]
        row = [
            f"{value:.2g}" if value > 1e-12 else "0"
            for pair in zip(remark["divergence"], remark["total_variation"], strict=True)
            for value in pair
        ]
        rows.append(
            [
                f"{record['value']:g}",
                *row,
                "1, " + ", ".join(f"{weight:.3f}" for weight in remark["weights"][1:]),
            ]
        )
    columns = [
        "ω₂",
        "KL at ω",
        "total variation at ω",
        "smallest KL",
        "total variation there",
        "ω̃ that attains it",
    ]
    notes = [
        "KL(Fisher(ω) ‖ merged chain(ω̃)) in nats, summed over all outcomes. Smallest over ω̃, "
        "which Newton's method finds.",
        "The paper says that a different ω makes up for the merge. It nearly does, as far as the "
        "law of the draws goes; but that ω̃ is not "
        "the urn's ω, and groups 1 and 3, equal in the urn, get different weights: they depend on "
        "the order in which groups are drawn.",
    ]
    return Table("Can a different ω make up for the merge?", columns, rows, notes)


def _levels(results: Results) -> Table:
    rows: list[list[str | int]] = []
    for record in of_part(results, "level"):
        row: list[str | int] = [f"{record['value']:g}", 3 * record["seeds"]]
        expected = record["seeds"] * sum(record["levels"])
        plain = np.array(record["exact"]["p_values"])
        # The three counts of an urn sum to n, so its three tests are not independent: the error
        # comes from whole repetitions.
        error = float(plain.std(ddof=1) * np.sqrt(len(plain)))
        row += [int(plain.sum()), f"{expected:.1f}", f"{error:.1f}"]
        row += [sum(found > 0 for found in record["exact"]["corrected"])]
        row += [
            sum(record["paper"]["p_values"]),
            sum(found > 0 for found in record["paper"]["corrected"]),
        ]
        rows.append(row)
    columns = [
        "ω₂",
        "tests",
        "exact sampler: rejected",
        "expected",
        "± error",
        "exact sampler: urns, corrected",
    ]
    columns += ["paper's test: rejected", "paper's test: urns, corrected"]
    notes = [
        f"{results.options.level_seeds} repetitions of {results.options.samples:,} draws, tests at "
        "5 %; an urn is rejected if any of its "
        "three corrected p-values is. Expected: from the exact probability of rejecting by chance, "
        "just below 5 % for a discrete law.",
        "Paper's test: two samples of the merged chain's own law, drawn as multinomial counts of "
        "all outcomes.",
    ]
    return Table("How often true nulls are rejected", columns, rows, notes)
