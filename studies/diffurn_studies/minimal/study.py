"""The paper's minimal example: learn ω from counts by gradient descent through draws.

There are ten data sets of 1,000 counts, m = (200, 200, 200), n = 180, ω = (1, ω₂, 1), ω₂ = 1, …,
10; 800 counts train, 200 validate. A model with unknown log ω draws X. Its loss is the squared
error ‖X_D - X‖² from a datum X_D, and it learns log ω by stochastic gradient descent. Every data
set is drawn twice, from Fisher's law and by the paper's chain of merged groups. The gradient comes
from the merged Gumbel chain of the paper, from the exact Gumbel chain, or from the exact
covariance.

Training can reach two answers, and both are computed: the *maximum likelihood* estimate, where the
mean of X is that of the data, and the *minimiser of the loss* E‖X_D - X‖² = ‖mean(X_D) - mean(X)‖²
+ tr Cov X + const, which prefers an ω with less variance. The Gumbel estimators see the whole loss.
The covariance estimator treats ‖·‖² as linear around each draw. That drops tr Cov X, so it finds
maximum likelihood.

The paper states ten epochs, but neither optimiser settings nor temperature. The temperature is that
of its released code. In the arm ``paper`` learning rate (falling linearly to zero) and batch size
are ours; the arm ``released`` has the optimiser of the released script, Adam. Run it with ``diffurn
reproduce minimal``.
"""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.minimal.answers import reachable_weights
from diffurn_studies.minimal.figure import CAPTIONS as CAPTIONS
from diffurn_studies.minimal.figure import figures_of
from diffurn_studies.minimal.learning import (
    ESTIMATORS,
    SOURCES,
    data_sets,
    estimator_named,
    split,
    train,
)
from diffurn_studies.minimal.options import Options
from diffurn_studies.minimal.tables import tables_of, verdict_of
from diffurn_studies.minimal.urn import PAPERS_URN

NAME = "minimal"


def units(options: Options) -> list[str]:
    return [f"{what}-on-{source}-data" for source in SOURCES for what in ("answers", *ESTIMATORS)]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    """All seeds and data sets of an estimator are trained side by side, as one batch of urns."""
    what, source = unit.removesuffix("-data").split("-on-")
    data = data_sets(options, source)
    torch.manual_seed(options.seed * 100_003 + units(options).index(unit) + 1)
    if what == "answers":
        record = reachable_weights(split(data)[0].mean(1), PAPERS_URN)
    else:
        record = train(options, estimator_named(what, options.temperature), data, workspace)
    shape = (options.seeds, len(options.second_weights))
    return {
        "source": source,
        "what": what,
        **{name: _by_data_set(values, shape) for name, values in record.items()},
    }


def _by_data_set(values: Tensor, shape: tuple[int, int]) -> Any:
    """Lists [seed][data set][...]."""
    return rounded(values.reshape(*shape, *values.shape[1:]).tolist())


def table(results: Results) -> list[Table]:
    return tables_of(results)


def verdict(results: Results) -> list[str]:
    return verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results)
