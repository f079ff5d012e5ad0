"""The table of the thought experiment with categoricals."""

from __future__ import annotations

from diffurn_studies.categorical.model import DRAWS, GROUP_SIZES
from diffurn_studies.categorical.ways import WAYS
from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table


def verdict_of(results: Results) -> list[str]:
    """How often each way breaks a limit after training."""
    shares = {unit: 100 * record["invalid_draws"] for unit, record in results.records.items()}
    return [
        f"After training, {shares['parallel']:.1f} % of the draws of three categoricals in "
        "parallel break Σx = n or the limit of a group.",
        f"In sequence {shares['sequence']:.2g} % do, and if the last group gets the rest "
        f"{shares['rest']:.2g} %. No draw of the urn does.",
    ]


def tables_of(results: Results) -> list[Table]:
    """The table of the study."""
    stated = paper("categorical")["parameters"]
    rows: list[list[str | int | float | None]] = []
    for unit, record in results.records.items():
        trained = "invalid" in record
        theirs = (
            stated["urn"]
            if unit.startswith("urn")
            else stated["categorical"]
            if unit == "parallel"
            else None
        )
        shares = [
            f"{100 * record['invalid'][place]:.2f} %" if trained else "0 %" for place in (0, -1)
        ]
        rows.append(
            [
                WAYS[unit],
                *shares,
                f"{100 * record['invalid_draws']:.2f} %"
                if trained
                else f"{100 * record['invalid_draws']:g} %",
                f"{record['divergence'][-1]:.3f}" if trained else None,
                record["parameters"],
                theirs,
                None if theirs is None else record["parameters"] - theirs,
            ]
        )
    columns = [
        "way",
        "invalid, untrained",
        "invalid, trained",
        "invalid among draws",
        "KL to the urn",
        "parameters",
        "paper",
        "difference",
    ]
    notes = [
        f"m = {GROUP_SIZES}, n = {DRAWS}, ω = {results.options.weights}; {results.options.draws:,} "
        "hard draws each, after "
        f"{results.options.steps:,} steps of training on the urn's own law. Invalid: Σx is not n, "
        "or a count is below 0 or above its m.",
        "KL(urn ‖ categoricals) in nats. In parallel no training can do better than the urn's own "
        "marginals: weights that are always valid "
        "put everything on one outcome. In sequence training makes invalid draws rare, never "
        "impossible.",
        "Parameters: the paper counts Σm for a sequence of categoricals; a group of m balls has m "
        "+ 1 possible counts, hence the "
        "difference. Those of a sequence include the networks that infer its weights.",
    ]
    return [Table("Unconstrained categoricals in place of an urn", columns, rows, notes)]
