"""Writes the table of results in docs/results.md, and the short one in README.md, from
`results/*/tables.json`. Run by `make glance`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?<=<!-- made by make glance -->\n).*?(?=<!-- end -->)", re.DOTALL)
Row = dict[str, Any]


def rows(study: str, title: str) -> list[Row]:
    """The rows of a study's table, by the names of the columns; of two columns with the same name,
    the first counts.
    """
    content = json.loads((ROOT / "results" / study / "tables.json").read_text(encoding="utf-8"))
    table = next(table for table in content["tables"] if table["title"] == title)
    return [dict(reversed(list(zip(table["columns"], row, strict=True)))) for row in table["rows"]]


def only(found: list[Row], **wanted: str) -> Row:
    """The one row whose columns begin with these texts."""
    (row,) = [
        row
        for row in found
        if all(str(row[name]).startswith(text) for name, text in wanted.items())
    ]
    return row


def ks() -> tuple[str, str]:
    tests = rows("ks", "Kolmogorov-Smirnov tests, ω₂ varied")
    paper, exact, merged = (
        only(tests, comparison=text)
        for text in ("merged chain against SciPy", "exact", "merged chain against Fisher")
    )
    best = only(rows("ks", "Can a different ω make up for the merge?"), **{"ω₂": "10"})
    theirs = (
        f"{paper['tests']} tests against a reference merged in the same way: {paper['paper']} "
        "rejected; "
        "a different ω makes up for the merge"
    )
    ours = (
        f"{paper['rejected, corrected']} rejected; against Fisher's law itself "
        f"{merged['rejected, corrected']} of {merged['tests']}, "
        f"of the exact sampler {exact['rejected, corrected']} ({exact['expected, corrected']} "
        "expected). "
        f"At ω₂ = 10 it does, to {best['smallest KL']} nats, with ω = "
        f"({best['ω̃ that attains it']})"
    )
    return theirs, ours


def minimal() -> tuple[str, str]:
    ends = [
        row
        for row in rows("minimal", "Minimal example: where training ends")
        if row["data"] == "Fisher's law"
    ]
    errors = [f"{row['largest error']} ({row['gradient']})" for row in ends]
    return (
        "ω is learnt; shown as plots",
        f"largest error of log ω₂ on data of Fisher's law: {', '.join(errors)}",
    )


def categorical() -> tuple[str, str]:
    ways = rows("categorical", "Unconstrained categoricals in place of an urn")
    parallel, sequence, urn = (
        only(ways, way=text)
        for text in (
            "three categoricals in parallel",
            "three categoricals in seq",
            "the urn, exact",
        )
    )
    broken = [
        f"{row['invalid among draws']} {where}"
        for row, where in (
            (parallel, "in parallel"),
            (sequence, "in sequence"),
            (urn, "of the urn"),
        )
    ]
    return (
        "categoricals in place of an urn break Σx = n; argued, not measured",
        f"draws that break it after training: {', '.join(broken)}",
    )


def pairs(folder: str, method: str) -> str:
    """Which of the paper's claims about HGVAE hold in a folder of results, for one method."""
    claims = [
        row for row in rows(folder, "Pairs: the claims under test") if row["method"] == method
    ]
    return "; ".join(f"{row['claim']}: {'yes' if row['holds?'] else 'no'}" for row in claims)


def clustering(folder: str) -> tuple[str, str]:
    path = ROOT / "studies" / "diffurn_studies" / "harness" / "paper.json"
    paper = json.loads(path.read_text(encoding="utf-8"))
    versions, priors = (
        paper["clustering"]["by_dataset"],
        ("uniform", "categorical", "hypergeometric"),
    )
    stated = {
        prior: [f"{version['accuracy'][prior]['mean']:.1f}" for version in versions.values()]
        for prior in priors
    }
    found = rows(folder, "Clustering: three priors over the assignments")
    trained = dict.fromkeys(row["prior"] for row in found)
    ours = {
        prior: [
            only(found, data=version, prior=prior)["accuracy (%)"].split(" ±")[0]
            for version in versions
        ]
        for prior in trained
    }
    theirs, here = (
        ", ".join(f"{' '.join(values)} ({prior})" for prior, values in each.items())
        for each in (stated, ours)
    )
    return f"accuracy in % on the three versions of the data: {theirs}", here


BEST = "HGVAE (covariance, log1p, once, lr 1e-3, detached)"
# Folder of `results` and method of each row about pairs.
PAIRS = {
    "pairs, arm scenes, the paper's settings": ("pairs", "HGVAE"),
    "pairs, arm scenes, the best settings found": ("pairs-best", BEST),
    "pairs, Sprites, the same settings": ("pairs-sprites", BEST),
}


# Of clustering: the folder of `results`, and the arm of its command.
CLUSTERING = {
    "clustering by counts, VaDE's autoencoder": ("clustering-counts", "counts"),
    "clustering by assignments, VaDE's autoencoder": ("clustering", "assignments"),
    "clustering by assignments, our own autoencoders": ("clustering-own", "own"),
    "clustering by assignments, the best settings found": ("clustering-beyond", "beyond"),
}


def lines() -> Iterator[tuple[str, str, str, str]]:
    """Study, the paper's result, the result here, command."""
    yield "Kolmogorov-Smirnov", *ks(), "ks"
    yield "minimal example", *minimal(), "minimal"
    yield "categoricals", *categorical(), "categorical"
    for name, place in PAIRS.items():
        yield (
            name,
            "HGVAE finds how many factors two pictures share, better than LabelVAE and AdaVAE",
            pairs(*place),
            "pairs",
        )
    for name, (folder, arm) in CLUSTERING.items():
        yield name, *clustering(folder), f"clustering --arm {arm}"


def table() -> str:
    head = "| study | in the paper | here | command |\n|---|---|---|---|\n"
    return (
        f"\n{head}"
        + "".join(
            f"| {name} | {paper} | {here} | `diffurn reproduce {command}` |\n"
            for name, paper, here, command in lines()
        )
        + "\n"
    )


def summary() -> str:
    """The README's table: one row for each study, in a few words."""
    tests = rows("ks", "Kolmogorov-Smirnov tests, ω₂ varied")
    paper, merged = (
        only(tests, comparison=text)
        for text in ("merged chain against SciPy", "merged chain against Fisher")
    )
    errors = [
        row["largest error"]
        for row in rows("minimal", "Minimal example: where training ends")
        if row["data"] == "Fisher's law"
    ]
    ways = rows("categorical", "Unconstrained categoricals in place of an urn")
    categorical, urn = (
        only(ways, way=text)["invalid among draws"]
        for text in ("three categoricals in parallel", "the urn, exact")
    )
    claims = rows("pairs-best", "Pairs: the claims under test")
    held = sum(bool(row["holds?"]) for row in claims if row["method"] == BEST)
    asked = sum(row["method"] == BEST for row in claims)
    found = rows("clustering-counts", "Clustering: three priors over the assignments")
    ours, theirs = (
        " / ".join(row[name].split(" ±")[0] for row in found) for name in ("accuracy (%)", "paper")
    )
    lines = [
        (
            "ks",
            f"{paper['paper']} of {paper['tests']} tests rejected",
            f"{paper['rejected, corrected']}; against Fisher's distribution "
            f"{merged['rejected, corrected']}",
        ),
        ("minimal", "learns ω", f"error of log ω: {errors[0]}; with the paper's chain {errors[2]}"),
        ("categorical", "not measured", f"invalid draws: {categorical}; of an urn {urn}"),
        ("pairs", "ahead of baselines", f"{held} of {asked} claims hold, with better settings"),
        ("clustering", f"accuracy {theirs} %", f"{ours} %"),
    ]
    head = "| `diffurn reproduce` | the paper | here |\n|---|---|---|\n"
    return f"\n{head}" + "".join(f"| `{name}` | {a} | {b} |\n" for name, a, b in lines) + "\n"


TABLES = {ROOT / "README.md": summary, ROOT / "docs" / "results.md": table}


def main() -> None:
    for path, made in TABLES.items():
        text = path.read_text(encoding="utf-8")
        path.write_text(BLOCK.sub(lambda _, made=made: made(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
