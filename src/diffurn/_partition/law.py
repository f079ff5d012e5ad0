"""The law of a random partition, as estimators of gradients use it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._law import Law
from diffurn._numerics.autograd import straight_through
from diffurn._partition.cuts import given_others, in_subset, inclusion, prob_of_cuts
from diffurn._partition.stages import labels_by_rank


@dataclass(frozen=True)
class PartitionLaw:
    """Memberships y_ik = 1[item i is in subset k], ``(..., n, K)``, with gradients.

    Args:
        log_scores: s, finite, ``(..., n)``, float64; carries the gradient.
        mask: which items exist, ``(..., n)``.
        urn: finite log ω, m and the number of items: the urn of the sizes, in float64.
        of_sizes: its law.
    """

    log_scores: Tensor
    mask: Tensor
    urn: tuple[Tensor, Tensor, Tensor]
    of_sizes: Law

    @property
    def items(self) -> int:
        return self.log_scores.shape[-1]

    @property
    def subsets(self) -> int:
        return self.urn[0].shape[-1]

    def draw(self, num_samples: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sizes ``(num_samples, ..., K)``, log times of arrival ``(num_samples, ..., n)``, and the
        places of the items in the order of these times.

        An item of weight e^s arrives after an exponential time of that rate; a missing one never
        does.
        """
        with torch.no_grad():
            sizes = self.of_sizes.sample(num_samples, torch.float64)
            noise = torch.empty_like(self.log_scores.expand(num_samples, *self.log_scores.shape))
            log_times = noise.exponential_().log_() - self.log_scores
            log_times = torch.where(self.mask, log_times, torch.inf)
            return sizes, log_times, log_times.argsort(-1).argsort(-1)

    def labels(self, num_samples: int) -> Tensor:
        """The subset of each item, int64; -1 for missing ones."""
        sizes, _, ranks = self.draw(num_samples)
        return torch.where(self.mask, labels_by_rank(ranks, sizes), -1)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        labels = self.labels(num_samples).unsqueeze(-1)
        return (labels == torch.arange(self.subsets, device=labels.device)).to(dtype)

    def cuts(self) -> Tensor:
        """P(the subsets before k hold j items), ``(..., K - 1, n + 1)``; differentiable."""
        return prob_of_cuts(*self.urn, self.items)

    def mean(self) -> Tensor:
        """P(item i is in subset k); differentiable."""
        return inclusion(self.log_scores, self.mask, self.cuts())

    def rsample(self, num_samples: int) -> Tensor:
        """Exact draws with the derivatives of the mean."""
        return straight_through(self.sample(num_samples, torch.float64), self.mean())

    def rsample_given_parts(self, num_samples: int) -> Tensor:
        """Exact draws with the derivatives of conditional probabilities.

        Those in the scores are of the probability given the sizes and the times of all other items,
        and those in the weights of the probability given the order.
        """
        sizes, log_times, ranks = self.draw(num_samples)
        if not (self.items and self.subsets > 1):
            return in_subset(log_times.unsqueeze(-1)[..., :0], self.mask)
        cuts = sizes.cumsum(-1)[..., :-1]  # (S, ..., K - 1)
        log_times = log_times + (self.log_scores.detach() - self.log_scores)
        places = ranks.unsqueeze(-2)
        by_scores = given_others(
            self.log_scores.unsqueeze(-2), log_times.unsqueeze(-2), places, cuts
        )
        behind = self.cuts().flip(-1).cumsum(-1).flip(-1)[..., 1:]  # P(C_k > place)
        before = places.expand(by_scores.shape)
        by_weights = behind.expand(*by_scores.shape[:-1], self.items).gather(-1, before)
        hard = (places < cuts.unsqueeze(-1)).to(by_scores.dtype)
        return in_subset(straight_through(hard, by_scores + by_weights).mT, self.mask)
