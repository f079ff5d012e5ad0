"""Trains the models of one method for two tasks, at all levels of noise: a unit of the study."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.clustering.images import load_images
from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions.multitask_networks import TwoTasks
from diffurn_studies.partitions.options import MultitaskOptions
from diffurn_studies.partitions.two_digits import TwoDigits, as_inputs, parts_of
from diffurn_studies.partitions.ways import TASKS, WAYS
from diffurn_studies.stacked.steps import Batches, StackedAdam
from diffurn_studies.stacked.training import BLOCK, Clock, StackTraining, tensor_cores, train

_CURVES = ("epochs", "left", "right", "share")
# Pictures of each model that are evaluated at once.
_CHUNK = 500


class MultitaskTraining(StackTraining):
    """The models of one method in training: all levels of noise, and all seeds of each.

    Args:
        options: of the run.
        method: a key of `TASK_METHODS`.
        pictures: the training part, on the device.
    """

    model: TwoTasks

    def __init__(self, options: MultitaskOptions, method: str, pictures: TwoDigits) -> None:
        device, levels = pictures.labels.device, len(options.noises)
        seeds = [options.seed * 1_009 + seed for seed in range(options.seeds)] * levels
        model = TwoTasks(method, seeds, options.neurons, options.coldest).to(device)
        numbers = torch.arange(pictures.labels.shape[1], device=device)
        batches = Batches([numbers] * len(seeds), seeds, options.batch_size, BLOCK, 0, 0)
        rates = torch.full((len(seeds),), options.learning_rate, device=device)
        optimizer = StackedAdam(list(model.parameters()), rates)
        super().__init__(model, batches, optimizer, measures=1 + TASKS, compiled=False)
        self.options, self.pictures = options, pictures
        self.level = torch.arange(levels, device=device).repeat_interleave(options.seeds)
        self.annealing = ExponentialAnnealing(
            options.hottest, options.coldest, options.annealing_steps
        )
        self.temperature = torch.ones((), device=device)

    def _measures(self, own: Tensor, normal: Tensor, gumbel: Tensor) -> Tensor:
        """The loss, and the errors of both tasks, of every model."""
        inputs = as_inputs(self.pictures.pictures[self.level.unsqueeze(-1), own])
        logits, features, memberships = self.model(inputs, self.temperature)
        errors = _errors(logits, self.pictures.labels[:, own])
        if self.model.way in WAYS:
            sizes = memberships.sum(-2).clamp(min=0.0)
            penalty = torch.lgamma(sizes + 1).sum(-1).mean(-1)
        else:
            penalty = features.abs().mean((1, 2))
        loss = errors.mean(0) + self.options.weight * penalty
        return torch.cat([loss.unsqueeze(-1), errors.mT], -1)

    def _follow_schedules(self) -> None:
        self.temperature.fill_(self.annealing(self.step))

    @torch.no_grad()
    def scores(self, test: TwoDigits) -> tuple[Tensor, Tensor]:
        """The accuracy of both tasks, (2, S), and the mean share of the neurons that the left task
        has, (S,), on the test part.
        """
        self.model.eval()
        models, number = len(self.level), test.labels.shape[1]
        right = torch.zeros(TASKS, models, device=self.level.device)
        share = torch.zeros(models, device=self.level.device)
        for rows in torch.arange(number, device=self.level.device).split(_CHUNK):
            pictures = test.pictures[:, rows].index_select(0, self.level)
            logits, _, memberships = self.model(as_inputs(pictures), self.temperature)
            labels = test.labels[:, rows].unsqueeze(1)
            right += (logits.argmax(-1) == labels).sum(-1)
            sizes = memberships.sum(-2)
            share += (sizes[..., 0] / sizes.sum(-1)).sum(-1)
        self.model.train()
        return right / number, share / number


def _errors(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each task and model, (2, S)."""
    errors = cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    means: Tensor = errors.view(labels.shape).mean(-1)
    return means


def run_unit(options: MultitaskOptions, method: str, workspace: Workspace) -> dict[str, Any]:
    """Trains all models of a method; returns the curve of each."""
    torch.manual_seed(options.seed)
    images = load_images(options.dataset, options.data)
    data, test = (
        part.to(workspace.device) for part in parts_of(images, options.noises, options.seed)
    )
    training = MultitaskTraining(options, method, data)
    models: list[dict[str, Any]] = [
        {"noise": noise, "seed": seed, "broken": False, **{name: [] for name in _CURVES}}
        for noise in options.noises
        for seed in range(options.seeds)
    ]
    if saved := workspace.load_checkpoint():
        training.load_state(saved["training"])
        models = saved["models"]
    clock = Clock(options.budget_seconds)
    steps = data.labels.shape[1] // options.batch_size

    def evaluate() -> None:
        accuracy, share = training.scores(test)
        for model, left, right, of_left in zip(
            models, *accuracy.tolist(), share.tolist(), strict=True
        ):
            model["epochs"].append(training.step // steps)
            for name, value in (("left", left), ("right", right), ("share", of_left)):
                model[name].append(rounded(value))
        losses = training.read_measures()
        means = [float(losses[:, 0].mean()), *(float(task.mean()) for task in accuracy)]
        workspace.scalars(training.step, loss=means[0], left=means[1], right=means[2])
        told = f"loss {means[0]:.3f} left {means[1]:.3f} right {means[2]:.3f}"
        clock.tell(f"{method}, step {training.step}: {told}{clock.speed(training.step)}")

    def broken(which: list[int]) -> None:
        for number in which:
            model = models[number]
            model["broken"] = True
            clock.tell(f"{method}, noise {model['noise']:g}, seed {model['seed']} broke down")

    def save() -> None:
        workspace.save_checkpoint({"training": training.state(), "models": models})

    with tensor_cores(workspace.device):
        train(
            training,
            options.epochs * steps,
            options.evaluate_every * steps,
            clock,
            evaluate,
            broken,
            save,
        )
    return {"models": models, "seconds": workspace.seconds}
