"""Which latents the methods call shared, the gradient with respect to the urn's weights, and the
settings of a method.
"""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from torch.distributions import kl_divergence

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax
from diffurn_studies.pairs.counts import count_divergence, independent_log_probs, largest
from diffurn_studies.pairs.methods import (
    ADAPTIVE,
    BEST,
    HYPERGEOMETRIC,
    LABEL,
    ORACLE,
    Adaptive,
    Differences,
    Hypergeometric,
    Label,
    Method,
    Oracle,
    plain_number,
    with_prior,
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
    log_scores=None,
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
        symmetric if log_scores is None else log_scores,
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
    assert Adaptive().independent(
        _pairs(torch.zeros_like(divergence), one_sided=divergence)
    ).tolist() == [[[0, 1, 1, 0], [1, 1, 1, 1]]]


def test_the_largest_are_chosen_once_each_also_among_ties():
    scores = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0])
    for number in range(6):
        chosen = largest(scores, torch.tensor(number))
        assert chosen.sum() == number
        assert scores[chosen.bool()].sum() == scores.sort(descending=True).values[:number].sum()


def test_the_table_of_the_urn_is_fishers_distribution():
    log_weights = torch.randn(7, 2, generator=torch.Generator().manual_seed(0)) * 3
    urn = FisherHypergeometric([LATENTS, LATENTS], LATENTS, log_weights=log_weights)
    counts = torch.arange(LATENTS + 1.0)
    expected = torch.stack(
        [urn.log_prob(torch.stack([k, LATENTS - k]).expand(7, 2)) for k in counts], -1
    )
    torch.testing.assert_close(independent_log_probs(log_weights, LATENTS), expected)


def test_the_divergence_of_counts_is_that_of_two_urns():
    log_weights = torch.tensor([[1.5, 0.0], [-3.0, 0.5], [0.0, 0.0]], dtype=torch.float64)
    prior = torch.tensor([-4.0, 0.0], dtype=torch.float64)
    q, p = (independent_log_probs(each, LATENTS) for each in (log_weights, prior))
    by_hand = [
        sum(a * math.log(a / b) for a, b in zip(row, p.exp().tolist(), strict=True))
        for row in q.exp().tolist()
    ]
    urns = [
        FisherHypergeometric([LATENTS, LATENTS], LATENTS, log_weights=each)
        for each in (log_weights, prior)
    ]
    found = count_divergence(q, p)
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64))
    torch.testing.assert_close(found, kl_divergence(*urns))


def test_the_first_of_a_stochastic_sort_follows_plackett_and_luce():
    # chi-square of 20,000 orders, false-alarm rate 1e-4
    from scipy.stats import chisquare

    divergence, number = torch.tensor([0.5, 3.0, 0.0, 1.5]), 20_000
    noise = torch.cat([torch.zeros(1, number, 5), _gumbel(1, number, 4, seed=5)], -1)
    noise[..., 1] = 1e6  # k̂ = 1
    pairs = _pairs(divergence.expand(1, number, 4), gumbel=noise)
    chosen = Hypergeometric(sorting="stochastic").independent(pairs)[0]
    assert chosen.sum(-1).unique().tolist() == [1.0]
    observed = chosen.sum(0)
    assert observed[2] == 0
    expected = number * divergence / divergence.sum()
    assert chisquare(observed[[0, 1, 3]], expected[[0, 1, 3]]).pvalue > 1e-4


def test_a_deterministic_sort_leaves_the_noise_of_a_stochastic_one_alone():
    gumbel, scores = _gumbel(1, 3, 2 * LATENTS + 1), torch.rand(1, 3, LATENTS)
    chosen = Hypergeometric().independent(_pairs(scores, gumbel=gumbel))
    alone = Hypergeometric().independent(_pairs(scores, gumbel=gumbel[..., : LATENTS + 1]))
    assert torch.equal(chosen, alone)


@pytest.mark.parametrize("prior", ["fixed", math.inf, math.nan])
def test_an_impossible_prior_is_refused(prior):
    with pytest.raises(ValueError, match="prior is"):
        Hypergeometric(prior=prior)


def test_a_method_that_draws_nothing_has_no_prior():
    with pytest.raises(ValueError, match="AdaVAE draws no k̂"):
        with_prior(ADAPTIVE, -1.0)


def test_a_prior_is_part_of_the_label():
    assert with_prior(HYPERGEOMETRIC, -2.5).label == "HGVAE (log ω₀ -2.5)"
    assert with_prior(HYPERGEOMETRIC, "learned").label == "HGVAE (log ω₀ learned)"
    for method in (with_prior(BEST, 0.0), with_prior(BEST, "learned")):
        fields = json.loads(json.dumps(asdict(method)))
        assert Method.from_fields(fields) == method


def test_extreme_importance_takes_all_or_nothing():
    gumbel = _gumbel(1, 2, LATENTS + 1)
    log_weights = torch.tensor([[[1e5, 0.0], [-1e5, 0.0]]], requires_grad=True)
    indicators = Hypergeometric().rank_indicators(log_weights, gumbel, torch.tensor(0.01))
    assert indicators.sum(-1).tolist() == [[LATENTS, 0]]
    indicators.sum().backward()
    assert log_weights.grad.isfinite().all()


def test_draws_follow_the_urns_distribution():
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
    expected = 20_000 * independent_log_probs(log_weights, LATENTS).exp()
    often = expected > 5
    pooled = [
        torch.cat([values[often], values[~often].sum(0, keepdim=True)])
        for values in (seen, expected)
    ]
    assert chisquare(*[values.numpy() for values in pooled]).pvalue > 1e-4


@pytest.mark.parametrize("estimator", ["gumbel", "covariance"])
def test_the_gradient_at_the_weights_is_that_of_the_library(estimator):
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
    "method",
    [Hypergeometric(), Hypergeometric("covariance"), Hypergeometric(sorting="detached")],
    ids=repr,
)
def test_the_choice_is_hard_and_has_gradients(method):
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
    if method.sorting == "detached":
        assert to_divergence is None
    else:
        assert to_divergence.abs().sum() > 0


def test_the_papers_methods_have_the_papers_settings():
    assert HYPERGEOMETRIC.aggregation == Hypergeometric("gumbel", "raw", "relaxed")
    for method, rate in ((LABEL, 1e-4), (ADAPTIVE, 1e-4), (ORACLE, 1e-4), (HYPERGEOMETRIC, 1e-6)):
        assert method.learning_rate == rate
        assert (method.final_temperature, method.beta) == (0.01, 1.0)
        assert (method.payment, method.averaging) == ("both", "group")


EVERY_KIND = {
    "LabelVAE": LABEL,
    "LabelVAE (by index)": Method(Label(by_index=True)),
    "LabelVAE (by index, once)": Method(Label(by_index=True), payment="once"),
    "AdaVAE": ADAPTIVE,
    "AdaVAE (once)": replace(ADAPTIVE, payment="once"),
    "Oracle": ORACLE,
    "HGVAE": HYPERGEOMETRIC,
    "HGVAE (covariance, log1p, once, lr 1e-4)": Method(
        Hypergeometric("covariance", "log1p"), payment="once", learning_rate=1e-4
    ),
    "HGVAE (lr 1e-3, τ 0.5, β 4)": Method(
        Hypergeometric(), learning_rate=1e-3, final_temperature=0.5, beta=4.0
    ),
    "HGVAE (covariance, log1p, once, lr 1e-3, detached)": BEST,
    "HGVAE (lr 3e-4, product)": replace(HYPERGEOMETRIC, averaging="product", learning_rate=3e-4),
}


@pytest.mark.parametrize(("label", "method"), EVERY_KIND.items(), ids=EVERY_KIND)
def test_a_label_names_what_differs_from_the_paper(label, method):
    assert method.label == label


@pytest.mark.parametrize("method", EVERY_KIND.values(), ids=EVERY_KIND)
def test_a_method_survives_json(method):
    assert Method.from_fields(json.loads(json.dumps(asdict(method)))) == method


def test_methods_that_differ_have_different_fields():
    fields = [json.dumps(asdict(method)) for method in EVERY_KIND.values()]
    assert len(set(fields)) == len(fields)


def test_the_base_of_a_method_has_the_papers_rate_temperature_and_beta():
    varied = replace(BEST, learning_rate=3e-4, final_temperature=0.5, beta=8.0)
    assert varied.base == Method(BEST.aggregation, payment="once", learning_rate=1e-6)
    assert varied.base.label == "HGVAE (covariance, log1p, once, detached)"


def test_numbers_in_labels_are_short():
    assert [plain_number(value) for value in (1e-6, 0.0001, 0.00025, 0.01, 1.0, 4, 0)] == [
        "1e-6",
        "1e-4",
        "2.5e-4",
        "0.01",
        "1",
        "4",
        "0",
    ]


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        (Hypergeometric, {"estimator": "simple"}, "'simple', but must be gumbel or covariance"),
        (Hypergeometric, {"scale": "log"}, "scale is 'log', but must be raw or log1p"),
        (Hypergeometric, {"sorting": "hard"}, "'hard', but must be relaxed or detached"),
        (Method, {"aggregation": Adaptive(), "payment": "twice"}, "must be both or once"),
        (Method, {"aggregation": Adaptive(), "averaging": "sum"}, "must be group or product"),
        (Method, {"aggregation": Adaptive(), "learning_rate": 0}, "learning_rate is 0, but must"),
        (Method, {"aggregation": Adaptive(), "beta": -1.0}, "beta is -1.0, but must be > 0"),
    ],
)
def test_impossible_settings_are_refused(part, fields, message):
    with pytest.raises(ValueError, match=message):
        part(**fields)


def test_equal_weights_leave_the_binomial_coefficients():
    found = independent_log_probs(torch.zeros(2), 4).exp()
    expected = torch.tensor(
        [math.comb(4, k) * math.comb(4, 4 - k) / math.comb(8, 4) for k in range(5)]
    )
    torch.testing.assert_close(found, expected)
