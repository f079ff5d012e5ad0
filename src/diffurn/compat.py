"""The call signatures of the authors' code on the exact core of this package.

A script that imports `MVHG` from ``mvhg.pt_fmvhg``, `RandPart` from ``drpm.diff_rand_part_model``,
or `PL` from ``drpm.pl`` runs with the same names from this module. Arguments and shapes are the
same. What differs:

- Sizes follow Fisher's law. There they follow a chain in which later groups are merged.
- ``log_p`` is the exact log-probability of the sizes, and ``log_p_pi_n`` that of the items given
  the sizes. Their sum is the exact log-probability of the partition. There the former is that of
  the merged chain, and the latter that of one order.
- The count of the group drawn last has the right gradient: it is what the others leave.
- Results lie on the device of the inputs. The arguments `device` and `eps` have no effect.
- Scores are sorted as they are, without small noise.

For new code, `FisherHypergeometric` and `RandomPartition` offer more, and estimators of less bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffurn._fisher.conditionals import Conditional
from diffurn._numerics.autograd import straight_through
from diffurn._partition.stages import log_prob_of_items, sizes_of
from diffurn.estimators import GumbelDraw, GumbelSoftmax, neuralsort
from diffurn.estimators.partitions import subset_of_place
from diffurn.fisher import FisherHypergeometric

__all__ = ["MVHG", "PL", "RandPart"]


class MVHG(nn.Module):
    """Relaxed draws of Fisher's law, by Gumbel-Softmax through a chain of exact conditional laws.

    Args:
        device: has no effect.
        eps: has no effect.

    Example:
        >>> mvhg = MVHG(device="cpu")
        >>> m, n, log_w = torch.tensor([10, 10, 10]), torch.tensor([[10]]), torch.zeros(1, 3)
        >>> y, x, y_mask, log_p = mvhg(m, n, log_w, temperature=1.0)
        >>> [each.shape for each in (y[0], x[0], log_p)]
        [torch.Size([1, 1, 11]), torch.Size([1, 1, 1]), torch.Size([1])]
        >>> sum(x).item()
        10.0
    """

    def __init__(self, device: Any = "cuda", eps: float = 1e-20) -> None:
        super().__init__()
        self.device, self.eps = device, eps

    def forward(
        self,
        m_all: Tensor,
        n: Tensor,
        log_w_all: Tensor,
        temperature: float | Tensor,
        add_noise: bool = True,
        hard: bool = True,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
        """One draw of each row of `log_w_all`.

        Args:
            m_all: group sizes ``(c,)``.
            n: draws ``(B, 1)`` or ``(1,)``.
            log_w_all: log ω, ``(B, c)``.
            temperature: τ > 0.
            add_noise: whether to add Gumbel noise; without it each group has its most probable
                count, given those before.
            hard: whole counts forward; otherwise relaxed ones.

        Returns:
            For each group its one-hot ``(B, 1, m + 1)``, its count ``(B, 1, 1)`` and
            ``1[k ≤ count]`` for k = 0, …, m, ``(B, 1, m + 1)``; and the exact log-probability of
            the counts, ``(B,)``.
        """
        estimator = (GumbelSoftmax if add_noise else _WithoutNoise)(
            temperature, hard, order="random"
        )
        urn = _urn(m_all, n, log_w_all)
        draw = estimator.draw(urn)
        sizes = [int(size) for size in m_all]
        one_hots = _full_one_hots(draw, sizes)
        counts = [x.unsqueeze(-1) for x in draw.counts.unbind(-1)]
        indicators = [y.flip(-1).cumsum(-1).flip(-1) for y in one_hots]
        log_p = urn.log_prob(torch.stack([x.squeeze(-1) for x in counts], -1)).to(log_w_all.dtype)
        shaped = (
            [x.unsqueeze(1).to(log_w_all.dtype) for x in values]
            for values in (one_hots, counts, indicators)
        )
        return *shaped, log_p  # type: ignore[return-value]

    def get_log_probs(
        self,
        m_all: Tensor,
        n: Tensor,
        x_all: Sequence[Tensor],
        y_all: Any,
        log_w_all: Tensor,
    ) -> Tensor:
        """The exact log-probability ``(B,)`` of counts, one ``(B, 1, 1)`` for each group.

        The one-hots `y_all` have no effect.
        """
        x = torch.cat([each.reshape(-1, 1) for each in x_all], -1)
        return _urn(m_all, n, log_w_all).log_prob(x.double()).to(log_w_all.dtype)


def _urn(m_all: Tensor, n: Tensor, log_w_all: Tensor) -> FisherHypergeometric:
    # Relaxed counts are no whole numbers, so values are not checked.
    draws = n.reshape(-1).round().long()
    sizes = m_all.round().long()
    if (draws > sizes.sum()).any() or (draws < 0).any():
        raise ValueError(f"n is {draws.tolist()}, but must be from 0 to {int(sizes.sum())} balls")
    return FisherHypergeometric(sizes, draws, log_weights=log_w_all.double(), validate_args=False)


def _full_one_hots(draw: GumbelDraw, sizes: Sequence[int]) -> list[Tensor]:
    """The one-hots over all counts 0, …, m of each group, ``(B, m + 1)``.

    That of the group drawn last follows from its count, which may be relaxed: it interpolates
    between neighbours. Its derivative at a whole count is half of a step up and half of one down.
    """
    full = []
    for group, size in enumerate(sizes):
        some, start = draw.one_hots[group], draw.window_starts[group].long()
        whole = some.new_zeros(*some.shape[:-1], size + 1)
        if some.shape[-1] > 1:
            column = start.unsqueeze(-1) + torch.arange(some.shape[-1], device=some.device)
            inside = torch.where(column <= size, some, 0.0)
            full.append(whole.scatter_add(-1, column.clamp(max=size), inside))
            continue
        count = draw.counts[..., group].unsqueeze(-1)
        x = count.detach().clamp(0, size)
        low, above, below = (
            place.clamp(0, size).long() for place in (x.floor(), x.floor() + 1, x.ceil() - 1)
        )
        part = x - low
        value = whole.scatter(-1, low, 1 - part).scatter_add(-1, above, part)
        step = whole.scatter_add(-1, above, torch.ones_like(x))
        step = step.scatter_add(-1, below, -torch.ones_like(x)) / (above - below).clamp(min=1)
        full.append(straight_through(value, step * count))
    return full


class _WithoutNoise(GumbelSoftmax):
    def _noise(self, place: int, law: Conditional) -> Tensor:
        return torch.zeros_like(law.log_weights)


class PL:
    """Relaxed orders of Plackett and Luce's law, by NeuralSort.

    Args:
        scores: ``(B, n)``.
        tau: the temperature; None where no order is drawn.
        g_noise: whether to add Gumbel noise.
        hard: permutations forward; otherwise relaxed ones.
        validate_args: has no effect.
    """

    has_rsample = True

    def __init__(
        self,
        scores: Tensor,
        tau: float | Tensor | None,
        g_noise: bool = True,
        hard: bool = True,
        validate_args: Any = None,
    ) -> None:
        self.scores = scores.double().unsqueeze(-1)
        self.tau, self.g_noise, self.hard = tau, g_noise, hard
        self.n = scores.shape[-1]

    @property
    def mean(self) -> Tensor:
        """The order by scores, ``(B, n, n)``."""
        return self.relaxed_sort(self.scores)

    def relaxed_sort(self, inp: Tensor, hard: bool = True) -> Tensor:
        """The matrix ``(B, n, n)`` that sorts ``(B, n, 1)`` in descending order."""
        if self.tau is None:
            raise ValueError("tau is None, but must be a temperature > 0 to draw an order")
        return neuralsort(inp.squeeze(-1), self.tau, self.hard and hard)

    def rsample(self, sample_shape: Sequence[int]) -> Tensor:
        """Permutation matrices ``(B, n, n)`` for ``[1]``, or ``(S, B, n, n)``, in float32."""
        if self.tau is None:
            raise ValueError("tau is None, but must be a temperature > 0 to draw an order")
        number = sample_shape[0]
        scores = self.scores.squeeze(-1).expand(number, *self.scores.shape[:-1])
        drawn = neuralsort(scores, self.tau, self.hard, stochastic=self.g_noise)
        return (drawn.squeeze(0) if number == 1 else drawn).float()

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability of matrices ``(B, n, n)``: ``(B,)``, or a scalar for B = 1."""
        taken = (value.double() @ self.scores).squeeze(-1)
        return _scalar_of_one((taken - taken.flip(-1).logcumsumexp(-1).flip(-1)).sum(-1))


def _scalar_of_one(values: Tensor) -> Tensor:
    return values[0] if values.shape == (1,) else values


class RandPart(nn.Module):
    """Random partitions of n items into K subsets.

    Args:
        n_cluster: K.
        tau_mult: the temperature of the order in that of the sizes.
        perm_log_p_pi_n: has no effect, since the log-probability is exact.
        eps: has no effect.
        device: has no effect.

    Example:
        >>> part, perm, *_, log_p_mvhg, log_p_pi_n = RandPart(3, device="cpu")(
        ...     torch.randn(2, 7), torch.zeros(2, 3), temperature=0.5
        ... )
        >>> part.shape, part.sum(1).unique(), perm.shape, log_p_pi_n.shape
        (torch.Size([2, 3, 7]), tensor([1.]), torch.Size([2, 7, 7]), torch.Size([2]))
    """

    def __init__(
        self,
        n_cluster: int,
        tau_mult: float = 1.0,
        perm_log_p_pi_n: bool = True,
        eps: float = 1e-10,
        device: Any = "cuda",
    ) -> None:
        super().__init__()
        self.n_cluster, self.tau_mult, self.device, self.eps = n_cluster, tau_mult, device, eps
        self.perm_log_p_pi_n = perm_log_p_pi_n
        self.mvhg = MVHG(device)

    def forward(
        self,
        sort_log_score: Tensor,
        mvhg_log_omega: Tensor,
        g_noise: bool = True,
        hard_n: bool = True,
        hard_pi: bool = True,
        temperature: float | Tensor = 1e-2,
        conditional_log_score_selection: Tensor | None = None,
    ) -> tuple[Any, ...]:
        """One partition for each row of scores ``(B, n)`` and log-weights ``(B, K)``.

        Returns:
            The memberships ``(B, K, n)``, the order ``(B, n, n)``, the one-hots of the sizes (K of
            ``(B, 1, n + 1)``), the subset of each place of the order ``(B, K, n)``, the sizes (K of
            ``(B, 1, 1)``), and the exact log-probabilities of the sizes, ``(B,)``, and of the items
            given the sizes, ``(B,)`` or a scalar for B = 1. With `conditional_log_score_selection`,
            the scores come last.
        """
        if mvhg_log_omega.shape[-1] != self.n_cluster:
            raise ValueError(
                f"mvhg_log_omega has {mvhg_log_omega.shape[-1]} weights in its last dimension, but "
                f"n_cluster is {self.n_cluster}"
            )
        ohts, places, sizes, log_p_mvhg = self.get_partition_sizes(
            sort_log_score.shape[-1], mvhg_log_omega, g_noise, hard_n, temperature
        )
        if conditional_log_score_selection is not None:
            sort_log_score = self.compute_conditioned_log_scores(
                sort_log_score, conditional_log_score_selection, places, temperature
            )
        perm, part, log_p_pi_n = self.get_partition(
            sort_log_score, places, temperature, g_noise, hard_pi
        )
        found = part, perm, ohts, places, sizes, log_p_mvhg, log_p_pi_n
        return found if conditional_log_score_selection is None else (*found, sort_log_score)

    def get_partition_sizes(
        self,
        num_samples: int,
        log_omega: Tensor,
        g_noise: bool = True,
        hard: bool = True,
        temperature: float | Tensor = 1e-2,
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """One-hots of the sizes, the subset of each place ``(B, K, n)``, the sizes, and log P."""
        m = torch.full((self.n_cluster,), num_samples, device=log_omega.device)
        n = torch.full((len(log_omega), 1), num_samples, device=log_omega.device)
        ohts, sizes, filled, log_p = self.mvhg(m, n, log_omega, temperature, g_noise, hard)
        indicators = torch.cat(filled[:-1], 1)[..., 1:] if self.n_cluster > 1 else None
        exists = torch.ones_like(filled[0][:, 0, 1:])
        if indicators is None:
            return ohts, exists.unsqueeze(1), sizes, log_p
        return ohts, subset_of_place(indicators, exists), sizes, log_p

    def get_partition(
        self,
        log_scores: Tensor,
        filled_ohts: Tensor,
        temperature: float | Tensor,
        add_noise: bool,
        hard: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The order ``(B, n, n)``, memberships ``(B, K, n)``, and log P(items | sizes) ``(B,)``.

        The log-probability is that of the subsets of largest membership, with its exact gradient in
        the scores. Through the draw it has the gradient of the log-probability of the order.
        """
        sort = PL(log_scores, self.tau_mult * temperature, add_noise, hard)
        permutation = sort.rsample([1]).to(log_scores.dtype)
        partition = (filled_ohts @ permutation).clamp(0.0, 1.0)
        labels = partition.detach().argmax(1)
        scores = log_scores.double().expand(labels.shape)
        exact = log_prob_of_items(scores, labels, sizes_of(labels, filled_ohts.shape[1]))
        through = PL(log_scores.detach(), None).log_prob(permutation)
        return (
            permutation,
            partition,
            straight_through(_scalar_of_one(exact.detach()), _scalar_of_one(exact) + through),
        )

    def get_log_prob_mvhg(
        self, log_omega: Tensor, x_hat: Tensor | Sequence[Tensor], y_hat: Any = None
    ) -> Tensor:
        """The exact log-probability ``(B,)`` of sizes, one for each subset."""
        sizes = x_hat.unbind(-1) if isinstance(x_hat, Tensor) else list(x_hat)
        x = torch.cat([each.reshape(-1, 1) for each in sizes], -1)
        number = x[0].sum().detach().round()
        m = number.repeat(self.n_cluster)
        return self.mvhg.get_log_probs(m, number.repeat(len(log_omega), 1), sizes, y_hat, log_omega)

    def get_log_prob_permutation(self, log_scores: Tensor, permutation: Tensor) -> Tensor:
        """The log-probability ``(B,)`` of an order."""
        return PL(log_scores, None).log_prob(permutation)

    def compute_conditioned_log_scores(
        self,
        sort_log_score: Tensor,
        conditional_log_score_selection: Tensor,
        shifted_filled_ohts: Tensor,
        temperature: float | Tensor = 1.0,
    ) -> Tensor:
        """The scores ``(B, n)`` of the subsets ``(B, K)`` that the items get by their scores."""
        sort = PL(sort_log_score, self.tau_mult * temperature, g_noise=False)
        permutation = sort.rsample([1]).to(shifted_filled_ohts.dtype)
        of_places = conditional_log_score_selection.unsqueeze(1) @ shifted_filled_ohts
        return (of_places @ permutation).squeeze(1)
