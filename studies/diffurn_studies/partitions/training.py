"""Units of the study: the autoencoder and mixture of a seed, and models that start from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from diffurn_studies.clustering.images import CLASSES, Images, load_images
from diffurn_studies.clustering.scores import confusion, score
from diffurn_studies.harness.pictures import packed
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions.networks import Autoencoder
from diffurn_studies.partitions.objectives import (
    OBJECTIVES,
    Clusters,
    Posterior,
    Weights,
    weights_at,
)
from diffurn_studies.partitions.options import Method, Options
from diffurn_studies.stacked.steps import Replayed

_START = "start.pt"


def images_of(options: Options) -> Images:
    return load_images(options.dataset, options.data)


class Model:
    """An autoencoder with its clusters."""

    def __init__(self, options: Options, images: Images, device: torch.device) -> None:
        pixels = images.shape[0] * images.shape[1]
        self.options, self.shape = options, images.shape
        self.autoencoder = Autoencoder(pixels, options.widths, options.latent).to(device)
        self.clusters = Clusters(CLASSES, options.latent).to(device)
        self.train = _pictures(images.train, device)
        self.test, self.labels = _pictures(images.test, device), images.test_labels.to(device)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {"autoencoder": self.autoencoder, "clusters": self.clusters}

    def state(self) -> dict[str, Any]:
        return {name: module.state_dict() for name, module in self.modules().items()}

    def load(self, state: dict[str, Any]) -> None:
        for name, module in self.modules().items():
            module.load_state_dict(state[name])

    def batches(self) -> list[Tensor]:
        """The rows of full batches of the training part in a new order; the rest is left out."""
        size = min(self.options.batch_size, len(self.train))
        order = torch.randperm(len(self.train), device=self.train.device)
        return list(order[: len(order) - len(order) % size].split(size))

    def loss(self, method: Method, pictures: Tensor, weights: Weights) -> Tensor:
        """The negative evidence bound of an item."""
        means, log_stds = self.autoencoder.encode(pictures)
        latents = means + log_stds.exp() * torch.randn_like(means)
        odds = self.autoencoder.decoder(latents)
        reconstruction = binary_cross_entropy_with_logits(odds, pictures, reduction="sum")
        posterior = Posterior(means, log_stds, latents)
        divergence = OBJECTIVES[method](self.clusters, posterior, weights)
        return (reconstruction + divergence) / len(pictures)

    @torch.no_grad()
    def scores(self) -> dict[str, float]:
        """Of the test part, whose items go to the likeliest cluster at their mean."""
        means = torch.cat([self.autoencoder.encode(part)[0] for part in self.test.split(4096)])
        found = self.clusters.mixture.log_responsibilities(means).argmax(-1)
        scores = score(confusion(found.unsqueeze(0), self.labels, CLASSES)[0])
        return {"accuracy": scores.accuracy, "nmi": scores.nmi, "ari": scores.ari}

    @torch.no_grad()
    def generated(self, each: int = 8) -> str:
        """Pictures of draws of each cluster, packed; a row of pictures for a cluster."""
        mixture = self.clusters.mixture
        noise = torch.randn(CLASSES, each, mixture.means.shape[-1], device=mixture.means.device)
        latents = mixture.means.unsqueeze(1) + mixture.log_stds.exp().unsqueeze(1) * noise
        pictures = torch.sigmoid(self.autoencoder.decoder(latents)).reshape(-1, *self.shape, 1)
        return packed((255 * pictures.expand(-1, -1, -1, 3)).round().byte().cpu().numpy())


class _Step:
    """One step of training, on a GPU replayed as a CUDA graph: its inputs are tensors of its own.

    Args:
        model: to train.
        method: its objective.
        adam: of its parameters.
    """

    def __init__(self, model: Model, method: Method, adam: torch.optim.Adam) -> None:
        self.model, self.method, self.adam = model, method, adam
        device, size = model.train.device, min(model.options.batch_size, len(model.train))
        self.rows = torch.zeros(size, dtype=torch.int64, device=device)
        self.beta, self.temperature, self.total = torch.zeros(3, device=device).unbind()
        self.weights = replace(
            weights_at(model.options, 0), beta=self.beta, temperature=self.temperature
        )
        self.replayed = Replayed(self._step, device)

    def run(self, rows: Tensor, weights: Weights) -> None:
        self.rows.copy_(rows)
        self.beta.fill_(weights.beta)
        self.temperature.fill_(weights.temperature)
        self.replayed.run(1)

    def _step(self) -> None:
        loss = self.model.loss(self.method, self.model.train[self.rows], self.weights)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.total += loss.detach()

    def read(self) -> Tensor:
        """The sum of the losses since the last call."""
        found = self.total.clone()
        self.total.zero_()
        return found


def _pictures(images: Tensor, device: torch.device) -> Tensor:
    return images.to(device).float() / 255


def seed_of(options: Options, seed: int) -> int:
    return options.seed * 100_003 + seed


def prepare(options: Options, seed: int, workspace: Workspace) -> dict[str, Any]:
    """Trains the autoencoder of a seed to reconstruct, fits the mixture, and stores both."""
    torch.manual_seed(seed_of(options, seed))
    model = Model(options, images_of(options), workspace.device)
    adam = torch.optim.Adam(model.autoencoder.parameters(), options.pretraining_rate)
    for epoch in range(options.pretraining_epochs):
        total = 0.0
        for rows in model.batches():
            pictures = model.train[rows]
            odds = model.autoencoder.decoder(model.autoencoder.encode(pictures)[0])
            loss = mse_loss(torch.sigmoid(odds), pictures)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += float(loss.detach()) * len(pictures)
        workspace.scalars(epoch, reconstruction=total / len(model.train))
    with torch.no_grad():
        means = torch.cat([model.autoencoder.encode(part)[0] for part in model.train.split(4096)])
    model.clusters.mixture.fit(means, options.mixture_fits, seed_of(options, seed))
    torch.save(model.state(), workspace.directory / _START)
    return {**model.scores(), "seconds": workspace.seconds}


def train(options: Options, method: Method, seed: int, workspace: Workspace) -> dict[str, Any]:
    """Trains a model; a checkpoint is saved after each evaluation."""
    model = Model(options, images_of(options), workspace.device)
    start = workspace.directory.parent / f"start-{seed}" / _START
    model.load(torch.load(start, map_location=workspace.device, weights_only=True))
    parameters = [p for module in model.modules().values() for p in module.parameters()]
    adam = torch.optim.Adam(
        parameters, options.learning_rate, capturable=workspace.device.type == "cuda"
    )
    torch.manual_seed(seed_of(options, seed) + 50_021)
    step = _Step(model, method, adam)
    record: dict[str, Any] = {"epochs": [0], "loss": []}
    for name, value in model.scores().items():
        record[name] = [value]
    done, steps = 0, 0
    saved = workspace.load_checkpoint()
    if saved is not None:
        model.load(saved["model"])
        adam.load_state_dict(saved["adam"])
        done, steps, record = saved["epoch"], saved["steps"], saved["record"]
    for epoch in range(done + 1, options.epochs + 1):
        batches = model.batches()
        for rows in batches:
            step.run(rows, weights_at(options, steps))
            steps += 1
        loss_of_epoch = step.read() / len(batches)
        if epoch % options.evaluate_every and epoch != options.epochs:
            continue
        scores, mean_loss = model.scores(), float(loss_of_epoch)
        workspace.scalars(epoch, loss=mean_loss, **scores)
        record["epochs"].append(epoch)
        record["loss"].append(mean_loss)
        for name, value in scores.items():
            record[name].append(value)
        state = {"model": model.state(), "adam": adam.state_dict()}
        workspace.save_checkpoint({**state, "epoch": epoch, "steps": steps, "record": record})
    if seed == 0:
        record |= {"generated": model.generated(), "shape": list(model.shape)}
    return {**record, "seconds": workspace.seconds}
