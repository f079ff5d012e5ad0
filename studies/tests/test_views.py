"""Which latents the methods call shared, and the gradient that reaches the urn's importance."""

import math

import pytest
import torch

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax
from diffurn_studies.pairs.views import (
    Ada,
    Differences,
    Hypergeometric,
    Label,
    Oracle,
    independent_counts_log_law,
    largest,
    method_named,
)

LATENTS = 10


def _pairs(
    symmetric,
    one_sided=None,
    log_weights=None,
    known=None,
    differing=None,
    gumbel=None,
    temperature=1.0,
):
    models, pairs, latents = symmetric.shape
    if gumbel is None:
        gumbel = torch.zeros(models, pairs, latents + 1)
    return Differences(
        symmetric if one_sided is None else one_sided,
        symmetric,
        torch.zeros(models, pairs, 2) if log_weights is None else log_weights,
        torch.zeros(models, pairs, dtype=torch.int64) if known is None else known,
        torch.zeros(models, pairs, dtype=torch.int64) if differing is None else differing,
        gumbel,
        torch.full((models,), temperature),
    )


def _gumbel(*shape, seed=0):
    return -torch.log(-torch.log(torch.rand(*shape, generator=torch.Generator().manual_seed(seed))))


def test_labels_call_one_latent_independent():
    divergence = torch.tensor([[[0.1, 5.0, 0.3], [2.0, 1.0, 0.0]]])
    assert Label().independent(_pairs(divergence)).tolist() == [[[0, 1, 0], [1, 0, 0]]]
    known = torch.tensor([[2, 0]])
    assert Label(by_index=True).independent(_pairs(divergence, known=known)).tolist() == [
        [[0, 0, 1], [1, 0, 0]]
    ]


def test_the_oracle_takes_as_many_as_truly_differ():
    divergence = torch.tensor([[[0.1, 5.0, 0.3], [2.0, 1.0, 0.0]]])
    assert Oracle().independent(_pairs(divergence, differing=torch.tensor([[2, 0]]))).tolist() == [
        [[0, 1, 1], [0, 0, 0]]
    ]


def test_adavae_splits_midway_between_smallest_and_largest():
    divergence = torch.tensor([[[0.0, 1.0, 0.5, 0.49], [3.0, 3.0, 3.0, 3.0]]])
    assert Ada().independent(
        _pairs(torch.zeros_like(divergence), one_sided=divergence)
    ).tolist() == [[[0, 1, 1, 0], [1, 1, 1, 1]]]


def test_the_largest_are_chosen_once_each_also_among_ties():
    scores = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0])
    for number in range(6):
        chosen = largest(scores, torch.tensor(number))
        assert chosen.sum() == number
        assert scores[chosen.bool()].sum() == scores.sort(descending=True).values[:number].sum()


def test_the_table_of_the_urn_is_fishers_law():
    log_weights = torch.randn(7, 2, generator=torch.Generator().manual_seed(0)) * 3
    urn = FisherHypergeometric([LATENTS, LATENTS], LATENTS, log_weights=log_weights)
    counts = torch.arange(LATENTS + 1.0)
    expected = torch.stack(
        [urn.log_prob(torch.stack([k, LATENTS - k]).expand(7, 2)) for k in counts], -1
    )
    torch.testing.assert_close(independent_counts_log_law(log_weights, LATENTS), expected)


def test_extreme_importance_takes_all_or_nothing():
    gumbel = _gumbel(1, 2, LATENTS + 1)
    log_weights = torch.tensor([[[1e5, 0.0], [-1e5, 0.0]]], requires_grad=True)
    indicators = Hypergeometric().rank_indicators(log_weights, gumbel, torch.tensor(0.01))
    assert indicators.sum(-1).tolist() == [[LATENTS, 0]]
    indicators.sum().backward()
    assert log_weights.grad.isfinite().all()


def test_draws_follow_the_urns_law():
    # pooled chi-square of 20,000 draws, false-alarm rate 1e-4
    from scipy.stats import chisquare

    log_weights = torch.tensor([0.7, 0.0])
    gumbel = _gumbel(20_000, LATENTS + 1, seed=3)
    counts = (
        Hypergeometric()
        .rank_indicators(log_weights.expand(20_000, 2), gumbel, torch.tensor(1.0))
        .sum(-1)
        .long()
    )
    seen = counts.bincount(minlength=LATENTS + 1).double()
    expected = 20_000 * independent_counts_log_law(log_weights, LATENTS).exp()
    often = expected > 5
    pooled = [
        torch.cat([values[often], values[~often].sum(0, keepdim=True)])
        for values in (seen, expected)
    ]
    assert chisquare(*[values.numpy() for values in pooled]).pvalue > 1e-4


@pytest.mark.parametrize("estimator", ["gumbel", "covariance"])
def test_the_gradient_at_the_importance_is_the_estimators_of_the_library(estimator, monkeypatch):
    """Averaged over many draws the table's gradient and the library's agree: within five standard
    errors, false alarms below 1e-5.
    """
    number, slope = 4_000, torch.linspace(-1.0, 2.0, LATENTS)
    log_weights = torch.tensor([0.4, -0.3], requires_grad=True)
    method = Hypergeometric(estimator=estimator)
    per_draw = log_weights.detach().expand(number, 2).clone().requires_grad_()
    indicators = method.rank_indicators(
        per_draw, _gumbel(number, LATENTS + 1, seed=5), torch.tensor(0.7)
    )
    (indicators * slope).sum().backward()

    torch.manual_seed(6)
    theirs = log_weights.detach().expand(number, 2).clone().requires_grad_()
    library = CovarianceST() if estimator == "covariance" else GumbelSoftmax(0.7)
    urn = FisherHypergeometric([LATENTS, LATENTS], LATENTS, log_weights=theirs, estimator=library)
    _, others = urn.rank_indicators(group=0)
    (others * slope).sum().backward()

    error = (per_draw.grad.var(0) / number + theirs.grad.var(0) / number).sqrt() + 1e-12
    assert per_draw.grad.abs().mean() > 0.05
    assert ((per_draw.grad.mean(0) - theirs.grad.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize(
    "name", ["hypergeometric", "hypergeometric-covariance", "hypergeometric-detached"]
)
def test_the_choice_is_hard_and_its_gradient_reaches_importance_and_divergences(name):
    method = method_named(name).aggregation
    divergence = torch.rand(
        2, 5, LATENTS, generator=torch.Generator().manual_seed(1), requires_grad=True
    )
    log_weights = torch.zeros(2, 5, 2, requires_grad=True)
    chosen = method.independent(
        _pairs(divergence, log_weights=log_weights, gumbel=_gumbel(2, 5, LATENTS + 1))
    )
    assert set(chosen.unique().tolist()) <= {0.0, 1.0}
    counts = chosen.sum(-1).long()
    assert torch.equal(chosen.detach(), largest(divergence, counts))
    values = torch.linspace(-1, 1, LATENTS)
    to_divergence, to_weights = torch.autograd.grad(
        (chosen * values).sum(), [divergence, log_weights], allow_unused=True
    )
    assert (to_weights.abs().sum(-1) > 0).all()
    assert (to_divergence is None) if name.endswith("detached") else (to_divergence.abs().sum() > 0)


def test_names_stand_for_methods():
    paper = method_named("hypergeometric")
    assert paper.aggregation == Hypergeometric("gumbel", "raw", "relaxed")
    assert (
        paper.learning_rate,
        paper.final_temperature,
        paper.beta,
        paper.payment,
        paper.averaging,
    ) == (1e-6, 0.01, 1.0, "both", "group")
    assert method_named("ada").learning_rate == 1e-4
    best = method_named("hypergeometric-once-lr3e-4-covariance-tau0.5-beta2-log1p-product-detached")
    assert best.aggregation == Hypergeometric("covariance", "log1p", "detached")
    assert (best.learning_rate, best.final_temperature, best.beta) == (3e-4, 0.5, 2.0)
    assert (best.payment, best.averaging) == ("once", "product")
    assert method_named("label-index").aggregation == Label(by_index=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vae", "no method 'vae'"),
        ("ada-index", "detail 'index'"),
        ("label-covariance", "detail 'covariance'"),
        ("ada-once-both", "two words for one thing"),
        ("ada-lr0", "detail 'lr0'"),
        ("ada-lrfast", "detail 'lrfast'"),
        ("hypergeometric-", "detail ''"),
    ],
)
def test_wrong_names_are_refused_with_what_is_known(name, message):
    with pytest.raises(ValueError, match=message):
        method_named(name)


def test_the_law_has_the_binomial_coefficients_of_both_groups():
    law = independent_counts_log_law(torch.zeros(2), 4).exp()
    expected = torch.tensor(
        [math.comb(4, k) * math.comb(4, 4 - k) / math.comb(8, 4) for k in range(5)]
    )
    torch.testing.assert_close(law, expected)
