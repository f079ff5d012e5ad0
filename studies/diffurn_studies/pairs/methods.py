r"""The methods that the study compares: how a model decides which latents two views share.

Both views have a normal posterior per latent, :math:`q_1` and :math:`q_2`. Every method calls the
latents whose posteriors differ most, by Kullback-Leibler divergence, *independent* and the others
*shared*. The methods differ in how many latents are independent. `Hypergeometric` draws this
number k̂ from an urn with d balls for "independent" and d balls for "shared", of which d are drawn:
Fisher's distribution with weights ω, which one dense layer computes from the divergences.
`Partition` draws the order of the latents as well, so that both parts are a random partition.

References: T. M. Sutter et al. (ICLR 2023), appendix on weak supervision; T. M. Sutter et al.,
*Differentiable Random Partition Models* (NeurIPS 2023); F. Locatello et al.,
*Weakly-Supervised Disentanglement Without Compromises* (ICML 2020); D. Bouchacourt et al. (AAAI
2018); H. Hosoya (IJCAI 2019).

All functions work on a stack of S models with B pairs each and d latents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from diffurn._partition.cuts import given_others
from diffurn.estimators import neuralsort, select_top
from diffurn_studies.pairs.counts import (
    at_least,
    drawn_indicators,
    independent_log_probs,
    largest,
    log_divergences,
)

Estimator = Literal["gumbel", "covariance"]
OfPartition = Literal["gumbel", "conditional"]
Scores = Literal["network", "divergence"]
Scale = Literal["raw", "log1p"]
Sorting = Literal["relaxed", "detached", "stochastic"]
Prior = float | Literal["learned"] | None
Payment = Literal["both", "once"]
Averaging = Literal["group", "product"]


class Differences(NamedTuple):
    """The input of a method, for B pairs of every model.

    Attributes:
        one_sided: KL(q₁‖q₂) of every latent, (S, B, d).
        symmetric: ½ KL(q₁‖q₂) + ½ KL(q₂‖q₁), (S, B, d).
        log_weights: log ω of "independent" and "shared" from the model's dense layer, (S, B, 2).
        known: index of a factor that is known to differ, (S, B).
        differing: how many factors truly differ, (S, B).
        gumbel: noise for k̂ = 0, …, d, and for the d scores of a stochastic sort if there is one,
            (S, B, d + 1) or (S, B, 2d + 1).
        temperature: of every model, (S,).
        log_scores: of the latents of a random partition, (S, B, d).
    """

    one_sided: Tensor
    symmetric: Tensor
    log_weights: Tensor
    known: Tensor
    differing: Tensor
    gumbel: Tensor
    temperature: Tensor
    log_scores: Tensor


@dataclass(frozen=True)
class Label:
    """LabelVAE: one latent is independent.

    Args:
        by_index: take the latent with the index of the factor that is known to differ, instead of
            the latent with the largest divergence.
    """

    kind: Literal["label"] = field(default="label", init=False, repr=False)
    by_index: bool = False

    def independent(self, pairs: Differences) -> Tensor:
        if not self.by_index:
            return largest(pairs.symmetric, torch.ones_like(pairs.known))
        latents = torch.arange(pairs.symmetric.shape[-1], device=pairs.known.device)
        return (latents == pairs.known.unsqueeze(-1)).to(pairs.symmetric.dtype)


@dataclass(frozen=True)
class Adaptive:
    """AdaVAE: latents are independent whose divergence is at least midway between the smallest and
    the largest one.
    """

    kind: Literal["adaptive"] = field(default="adaptive", init=False, repr=False)

    def independent(self, pairs: Differences) -> Tensor:
        divergence = pairs.one_sided.detach()
        threshold = 0.5 * (divergence.amin(-1, keepdim=True) + divergence.amax(-1, keepdim=True))
        return (divergence >= threshold).to(divergence.dtype)


@dataclass(frozen=True)
class Oracle:
    """As many independent latents as factors truly differ. A model in practice does not know this
    number.
    """

    kind: Literal["oracle"] = field(default="oracle", init=False, repr=False)

    def independent(self, pairs: Differences) -> Tensor:
        return largest(pairs.symmetric, pairs.differing)


@dataclass(frozen=True)
class Hypergeometric:
    """HGVAE: the k̂ latents with the largest divergences are independent; k̂ is drawn from an urn
    with learned weights.

    Args:
        estimator: gradient through the draw: ``gumbel``, straight-through Gumbel-Softmax as in the
            paper (for two groups the merged and the exact conditional are the same), or
            ``covariance``, the exact gradient of P(k̂ ≥ i), as in `diffurn.CovarianceST`.
        scale: input of the dense layer: the symmetric divergences (``raw``, as in the paper) or
            their ``log1p``.
        sorting: whether gradients flow through NeuralSort into the divergences (``relaxed``, as in
            the paper) or not (``detached``). ``stochastic`` adds Gumbel noise to the logarithms of
            the divergences, so that the order is a sample of a Plackett-Luce distribution; the KL
            divergence of this random permutation is not in the bound.
        prior: log ω₀ of the urn m = (d, d), n = d that is the prior of k̂; ω₀ is the weight of
            "independent" where "shared" has 1. The bound then contains the KL divergence of k̂.
            ``learned`` learns one log ω₀ for each model. None leaves this KL out, as the paper
            does.
    """

    kind: Literal["hypergeometric"] = field(default="hypergeometric", init=False, repr=False)
    estimator: Estimator = "gumbel"
    scale: Scale = "raw"
    sorting: Sorting = "relaxed"
    prior: Prior = None

    def __post_init__(self) -> None:
        _require_choice("estimator", self.estimator, Estimator)
        _require_choice("scale", self.scale, Scale)
        _require_choice("sorting", self.sorting, Sorting)
        _require_prior(self.prior)

    def independent(self, pairs: Differences) -> Tensor:
        temperature = pairs.temperature[:, None, None]
        of_counts, of_scores = _of_counts_and_scores(pairs)
        scores = pairs.symmetric.detach() if self.sorting == "detached" else pairs.symmetric
        if self.sorting == "stochastic":
            scores = log_divergences(scores) + of_scores
        permutation = neuralsort(scores, temperature.unsqueeze(-1), hard=True)
        return select_top(
            permutation, self.rank_indicators(pairs.log_weights, of_counts, temperature)
        )

    # `FisherHypergeometric([d, d], d, log_weights=...).rank_indicators(0)` is the same draw with
    # the same gradient (the tests compare both). It is not used here for two reasons. It draws from
    # torch's global generator, but the models of a stack need noise of their own, so that a model's
    # result depends on its seed alone. And this table, in float32 and without validation, is faster
    # in a training step: with the backward pass 0.8 ms instead of 3.3 ms for 64 pairs, 4.6 ms
    # instead of 8.9 ms for 36 models of 64 pairs (one CPU core, d = 10).
    def rank_indicators(self, log_weights: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """1[i ≤ k̂] for i = 1, …, d, for one draw k̂ of every urn: hard values forward, the
        estimator's gradient backward.
        """
        relaxed = temperature if self.estimator == "gumbel" else None
        return drawn_indicators(log_weights, gumbel, relaxed)


@dataclass(frozen=True)
class Partition:
    """DRPM-VAE: a random partition of the latents into independent and shared ones.

    The number k̂ of independent latents is drawn from the urn of `Hypergeometric`. The latents are
    drawn one after another, each with a probability proportional to e^score among those left, and
    the first k̂ are independent. The authors released no code of this experiment.

    Args:
        estimator: gradient through the draw: ``gumbel``, Gumbel-Softmax and NeuralSort as in the
            paper, or ``conditional``, exact conditional probabilities as in
            `diffurn.ConditionalST`.
        scale: input of the dense layers, as in `Hypergeometric`.
        scores: of the latents: from a dense layer of the divergences (``network``), or their
            logarithms (``divergence``).
        prior: log ω₀ of the urn that is the prior of k̂, as in `Hypergeometric`; given k̂, all sets
            of latents are equally probable. The bound then contains the KL divergence of the
            partition, by exact log-probabilities. None leaves it out.
    """

    kind: Literal["partition"] = field(default="partition", init=False, repr=False)
    estimator: OfPartition = "gumbel"
    scale: Scale = "raw"
    scores: Scores = "network"
    prior: Prior = None

    def __post_init__(self) -> None:
        _require_choice("estimator", self.estimator, OfPartition)
        _require_choice("scale", self.scale, Scale)
        _require_choice("scores", self.scores, Scores)
        _require_prior(self.prior)

    def independent(self, pairs: Differences) -> Tensor:
        of_counts, of_scores = _of_counts_and_scores(pairs)
        if self.estimator == "gumbel":
            temperature = pairs.temperature[:, None, None]
            scores = pairs.log_scores + of_scores
            permutation = neuralsort(scores, temperature.unsqueeze(-1), hard=True)
            indicators = drawn_indicators(pairs.log_weights, of_counts, temperature)
            return select_top(permutation, indicators)
        log_probs = independent_log_probs(pairs.log_weights, of_scores.shape[-1])
        number = (log_probs + of_counts).argmax(-1)
        log_times = -(pairs.log_scores + of_scores)
        ranks = log_times.detach().argsort(-1).argsort(-1)
        soft = given_others(pairs.log_scores, log_times, ranks, number)
        soft = soft + at_least(log_probs.exp()).gather(-1, ranks)
        return (ranks < number.unsqueeze(-1)).to(soft.dtype) + (soft - soft.detach())


def _of_counts_and_scores(pairs: Differences) -> tuple[Tensor, Tensor]:
    """The noise of k̂, and that of the scores."""
    first = pairs.symmetric.shape[-1] + 1
    return pairs.gumbel[..., :first], pairs.gumbel[..., first:]


# Each has a method `independent(pairs)`: 1 for independent latents, 0 for shared ones, (S, B, d);
# gradients, if any, are those of a relaxation.
DRAWN = (Hypergeometric, Partition)
Aggregation = Label | Adaptive | Oracle | Hypergeometric | Partition
_AGGREGATIONS = {each.kind: each for each in (Label, Adaptive, Oracle, Hypergeometric, Partition)}
_NAMES = {
    "label": "LabelVAE",
    "adaptive": "AdaVAE",
    "oracle": "Oracle",
    "hypergeometric": "HGVAE",
    "partition": "DRPM-VAE",
}
# Fields that an ablation varies, with their symbols in labels and tables.
VARIED = {"learning_rate": "lr", "final_temperature": "τ", "beta": "β"}
_LABELLED = ("by_index", "estimator", "scale", "payment", *VARIED, "sorting", "scores")
_LABELLED += ("averaging", "prior")


@dataclass(frozen=True)
class Method:
    """A method with the settings of its training. The defaults are those of the paper for LabelVAE
    and AdaVAE; see `LABEL`, `ADAPTIVE`, `ORACLE`, `HYPERGEOMETRIC` and `PARTITION`.

    Args:
        aggregation: how latents are divided into shared and independent ones.
        payment: how often the KL divergence of a shared latent counts: for ``both`` views, as in
            the paper's code base, or ``once`` for the pair, as in the evidence lower bound of a
            model in which shared latents are one variable.
        averaging: posterior of a shared latent: ``group``, the mean of means and of variances, or
            ``product`` of the two experts.
        learning_rate: of Adam.
        final_temperature: of the hypergeometric draw and of the sort.
        beta: factor on the KL divergence.

    Example:
        >>> best = Method(Hypergeometric("covariance", "log1p"), "once", learning_rate=1e-3)
        >>> best.label
        'HGVAE (covariance, log1p, once, lr 1e-3)'
    """

    aggregation: Aggregation
    payment: Payment = "both"
    averaging: Averaging = "group"
    learning_rate: float = 1e-4
    final_temperature: float = 0.01
    beta: float = 1.0

    def __post_init__(self) -> None:
        _require_choice("payment", self.payment, Payment)
        _require_choice("averaging", self.averaging, Averaging)
        for name in VARIED:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be > 0")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Method:
        """The method whose ``asdict`` is `fields`, as records hold it."""
        aggregation = dict(fields["aggregation"])
        kind = _AGGREGATIONS[aggregation.pop("kind")]
        return cls(**{**fields, "aggregation": kind(**aggregation)})

    @property
    def kind(self) -> str:
        """``label``, ``adaptive``, ``oracle``, ``hypergeometric`` or ``partition``."""
        return self.aggregation.kind

    @property
    def draws(self) -> bool:
        """Whether k̂ is drawn from an urn."""
        return isinstance(self.aggregation, DRAWN)

    @property
    def prior(self) -> Prior:
        """log ω₀; None without a prior of k̂."""
        return self.aggregation.prior if isinstance(self.aggregation, DRAWN) else None

    @property
    def name(self) -> str:
        """The method's name in the paper, without settings."""
        return _NAMES[self.kind]

    @property
    def label(self) -> str:
        """The name, and every setting that differs from the paper's."""
        own, usual = self._settings(), _PAPER[self.kind]._settings()
        details = [
            _detail(setting, own[setting])
            for setting in _LABELLED
            if own.get(setting) != usual.get(setting)
        ]
        return f"{self.name} ({', '.join(details)})" if details else self.name

    def __str__(self) -> str:
        return self.label

    @property
    def base(self) -> Method:
        """The method with the paper's values of the settings that an ablation varies."""
        usual = _PAPER[self.kind]
        return replace(
            self,
            learning_rate=usual.learning_rate,
            final_temperature=usual.final_temperature,
            beta=usual.beta,
        )

    def _settings(self) -> dict[str, Any]:
        """All fields, those of the aggregation included, in one dict."""
        fields = asdict(self)
        return {**fields.pop("aggregation"), **fields}


def sorts_stochastically(method: Method) -> bool:
    aggregation = method.aggregation
    if isinstance(aggregation, Hypergeometric):
        return aggregation.sorting == "stochastic"
    return isinstance(aggregation, Partition)


def _detail(setting: str, value: Any) -> str:
    if setting == "by_index":
        return "by index"
    if setting == "prior":
        return f"log ω₀ {value}" if isinstance(value, str) else f"log ω₀ {value:g}"
    return f"{VARIED[setting]} {plain_number(value)}" if setting in VARIED else str(value)


def plain_number(value: float) -> str:
    """A short form: 1e-4 for 0.0001.

    Example:
        >>> plain_number(0.00025), plain_number(0.5)
        ('2.5e-4', '0.5')
    """
    if value == 0 or value >= 1e-2:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _require_prior(prior: Prior) -> None:
    if isinstance(prior, str):
        _require_choice("prior", prior, Literal["learned"])
    elif prior is not None and not math.isfinite(prior):
        raise ValueError(f"prior is {prior}, but must be a finite log-weight, 'learned' or None")


def _require_choice(name: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}, but must be {' or '.join(get_args(choices))}")


# The paper's methods with its learning rates. Its code base takes the index of a changed factor for
# the independent latent of LabelVAE; `LABEL` takes the largest divergence.
LABEL_BY_INDEX = Method(Label(by_index=True))
LABEL = Method(Label())
ADAPTIVE = Method(Adaptive())
ORACLE = Method(Oracle())
HYPERGEOMETRIC = Method(Hypergeometric(), learning_rate=1e-6)
PARTITION = Method(Partition())
# The best HGVAE that the arm `search` found.
BEST = Method(Hypergeometric("covariance", "log1p", "detached"), "once", learning_rate=1e-3)
# Baselines with the learning rate and the objective of `BEST`.
RIVALS = tuple(
    replace(method, payment=BEST.payment, learning_rate=BEST.learning_rate)
    for method in (LABEL, ADAPTIVE)
)


def with_prior(method: Method, prior: Prior) -> Method:
    """An HGVAE or a DRPM-VAE with the KL divergence of its draw in its bound.

    Example:
        >>> with_prior(HYPERGEOMETRIC, -4.0).label
        'HGVAE (log ω₀ -4)'
    """
    if not isinstance(method.aggregation, DRAWN):
        raise ValueError(f"{method.label} draws no k̂, so there is no prior of it")
    return replace(method, aggregation=replace(method.aggregation, prior=prior))


_PAPER = {method.kind: method for method in (LABEL, ADAPTIVE, ORACLE, HYPERGEOMETRIC, PARTITION)}
