r"""Which latents two views of a pair share: all in which LabelVAE, AdaVAE and HGVAE differ.

Both views have a normal posterior per latent, :math:`q_1` and :math:`q_2`. Latents whose posteriors
differ most, by Kullback-Leibler divergence, are called *independent*, the others *shared*; the
methods differ in how many. `Hypergeometric` draws the number k̂ of independent latents from an urn
with d balls for "independent" and d for "shared", of which d are drawn: Fisher's law with
importance ω, which one dense layer makes from the divergences of the pair.

References: T. M. Sutter et al. (ICLR 2023), appendix on weak supervision; F. Locatello et al.,
*Weakly-Supervised Disentanglement Without Compromises* (ICML 2020); D. Bouchacourt et al. (AAAI
2018); H. Hosoya (IJCAI 2019).

All functions work on a stack of S models with B pairs each and d latents.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor

from diffurn.estimators import neuralsort, select_top

Estimator = Literal["gumbel", "covariance"]
Scale = Literal["raw", "log1p"]
Sorting = Literal["relaxed", "detached"]
Payment = Literal["both", "once"]
Averaging = Literal["group", "product"]


class Differences(NamedTuple):
    """What a method may know about B pairs of every model.

    Attributes:
        one_sided: KL(q₁‖q₂) of every latent, (S, B, d).
        symmetric: ½ KL(q₁‖q₂) + ½ KL(q₂‖q₁), (S, B, d).
        log_weights: log ω of "independent" and "shared" from the model's dense layer, (S, B, 2).
        known: number of a factor that is known to differ, (S, B).
        differing: how many factors truly differ, (S, B).
        gumbel: noise for k̂ = 0, …, d, (S, B, d + 1).
        temperature: of every model, (S,).
    """

    one_sided: Tensor
    symmetric: Tensor
    log_weights: Tensor
    known: Tensor
    differing: Tensor
    gumbel: Tensor
    temperature: Tensor


class ViewAggregation(Protocol):
    """One of the methods."""

    def independent(self, pairs: Differences) -> Tensor:
        """1 for latents called independent, 0 for shared ones, (S, B, d); gradients are those of a
        relaxation, if any.
        """


@dataclass(frozen=True)
class Label:
    """LabelVAE: one latent is independent, the one that differs most; or the latent with the number
    of the factor known to differ.
    """

    by_index: bool = False

    def independent(self, pairs: Differences) -> Tensor:
        if not self.by_index:
            return largest(pairs.symmetric, torch.ones_like(pairs.known))
        latents = torch.arange(pairs.symmetric.shape[-1], device=pairs.known.device)
        return (latents == pairs.known.unsqueeze(-1)).to(pairs.symmetric.dtype)


@dataclass(frozen=True)
class Oracle:
    """As many independent latents as factors truly differ: what nobody knows in practice."""

    def independent(self, pairs: Differences) -> Tensor:
        return largest(pairs.symmetric, pairs.differing)


@dataclass(frozen=True)
class Ada:
    """AdaVAE: latents whose divergence is at least midway between the smallest and the largest one
    are independent.
    """

    def independent(self, pairs: Differences) -> Tensor:
        divergence = pairs.one_sided.detach()
        threshold = 0.5 * (divergence.amin(-1, keepdim=True) + divergence.amax(-1, keepdim=True))
        return (divergence >= threshold).to(divergence.dtype)


@dataclass(frozen=True)
class Hypergeometric:
    """HGVAE: the k̂ latents that differ most are independent, k̂ drawn from an urn with learned
    importance.

    Args:
        estimator: of the gradient through the draw: ``gumbel``, straight-through Gumbel-Softmax as
            in the paper (for two groups the merged and the exact law are the same), or
            ``covariance``, the exact gradient of P(k̂ ≥ i), as `diffurn.CovarianceST` has it.
        scale: the dense layer sees the symmetric divergences as they are (``raw``, as in the paper)
            or their ``log1p``.
        sorting: gradients flow through NeuralSort into the divergences (``relaxed``, as in the
            paper), or not (``detached``).
    """

    estimator: Estimator = "gumbel"
    scale: Scale = "raw"
    sorting: Sorting = "relaxed"

    def independent(self, pairs: Differences) -> Tensor:
        temperature = pairs.temperature[:, None, None]
        scores = pairs.symmetric if self.sorting == "relaxed" else pairs.symmetric.detach()
        permutation = neuralsort(scores, temperature.unsqueeze(-1), hard=True)
        return select_top(
            permutation, self.rank_indicators(pairs.log_weights, pairs.gumbel, temperature)
        )

    def rank_indicators(self, log_weights: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """1[i ≤ k̂] for i = 1, …, d, of one draw k̂ of every urn: hard forward, with the
        estimator's gradient at ω backward.
        """
        log_law = independent_counts_log_law(log_weights, gumbel.shape[-1] - 1)
        perturbed = log_law + gumbel
        soft = (
            torch.softmax(perturbed / temperature, -1)
            if self.estimator == "gumbel"
            else log_law.exp()
        )
        counts = torch.arange(perturbed.shape[-1], device=perturbed.device)
        hard = (counts == perturbed.argmax(-1, keepdim=True)).to(soft.dtype)
        return at_least(hard + (soft - soft.detach()))


def independent_counts_log_law(log_weights: Tensor, latents: int) -> Tensor:
    r"""log P(k̂ = k) for k = 0, …, d: the urn m = (d, d), n = d, as a table over its whole support,
    so that nothing waits for the host.

    .. math:: P(k) ∝ \binom{d}{k} \binom{d}{d - k} (ω_1 / ω_2)^k

    Example:
        >>> independent_counts_log_law(torch.zeros(2), latents=2).exp()  # C(2, k)² / C(4, 2)
        tensor([0.1667, 0.6667, 0.1667])
    """
    ways = [2 * math.log(math.comb(latents, k)) for k in range(latents + 1)]
    coefficients = torch.tensor(ways, dtype=log_weights.dtype, device=log_weights.device)
    counts = torch.arange(latents + 1, dtype=log_weights.dtype, device=log_weights.device)
    log_ratio = log_weights[..., 0] - log_weights[..., 1]
    return torch.log_softmax(coefficients + counts * log_ratio.unsqueeze(-1), -1)


def at_least(of_counts: Tensor) -> Tensor:
    """Σ_{k ≥ i} y_k for i = 1, …, d, from y over the counts 0, …, d."""
    return of_counts[..., 1:].flip(-1).cumsum(-1).flip(-1)


def largest(scores: Tensor, number: Tensor) -> Tensor:
    """1 for the `number` (...) largest of the scores (..., d), 0 for the others; of equal ones the
    first.
    """
    scores = scores.detach()
    above = scores.unsqueeze(-2) > scores.unsqueeze(-1)
    items = torch.arange(scores.shape[-1], device=scores.device)
    tied_before = (scores.unsqueeze(-2) == scores.unsqueeze(-1)) & (items < items.unsqueeze(-1))
    return ((above | tied_before).sum(-1) < number.unsqueeze(-1)).to(scores.dtype)


@dataclass(frozen=True)
class Method:
    """A method with the settings its models are trained with.

    Args:
        aggregation: see the classes of this module.
        payment: who pays for the KL of a shared latent: ``both`` views, as the paper's code base
            has it, or the pair ``once``, as the evidence lower bound of a model with truly shared
            latents has it.
        averaging: posterior of a shared latent: ``group``, the mean of means and of variances, or
            ``product`` of the two experts.
        learning_rate: of Adam.
        final_temperature: of the hypergeometric draw and of the sort.
        beta: factor on the KL.
    """

    aggregation: ViewAggregation
    payment: Payment = "both"
    averaging: Averaging = "group"
    learning_rate: float = 1e-4
    final_temperature: float = 0.01
    beta: float = 1.0


_KINDS = {
    "label": Method(Label()),
    "oracle": Method(Oracle()),
    "ada": Method(Ada()),
    "hypergeometric": Method(Hypergeometric(), learning_rate=1e-6),  # the paper's rates
}
_NUMBERS = {"lr": "learning_rate", "tau": "final_temperature", "beta": "beta"}
_WORDS = {"payment": get_args(Payment), "averaging": get_args(Averaging)}
_URN_WORDS = {
    "estimator": get_args(Estimator),
    "scale": get_args(Scale),
    "sorting": get_args(Sorting),
}


def method_named(name: str) -> Method:
    """The method a name stands for: ``label``, ``oracle``, ``ada`` or ``hypergeometric``, with
    details behind dashes, in any order.

    Details of all are ``both``, ``once``; ``group``, ``product``; ``lr1e-4``, ``tau0.5``,
    ``beta2``. LabelVAE has ``index``, HGVAE ``gumbel``, ``covariance``; ``raw``, ``log1p``;
    ``relaxed``, ``detached``. Without details they are as in the paper.

    Example:
        >>> method_named("hypergeometric-log1p-once-lr1e-4").aggregation
        Hypergeometric(estimator='gumbel', scale='log1p', sorting='relaxed')
    """
    kind, *details = re.split(r"(?<!\de)-", name)  # the dash of 1e-4 is none
    if kind not in _KINDS:
        raise ValueError(
            f"there is no method {name!r}: choose {', '.join(_KINDS)}, with details as in "
            "hypergeometric-once-lr1e-4"
        )
    method = _KINDS[kind]
    given: set[str] = set()
    for detail in details:
        field, method = _with(method, detail, name)
        if field in given:
            raise ValueError(
                f"the method {name!r} has two words for one thing, the second of them {detail!r}"
            )
        given.add(field)
    return method


def _with(method: Method, detail: str, name: str) -> tuple[str, Method]:
    """The field a detail is about, and the method with it."""
    for field, words in _WORDS.items():
        if detail in words:
            return field, replace(method, **{field: detail})  # type: ignore[arg-type]
    if isinstance(method.aggregation, Label) and detail == "index":
        return "by_index", replace(method, aggregation=Label(by_index=True))
    for field, words in _URN_WORDS.items():
        if detail in words and isinstance(method.aggregation, Hypergeometric):
            aggregation = replace(method.aggregation, **{field: detail})  # type: ignore[arg-type]
            return field, replace(method, aggregation=aggregation)
    matched = re.fullmatch(f"({'|'.join(_NUMBERS)})(.+)", detail)
    try:
        if matched and float(matched[2]) > 0:
            field, number = _NUMBERS[matched[1]], float(matched[2])
            return field, replace(method, **{field: number})  # type: ignore[arg-type]
    except ValueError:
        pass
    numbers = ", ".join(f"{word}<number>" for word in _NUMBERS)
    raise ValueError(
        f"the method {name!r} has a detail {detail!r}: known are {', '.join(_words_of(method))}, "
        f"{numbers}"
    )


def _words_of(method: Method) -> list[str]:
    words = [word for choices in _WORDS.values() for word in choices]
    if isinstance(method.aggregation, Label):
        words.append("index")
    if isinstance(method.aggregation, Hypergeometric):
        words += [word for choices in _URN_WORDS.values() for word in choices]
    return words
