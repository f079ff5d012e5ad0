"""The paper's third study: deep clustering of handwritten digits (VaDE) with three priors over the
cluster assignments.

The priors are uniform, categorical and hypergeometric. There are three versions of the data: all
classes complete, or half of them reduced to 80 % or 60 %, by default the digits 0 to 4, in the
training and the test part alike. The hypergeometric prior is the law of the counts of a batch, as
in the paper, or that of its assignments (`diffurn_studies.clustering.priors`). Models are trained
on the training part; every figure is of the test part, whose images go to the likeliest cluster by
q(c|x) at the mean of q(z|x). The paper does not say which half of the classes it reduced, nor how
it annealed the temperature; here that is τ = 1 falling exponentially to 0.5 over the first half of
training. Models with the same version and seed start from the same autoencoder and mixture and see
the same batches and noise, whatever their prior.

All models of a version are one stack in one program, and one unit of work.

Run it with ``diffurn reproduce clustering``. ``--set pretrained=PATH`` starts from VaDE's released
autoencoder instead of one that is trained here.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from diffurn_studies.clustering.figure import CAPTIONS as CAPTIONS
from diffurn_studies.clustering.figure import figures_of
from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.stack import Stack
from diffurn_studies.clustering.tables import tables_of, verdict_of
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.stacked.training import tensor_cores

NAME = "clustering"


def units(options: Options) -> list[str]:
    return [f"kept-{100 * version:g}" for version in options.versions]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    version = options.versions[units(options).index(unit)]
    with tensor_cores(workspace.device):
        return Stack(options, version, workspace).run()


def table(results: Results) -> list[Table]:
    return tables_of(results.records, results.options)


def verdict(results: Results) -> list[str]:
    return verdict_of(results.records, results.options)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results.records, results.options)
