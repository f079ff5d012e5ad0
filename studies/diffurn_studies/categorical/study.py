"""The paper's thought experiment: can a few unconstrained categoricals do what an urn does?

An urn of m = (10, 7, 8) balls from which n = 9 are drawn is imitated by one Gumbel-Softmax
categorical over the counts 0, …, m_j of each group. *In parallel* the three are independent; *in
sequence* a small network infers the weights of each from the counts before it; or the last group
gets the rest. All are trained on the urn's own law, by maximum likelihood over all outcomes. No
larger model could train them better. Nothing keeps them from Σx ≠ n (or, with the rest for the last
group, from x₃ < 0 or x₃ > m₃). The study measures how often that happens: as a sum over all
outcomes, and as a count in draws.

Run it with ``diffurn reproduce categorical``.
"""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from diffurn import FisherHypergeometric, GumbelSoftmax
from diffurn_studies.categorical.figure import CAPTIONS as CAPTIONS
from diffurn_studies.categorical.figure import figures_of
from diffurn_studies.categorical.model import (
    DRAWS,
    GROUP_SIZES,
    Categoricals,
    invalid_share,
    train,
)
from diffurn_studies.categorical.options import Options
from diffurn_studies.categorical.tables import tables_of, verdict_of
from diffurn_studies.categorical.ways import WAYS
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace

NAME = "categorical"


def units(options: Options) -> list[str]:
    return list(WAYS)


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    torch.manual_seed(options.seed * 100_003 + units(options).index(unit))
    weights = torch.tensor(options.weights)
    if unit.startswith("urn"):
        chain = GumbelSoftmax(conditionals="exact" if unit == "urn-exact" else "merged")
        urn = FisherHypergeometric(GROUP_SIZES, DRAWS, weights=weights, estimator=chain)
        invalid = invalid_share(urn.rsample((options.draws,)))
        return {"parameters": len(GROUP_SIZES), "invalid_draws": invalid}
    model = Categoricals(unit != "parallel", unit == "rest", options.hidden)
    urn = FisherHypergeometric(GROUP_SIZES, DRAWS, weights=weights)
    return train(options, model, urn, workspace)


def table(results: Results) -> list[Table]:
    return tables_of(results)


def verdict(results: Results) -> list[str]:
    return verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results)
