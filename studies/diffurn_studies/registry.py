"""The studies that ``diffurn reproduce`` knows, with their arms."""

from __future__ import annotations

from diffurn_studies.categorical import arms as categorical_arms
from diffurn_studies.clustering import arms as clustering_arms
from diffurn_studies.harness.arms import Entry
from diffurn_studies.harness.study import Study
from diffurn_studies.ks import arms as ks_arms
from diffurn_studies.minimal import arms as minimal_arms
from diffurn_studies.pairs import arms as pairs_arms
from diffurn_studies.partitions import arms as partitions_arms
from diffurn_studies.subsets import arms as subsets_arms


def _ks() -> Study:
    from diffurn_studies.ks import study

    return study


def _minimal() -> Study:
    from diffurn_studies.minimal import study

    return study


def _categorical() -> Study:
    from diffurn_studies.categorical import study

    return study


def _pairs() -> Study:
    from diffurn_studies.pairs import study

    return study


def _clustering() -> Study:
    from diffurn_studies.clustering import study

    return study


def _subsets() -> Study:
    from diffurn_studies.subsets import study

    return study


def _partitions() -> Study:
    from diffurn_studies.partitions import study

    return study


STUDIES = {
    "ks": Entry(_ks, ks_arms),
    "minimal": Entry(_minimal, minimal_arms),
    "categorical": Entry(_categorical, categorical_arms),
    "pairs": Entry(_pairs, pairs_arms),
    "clustering": Entry(_clustering, clustering_arms),
    "subsets": Entry(_subsets, subsets_arms),
    "partitions": Entry(_partitions, partitions_arms),
}
