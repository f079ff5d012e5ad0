"""Writes the paper's claims with verdicts into the pages of the site and results/, from
`results/*/tables.json`. Run by `make glance`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?<=<!-- made by make glance -->\n).*?(?=<!-- end -->)", re.DOTALL)
TRAINED = "Minimal example: where training ends"
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


BEST = "HGVAE (covariance, log1p, once, lr 1e-3, detached"
# The runs of pairs that the claims are about: folder of `results`, and method.
PAPERS, BETTER, WHOLE, SPRITES = (
    "paper's settings",
    "best settings",
    "best, KL of k̂, s = 1, 3, 5",
    "best, Sprites",
)
PAIRS = {
    PAPERS: ("pairs", "HGVAE"),
    BETTER: ("pairs-best", f"{BEST})"),
    WHOLE: ("pairs-kl-random", f"{BEST}, log ω₀ -6)"),
    SPRITES: ("pairs-sprites", f"{BEST})"),
}
FOLLOWS, ESTIMATE = "ŝ follows s", "MSE(s, ŝ) below the baselines'"
INDEPENDENT, SHARED = "I at least the baselines'", "S at least the baselines'"
OURS = "MSE(7−s, k̂) below the baselines'"


def judged(run: str, claim: str, choice: str = "draw") -> Row | None:
    """The row of a claim about pairs; None if the run has not recorded this choice of k̂."""
    folder, method = PAIRS[run]
    found = rows(folder, "Pairs: the claims under test")
    wanted = (claim, method, choice)
    return next(
        (row for row in found if (row["claim"], row["method"], row["k̂ by"]) == wanted), None
    )


def spelled(holds: bool | None) -> str:
    return "open" if holds is None else "yes" if holds else "no"


def over_all(row: Row | None) -> str:
    """The figures over all s, such as 7.01 < 43.20."""
    assert row is not None
    figures = row["figures by s"].rpartition(": ")[2]
    return re.sub(r"[<≥]", lambda sign: f" {sign[0]} ", figures)


def outcome(row: Row | None) -> str:
    """A cell of the table of claims by run."""
    if row is None:
        return "not recorded"
    if row["claim"] == FOLLOWS:
        rise = row["figures by s"].partition("rises by ")[2].partition(",")[0]
        return f"{spelled(row['over all s'])} (rises by {rise})"
    where = "at every s" if row["at every s"] else "over all s" if row["over all s"] else "no"
    return f"{where} ({over_all(row)})"


def by_run() -> str:
    """The claims about HGVAE, a column for each run."""
    claims = [(claim, "draw") for claim in (ESTIMATE, FOLLOWS, INDEPENDENT, SHARED, OURS)]
    claims.append((OURS, "mode"))
    head = ["HGVAE", *PAIRS]
    told = [
        [f"{claim}, by {choice}" if claim == OURS else claim]
        + [outcome(judged(run, claim, choice)) for run in PAIRS]
        for claim, choice in claims
    ]
    table = [head, ["---"] * len(head), *told]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in table) + "\n"


def pairs(claim: str) -> str:
    """In how many runs a claim about pairs holds."""
    found = [row for run in PAIRS if (row := judged(run, claim))]
    if claim == FOLLOWS:
        return f"in {sum(row['over all s'] for row in found)} of {len(found)} runs"
    return (
        f"over all s in {sum(row['over all s'] for row in found)} of {len(found)} runs, at every s "
        f"in {sum(bool(row['at every s']) for row in found)}"
    )


def baselines() -> str:
    """Whether ŝ of the baselines is the same for all s, in all runs."""
    found = [
        row
        for folder, _ in PAIRS.values()
        for row in rows(folder, "Pairs: the claims under test")
        if row["claim"] == "ŝ does not follow s"
    ]
    rises = [
        float(row["figures by s"].partition("rises by ")[2].partition(" of")[0]) for row in found
    ]
    holds = all(row["over all s"] for row in found)
    return (
        f"{spelled(holds)}: from the smallest to the largest s it rises by at most {max(rises):.1f}"
    )


def accuracies(folder: str, prior: str) -> dict[str, list[float]]:
    """The accuracies of all seeds, by the version of the data."""
    found = [row for row in rows(folder, "Clustering: every run") if row["prior"] == prior]
    return {
        version: [float(row["accuracy (%)"]) for row in found if row["data"] == version]
        for version in dict.fromkeys(row["data"] for row in found)
    }


def ahead(own: dict[str, list[float]], rival: dict[str, list[float]]) -> str:
    """Whether all means are ahead, and the differences on the versions."""
    means = [
        sum(own[version]) / len(own[version]) - sum(values) / len(values)
        for version, values in rival.items()
    ]
    listed = ", ".join(f"{mean:+.1f}".replace("-", "−") for mean in means)
    return f"{spelled(min(means) > 0)}: {listed} points"


def against(prior: str, versions: slice = slice(None)) -> tuple[str, str]:
    """The hypergeometric prior against another one: by the law of counts, and of assignments."""
    everywhere = accuracies("clustering", prior)
    rival = {version: everywhere[version] for version in list(everywhere)[versions]}
    return tuple(
        f"by {law}, {ahead(accuracies(folder, 'hypergeometric'), rival)}"
        for law, folder in (("counts", "clustering-counts"), ("assignments", "clustering"))
    )


def weights() -> str:
    """The share of the reduced digits that the learned prior expects, beside the true one."""
    found = rows("clustering-counts", "Clustering: the claim under test")
    told = []
    for row in found[1:]:
        name = "reduced classes (%)" if "reduced classes (%)" in row else "digits 0 to 4 (%)"
        expected = sum(map(float, row["their mean/n (%)"].split())) / 5
        told.append(f"{row['data']}: {row[name]} % of the data, the prior expects {expected:.1f} %")
    return f"in part; of the reduced digits, {'; '.join(told)}"


def verdicts() -> dict[str, tuple[str, str]]:
    """Each claim of the paper by its metric, and by ours."""
    tests = rows("ks", "Kolmogorov-Smirnov tests, ω₂ varied")
    papers, exact, merged = (
        only(tests, comparison=text)
        for text in ("merged chain against SciPy", "exact", "merged chain against Fisher")
    )
    remark = only(rows("ks", "Can a different ω make up for the merge?"), **{"ω₂": "10"})
    own, released = (
        {(row["data"], row["gradient"]): row["largest error"] for row in rows(folder, TRAINED)}
        for folder in ("minimal", "minimal-released")
    )
    chain = ("merged chain", "merged Gumbel chain")
    fisher = "Fisher's law"
    ways = rows("categorical", "Unconstrained categoricals in place of an urn")
    broken = only(ways, way="three categoricals in parallel")["invalid among draws"]
    speed = only(rows("pairs-speed", "Pairs: run time"), method="HGVAE")["/ LabelVAE"]
    by_counts, by_assignments = against("categorical")
    uniform_counts, uniform_assignments = against(
        "uniform", slice(1, None)
    )  # where classes are reduced
    return {
        "ks": (
            f"yes: {papers['rejected, corrected']} of {papers['tests']} rejected, against a "
            "reference merged in the same way",
            f"no: {merged['rejected, corrected']} of {merged['tests']} rejected against Fisher's "
            f"law; of the exact sampler {exact['rejected, corrected']}",
        ),
        "remark": (
            "not measured",
            f"yes for the law of the draws (KL {remark['smallest KL']} at ω₂ = 10), with "
            f"ω = ({remark['ω̃ that attains it']}), which is not the urn's",
        ),
        "minimal": (
            f"yes: on data of the merged chain log ω₂ within {own[chain]}, with the released "
            f"optimiser {released[chain]}",
            f"on data of Fisher's law, by the paper's chain no: off by up to "
            f"{own[fisher, chain[1]]} and {released[fisher, chain[1]]}; by the exact covariance "
            f"yes: {own[fisher, 'exact covariance']} and {released[fisher, 'exact covariance']}",
        ),
        "categorical": (
            "argued, not measured",
            f"yes: {broken} of the draws break Σx = n or a limit",
        ),
        "pairs-baselines": (baselines(), ""),
        "pairs-mse": (
            pairs(ESTIMATE),
            f"MSE(7−s, k̂) by draws: {pairs(OURS)}; by the urn's mode, {WHOLE}: "
            f"{outcome(judged(WHOLE, OURS, 'mode'))}",
        ),
        "pairs-follows": (pairs(FOLLOWS), ""),
        "pairs-independent": (pairs(INDEPENDENT), ""),
        "pairs-shared": (f"{pairs(SHARED)}; in the paper's own table at s = 1 alone", ""),
        "pairs-time": (f"yes: {speed} times LabelVAE's", ""),
        "clustering-categorical": (by_counts, by_assignments),
        "clustering-uniform": (uniform_counts, uniform_assignments),
        "clustering-weights": (weights(), ""),
    }


def paper() -> dict[str, Any]:
    path = ROOT / "studies" / "diffurn_studies" / "harness" / "paper.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def claims(prefix: str = "") -> str:
    """The paper's claims whose names begin so, with verdicts."""
    told = verdicts()
    lines = [
        f"| {claim['text']} ({claim['where']}) | {' | '.join(told[claim['id']])} |\n"
        for claim in paper()["claims"]
        if claim["id"].startswith(prefix)
    ]
    head = "| claim of the paper | in its own metric | in ours |\n|---|---|---|\n"
    return f"\n{head}{''.join(lines)}\n"


TABLES = {
    ROOT / "docs" / "reproducing.md": claims,
    ROOT / "docs" / "pairs.md": lambda: claims("pairs") + by_run().lstrip(),
    ROOT / "docs" / "clustering.md": lambda: claims("clustering"),
    ROOT / "results" / "README.md": claims,
}


def main() -> None:
    for path, made in TABLES.items():
        text = path.read_text(encoding="utf-8")
        path.write_text(BLOCK.sub(lambda _, made=made: made(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
