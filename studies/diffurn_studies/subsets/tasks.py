"""The tasks: networks that choose k of d items, their losses and their scores."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from diffurn.nn import SubsetSampler
from diffurn_studies.clustering.images import CLASSES, load_images
from diffurn_studies.subsets.contenders import Contender, largest
from diffurn_studies.subsets.kuramoto import TERMS, TRUE_TERMS, simulate, terms_of
from diffurn_studies.subsets.options import TrainingOptions

# The share of the training data that validates.
_VALIDATION = 1 / 6
# Items that are scored at once.
_CHUNK = 1_000


class Part(NamedTuple):
    """Inputs with what belongs to them."""

    inputs: Tensor
    answers: Tensor


class Parts(NamedTuple):
    """The data of a task."""

    train: Part
    validation: Part
    test: Part

    def to(self, device: torch.device) -> Parts:
        return Parts(*(Part(*(values.to(device) for values in part)) for part in self))


class Task(nn.Module):
    """A network with its data.

    Args:
        options: of the study.
        parts: of the data, on the device.
    """

    # Items of the training part that a step takes beside its batch.
    besides = 0

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__()
        self.options, self.k, self.parts = options, options.k, parts

    def loss(self, contender: Contender, rows: Tensor) -> Tensor:
        """The training loss of some items of the training part, a scalar."""
        raise NotImplementedError

    def selector(self) -> list[nn.Parameter]:
        """The parameters that choose; all their gradients come through draws."""
        raise NotImplementedError

    def scores(self, part: Part) -> dict[str, float]:
        """The loss, and other scores, by the most probable subsets unless stated otherwise."""
        raise NotImplementedError


def task_of(options: TrainingOptions, parts: Parts) -> Task:
    """The task of the options with new weights; torch's seed decides them."""
    return _TASKS[options.task](options, parts)


# Sparse regression.


class Regression(Task):
    """Which k terms make up the time derivative?"""

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        items = parts.train.inputs.shape[1]
        self.logits = nn.Parameter(torch.zeros(items))
        self.coefficients = nn.Parameter(0.1 * torch.randn(items))

    def loss(self, contender: Contender, rows: Tensor) -> Tensor:
        terms, answers = self.parts.train.inputs[rows], self.parts.train.answers[rows]

        def error(subsets: Tensor) -> Tensor:
            found = (subsets * self.coefficients) @ terms.mT
            return (found - answers).square().mean(-1)

        return contender.expectation(error, self.logits, self.k, self.options.samples)

    def selector(self) -> list[nn.Parameter]:
        return [self.logits]

    def scores(self, part: Part) -> dict[str, float]:
        chosen = largest(self.logits, self.k)
        error = (part.inputs @ (chosen * self.coefficients) - part.answers).square().mean()
        right = sum(float(chosen[TERMS.index(term)]) for term in TRUE_TERMS)
        return {"loss": float(error), "right terms": right}


def _equation(options: TrainingOptions) -> Parts:
    """Terms and derivatives with a standard deviation of one, and noise in the derivatives."""
    u, derivative = simulate()
    terms, answers = terms_of(u), derivative.flatten()
    noise = torch.randn(len(answers), generator=torch.Generator().manual_seed(options.seed))
    answers = answers / answers.std() + options.noise * noise
    terms = terms / terms.square().mean(0).sqrt()
    kind = torch.get_default_dtype()
    bounds = [0, len(answers) // 2, 3 * len(answers) // 4, len(answers)]
    parts = [
        Part(terms[first:last].to(kind), answers[first:last].to(kind))
        for first, last in itertools.pairwise(bounds)
    ]
    return Parts(*parts)


# Images.


def _images(options: TrainingOptions) -> Parts:
    images = load_images(options.dataset, options.data)
    order = torch.randperm(len(images.train), generator=torch.Generator().manual_seed(options.seed))
    number = round(_VALIDATION * len(order))
    return Parts(
        *(
            Part(pictures.to(torch.get_default_dtype()) / 255, labels)
            for pictures, labels in (
                (images.train[order[number:]], images.train_labels[order[number:]]),
                (images.train[order[:number]], images.train_labels[order[:number]]),
                (images.test, images.test_labels),
            )
        )
    )


def layers(*sizes: int) -> nn.Sequential:
    """Linear layers with a ReLU between them."""
    pairs = [nn.Linear(*pair) for pair in itertools.pairwise(sizes)]
    return nn.Sequential(*[layer for pair in pairs for layer in (pair, nn.ReLU())][:-1])


def scored(part: Part) -> list[Part]:
    """A part in chunks."""
    return [Part(*chunk) for chunk in zip(*(x.split(_CHUNK) for x in part), strict=True)]


class Masked(Task):
    """A classifier that sees k pixels."""

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        self.items = parts.train.inputs.shape[1]
        self.classifier = layers(self.items, *options.hidden, CLASSES)

    def scored_pixels(self, images: Tensor) -> Tensor:
        """The logits of all pixels, or of the pixels of each image."""
        raise NotImplementedError

    def loss(self, contender: Contender, rows: Tensor) -> Tensor:
        images, labels = self.parts.train.inputs[rows], self.parts.train.answers[rows]

        def error(subsets: Tensor) -> Tensor:
            masks = subsets.unsqueeze(-2) if subsets.ndim == 2 else subsets
            found = self.classifier(masks * images)
            wanted = labels.expand(found.shape[:-1])
            errors = cross_entropy(found.flatten(0, 1), wanted.flatten(), reduction="none")
            values: Tensor = errors.view(wanted.shape)
            return values.mean(-1) if subsets.ndim == 2 else values

        scores = self.scored_pixels(images)
        return contender.expectation(error, scores, self.k, self.options.samples)

    def scores(self, part: Part) -> dict[str, float]:
        errors, right = 0.0, 0.0
        for images, labels in scored(part):
            found = self.classifier(largest(self.scored_pixels(images), self.k) * images)
            errors += float(cross_entropy(found, labels, reduction="sum"))
            right += float((found.argmax(-1) == labels).sum())
        number = len(part.answers)
        return {"loss": errors / number, "accuracy": right / number}


class Pixels(Masked):
    """The same pixels of every image."""

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        self.logits = nn.Parameter(torch.zeros(self.items))

    def scored_pixels(self, images: Tensor) -> Tensor:
        return self.logits

    def selector(self) -> list[nn.Parameter]:
        return [self.logits]


class PixelsOfEach(Masked):
    """Pixels that a network chooses for every image."""

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        self.scorer = layers(self.items, 100, self.items)

    def scored_pixels(self, images: Tensor) -> Tensor:
        scores: Tensor = self.scorer(images)
        return scores

    def selector(self) -> list[nn.Parameter]:
        return list(self.scorer.parameters())


class SubsetVae(Task):
    """A variational autoencoder whose latent is some subsets, uniform in the prior.

    The KL divergence is the exact one of Fisher's law for all contenders, and the bound is scored
    with draws of this law.
    """

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        pixels, latents = parts.train.inputs.shape[1], options.latents
        self.encoder = layers(pixels, *options.hidden, latents * latents)
        self.decoder = layers(latents * latents, *reversed(options.hidden), pixels)
        self.law = SubsetSampler(self.k)

    def logits(self, images: Tensor) -> Tensor:
        shape = (self.options.latents, self.options.latents)
        scores: Tensor = self.encoder(images).unflatten(-1, shape)
        return scores

    def errors(self, subsets: Tensor, images: Tensor) -> Tensor:
        found = self.decoder(subsets.flatten(-2))
        wanted = images.expand_as(found)
        errors: Tensor = binary_cross_entropy_with_logits(found, wanted, reduction="none").sum(-1)
        return errors

    def loss(self, contender: Contender, rows: Tensor) -> Tensor:
        images = self.parts.train.inputs[rows]
        logits = self.logits(images)
        error = contender.expectation(
            lambda subsets: self.errors(subsets, images), logits, self.k, self.options.samples
        )
        return error + self.law.kl(logits).sum(-1).mean()

    def selector(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def scores(self, part: Part) -> dict[str, float]:
        bound, likeliest = 0.0, 0.0
        for images, _ in scored(part):
            logits = self.logits(images)
            divergence = self.law.kl(logits).sum()
            bound += float(self.errors(self.law(logits), images).sum() + divergence)
            mode = largest(logits, self.k)
            likeliest += float(self.errors(mode, images).sum() + divergence)
        number = len(part.inputs)
        return {"loss": bound / number, "loss by the mode": likeliest / number}


class Neighbours(Task):
    """An embedding in which k of some candidates, drawn by their distance, are of one's class."""

    besides = 128
    candidates = 10_000

    def __init__(self, options: TrainingOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        self.embedding = layers(parts.train.inputs.shape[1], *options.hidden, 2)

    def loss(self, contender: Contender, rows: Tensor) -> Tensor:
        places: Tensor = self.embedding(self.parts.train.inputs[rows])
        labels = self.parts.train.answers[rows]
        number = len(rows) - self.besides
        logits = -torch.cdist(places[:number], places[number:])
        same = (labels[:number].unsqueeze(-1) == labels[number:]).to(logits.dtype)
        return contender.expectation(
            lambda subsets: -(subsets * same).sum(-1) / self.k,
            logits,
            self.k,
            self.options.samples,
        )

    def selector(self) -> list[nn.Parameter]:
        return list(self.embedding.parameters())

    def scores(self, part: Part) -> dict[str, float]:
        known = Part(*(values[: self.candidates] for values in self.parts.train))
        places, same, right = self.embedding(known.inputs), 0.0, 0.0
        k = min(self.k, len(places))
        for images, labels in scored(part):
            nearest = torch.cdist(self.embedding(images), places).topk(k, largest=False).indices
            found = known.answers[nearest]
            same += float((found == labels.unsqueeze(-1)).double().mean(-1).sum())
            right += float((found.mode(-1).values == labels).sum())
        number = len(part.answers)
        return {"loss": -same / number, "accuracy": right / number}


_TASKS: dict[str, type[Task]] = {
    "regression": Regression,
    "pixels": Pixels,
    "pixels-each": PixelsOfEach,
    "vae": SubsetVae,
    "neighbours": Neighbours,
}


def parts_of(options: TrainingOptions) -> Parts:
    """The data of a task."""
    return _equation(options) if options.task == "regression" else _images(options)
