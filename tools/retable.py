"""Makes tables and figures of committed runs again from their records, without training:
``python tools/retable.py results/pairs``, or without folders for all of them.

The options come from the arm of the run. If they contradict ``options.json``, nothing is written.
Runs of clustering keep the tables with which they were committed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from diffurn_studies.harness.run_directory import RunDirectory
from diffurn_studies.harness.runner import publish
from diffurn_studies.harness.study import Results, Study
from diffurn_studies.harness.tables import Table
from diffurn_studies.pairs.methods import (
    ADAPTIVE,
    HYPERGEOMETRIC,
    LABEL,
    ORACLE,
    Method,
    plain_number,
)
from diffurn_studies.registry import STUDIES

ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """The study and the arm of a folder of `results`, and the numbers of shared factors that are
    finished, if these are not all.
    """

    study: str
    arm: str
    shared: tuple[int, ...] | None = None


METHODS = {method.kind: method for method in (LABEL, ADAPTIVE, ORACLE, HYPERGEOMETRIC)}
RUNS = {
    "ks": Run("ks", "paper"),
    "categorical": Run("categorical", "paper"),
    "subsets": Run("subsets", "paper"),
    "subsets-regression": Run("subsets", "regression"),
    "subsets-pixels-digits": Run("subsets", "pixels-digits"),
    "subsets-vae-digits": Run("subsets", "subset-vae-digits"),
    "minimal": Run("minimal", "paper"),
    "minimal-released": Run("minimal", "released"),
    "pairs": Run("pairs", "random-sets"),
    "pairs-best": Run("pairs", "best"),
    "pairs-search": Run("pairs", "search"),
    "pairs-prior-random": Run("pairs", "prior-random"),
    "pairs-prior-fixed": Run("pairs", "prior-fixed"),
    "pairs-kl-random": Run("pairs", "kl-random", shared=(1, 3, 5)),
    "pairs-ablation": Run("pairs", "ablation"),
    "pairs-sprites": Run("pairs", "sprites"),
}


def results_of(folder: Path) -> tuple[Study, Results]:
    """The study of a folder, and its records with the options of its arm."""
    study, arm, shared = RUNS[folder.name]
    entry, directory = STUDIES[study], RunDirectory(folder)
    options, settings = entry.options(arm), directory.settings()
    if shared is not None:
        options = replace(options, shared=shared)
    if wrong := contradictions(options, settings.options):
        raise SystemExit(f"{folder} is no run of the arm {arm}: {'; '.join(wrong)}")
    records = directory.records()
    if study == "pairs":
        records = {unit: translated(record, options.methods) for unit, record in records.items()}
    return entry.load(), Results(study, options, {}, records)


def translated(record: dict[str, Any], methods: Sequence[Method]) -> dict[str, Any]:
    """A record of pairs with the fields of its methods, which older ones name in one word such as
    ``hypergeometric-log1p-once-lr1e-3``.
    """
    by_words = {words(method): method for method in methods}

    def fields_of(name: str) -> dict[str, Any]:
        method = by_words[frozenset(re.split(r"-(?!\d)", name))]
        return {"method": asdict(method), "label": method.label}

    models = [
        {**model, **fields_of(model["method"])} if isinstance(model["method"], str) else model
        for model in record.get("models", [])
    ]
    return {**record, "models": models} if models else record


def words(method: Method) -> frozenset[str]:
    """The words of an older name: the kind, and what differs from the paper."""
    usual = METHODS[method.kind]
    names = {"adaptive": "ada"}
    symbols = {"learning_rate": "lr", "final_temperature": "tau", "beta": "beta"}
    own, paper = ({**vars(each), **vars(each.aggregation)} for each in (method, usual))
    changed = [name for name in own if own[name] != paper.get(name) and name != "aggregation"]
    details = [
        symbols[name] + plain_number(own[name]) if name in symbols else str(own[name])
        for name in changed
    ]
    return frozenset([names.get(method.kind, method.kind), *details])


def contradictions(options: Any, recorded: dict[str, Any]) -> list[str]:
    """Numbers and texts that differ. Methods are compared where they are translated."""
    free = getattr(options, "FREE", ())
    own = {field.name: _plain(getattr(options, field.name)) for field in fields(options)}
    return [
        f"{name} is {recorded[name]!r}, not {value!r}"
        for name, value in own.items()
        if name in recorded and name not in (*free, "methods")
        if recorded[name] != value
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def tables_of(folder: Path) -> list[Table]:
    study, results = results_of(folder)
    return study.table(results)


def remake(folder: Path, with_figures: bool) -> None:
    study, results = results_of(folder)
    publish(study, results, RunDirectory(folder), with_figures=with_figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="such as results/ks")
    parser.add_argument("--figures", action="store_true", help="the figures as well")
    chosen = parser.parse_args()
    for folder in chosen.folders or [ROOT / "results" / name for name in sorted(RUNS)]:
        remake(folder, chosen.figures)


if __name__ == "__main__":
    main()
