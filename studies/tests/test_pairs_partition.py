"""DRPM-VAE: its draws, gradients and KL divergence against sums over all partitions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from pair_records import counts, options, titled, train_record, trained, with_urns
from torch import Tensor

from diffurn_studies.pairs.counts import log_sets
from diffurn_studies.pairs.methods import (
    ADAPTIVE,
    HYPERGEOMETRIC,
    LABEL,
    PARTITION,
    Differences,
    Method,
    Partition,
    with_prior,
)
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.tables import tables, verdict_of
from diffurn_studies.pairs.vae import Facts, Noise, PairVAE, Posterior, divergences
from support.goodness import chi_square_p_value
from support.partitions import log_law

LATENTS, DRAWS = 3, 20_000
FALSE_ALARM = 1e-5
SCORES, LOG_WEIGHTS = torch.tensor([1.0, -0.5, 0.3]), torch.tensor([0.4, -0.3])
BOTH = pytest.mark.parametrize("estimator", ["gumbel", "conditional"])
SUBSETS = torch.tensor([[(row >> i) & 1 for i in range(LATENTS)] for row in range(2**LATENTS)])


def pairs(log_scores: Tensor, log_weights: Tensor, temperature: float = 0.5) -> Differences:
    """As many pairs as rows."""
    number = len(log_scores)
    divergence = torch.ones(1, number, LATENTS)
    unused = torch.zeros(1, number, dtype=torch.int64)
    noise = -torch.log(-torch.log(torch.rand(1, number, 2 * LATENTS + 1)))
    return Differences(
        divergence,
        divergence,
        log_weights.unsqueeze(0),
        unused,
        unused,
        noise,
        torch.full((1,), temperature),
        log_scores.unsqueeze(0),
    )


def law_of_independent(scores: Tensor, log_weights: Tensor) -> dict[tuple[int, ...], float]:
    """The probability of every set of independent latents, from all orders."""
    labels = log_law(scores.tolist(), log_weights.tolist())
    return {tuple(1 - k for k in own): math.exp(value) for own, value in labels.items()}


def log_law_of_sets(scores: Tensor, log_weights: Tensor) -> Tensor:
    """The same as a differentiable log-probability of each row of `SUBSETS`, for three latents."""
    ways = [2 * math.log(math.comb(LATENTS, k)) for k in range(LATENTS + 1)]
    number = torch.arange(LATENTS + 1.0)
    log_number = (torch.tensor(ways) + number * (log_weights[0] - log_weights[1])).log_softmax(-1)
    share = scores.softmax(-1)
    rows = []
    for subset in SUBSETS.tolist():
        own = [i for i in range(LATENTS) if subset[i]]
        if len(own) in (0, LATENTS):
            given = torch.zeros(())
        elif len(own) == 1:
            given = share[own[0]].log()
        else:  # in either order
            given = sum(share[a] * share[b] / (1 - share[a]) for a, b in (own, own[::-1])).log()
        rows.append(log_number[len(own)] + given)
    return torch.stack(rows)


@BOTH
def test_draws_are_random_partitions(estimator: str) -> None:
    torch.manual_seed(0)
    drawn = Partition(estimator).independent(
        pairs(SCORES.expand(DRAWS, -1), LOG_WEIGHTS.expand(DRAWS, -1))
    )
    law = law_of_independent(SCORES, LOG_WEIGHTS)
    rows = list(map(tuple, drawn[0].round().int().tolist()))
    observed = np.array([rows.count(subset) for subset in law])
    assert observed.sum() == DRAWS
    assert chi_square_p_value(observed, np.array(list(law.values()))) > FALSE_ALARM


def test_the_oracle_of_gradients_is_the_sum_over_all_orders() -> None:
    law = law_of_independent(SCORES, LOG_WEIGHTS)
    found = log_law_of_sets(SCORES, LOG_WEIGHTS).exp()
    expected = torch.tensor([law[tuple(subset)] for subset in SUBSETS.tolist()])
    torch.testing.assert_close(found, expected)


def test_conditional_gradients_of_linear_functions_are_unbiased() -> None:
    torch.manual_seed(0)
    values = torch.tensor([1.0, -2.0, 0.7])
    leaves = SCORES.clone().requires_grad_(), LOG_WEIGHTS.clone().requires_grad_()
    mean = (log_law_of_sets(*leaves).exp() * (SUBSETS.double() @ values)).sum()
    expected = torch.autograd.grad(mean, leaves)
    rows = [leaf.detach().expand(DRAWS, -1).clone().requires_grad_() for leaf in leaves]
    drawn = Partition("conditional").independent(pairs(*rows))
    for found, exact in zip(
        torch.autograd.grad((drawn * values).sum(), rows), expected, strict=True
    ):
        error = found.std(0) / DRAWS**0.5
        assert ((found.mean(0) - exact).abs() < 5 * error + 1e-9).all()
        assert exact.abs().max() > 0.05


def test_gradients_of_both_parts_reach_both_layers() -> None:
    torch.manual_seed(0)
    rows = SCORES.expand(50, -1).clone(), LOG_WEIGHTS.expand(50, -1).clone()
    leaves = [row.requires_grad_() for row in rows]
    for estimator in ("gumbel", "conditional"):
        drawn = Partition(estimator).independent(pairs(*leaves))
        for gradient in torch.autograd.grad((drawn * torch.tensor([1.0, 0, -1])).sum(), leaves):
            assert gradient.isfinite().all()
            assert gradient.abs().sum() > 0


# The bound.

PRIOR = -0.8


def model_with(method: Method, number: int) -> tuple[PairVAE, Posterior, Tensor]:
    """A model, the same posteriors for many pairs, and partitions that are drawn from its law."""
    model = PairVAE([method], [0], (16, 16, 1), LATENTS, channels=4)
    one = Posterior(*(torch.randn(1, 2, 1, LATENTS) for _ in range(2)))
    own = Posterior(*(values.expand(-1, -1, number, -1) for values in one))
    law = log_law_of_sets(*scores_and_weights(model, own)).detach().exp()
    drawn = SUBSETS[torch.multinomial(law, number, replacement=True)].unsqueeze(0).double()
    return model, own, drawn


def scores_and_weights(model: PairVAE, own: Posterior) -> tuple[Tensor, Tensor]:
    """Of the first pair, from the layers by hand."""
    features = divergences(own)[1][0, :1]
    scores = features @ model.scorer.weight[0] + model.scorer.bias[0]
    weights = features @ model.importance.weight[0] + model.importance.bias[0]
    if model.methods[0].aggregation.scores == "divergence":
        scores = features.log()
    return scores[0], weights[0]


@pytest.mark.parametrize("scores", ["network", "divergence"])
def test_the_divergence_of_a_partition_is_the_sum_over_all_sets(scores: str) -> None:
    torch.manual_seed(1)
    method = with_prior(replace(PARTITION, aggregation=Partition(scores=scores)), PRIOR)
    model, own, drawn = model_with(method, DRAWS)
    log_q = log_law_of_sets(*scores_and_weights(model, own))
    log_p = log_law_of_sets(torch.zeros(LATENTS), torch.tensor([PRIOR, 0.0]))
    exact = (log_q.exp() * (log_q - log_p)).sum()
    found = model.choice_kl(own, drawn)[0]
    error = float(found.detach().std()) / DRAWS**0.5
    assert abs(float((found.mean() - exact).detach())) < 5 * error
    parameters = [model.importance.weight] + [model.scorer.weight] * (scores == "network")
    expected = torch.autograd.grad(exact, parameters, retain_graph=True)
    gradients = torch.autograd.grad(found.mean(), parameters)
    for gradient, slope in zip(gradients, expected, strict=True):
        assert (gradient - slope).abs().max() < 0.05 * slope.abs().max()


def test_a_fixed_set_costs_the_logarithm_of_its_prior_probability() -> None:
    torch.manual_seed(0)
    pictures, normal = torch.rand(1, 2, 2, 16, 16, 1), torch.randn(1, 2, 2, LATENTS)
    with_cost, without = (
        PairVAE([method], [0], (16, 16, 1), LATENTS, channels=4).profile(pictures, normal)
        for method in (with_prior(PARTITION, PRIOR), PARTITION)
    )
    law = log_law_of_sets(torch.zeros(LATENTS), torch.tensor([PRIOR, 0.0]))
    first = [int((SUBSETS.sum(-1) == k).nonzero()[0]) for k in range(LATENTS + 1)]
    torch.testing.assert_close(with_cost - without, -0.5 * law[first].unsqueeze(0))


def test_sets_are_counted() -> None:
    number = torch.arange(11.0)
    found = log_sets(number, 10).exp().round().int().tolist()
    assert found == [math.comb(10, k) for k in range(11)]


def test_other_models_of_a_stack_start_as_without_a_partition() -> None:
    methods = (LABEL, HYPERGEOMETRIC, with_prior(PARTITION, "learned"))
    stack = PairVAE(methods, [5, 6, 7], (16, 16, 1), LATENTS, channels=4).state_dict()
    alone = PairVAE(methods[:2], [5, 6], (16, 16, 1), LATENTS, channels=4).state_dict()
    for name, weight in alone.items():
        assert torch.equal(stack[name][:2], weight), name


# torch itself, on first use of its compiler, calls functions that it has deprecated
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.slow
def test_a_loss_is_one_graph_without_a_look_at_values() -> None:
    torch.manual_seed(0)
    methods = [with_prior(Method(Partition(each)), "learned") for each in ("gumbel", "conditional")]
    model = PairVAE(methods, [0, 1], (16, 16, 1), LATENTS, channels=4)
    noise = Noise(torch.randn(2, 2, 4, LATENTS), torch.randn(2, 4, 2 * LATENTS + 1))
    facts = Facts(torch.zeros(2, 4, dtype=torch.int64), torch.full((2, 4), 2))
    inputs = torch.rand(2, 2, 4, 16, 16, 1), noise, facts, torch.ones(2)
    compiled = torch.compile(model.losses, fullgraph=True, dynamic=False, backend="aot_eager")
    plain = model.losses(*inputs).loss
    torch.testing.assert_close(compiled(*inputs).loss, plain)


# Settings and tables.


def test_a_label_names_what_differs_from_the_default() -> None:
    assert PARTITION.label == "DRPM-VAE"
    other = Method(Partition("conditional", "log1p", "divergence", prior="learned"), "once")
    assert other.label == "DRPM-VAE (conditional, log1p, once, divergence, log ω₀ learned)"
    assert Method.from_fields(json.loads(json.dumps(asdict(other)))) == other


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"estimator": "covariance"}, "'covariance', but must be gumbel or conditional"),
        ({"scale": "log"}, "scale is 'log'"),
        ({"scores": "random"}, "scores is 'random', but must be network or divergence"),
        ({"prior": math.inf}, "prior is inf"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Partition(**wrong)  # type: ignore[arg-type]


def test_tables_show_it_beside_the_others() -> None:
    def of_urn(method: Method, shared: int) -> dict[str, object]:
        found = trained(method, shared, counts(k4=10))
        return with_urns(found, {str(shared): counts(k4=10)}, {str(shared): [4.0, 16.0]})

    records = {
        f"train-s{shared}": train_record(
            trained(LABEL, shared, counts(k1=10)),
            trained(ADAPTIVE, shared, counts(k2=10)),
            of_urn(HYPERGEOMETRIC, shared),
            of_urn(PARTITION, shared),
        )
        for shared in (0, 3)
    }
    table = titled(tables(records, options()), "how many")
    methods = [line[1] for line in table.rows if line[0] == "3"]
    assert methods[:4] == ["LabelVAE", "AdaVAE", "HGVAE", "DRPM-VAE"]
    assert any("DRPM-VAE: k̂ is drawn" in note for note in table.notes)
    # Errors at s = 0 and 3: 3² and 0² by the draws, 5² and 2² by AdaVAE.
    assert verdict_of(records)[-1] == (
        "MSE(7−s, k̂) by the mode over all s, the best of each: DRPM-VAE 4.50, HGVAE 4.50, a "
        "baseline 14.50."
    )


def test_the_arms_have_partitions_beside_urns_and_baselines() -> None:
    from diffurn_studies.pairs.arms import partition, partition_fixed

    for found, sampler in ((partition.OPTIONS, "exact"), (partition_fixed.OPTIONS, "fixed")):
        assert isinstance(found, Options)
        assert found.sampler == sampler
        kinds = {method.kind for method in found.methods}
        assert kinds == {"label", "adaptive", "hypergeometric", "partition"}
        assert {(method.payment, method.learning_rate) for method in found.methods} == {
            ("once", 1e-3)
        }
