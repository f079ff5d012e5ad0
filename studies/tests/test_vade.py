"""The model and its priors against plain re-implementations, torch's distributions and enumeration
of all assignments.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Independent, MultivariateNormal, Normal, kl_divergence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffurn import FisherHypergeometric
from diffurn_studies.clustering.assignments import AssignmentLaw, drawn_counts
from diffurn_studies.clustering.count_laws import (
    count_log_prob,
    log_orders,
    merged_count_log_prob,
)
from diffurn_studies.clustering.mixtures import urn_log_weights
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Prior, Uniform
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.merged_chain import merged_log_prob

ALL: list[Prior] = [
    Uniform(),
    Categorical(),
    Hypergeometric(),
    Hypergeometric(balls=2, shares="mean", law="assignments"),
    Hypergeometric(balls=0.5, shares="batch", law="assignments"),
    Hypergeometric(balls=None),
    Hypergeometric(balls=None, law="assignments"),
    Hypergeometric(counts="soft", conditionals="merged"),
    Hypergeometric(balls=0.5, law="assignments"),
]
COLD = torch.tensor(1e-3)


def law_of(prior: Prior, log_weights: Tensor, samples: int) -> AssignmentLaw:
    return prior.with_weights(log_weights, samples)


def log_prob_of(prior: Hypergeometric, log_weights: Tensor, assignments: Tensor) -> Tensor:
    """log p(c|π) of assignments (A, n), by a q that is sure of them."""
    samples, clusters = assignments.shape[1], log_weights.shape[-1]
    log_q = torch.nn.functional.one_hot(assignments, clusters).double().log()
    weights = log_weights.expand(len(assignments), clusters)
    return samples * law_of(prior, weights, samples).expected_log_prob(
        log_q, torch.zeros_like(log_q), torch.ones(())
    )


def all_assignments(samples: int, clusters: int) -> Tensor:
    return torch.tensor(list(itertools.product(range(clusters), repeat=samples)))


def all_counts(samples: int, clusters: int) -> Tensor:
    return (
        all_assignments(samples, clusters).sort(1).values.unique(dim=0)
    )  # one assignment for each


@pytest.mark.parametrize("balls", [1.0, 2.0, 10.0, None])
@pytest.mark.parametrize("conditionals", ["exact", "merged"])
def test_each_law_sums_to_one_over_what_it_is_a_law_of(
    balls: float | None, conditionals: str
) -> None:
    log_weights = torch.tensor([0.3, -1.0, 0.9])
    of_counts, of_assignments = (
        Hypergeometric(balls, conditionals=conditionals, law=law)
        for law in ("counts", "assignments")
    )  # type: ignore[arg-type]
    assert torch.logsumexp(log_prob_of(of_counts, log_weights, all_counts(6, 3)), 0).abs() < 1e-12
    assert (
        torch.logsumexp(log_prob_of(of_assignments, log_weights, all_assignments(6, 3)), 0).abs()
        < 1e-12
    )
    assert (
        torch.logsumexp(log_prob_of(of_counts, log_weights, all_assignments(6, 3)), 0) > 1
    )  # not normalised over these


@pytest.mark.parametrize(
    ("law", "outcomes"), [("counts", all_counts), ("assignments", all_assignments)]
)
def test_with_fewer_balls_than_samples_what_the_urn_holds_sums_to_one(law: str, outcomes) -> None:  # type: ignore[no-untyped-def]
    assignments = outcomes(6, 3)
    log_prob = log_prob_of(
        Hypergeometric(0.5, law=law), torch.tensor([0.3, -1.0, 0.9]), assignments
    )  # type: ignore[arg-type]
    possible = torch.nn.functional.one_hot(assignments, 3).sum(1).amax(1) <= 3
    assert torch.logsumexp(log_prob[possible], 0).abs() < 1e-12
    assert log_prob.isfinite().all()


def test_beyond_the_last_ball_the_law_goes_on_smoothly() -> None:
    def slope(x: float) -> Tensor:
        counts = torch.tensor([x, 5 - x, 1.0], requires_grad=True)
        value = count_log_prob(counts, torch.zeros(3), torch.zeros(()), 3.0) - log_orders(counts, 6)
        return torch.autograd.grad(value, counts)[0][0]

    steps = torch.stack([slope(x) for x in (2.999, 3.0, 3.001, 3.002)]).diff()
    torch.testing.assert_close(
        steps, torch.full((3,), -1e-3 * math.pi**2 / 6), rtol=2e-3, atol=0
    )  # -ψ'(1), on both sides


def all_count_rows(samples: int, clusters: int) -> Tensor:
    return torch.nn.functional.one_hot(all_counts(samples, clusters), clusters).sum(1)


@pytest.mark.parametrize("balls", [0.6, 1.0, 2.0])
def test_the_count_law_is_fishers_by_exact_sums(balls: float) -> None:
    """The oracle: binomial coefficients times weights, over all counts, in fifty digits."""
    samples, weights = 5, [0.7, 2.5, 0.1]
    size, rows = round(balls * samples), all_count_rows(samples, 3).tolist()
    with mpmath.workdps(50):
        masses = [
            mpmath.fprod(
                mpmath.binomial(size, x) * mpmath.mpf(w) ** x
                for x, w in zip(row, weights, strict=True)
            )
            for row in rows
        ]
        expected = [float(mpmath.log(mass / sum(masses))) if mass else None for mass in masses]
    found = log_prob_of(Hypergeometric(balls), torch.tensor(weights).log(), all_counts(samples, 3))
    for ours, theirs in zip(found.tolist(), expected, strict=True):
        assert theirs is None or ours == pytest.approx(theirs, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("conditionals", ["exact", "merged"])
def test_the_count_law_of_two_clusters_is_scipys(conditionals: str) -> None:
    samples, odds = 9, 3.5
    prior = Hypergeometric(2.0, conditionals=conditionals)  # type: ignore[arg-type]
    x = all_count_rows(samples, 2)[:, 0].numpy()
    expected = scipy.stats.nchypergeom_fisher(M=36, n=18, N=samples, odds=odds).logpmf(x)
    found = log_prob_of(prior, torch.tensor([math.log(odds), 0.0]), all_counts(samples, 2))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


def test_the_merged_count_law_is_a_chain_of_scipys_urns() -> None:
    samples, weights = 6, np.array([0.8, 2.5, 0.3, 1.0])
    size, rows = 2 * samples, all_count_rows(samples, 4)
    expected = []
    for row in rows.tolist():
        total, left = 0.0, samples
        for k in range(3):
            chances = scipy.stats.nchypergeom_fisher(
                M=size * (4 - k), n=size, N=left, odds=weights[k] / weights[k + 1 :].mean()
            )
            total, left = total + chances.logpmf(row[k]) if left else total, left - row[k]
        expected.append(total)
    found = log_prob_of(
        Hypergeometric(2.0, conditionals="merged"),
        torch.tensor(weights).log(),
        all_counts(samples, 4),
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("conditionals", ["exact", "merged"])
def test_with_endless_balls_the_count_law_is_multinomial(conditionals: str) -> None:
    log_weights, samples = torch.tensor([0.4, -1.1, 0.2, 0.9]), 7
    rows = all_count_rows(samples, 4).numpy()
    expected = torch.from_numpy(
        scipy.stats.multinomial(samples, log_weights.softmax(-1).numpy()).logpmf(rows)
    )
    found, nearly = (
        log_prob_of(
            Hypergeometric(balls, conditionals=conditionals), log_weights, all_counts(samples, 4)
        )  # type: ignore[arg-type]
        for balls in (None, 1e4)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nearly, expected, rtol=0, atol=2e-3)


COUNTS = torch.tensor([3.2, 0.4, 5.9, 2.5], dtype=torch.float64)  # of twelve samples


def digammas(values: Tensor) -> Tensor:
    return torch.tensor([float(mpmath.digamma(value)) for value in values.tolist()])


@pytest.mark.parametrize("size", [5.5, 6.0, 12.0, 24.0])
def test_slopes_of_the_exact_laws_are_those_derived(size: float) -> None:
    log_pi, counts = (
        torch.tensor([0.3, -0.2, 0.5, -1.0]).log_softmax(-1),
        COUNTS.clone().requires_grad_(),
    )
    of_counts = count_log_prob(counts, log_pi, torch.zeros(()), size)
    (found,) = torch.autograd.grad(of_counts, counts, retain_graph=True)
    (of_assignments,) = torch.autograd.grad(of_counts - log_orders(counts, 12), counts)
    held = counts.detach() <= size
    expected = log_pi + digammas((size - COUNTS).clamp(min=0) + 1) - digammas(COUNTS + 1)
    torch.testing.assert_close(found[held], expected[held], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        of_assignments[held], (expected + digammas(COUNTS + 1))[held], rtol=1e-12, atol=1e-12
    )
    assert held.sum() == (3 if size == 5.5 else 4)


@pytest.mark.parametrize("law", ["counts", "assignments"])
@pytest.mark.parametrize("conditionals", ["exact", "merged"])
def test_slopes_in_real_counts_are_finite_differences(law: str, conditionals: str) -> None:
    log_pi = torch.tensor([0.3, -0.2, 0.5, -1.0]).log_softmax(-1)

    def value(counts: Tensor) -> Tensor:
        if conditionals == "exact":
            log_prob = count_log_prob(counts, log_pi, torch.zeros(()), 12.0)
        else:
            log_prob = merged_count_log_prob(counts, log_pi, 12.0, 12)
        return log_prob if law == "counts" else log_prob - log_orders(counts, 12)

    counts, step = COUNTS.clone().requires_grad_(), 1e-5 * torch.eye(4)
    (found,) = torch.autograd.grad(value(counts), counts)
    expected = torch.stack(
        [(value(COUNTS + aside) - value(COUNTS - aside)) / 2e-5 for aside in step]
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_once_the_odds_have_settled_the_count_law_treats_clusters_alike() -> None:
    """Where the urn expects the counts at hand: slopes log x̄ for assignments, nearly constant for
    counts.
    """
    samples, log_weights = 1280, torch.tensor([0.0, 0.6, -0.5, 1.0, 0.2])
    mean = law_of(Hypergeometric(), log_weights.unsqueeze(0), samples).mean[0].requires_grad_()
    of_counts = count_log_prob(mean, log_weights, torch.zeros(()), samples)
    of_assignments = of_counts - log_orders(mean, samples)
    tolerance = 1.5 / mean.min().item()
    for value, expected in ((of_counts, torch.zeros(5)), (of_assignments, mean.detach().log())):
        (slope,) = torch.autograd.grad(value, mean, retain_graph=True)
        torch.testing.assert_close(slope - slope[0], expected - expected[0], rtol=0, atol=tolerance)


def test_an_urn_that_cannot_hold_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="none left"):
        law_of(Hypergeometric(0.2), torch.zeros(1, 4), 20)
    with pytest.raises(ValueError, match="above 0"):
        Hypergeometric(0.0)
    with pytest.raises(ValueError, match="merged chain"):
        Hypergeometric(0.5, conditionals="merged")


@pytest.mark.parametrize("shares", ["mean", "batch"])
def test_shares_derived_from_the_law_of_assignments_need_it(shares: str) -> None:
    with pytest.raises(ValueError, match=f"'{shares}' follow from the law of assignments"):
        Hypergeometric(shares=shares)  # type: ignore[arg-type]
    assert Hypergeometric(shares=shares, law="assignments").shares == shares  # type: ignore[arg-type]


def test_the_default_prior_is_the_papers() -> None:
    assert Hypergeometric() == Hypergeometric(1.0, "pi", "hard", "exact", "counts")


@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (Uniform(), "uniform"),
        (Categorical(), "categorical"),
        (Hypergeometric(), "hypergeometric"),
        (Hypergeometric(conditionals="merged"), "hypergeometric-merged"),
        (Hypergeometric(10, conditionals="merged"), "hypergeometric-10n-merged"),
        (Hypergeometric(None, law="assignments"), "hypergeometric-inf-assignments"),
        (
            Hypergeometric(0.15, shares="batch", law="assignments"),
            "hypergeometric-0.15n-batch-assignments",
        ),
        (
            Hypergeometric(2, shares="mean", counts="expected", law="assignments"),
            "hypergeometric-2n-mean-expected-assignments",
        ),
    ],
)
def test_records_and_tables_name_priors_by_their_unusual_fields(prior: Prior, name: str) -> None:
    assert str(prior) == name


@pytest.mark.parametrize("balls", [1.0, 3.0])
def test_an_assignment_is_as_likely_as_drawing_its_balls_in_that_order(balls: float) -> None:
    """The oracle draws all n labelled balls at once: every set of balls weighs ∏ω; orders are
    equally likely.
    """
    samples, weights = 4, torch.tensor([1.0, 2.5, 0.4])
    size = int(balls * samples)
    owner = [k for k in range(3) for _ in range(size)]
    total: dict[tuple[int, ...], float] = {}
    for drawn in itertools.combinations(range(3 * size), samples):
        mass = math.prod(float(weights[owner[ball]]) for ball in drawn)
        counts = tuple(sum(owner[ball] == k for ball in drawn) for k in range(3))
        total[counts] = total.get(counts, 0.0) + mass
    assignments = all_assignments(samples, 3)
    norm = sum(total.values())
    expected = []
    for assignment in assignments:
        counts = tuple(int((assignment == k).sum()) for k in range(3))
        orders = math.factorial(samples) / math.prod(math.factorial(x) for x in counts)
        expected.append(math.log(total[counts] / norm / orders))
    found = log_prob_of(Hypergeometric(balls, law="assignments"), weights.log(), assignments)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-12, atol=1e-12)


def test_the_prior_is_the_urns_log_probability_or_that_of_one_order() -> None:
    samples, log_weights = 128, torch.randn(5, 10)
    counts = torch.multinomial(torch.ones(5, 10), samples, replacement=True)
    counts = torch.stack([row.bincount(minlength=10) for row in counts]).double()
    for balls in (1.0, 2.0, 10.0):
        urn = FisherHypergeometric(
            torch.full((10,), int(balls * samples)), samples, log_weights=log_weights
        )
        of_counts = urn.log_prob(counts)
        of_assignments = of_counts - math.lgamma(samples + 1) + torch.lgamma(counts + 1).sum(-1)
        assignments = torch.stack(
            [torch.repeat_interleave(torch.arange(10), row.long()) for row in counts]
        )
        for law, expected in (("counts", of_counts), ("assignments", of_assignments)):
            prior = Hypergeometric(balls, law=law)  # type: ignore[arg-type]
            found = torch.stack(
                [
                    log_prob_of(prior, w, c.unsqueeze(0))[0]
                    for w, c in zip(log_weights, assignments, strict=True)
                ]
            )
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(
            law_of(Hypergeometric(balls), log_weights, samples).mean, urn.mean
        )


def test_the_merged_chain_is_the_one_the_paper_draws_from() -> None:
    log_weights, samples = torch.tensor([0.5, -0.8, 1.2]), 5
    assignments = all_assignments(samples, 3)
    counts = torch.nn.functional.one_hot(assignments, 3).sum(1).double()
    for balls in (1, 2):
        expected = merged_log_prob(
            counts,
            torch.full((3,), float(balls * samples)),
            samples,
            log_weights,
        )
        found = log_prob_of(
            Hypergeometric(float(balls), conditionals="merged"), log_weights, assignments
        )
        torch.testing.assert_close(found, expected)


def test_with_endless_balls_the_law_of_assignments_is_the_categorical_one() -> None:
    log_weights, assignments = torch.randn(4), all_assignments(5, 4)
    independent = torch.distributions.Categorical(logits=log_weights).log_prob(assignments).sum(1)
    for balls, tolerance in ((None, 1e-12), (1e5, 1e-3)):
        found = log_prob_of(Hypergeometric(balls, law="assignments"), log_weights, assignments)
        torch.testing.assert_close(found, independent, rtol=0, atol=tolerance)
    log_q, weights = torch.randn(3, 20, 4).log_softmax(-1), torch.randn(3, 4)
    ours = law_of(
        Hypergeometric(None, counts="expected", shares="mean", law="assignments"), weights, 20
    )
    theirs = law_of(Categorical(), weights, 20)
    torch.testing.assert_close(
        ours.expected_log_prob(log_q, log_q, COLD), theirs.expected_log_prob(log_q, log_q, COLD)
    )
    torch.testing.assert_close(ours.log_shares(), theirs.log_shares())
    torch.testing.assert_close(ours.mean, theirs.mean)


@pytest.mark.parametrize(
    ("balls", "law", "tolerance"),
    [(1.0, "assignments", 2e-3), (4.0, "assignments", 2e-3), (1.0, "counts", 1e-2)],
)
def test_expected_counts_give_the_expectation_over_all_assignments(
    balls: float, law: str, tolerance: float
) -> None:
    """To second order: the rest is of the size of a third derivative per sample, ψ''(x + 1) / n for
    small counts by the count law.
    """
    samples, log_weights = 7, torch.tensor([0.2, -0.4, 0.6])
    prior, by_moments = (
        Hypergeometric(balls, counts=counts, law=law) for counts in ("hard", "expected")
    )  # type: ignore[arg-type]
    log_q = (2 * torch.randn(1, samples, 3)).log_softmax(-1)
    assignments = all_assignments(samples, 3)
    probabilities = log_q[0, torch.arange(samples), assignments].sum(1).exp()
    expected = (probabilities * log_prob_of(prior, log_weights, assignments)).sum() / samples
    found = law_of(by_moments, log_weights.unsqueeze(0), samples).expected_log_prob(
        log_q, log_q, COLD
    )
    assert (found - expected).abs().item() < tolerance
    draws = torch.randn(4000, samples, 3)
    gumbel = -torch.log(-torch.log(torch.rand_like(draws)))
    drawn = law_of(prior, log_weights.expand(4000, 3), samples).expected_log_prob(
        log_q.expand(4000, -1, -1), gumbel, COLD
    )
    assert (drawn.mean() - expected).abs().item() < 5 * drawn.std().item() / math.sqrt(
        4000
    )  # false alarm 6e-7


@pytest.mark.parametrize("balls", [1.0, None])
@pytest.mark.parametrize("law", ["counts", "assignments"])
def test_expected_counts_know_the_curvature_of_their_law(balls: float | None, law: str) -> None:
    """Of log p(E x) + ½ Σ_k Var x_k ∂²log p/∂x_k², with second derivatives by finite
    differences.
    """
    samples, step = 40, 1e-4
    log_q, log_weights = torch.randn(1, samples, 4).log_softmax(-1), torch.randn(1, 4)
    prior = Hypergeometric(balls, counts="expected", law=law)  # type: ignore[arg-type]
    q, log_pi = log_q[0].exp(), log_weights[0].log_softmax(-1)
    normalizer = torch.zeros(())
    if balls is not None:
        urn = FisherHypergeometric([samples] * 4, samples, log_weights=log_pi)
        full = torch.tensor([float(samples), 0.0, 0.0, 0.0])
        normalizer = samples * log_pi[0] - urn.log_prob(full)

    def log_prob(counts: Tensor) -> Tensor:
        room = (
            0.0 if balls is None else math.lgamma(samples + 1) - torch.lgamma(samples - counts + 1)
        )
        orders = math.lgamma(samples + 1) - torch.lgamma(counts + 1).sum()
        value = (
            (room + counts * log_pi).sum()
            - normalizer
            - (0.0 if balls is None else math.lgamma(samples + 1))
        )
        return value + orders if law == "counts" else value

    counts, variances = q.sum(0), (q * (1 - q)).sum(0)
    bends = [
        (log_prob(counts + aside) - 2 * log_prob(counts) + log_prob(counts - aside)) / step**2
        for aside in step * torch.eye(4)
    ]
    expected = log_prob(counts) + 0.5 * (variances * torch.stack(bends)).sum()
    found = samples * law_of(prior, log_weights, samples).expected_log_prob(log_q, log_q, COLD)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "prior",
    [
        Categorical(),
        Hypergeometric(),
        Hypergeometric(balls=2, counts="soft"),
        Hypergeometric(counts="expected"),
        Hypergeometric(conditionals="merged"),
        Hypergeometric(law="assignments"),
    ],
)
def test_the_priors_gradient_reaches_responsibilities_and_weights(
    prior: Prior,
) -> None:
    scores, log_weights = (
        torch.randn(2, 30, 4, requires_grad=True),
        torch.randn(2, 4, requires_grad=True),
    )
    value = law_of(prior, log_weights, 30).expected_log_prob(
        scores.log_softmax(-1), torch.randn(2, 30, 4), torch.tensor(0.7)
    )
    in_scores, in_weights = torch.autograd.grad(value.sum(), [scores, log_weights])
    assert in_scores.isfinite().all()
    assert (in_scores.abs().sum((1, 2)) > 0).all()
    assert (in_weights.abs().sum(1) > 0).all()


def test_the_gradient_in_the_weights_is_counts_less_the_urns_mean() -> None:
    log_weights = torch.randn(3, 5, requires_grad=True)
    log_q = torch.randn(3, 40, 5).log_softmax(-1)
    law = law_of(Hypergeometric(2.0, counts="expected"), log_weights, 40)
    (found,) = torch.autograd.grad(
        40 * law.expected_log_prob(log_q, log_q, COLD).sum(), log_weights
    )
    urn = FisherHypergeometric([80] * 5, 40, log_weights=log_weights.detach())
    torch.testing.assert_close(found, log_q.exp().sum(1) - urn.mean)


URNS = [
    Hypergeometric(shares="mean", law="assignments"),
    Hypergeometric(0.5, shares="batch", law="assignments"),
    Hypergeometric(10),
]


@pytest.mark.parametrize("prior", URNS, ids=str)
def test_the_law_of_a_fused_step_is_that_of_the_distribution(prior: Hypergeometric) -> None:
    log_weights = torch.randn(3, 10, requires_grad=True)
    log_q, noise = torch.randn(3, 128, 10).log_softmax(-1), torch.randn(3, 128, 10)
    tilt = prior.tilt(log_weights, 128)
    plain, fused = prior.with_weights(log_weights, 128), prior.with_weights(log_weights, 128, tilt)
    torch.testing.assert_close(fused.mean, plain.mean)
    torch.testing.assert_close(fused.log_shares(log_q), plain.log_shares(log_q))
    values = [law.expected_log_prob(log_q, noise, COLD) for law in (fused, plain)]
    torch.testing.assert_close(*values)
    slopes = [torch.autograd.grad(value.sum(), log_weights)[0] for value in values]
    torch.testing.assert_close(*slopes)


def test_a_stale_tilt_changes_nothing() -> None:
    log_weights, log_q = torch.randn(3, 10), torch.randn(3, 128, 10).log_softmax(-1)
    prior = Hypergeometric(shares="mean", law="assignments")
    tilt = prior.tilt(log_weights, 128)
    now, stale = (
        prior.with_weights(log_weights, 128, tilt),
        prior.with_weights(log_weights, 128, tilt + 0.1),
    )  # a hundred steps' worth
    torch.testing.assert_close(now.log_shares(), stale.log_shares(), rtol=0, atol=1e-10)
    noise = torch.randn_like(log_q)
    torch.testing.assert_close(
        now.expected_log_prob(log_q, noise, COLD),
        stale.expected_log_prob(log_q, noise, COLD),
        rtol=0,
        atol=1e-10,
    )


def test_hard_counts_are_whole_and_add_up_and_soft_ones_add_up() -> None:
    log_q, noise = torch.randn(6, 50, 4).log_softmax(-1), torch.randn(6, 50, 4)
    hard, soft = (drawn_counts(log_q, noise, torch.tensor(0.5), hard) for hard in (True, False))
    assert torch.equal(hard, hard.round())
    torch.testing.assert_close(hard.sum(-1), torch.full((6,), 50.0))
    torch.testing.assert_close(soft.sum(-1), torch.full((6,), 50.0))
    torch.testing.assert_close(
        drawn_counts(log_q, noise, COLD, False),
        drawn_counts(log_q, noise, COLD, True),
        rtol=0,
        atol=0.5,
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"balls": 0.0}, "balls is 0.0, but must be a number of balls of each cluster per sample"),
        ({"balls": math.inf}, "balls is inf, but must be"),
        ({"balls": math.nan}, "balls is nan, but must be"),
        ({"counts": "expected", "conditionals": "merged"}, "expected counts are for the exact law"),
    ],
)
def test_impossible_priors_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Hypergeometric(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("balls", "tolerance"), [(1.0, 1e-5), (0.2, 0.02), (0.15, 0.2)])
def test_the_shares_of_a_batch_are_those_that_its_own_counts_leave(
    balls: float, tolerance: float
) -> None:
    samples, log_pi = 128, torch.log_softmax(torch.linspace(-0.3, 0.3, 10), -1)
    log_likelihoods = 4 * torch.randn(20, samples, 10)
    log_likelihoods[..., 0] += 4  # wants more than there is
    law = law_of(
        Hypergeometric(balls, shares="batch", law="assignments"), log_pi.expand(20, -1), samples
    )
    found = law.log_shares(log_likelihoods)
    for own, shares in zip(log_likelihoods, found, strict=True):
        log_room = urn_log_weights(own + log_pi, round(balls * samples), torch.zeros(10))
        torch.testing.assert_close(
            shares, torch.log_softmax(log_pi + log_room, -1), rtol=0, atol=tolerance
        )
    taken, without = (
        torch.softmax(log_likelihoods + own.unsqueeze(1), -1)[..., 0].sum(1)
        for own in (found, law.log_shares())
    )
    assert (taken < without).all()


def tiny_stack(priors: list[Prior], samples: int = 12, fused: bool = False) -> VaDE:
    model = VaDE(
        priors,
        pixels=9,
        widths=(7, 6),
        latent=3,
        clusters=4,
        batch_size=samples,
        fused=fused,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    model.retilt()
    return model


def noise_for(model: VaDE, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    models = len(model.means)
    return (
        torch.rand(models, samples, 9),
        torch.randn(models, samples, 3),
        torch.randn(models, samples, 4),
    )


def plain_elbo(
    model: VaDE, s: int, prior: Prior, x: Tensor, normal: Tensor, gumbel: Tensor
) -> Tensor:
    """One model of the stack, with torch's distributions and loops over samples and clusters."""
    h = x
    for layer in model.encoder[:-1]:
        h = torch.relu(h @ layer.weight[s] + layer.bias[s])
    h = h @ model.encoder[-1].weight[s] + model.encoder[-1].bias[s]
    encoded = Normal(h[:, :3], (h[:, 3:] / 2).exp())
    z = encoded.loc + encoded.scale * normal
    h = z
    for layer in model.decoder[:-1]:
        h = torch.relu(h @ layer.weight[s] + layer.bias[s])
    logits = h @ model.decoder[-1].weight[s] + model.decoder[-1].bias[s]
    clusters = [
        MultivariateNormal(m, torch.diag(v.exp()))
        for m, v in zip(model.means[s], model.log_variances[s], strict=True)
    ]
    n, weights = len(x), model.log_weights[s].softmax(-1)
    drawn_from_urn = isinstance(prior, Hypergeometric) and prior.balls is not None
    balls = int(prior.balls) if drawn_from_urn else 1
    urn = FisherHypergeometric([n * balls] * 4, n, weights=weights, validate_args=False)
    shares = torch.full((4,), 0.25) if prior == Uniform() else weights
    if drawn_from_urn and prior.shares == "mean":
        shares = urn.mean / n
    joint = torch.stack(
        [c.log_prob(z) + share.log() for c, share in zip(clusters, shares, strict=True)], 1
    ).exp()
    q = joint / joint.sum(1, keepdim=True)
    total = Independent(Bernoulli(logits=logits, validate_args=False), 1).log_prob(x).sum()
    for i in range(n):
        for k in range(4):
            total = total - q[i, k] * kl_divergence(
                MultivariateNormal(encoded.loc[i], torch.diag(encoded.scale[i] ** 2)), clusters[k]
            )
            total = total - q[i, k] * q[i, k].log()
            if not drawn_from_urn:
                total = total + q[i, k] * shares[k].log()
    if drawn_from_urn:
        counts = torch.nn.functional.one_hot((q.log() + gumbel).argmax(1), 4).sum(0).double()
        orders = math.lgamma(n + 1) - torch.lgamma(counts + 1).sum()
        total = total + urn.log_prob(counts) - (orders if prior.law == "assignments" else 0)
    return total / n


PRIORS: list[Prior] = [
    Uniform(),
    Hypergeometric(),
    Categorical(),
    Hypergeometric(2, shares="mean", law="assignments"),
    Hypergeometric(),
    Hypergeometric(law="assignments"),
    Hypergeometric(None, counts="expected", law="assignments"),
    Hypergeometric(2),
]


@pytest.mark.parametrize("fused", [False, True])
def test_every_model_of_a_stack_has_the_bound_that_a_plain_model_has(fused: bool) -> None:
    model = tiny_stack(PRIORS, fused=fused)
    x, normal, gumbel = noise_for(model, 12)
    found = model.elbo(x, normal, gumbel, torch.tensor(0.5))
    expected = torch.stack(
        [plain_elbo(model, s, own, x[s], normal[s], gumbel[s]) for s, own in enumerate(PRIORS)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_gradients_of_a_stack_are_those_of_plain_models() -> None:
    priors: list[Prior] = [Categorical(), Uniform()]
    model = tiny_stack(priors)
    x, normal, gumbel = noise_for(model, 12)
    parameters = list(model.parameters())
    found = torch.autograd.grad(model.elbo(x, normal, gumbel, COLD).sum(), parameters)
    plain = sum(
        plain_elbo(model, s, own, x[s], normal[s], gumbel[s]) for s, own in enumerate(priors)
    )
    for ours, theirs in zip(found, torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


def test_models_of_a_stack_do_not_meet() -> None:
    model = tiny_stack(ALL)
    x, normal, gumbel = noise_for(model, 12)
    before = model.elbo(x, normal, gumbel, torch.tensor(0.5))
    with torch.no_grad():
        model.means[2] = torch.nan
        model.log_weights[2] = torch.nan
    after = model.elbo(x, normal, gumbel, torch.tensor(0.5))
    others = [s for s in range(len(ALL)) if s != 2]
    assert after[2].isnan()
    torch.testing.assert_close(after[others], before[others])
    (slope,) = torch.autograd.grad(
        torch.where(torch.arange(len(ALL)) == 2, 0.0, after).sum(), model.log_variances
    )
    assert slope[others].isfinite().all()


def test_far_away_samples_stay_finite() -> None:
    model = tiny_stack(ALL)
    x, normal, gumbel = noise_for(model, 12)
    loss = -model.elbo(x, 1e4 * normal, gumbel, torch.tensor(0.5)).sum()
    assert loss.isfinite()
    assert all(
        slope.isfinite().all() for slope in torch.autograd.grad(loss, list(model.parameters()))
    )


class _OnMetaOnly(TorchDispatchMode):
    """Fails at any operation on a tensor of the CPU, and at any that reads a value."""

    def __torch_dispatch__(self, operation, kinds, operands=(), keywords=None):  # type: ignore[no-untyped-def]
        result = operation(*operands, **(keywords or {}))
        tensors = [
            leaf for leaf in tree_leaves((operands, keywords, result)) if isinstance(leaf, Tensor)
        ]
        assert all(tensor.device.type == "meta" for tensor in tensors), operation
        return result


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_reads_no_values_so_that_it_can_be_captured(fused: bool) -> None:
    priors = [
        *ALL,
        Hypergeometric(counts="expected"),
        Hypergeometric(balls=10, counts="soft"),
        Hypergeometric(conditionals="merged"),
        Hypergeometric(conditionals="merged", law="assignments"),
    ]
    model = tiny_stack(priors, fused=fused).to("meta")
    x, normal, gumbel = (noise.to("meta") for noise in noise_for(model, 12))
    active, temperature = (
        torch.ones(len(priors), dtype=torch.bool, device="meta"),
        torch.ones((), device="meta"),
    )
    with _OnMetaOnly():
        torch.where(active, model.elbo(x, normal, gumbel, temperature), 0.0).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_uniform_prior_never_moves_its_weights() -> None:
    model = tiny_stack([Uniform(), Categorical()])
    (slope,) = torch.autograd.grad(model.elbo(*noise_for(model, 12), COLD).sum(), model.log_weights)
    assert torch.equal(slope[0], torch.zeros(4))
    assert slope[1].abs().sum() > 0
    torch.testing.assert_close(model.expected_shares()[0], torch.full((4,), 0.25))
    assert not Uniform.learned
