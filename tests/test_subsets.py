"""Groups of one ball, or few: draws, gradients, information and probabilities of subsets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from diffurn._fisher import moments
from diffurn._fisher.sampling.rejection import draw_on_cpu
from diffurn._wallenius import probabilities
from support.goodness import Yardstick, chi_square_p_value
from support.urns import NEVER, Urn

DOUBLE = torch.float64

# The seeds are fixed. With a fresh seed and right samplers, a test of draws fails with at most this
# probability.
FALSE_ALARM = 1e-5


def spread_weights(groups: int, scale: float = 1.0) -> tuple[float, ...]:
    return tuple(scale * math.sin(3.0 * j + 1.0) for j in range(groups))


def operands(urn: Urn, copies: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, sizes and draws of copies of an urn; groups of weight zero are emptied."""
    log_weights = [0.0 if w == NEVER else w for w in urn.log_weights]
    return (
        torch.tensor(log_weights, dtype=DOUBLE).repeat(copies, 1),
        torch.tensor(urn.drawable, dtype=DOUBLE).repeat(copies, 1),
        torch.tensor(urn.draws, dtype=DOUBLE).repeat(copies),
    )


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------

FEW = (
    Urn("3-of-9", (1,) * 9, 3, spread_weights(9)),
    Urn("ties", (1,) * 8, 4, (0.0,) * 8),
    Urn("one-is-never-drawn", (1,) * 9, 2, (NEVER, *spread_weights(8))),
    Urn("some-have-two", (2, 1, 1, 0, 2, 1, 1, 3, 1), 5, spread_weights(9, 2.0)),
    Urn("heavy-and-light", (1,) * 9, 4, (30.0, 30.0, *spread_weights(4), -30.0, -31.0, -32.0)),
    Urn("all-but-one", (1,) * 10, 9, spread_weights(10)),
)


def outcomes_of(urn: Urn) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All outcomes and their probabilities, by brute force."""
    choices = itertools.product(*(range(size + 1) for size in urn.drawable))
    outcomes = [x for x in choices if sum(x) == urn.draws]
    log_weights = [0.0 if w == NEVER else w for w in urn.log_weights]
    masses = [
        math.prod(math.comb(m, k) for m, k in zip(urn.drawable, x, strict=True))
        * mp.exp(sum(k * w for k, w in zip(x, log_weights, strict=True)))
        for x in outcomes
    ]
    return outcomes, np.array([float(mass / sum(masses)) for mass in masses])


@pytest.mark.parametrize("many_of_one", [True, False], ids=["one-urn", "copies"])
@pytest.mark.parametrize("urn", FEW, ids=str)
def test_draws_follow_the_law_of_all_outcomes(urn: Urn, many_of_one: bool) -> None:
    number = 20_000
    outcomes, probabilities = outcomes_of(urn)
    copies, samples = (1, number) if many_of_one else (number, 1)
    counts = draw_on_cpu(*operands(urn, copies), samples).reshape(number, -1)
    places = {x: place for place, x in enumerate(outcomes)}
    observed = np.zeros(len(outcomes), dtype=np.int64)
    for row, times in zip(
        *np.unique(counts.long().numpy(), axis=0, return_counts=True), strict=True
    ):
        observed[places[tuple(row.tolist())]] = times
    assert chi_square_p_value(observed, probabilities) > FALSE_ALARM / (2 * len(FEW))


# Without a block of groups that decides, with one, and with groups of several balls.
MANY = (
    Urn("50-of-200", (1,) * 200, 50, spread_weights(200)),
    Urn("300-of-800", (1,) * 800, 300, spread_weights(800)),
    Urn("700-of-800-mostly-drawn", (1,) * 800, 700, spread_weights(800, 0.3)),
    Urn("600-of-two-each", (2, 1, 3) * 200, 600, spread_weights(600)),
)


@pytest.mark.parametrize("urn", MANY, ids=str)
def test_draws_of_many_groups_have_the_marginals_of_the_law(urn: Urn) -> None:
    few = Yardstick(urn)
    counts = draw_on_cpu(*operands(urn), 3000).reshape(-1, urn.groups)
    assert (counts.sum(-1) == urn.draws).all()
    p_values = few.p_values([counts.long().numpy()])
    assert min(p_values) > FALSE_ALARM / len(p_values)


@pytest.mark.parametrize("draws", [0, 1, 39, 40])
def test_certain_draws_and_the_ends_are_possible(draws: int) -> None:
    urn = FisherHypergeometric(
        torch.ones(40, dtype=torch.int64), draws, log_weights=torch.randn(40)
    )
    counts = urn.sample((7,))
    assert (counts.sum(-1) == draws).all()
    assert ((counts == 0) | (counts == 1)).all()


def test_seeds_decide_draws_whatever_the_number_of_threads() -> None:
    sizes, log_weights = torch.ones(64, 300, dtype=torch.int64), torch.randn(64, 300)

    def draw() -> Tensor:
        torch.manual_seed(5)
        return FisherHypergeometric(sizes, 40, log_weights=log_weights).sample((3,))

    threads = torch.get_num_threads()
    first = draw()
    torch.set_num_threads(3)
    again = draw()
    torch.set_num_threads(threads)
    assert (first == again).all()
    assert (first[0] != first[1]).any()


def test_an_impossible_urn_has_draws_of_nan() -> None:
    log_weights, sizes, draws = operands(MANY[0], 2)
    draws[1] = torch.nan
    counts = draw_on_cpu(log_weights, sizes, draws, 2)
    assert counts[:, 1].isnan().all()
    assert (counts[:, 0].sum(-1) == 50).all()


@pytest.mark.parametrize("groups", [8, 64])
def test_gradients_through_a_draw_are_those_of_the_mean(groups: int) -> None:
    log_weights = torch.randn(groups, dtype=DOUBLE, requires_grad=True)
    urn = FisherHypergeometric(torch.ones(groups, dtype=torch.int64), 3, log_weights=log_weights)
    vector = torch.randn(groups, dtype=DOUBLE)
    (found,) = torch.autograd.grad((urn.rsample() * vector).sum(), log_weights)
    jacobian = exact_covariance(log_weights.tolist(), 3)
    assert (found - jacobian @ vector).abs().max() <= 1e-12


def exact_covariance(log_weights: list[float], draws: int) -> Tensor:
    """Of a subset, by elementary symmetric polynomials of the other weights in 40 digits."""
    with mp.workdps(40):
        weights = [mp.exp(mpf(w)) for w in log_weights]
        powers = [sum(w**k for w in weights) for k in range(draws + 1)]

        def polynomial(left_out: list[mpf]) -> list[mpf]:
            sums = [powers[k] - sum(w**k for w in left_out) for k in range(draws + 1)]
            found = [mpf(1)]
            for k in range(1, draws + 1):  # Newton's identities
                terms = ((-1) ** (i - 1) * found[k - i] * sums[i] for i in range(1, k + 1))
                found.append(sum(terms) / k)
            return found

        whole = polynomial([])[draws]
        means = [w * polynomial([w])[draws - 1] / whole for w in weights]
        covariance = torch.diag(torch.tensor([float(p * (1 - p)) for p in means], dtype=DOUBLE))
        for i, j in itertools.combinations(range(len(weights)), 2):
            pair = [weights[i], weights[j]]
            both = pair[0] * pair[1] * polynomial(pair)[draws - 2] / whole
            covariance[i, j] = covariance[j, i] = float(both - means[i] * means[j])
        return covariance


# --------------------------------------------------------------------------------------------------
# torch.compile
# --------------------------------------------------------------------------------------------------


def compiled_gradient(groups: int, draws: int, backend: str) -> tuple[Tensor, Tensor]:
    log_weights = torch.randn(2, groups, dtype=DOUBLE, requires_grad=True)
    sizes, vector = torch.ones(groups, dtype=torch.int64), torch.randn(groups, dtype=DOUBLE)

    def draw(log_weights: Tensor) -> Tensor:
        return FisherHypergeometric(sizes, draws, log_weights=log_weights).rsample()

    torch._dynamo.reset()
    compiled: Callable[[Tensor], Tensor] = torch.compile(draw, fullgraph=True, backend=backend)
    torch.manual_seed(1)
    counts = compiled(log_weights)
    assert (counts.sum(-1) == draws).all()
    torch.manual_seed(1)
    assert (compiled(log_weights) == counts).all()
    assert (compiled(log_weights) != counts).any()
    (found,) = torch.autograd.grad((counts * vector).sum(), log_weights)
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights.detach())
    return found, urn.covariance_matrix @ vector


# torch's own compiler makes an object of an autograd function, and inductor uses `torch.jit`.
compiling = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:.*is deprecated:DeprecationWarning",
)


@compiling
def test_a_draw_with_its_gradient_compiles_without_a_graph_break() -> None:
    found, wanted = compiled_gradient(64, 8, "aot_eager")
    assert (found - wanted).abs().max() <= 1e-12


@compiling
@pytest.mark.slow
@pytest.mark.parametrize(("groups", "draws"), [(64, 8), (784, 50)])
def test_inductor_compiles_a_draw_with_its_gradient(groups: int, draws: int) -> None:
    found, wanted = compiled_gradient(groups, draws, "inductor")
    assert (found - wanted).abs().max() <= 1e-12


# --------------------------------------------------------------------------------------------------
# Information
# --------------------------------------------------------------------------------------------------

both_ways = pytest.mark.parametrize(
    "information",
    [moments.information, getattr(moments.information, "__wrapped__", moments.information)],
    ids=["dispatched", "plain"],
)


@both_ways
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 9])
def test_information_is_the_covariance_between_columns(
    information: Callable[..., Tensor], columns: int
) -> None:
    log_odds = torch.randn(3, 41, dtype=DOUBLE) * torch.tensor([[0.1], [1.0], [25.0]])
    sizes = torch.ones(41, dtype=DOUBLE)
    sizes[33:] = 0  # as in a padded batch
    draws = torch.tensor([1.0, 12.0, 20.0])
    vectors = 5 + torch.randn(3, 41, columns, dtype=DOUBLE)
    wanted = vectors.mT @ moments.covariance(log_odds, sizes.expand(3, 41), draws) @ vectors
    found = information(log_odds, sizes, draws, vectors)
    scale = wanted.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None]
    assert ((found - wanted).abs() <= 1e-11 * scale).all()


@both_ways
def test_information_of_a_certain_outcome_is_zero(information: Callable[..., Tensor]) -> None:
    log_odds, sizes = torch.randn(2, 9, dtype=DOUBLE), torch.ones(2, 9, dtype=DOUBLE)
    vectors = torch.randn(9, 2, dtype=DOUBLE)
    found = information(log_odds, sizes, torch.tensor([0.0, 9.0], dtype=DOUBLE), vectors)
    assert found.shape == (2, 2, 2)
    assert (found == 0).all()


@both_ways
def test_information_keeps_its_digits_in_a_large_urn(information: Callable[..., Tensor]) -> None:
    """Against sums over groups of equal log-odds, which are urns of few large groups."""
    sizes = torch.tensor([3000.0, 5000.0, 2000.0], dtype=DOUBLE)
    log_odds = torch.tensor([-1.0, 0.3, 2.0], dtype=DOUBLE)
    rows = torch.repeat_interleave(sizes.long())
    draws = torch.tensor(4321.0, dtype=DOUBLE)
    of_groups = moments.covariance(log_odds, sizes, draws)
    vectors = torch.tensor([[1.0, 0.0], [0.5, 1.0], [-2.0, 3.0]], dtype=DOUBLE)
    wanted = vectors.T @ of_groups @ vectors
    found = information(log_odds[rows], torch.ones(10_000, dtype=DOUBLE), draws, vectors[rows])
    assert ((found - wanted).abs() <= 1e-11 * wanted.abs().max()).all()


# --------------------------------------------------------------------------------------------------
# Wallenius' law
# --------------------------------------------------------------------------------------------------


def exact_subset_probability(weights: list[float], taken: list[int]) -> mpf:
    """Σ over the orders in which the balls may be drawn, by sums over subsets of the taken ones."""
    with mp.workdps(40):
        rest = sum(mpf(w) for j, w in enumerate(weights) if j not in taken)
        own = [mpf(weights[j]) for j in taken]
        reached = {frozenset(): mpf(1)}
        for _ in own:
            after: dict[frozenset[int], mpf] = {}
            for drawn, probability in reached.items():
                left = rest + sum(w for i, w in enumerate(own) if i not in drawn)
                for i, weight in enumerate(own):
                    if i not in drawn:
                        key = drawn | {i}
                        after[key] = after.get(key, mpf(0)) + probability * weight / left
            reached = after
        return reached[frozenset(range(len(own)))]


@pytest.mark.parametrize("scale", [0.5, 6.0])
def test_a_probability_with_few_drawn_groups_keeps_ten_digits(scale: float) -> None:
    log_weights = torch.tensor(spread_weights(60, scale), dtype=DOUBLE)
    taken = [3, 11, 12, 30, 47, 59]
    x = torch.zeros(60, dtype=DOUBLE).index_fill(0, torch.tensor(taken), 1.0)
    urn = WalleniusHypergeometric(torch.ones(60, dtype=torch.int64), 6, log_weights=log_weights)
    exact = mp.log(exact_subset_probability(log_weights.exp().tolist(), taken))
    assert abs(float(urn.log_prob(x)) - float(exact)) <= 1e-10 * max(1.0, -float(exact))


def test_merging_the_groups_that_are_not_drawn_changes_nothing() -> None:
    sizes = torch.randint(1, 4, (5, 50)).double()
    sizes[:, 7] = 0
    counts = torch.zeros(5, 50, dtype=DOUBLE)
    counts[:, [1, 4, 30]] = 1
    counts[1, 20:23] = sizes[1, 20:23]
    vector = torch.randn(5, 50, dtype=DOUBLE)
    results = []
    for function in (probabilities.log_prob, probabilities._LogProb.of):
        log_weights = torch.linspace(-2, 3, 250, dtype=DOUBLE).reshape(5, 50).requires_grad_()
        value = function(log_weights, sizes, counts)
        (slope,) = torch.autograd.grad(value.sum(), log_weights, create_graph=True)
        (bend,) = torch.autograd.grad((slope * vector).sum(), log_weights)
        results.append((value.detach(), slope.detach(), bend))
    for merged, whole in zip(*results, strict=True):
        assert ((merged - whole).abs() <= 1e-10 * whole.abs().amax(-1, keepdim=True)).all()


def test_single_balls_are_drawn_by_wallenius_law() -> None:
    weights, number = [1.0, 2.0, 3.0, 0.0, 0.5, 0.1], 20_000
    urn = WalleniusHypergeometric([1] * 6, 3, weights=torch.tensor(weights).repeat(number, 1))
    counts = urn.sample()
    choices = list(itertools.combinations([0, 1, 2, 4, 5], 3))
    probability = np.array([float(exact_subset_probability(weights, list(x))) for x in choices])
    observed = [int(counts[:, list(x)].all(-1).sum()) for x in choices]
    assert sum(observed) == number
    assert chi_square_p_value(np.array(observed), probability) > FALSE_ALARM


def test_numbers_of_single_balls_may_differ_in_a_batch() -> None:
    draws = torch.tensor([0, 3, 70])
    sizes, log_weights = torch.ones(3, 70, dtype=torch.int64), torch.randn(3, 70)
    urn = WalleniusHypergeometric(sizes, draws, log_weights=log_weights)
    assert (urn.sample((4,)).sum(-1) == draws).all()


# --------------------------------------------------------------------------------------------------
# Normalisers
# --------------------------------------------------------------------------------------------------


def test_the_normaliser_of_50_of_784_is_that_of_dynamic_programming() -> None:
    log_weights = torch.randn(784, dtype=DOUBLE) * 3
    urn = FisherHypergeometric(torch.ones(784, dtype=torch.int64), 50, log_weights=log_weights)
    table = [mpf(1)] + [mpf(0)] * 50
    with mp.workdps(30):
        for log_weight in log_weights.tolist():
            weight = mp.exp(log_weight)
            table = [table[0], *(table[k] + weight * table[k - 1] for k in range(1, 51))]
        exact = float(mp.log(table[50]))
    assert abs(float(urn.log_normalizer) - exact) <= 1e-13 * abs(exact)
