"""The pair VAE: its loss against a plain calculation model by model, its averages and its
gradients.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits

from diffurn_studies.pairs.methods import (
    ADAPTIVE,
    HYPERGEOMETRIC,
    LABEL,
    ORACLE,
    Hypergeometric,
    Method,
    with_prior,
)
from diffurn_studies.pairs.vae import (
    Facts,
    Noise,
    PairVAE,
    Posterior,
    average,
    divergences,
    standard_kl,
)

SHAPE, LATENTS, PAIRS = (16, 16, 3), 4, 3


def _stack(*methods, seeds=None):
    return PairVAE(methods, seeds or list(range(len(methods))), SHAPE, LATENTS, channels=4)


def _inputs(models, seed=0, same=False):
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, PAIRS, *SHAPE), (2, PAIRS, LATENTS), (PAIRS, LATENTS + 1)
    pictures, normal, gumbel = (
        torch.rand(1 if same else models, *shape, generator=generator).expand(models, *shape)
        for shape in shapes
    )
    facts = Facts(torch.zeros(models, PAIRS, dtype=torch.int64), torch.full((models, PAIRS), 2))
    return (
        pictures,
        Noise(torch.special.ndtri(normal.clamp(0.01, 0.99)), -torch.log(-torch.log(gumbel))),
        facts,
        torch.ones(models),
    )


def _normals(own, model):
    return [
        Normal(own.mean[model, view], torch.exp(0.5 * own.log_variance[model, view]))
        for view in range(2)
    ]


def _random_posterior(models=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Posterior(
        *(torch.randn(models, 2, PAIRS, LATENTS, generator=generator) for _ in range(2))
    )


def _count_kl(model, own, log_prior):
    """KL(q(k̂)‖p(k̂)) by a sum over the support, with binomials by hand."""
    features = divergences(own)[1]
    log_weights = model.importance(features)[0]
    kls = []
    for log_odds in (log_weights[:, 0] - log_weights[:, 1]).tolist():
        q, p = (
            [math.comb(LATENTS, k) ** 2 * math.exp(k * each) for k in range(LATENTS + 1)]
            for each in (log_odds, log_prior)
        )
        shares = [(one / sum(q), other / sum(p)) for one, other in zip(q, p, strict=True)]
        kls.append(sum(one * math.log(one / other) for one, other in shares))
    return torch.tensor(kls)


def test_divergences_are_those_of_torchs_normal_distributions():
    own = _random_posterior()
    one_sided, symmetric = divergences(own)
    for model in range(2):
        first, second = _normals(own, model)
        torch.testing.assert_close(one_sided[model], kl_divergence(first, second))
        torch.testing.assert_close(
            symmetric[model], 0.5 * (kl_divergence(first, second) + kl_divergence(second, first))
        )
        prior = Normal(torch.zeros(()), torch.ones(()))
        torch.testing.assert_close(standard_kl(own)[model, 1], kl_divergence(second, prior))


def test_averages_are_the_means_of_moments_or_the_product_of_experts():
    own = _random_posterior()
    group, product = (average(own, torch.tensor(flag)) for flag in (False, True))
    variances = own.log_variance.exp()
    torch.testing.assert_close(group.mean, own.mean.mean(1))
    torch.testing.assert_close(group.log_variance.exp(), variances.mean(1))
    precision = 1 / variances
    torch.testing.assert_close(product.log_variance.exp(), 1 / precision.mean(1))
    torch.testing.assert_close(product.mean, (own.mean * precision).sum(1) / precision.sum(1))


@pytest.mark.parametrize(
    "method",
    [
        ADAPTIVE,
        replace(ADAPTIVE, payment="once"),
        replace(LABEL, averaging="product"),
        replace(ORACLE, payment="once", averaging="product", beta=3.0),
        replace(HYPERGEOMETRIC, payment="once"),
        with_prior(replace(HYPERGEOMETRIC, payment="once", beta=2.0), -2.5),
        with_prior(HYPERGEOMETRIC, "learned"),
    ],
    ids=lambda method: method.label,
)
def test_the_loss_is_the_evidence_bound_of_the_pair(method):
    model = _stack(method)
    prior = getattr(method.aggregation, "prior", None)
    if prior == "learned":
        model.learned_prior.data.fill_(0.75)
        prior = 0.75
    pictures, noise, facts, temperature = _inputs(1)
    own = model.posterior(pictures)
    chosen = model.independent(own, noise.gumbel, facts, temperature)[0].bool()
    first, second = _normals(own, 0)
    if method.averaging == "group":
        shared = Normal(
            0.5 * (first.mean + second.mean), (0.5 * (first.variance + second.variance)).sqrt()
        )
    else:
        precision = 0.5 * (1 / first.variance + 1 / second.variance)
        weighted = 0.5 * (first.mean / first.variance + second.mean / second.variance)
        shared = Normal(weighted / precision, precision.rsqrt())
    standard = Normal(torch.zeros(()), torch.ones(()))
    errors, kls = 0.0, 0.0
    for view, law in enumerate((first, second)):
        epsilon = noise.normal[0, view]
        if method.payment == "once":
            epsilon = torch.where(chosen, epsilon, noise.normal[0, 0])
        z = torch.where(
            chosen, law.mean + law.stddev * epsilon, shared.mean + shared.stddev * epsilon
        )
        logits = model.decode(z.unsqueeze(0))[0]
        errors = (
            errors
            + binary_cross_entropy_with_logits(logits, pictures[0, view], reduction="sum") / PAIRS
        )
        paid = (
            kl_divergence(shared, standard)
            if method.payment == "both" or view == 0
            else torch.zeros(PAIRS, LATENTS)
        )
        kls = kls + torch.where(chosen, kl_divergence(law, standard), paid).sum() / PAIRS
    if prior is not None:  # both views share k̂, so its divergence counts once
        kls = kls + _count_kl(model, own, prior).mean()
    found = model.losses(pictures, noise, facts, temperature)
    torch.testing.assert_close(found.reconstruction[0], 0.5 * errors)
    torch.testing.assert_close(found.kl[0], 0.5 * kls)
    torch.testing.assert_close(found.loss[0], 0.5 * (errors + method.beta * kls))
    torch.testing.assert_close(found.independent[0], chosen.sum() / PAIRS)


def test_a_model_does_not_depend_on_its_neighbours():
    methods = (
        LABEL,
        Method(Hypergeometric(scale="log1p")),
        ADAPTIVE,
        Method(Hypergeometric("covariance"), payment="once"),
        Method(Hypergeometric(prior=-3.0)),
        Method(Hypergeometric(prior="learned"), payment="once"),
    )
    together, inputs = _stack(*methods), _inputs(len(methods), same=True)
    whole = together.losses(*inputs)
    for place, method in enumerate(methods):
        alone = _stack(method, seeds=[place]).losses(*_inputs(1, same=True))
        for mine, theirs in zip(alone, whole, strict=True):
            torch.testing.assert_close(mine[0], theirs[place])


def test_the_importance_layer_learns_only_in_models_with_an_urn():
    covariance = Method(Hypergeometric("covariance", "log1p"), payment="once")
    stack = _stack(HYPERGEOMETRIC, ADAPTIVE, covariance)
    stack.losses(*_inputs(3)).loss.sum().backward()
    for gradient in (stack.importance.weight.grad, stack.importance.bias.grad):
        moved = gradient.flatten(1).abs().sum(1) > 0
        assert moved.tolist() == [True, False, True]


def test_a_learned_prior_moves_by_the_difference_of_the_means():
    """∂KL(q‖p)/∂log ω₀ = E_p k̂ - E_q k̂; the loss has half of it, and no other model a slope."""
    methods = [Method(Hypergeometric(prior=prior)) for prior in ("learned", 1.0, None)]
    stack, inputs = _stack(*methods), _inputs(3)
    stack.losses(*inputs).loss.sum().backward()
    k = torch.arange(LATENTS + 1.0)
    own = stack.count_log_probs(stack.posterior(inputs[0]))[0].exp() @ k
    ways = torch.tensor([math.comb(LATENTS, each) ** 2.0 for each in range(LATENTS + 1)])
    expected = 0.5 * (ways / ways.sum() @ k - own.mean())
    torch.testing.assert_close(
        stack.learned_prior.grad[:, 0], torch.tensor([expected.item(), 0.0, 0.0])
    )


def test_models_without_a_prior_keep_their_losses():
    methods = (HYPERGEOMETRIC, ADAPTIVE)
    alone = _stack(*methods).losses(*_inputs(2, same=True))
    beside = _stack(*methods, with_prior(HYPERGEOMETRIC, -1.0)).losses(*_inputs(3, same=True))
    for mine, theirs in zip(alone, beside, strict=True):
        torch.testing.assert_close(mine, theirs[:2])


def test_the_profile_pays_for_a_fixed_number_what_the_prior_asks():
    methods = (with_prior(HYPERGEOMETRIC, -2.0), HYPERGEOMETRIC)
    stack = _stack(*methods, seeds=[0, 0])
    pictures, noise, _, _ = _inputs(2, same=True)
    with_kl, without = stack.profile(pictures, noise.normal)
    ways = torch.tensor([math.comb(LATENTS, k) ** 2 * math.exp(-2 * k) for k in range(LATENTS + 1)])
    torch.testing.assert_close(
        with_kl - without, -0.5 * (ways / ways.sum()).log(), rtol=1e-3, atol=1e-3
    )


def test_the_profile_has_the_losses_of_fixed_numbers():
    stack = _stack(ORACLE, replace(ORACLE, payment="once"))
    pictures, noise, facts, temperature = _inputs(2)
    profile = stack.profile(pictures, noise.normal)
    assert profile.shape == (2, LATENTS + 1)
    for number in (0, 2, LATENTS):
        told = Facts(facts.known, torch.full_like(facts.differing, number))
        torch.testing.assert_close(
            profile[:, number], stack.losses(pictures, noise, told, temperature).loss
        )


def test_pictures_of_a_wrong_size_are_refused():
    with pytest.raises(ValueError, match="28 × 28"):
        PairVAE([ADAPTIVE], [0], (28, 28, 1))
