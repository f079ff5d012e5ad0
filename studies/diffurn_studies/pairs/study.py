"""The paper's second study: weak supervision. Two images share an unknown number s of their seven
generative factors; which, and how many?

LabelVAE, AdaVAE and HGVAE (`diffurn_studies.pairs.methods`) on pairs that share exactly s factors.
The paper trains on mpi3d_toy. The default here is arm scenes, rendered during training with the
same factors; Sprites can be given by path. A model's pairs and noise depend on its seed and are the
same for all methods. The evaluation uses fresh pairs, the same for all models. There is no held-out
part of the factor grid, as there is none in the paper's code base.

All models with one s, or with every s (option `together`, best on a GPU), are trained as one stack
in one unit of work. A second unit scores their latents on the CPU. Run it with ``diffurn reproduce
pairs``; ``--arm best`` and the other modules in `arms` are the published runs.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from diffurn_studies.harness.machine import wait_for
from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.runner import Results, RunError, Table, Workspace
from diffurn_studies.pairs.figure import CAPTIONS, figures
from diffurn_studies.pairs.options import Member, Options, stacks
from diffurn_studies.pairs.scores import Latents, downstream
from diffurn_studies.pairs.stack import (
    LATENTS_FILE,
    StackUnit,
    load_images,
    setting_of,
    source_of,
    training_of,
)
from diffurn_studies.pairs.tables import tables, verdict_of
from diffurn_studies.pairs.training import PairTraining
from diffurn_studies.stacked.training import BLOCK, tensor_cores

__all__ = [
    "CAPTIONS",
    "NAME",
    "Options",
    "figure",
    "run_unit",
    "stages",
    "table",
    "units",
    "verdict",
]

NAME = "pairs"
NO_SCORES = {
    "shared_accuracy": None,
    "independent_accuracy": None,
    "whole_accuracy": None,
    "disentanglement": None,
}


def stages(options: Options) -> list[list[str]]:
    """First training, then the scores of the latents that it left."""
    timed = ["speed"] if options.timed_models else []
    return [
        [f"train-{name}" for name in stacks(options)] + timed,
        [f"score-{name}" for name in stacks(options)],
    ]


def units(options: Options) -> list[str]:
    return [unit for stage in stages(options) for unit in stage]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    kind, _, name = unit.partition("-")
    if kind == "score":
        return _score(options, name, workspace)
    with tensor_cores(workspace.device):
        if kind == "speed":
            return _speeds(options, workspace)
        return StackUnit(options, name, workspace).run()


def _score(options: Options, name: str, workspace: Workspace) -> dict[str, Any]:
    file = workspace.directory.parent / f"train-{name}" / LATENTS_FILE
    try:
        with np.load(file) as content:
            found = Latents(**{field: content[field] for field in Latents._fields})
            running = content["running"].tolist()
    except (OSError, KeyError, ValueError) as error:
        advice = "delete the record of the training unit to compute them again"
        raise RunError(
            f"{file}, the latents to score, cannot be read: {error}; {advice}"
        ) from error
    sizes = (found.factors.max((0, 1, 2)) + 1).tolist()
    workers = options.workers or os.cpu_count() or 1
    scores = []
    for number, (member, whole) in enumerate(zip(stacks(options)[name], running, strict=True)):
        own = (
            downstream(found.of_model(number), options.score_train, sizes, workers)
            if whole
            else NO_SCORES
        )
        scores.append({**setting_of(member), **own})
    return {"models": scores}


def _speeds(options: Options, workspace: Workspace) -> dict[str, Any]:
    """Milliseconds per step and model of every method, each in a stack of its own."""
    images, methods = load_images(options), []
    for method in options.methods:
        stack = [
            Member(method, min(3, len(images.sizes)), seed) for seed in range(options.timed_models)
        ]
        source = source_of(options, images, stack, workspace.device)
        training = training_of(options, stack, source, list(range(len(stack))))
        training.advance(min(BLOCK, 10))  # compiles, captures the CUDA graph, warms up
        milliseconds = _timed(training, options.timed_steps, workspace.device) / len(stack)
        methods.append(
            {
                "method": asdict(method),
                "label": method.label,
                "milliseconds": rounded(milliseconds),
            }
        )
    return {
        "methods": methods,
        "models": options.timed_models,
        "batch_size": options.batch_size,
    }


def _timed(training: PairTraining, steps: int, device: torch.device) -> float:
    """Milliseconds per step."""
    wait_for(device)
    start, first = time.perf_counter(), training.step
    while training.step < first + steps:
        training.advance(min(first + steps, training.step + BLOCK))
    wait_for(device)
    return 1000 * (time.perf_counter() - start) / steps


def table(results: Results) -> list[Table]:
    return tables(results.records, results.options)


def verdict(results: Results) -> list[str]:
    return verdict_of(results.records)


def figure(results: Results) -> dict[str, Figure]:
    return figures(results.records, results.options)
