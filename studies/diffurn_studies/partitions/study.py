"""Random partitions in models: clustering, and neurons for two tasks, as in the authors' second
paper (Sutter et al., *Differentiable Random Partition Models*, NeurIPS 2023).

Clustering: a variational autoencoder has a Gaussian mixture over its latents. The items of a batch
are assigned to the clusters together, by a random partition. The study compares the exact
objective, with unbiased gradients, with the paper's bounds and relaxed draws, with VaDE, whose
items are assigned one by one, and with a Gaussian mixture of the latents of the autoencoder. All
methods of a seed start from the same autoencoder and mixture. Figures are of the test part, whose
items go to the likeliest cluster at the mean of q(z|x).

Two tasks: the neurons of the last shared layer of a LeNet are divided among the tasks to name the
left and the right one of two digits, by a random partition of each picture. The methods are the
setting of the authors' code, the paper's Gumbel draws and exact draws with conditional gradients,
beside a layer whose neurons serve both tasks and one that is cut into halves. The right digit has
more and more noise.

Deviations from the authors' code: the autoencoder of the clustering is pretrained by reconstruction
alone, and the mixture is not fitted again during training. In the tasks, dropout keeps the mean of
a layer and drops the channels of each picture on their own, the initial weights are Glorot's, Adam
has its usual decay rates, and partitions other than those of the authors' setting are evaluated at
the likeliest sizes with the items of the highest scores first. Their numbers are not shown here.

Run it with ``diffurn reproduce partitions``, and the tasks with ``--arm multitask``.
"""

from __future__ import annotations

from typing import Any, cast

from matplotlib.figure import Figure

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions import figure as clustering_figure
from diffurn_studies.partitions import multitask, multitask_tables, training
from diffurn_studies.partitions import tables as clustering_tables
from diffurn_studies.partitions.options import Method, MultitaskOptions, Options

NAME = "partitions"
CAPTIONS = {**clustering_figure.CAPTIONS, **multitask_tables.CAPTIONS}
AnyOptions = Options | MultitaskOptions


def stages(options: AnyOptions) -> list[list[str]]:
    """First the autoencoders, then the models that start from them; of two tasks, all methods."""
    if isinstance(options, MultitaskOptions):
        return [list(options.methods)]
    trained = [method for method in options.methods if method != "mixture"]
    return [
        [f"start-{seed}" for seed in range(options.seeds)],
        [f"{method}-{seed}" for method in trained for seed in range(options.seeds)],
    ]


def units(options: AnyOptions) -> list[str]:
    return [unit for stage in stages(options) for unit in stage]


def run_unit(options: AnyOptions, unit: str, workspace: Workspace) -> dict[str, Any]:
    if isinstance(options, MultitaskOptions):
        return multitask.run_unit(options, unit, workspace)
    name, _, seed = unit.rpartition("-")
    if name == "start":
        return training.prepare(options, int(seed), workspace)
    return training.train(options, cast(Method, name), int(seed), workspace)


def table(results: Results) -> list[Table]:
    if isinstance(results.options, MultitaskOptions):
        return multitask_tables.tables_of(results)
    return clustering_tables.tables_of(results)


def verdict(results: Results) -> list[str]:
    if isinstance(results.options, MultitaskOptions):
        return multitask_tables.verdict_of(results)
    return clustering_tables.verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    if isinstance(results.options, MultitaskOptions):
        return multitask_tables.figures_of(results)
    return clustering_figure.figures_of(results)
