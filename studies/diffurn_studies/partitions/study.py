"""Random partitions in models: variational clustering, as in the authors' second paper (Sutter et
al., *Differentiable Random Partition Models*, NeurIPS 2023).

A variational autoencoder has a Gaussian mixture over its latents. The items of a batch are assigned
to the clusters together, by a random partition. The study compares the exact objective, with
unbiased gradients, with the paper's bounds and relaxed draws, with VaDE, whose items are assigned
one by one, and with a Gaussian mixture of the latents of the autoencoder. All methods of a seed
start from the same autoencoder and mixture. Figures are of the test part, whose items go to the
likeliest cluster at the mean of q(z|x).

Deviations from the authors' code: the autoencoder is pretrained by reconstruction alone, and the
mixture is not fitted again during training. Their numbers are not shown here.

Run it with ``diffurn reproduce partitions``.
"""

from __future__ import annotations

from typing import Any, cast

from matplotlib.figure import Figure

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions import training
from diffurn_studies.partitions.figure import CAPTIONS as CAPTIONS
from diffurn_studies.partitions.figure import figures_of
from diffurn_studies.partitions.options import Method, Options
from diffurn_studies.partitions.tables import tables_of, verdict_of

NAME = "partitions"


def stages(options: Options) -> list[list[str]]:
    """First the autoencoders, then the models that start from them."""
    trained = [method for method in options.methods if method != "mixture"]
    return [
        [f"start-{seed}" for seed in range(options.seeds)],
        [f"{method}-{seed}" for method in trained for seed in range(options.seeds)],
    ]


def units(options: Options) -> list[str]:
    return [unit for stage in stages(options) for unit in stage]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    name, _, seed = unit.rpartition("-")
    if name == "start":
        return training.prepare(options, int(seed), workspace)
    return training.train(options, cast(Method, name), int(seed), workspace)


def table(results: Results) -> list[Table]:
    return tables_of(results)


def verdict(results: Results) -> list[str]:
    return verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results)
