"""Fisher's law for JAX: the digits of the torch version on the same urns, draws of the right law,
derivatives of any order, and JAX's transformations.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from mpmath import mpf

from support import oracles
from support.distributions import error
from support.goodness import Yardstick
from support.tolerances import FISHER
from support.urns import SMALL, URNS, Urn, by_name, probe_counts

jax = pytest.importorskip("jax", reason="jax is not installed: pip install 'diffurn[jax]'")
numpyro = pytest.importorskip("numpyro", reason="numpyro is not installed")
jnp = jax.numpy
from diffurn.jax import FisherHypergeometric, straight_through  # noqa: E402


@pytest.fixture(autouse=True)
def float64_in_jax() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def float32_in_jax() -> Iterator[None]:
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


# --------------------------------------------------------------------------------------------------
# Digits
# --------------------------------------------------------------------------------------------------

# Urns of one width are computed together, with empty groups where they have fewer: a new width
# takes seconds to compile.
WIDTHS = (5, 20, 200)
every_width = pytest.mark.parametrize("width", WIDTHS)


def of_width(width: int) -> list[Urn]:
    narrower = max([0, *(each for each in WIDTHS if each < width)])
    return [urn for urn in URNS if narrower < urn.groups <= width]


def padded(rows: list[Any], width: int) -> np.ndarray:
    return np.array([[*row, *[0] * (width - len(row))] for row in rows])


def together(urns: list[Urn], width: int) -> FisherHypergeometric:
    return FisherHypergeometric(
        padded([urn.group_sizes for urn in urns], width),
        np.array([urn.draws for urn in urns]),
        log_weights=padded([urn.log_weights for urn in urns], width),
    )


@cache
def computed(width: int) -> dict[str, np.ndarray]:
    """Moments of all urns of a width, by one compiled function."""
    names = "mean", "variance", "covariance_matrix", "log_normalizer"
    urns = together(of_width(width), width)
    values = jax.jit(lambda urn: [getattr(urn, name) for name in names])(urns)
    return dict(zip(names, map(np.asarray, values), strict=True))


def assert_close(ours: float, exact: mpf, relative: float, absolute: float, urn: Urn) -> None:
    assert error(ours, exact) <= max(relative * abs(float(exact)), absolute), (urn, ours)


def test_every_urn_of_the_table_has_one_width() -> None:
    assert sorted(map(str, URNS)) == sorted(str(urn) for each in WIDTHS for urn in of_width(each))
    assert len(URNS) > 200


@every_width
def test_log_prob_keeps_eleven_digits_from_the_mode_to_the_far_tails(width: int) -> None:
    urns = of_width(width)
    probes = [probe_counts(urn) for urn in urns]
    most = max(map(len, probes))
    counts = [padded([*each, *[each[0]] * (most - len(each))], width) for each in probes]
    ours = np.asarray(together(urns, width).log_prob(np.stack(counts, 1)))
    for urn, listed, values in zip(urns, probes, ours.T.tolist(), strict=True):
        for x, value in zip(listed, values, strict=False):
            exact = oracles.log_prob(urn, x)
            if math.isinf(float(exact)):
                assert value == -math.inf, urn
            else:
                assert_close(value, exact, FISHER.log_prob, FISHER.log_prob, urn)


@every_width
def test_mean_keeps_eleven_digits_in_every_entry(width: int) -> None:
    urns = of_width(width)
    ours = computed(width)["mean"]
    for urn, values in zip(urns, ours.tolist(), strict=True):
        for value, exact in zip(values, oracles.moments(urn).mean, strict=False):
            assert_close(value, exact, FISHER.mean, FISHER.mean_floor, urn)
        assert abs(math.fsum([*values, -urn.draws])) <= FISHER.sum_of_means * urn.draws, urn


@every_width
def test_covariance_keeps_nine_digits_of_its_largest_entry(width: int) -> None:
    urns = of_width(width)
    covariances, variances = computed(width)["covariance_matrix"], computed(width)["variance"]
    assert np.isfinite(covariances).all()
    for urn, ours, variance in zip(urns, covariances, variances, strict=True):
        exact = oracles.moments(urn).covariance
        largest = float(max(abs(value) for value in exact.values()))
        tolerance = max(FISHER.covariance * largest, FISHER.covariance_floor)
        for (i, j), value in exact.items():
            assert error(float(ours[i, j]), value) <= tolerance, (urn, i, j)
            if i == j:
                assert error(float(variance[i]), value) <= tolerance, (urn, i)
        assert np.abs(ours - ours.T).max() <= FISHER.symmetry * np.abs(ours).max(), urn
        rows = max(abs(math.fsum(row)) for row in ours.tolist())
        assert rows <= FISHER.row_sums * urn.groups * np.abs(ours).max(), urn


@every_width
def test_log_normalizer_is_right_to_rounding(width: int) -> None:
    urns = of_width(width)
    for urn, ours in zip(urns, computed(width)["log_normalizer"].tolist(), strict=True):
        terms = sum(
            abs(lw) * min(m, urn.draws)
            for m, lw in zip(urn.drawable, urn.log_weights, strict=True)
            if m > 0
        )
        exact = oracles.log_normalizer(urn)
        assert_close(ours, exact, 1e-13, 1e-14 * max(1.0, terms) + 1e-12, urn)


def test_entropy_keeps_ten_digits() -> None:
    large = ["titanic", "1e10-three-groups", "extreme-1e9", "paper-200x3-odds-10"]
    urns = [urn for urn in of_width(5) if urn in SMALL or urn.name in large]
    assert len(urns) > 80
    for urn, ours in zip(urns, together(urns, 5).entropy().tolist(), strict=True):
        exact = oracles.enumeration(urn).entropy() if urn in SMALL else oracles.entropy(urn)
        assert_close(ours, exact, FISHER.entropy, 1e-12, urn)


# float32: relative to the standard deviation of a count, or to |log P|.
FLOAT32 = 1e-5


@pytest.mark.parametrize("name", ["paper-200x3-odds-2", "biasedurn-three-colours"])
def test_float32_keeps_five_digits_of_ordinary_urns(name: str, float32_in_jax: None) -> None:
    urn = by_name(name)
    ours = FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=urn.log_weights)
    exact = oracles.moments(urn)
    assert ours.mean.dtype == jnp.float32
    for j in range(urn.groups):
        deviation = math.sqrt(exact.covariance[j, j])
        assert error(float(ours.mean[j]), exact.mean[j]) <= FLOAT32 * deviation
        assert error(float(ours.variance[j]), exact.covariance[j, j]) <= FLOAT32 * deviation**2
    for x in probe_counts(urn):
        value, reference = float(ours.log_prob(jnp.array(x))), oracles.log_prob(urn, x)
        assert error(value, reference) <= FLOAT32 * max(1.0, abs(float(reference)))


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------

# With a fresh seed and a right sampler, this is the probability that any of these tests fails: it
# is shared out evenly among the CASES, and within a case among its p-values.
FALSE_ALARM = 1e-4
DRAWS = 50_000
FITTED = [
    by_name(name)
    for name in (
        "biasedurn-univariate",
        "biasedurn-three-colours",
        "almost-sure-ladder",
        "almost-sure-1e9-near-poisson",
        "never-drawn-first",
        "extreme-common-offset",
        "paper-200x3-odds-10",
        "titanic",
        "large-spread1-c3-N1e9-n1e8-74",
        "above-int32-few-draws",
        "subset-spread1-c20-N2e1-n4e0-127",
    )
]
CASES = len(FITTED) + 1


def drawn(urn: Urn, shape: tuple[int, ...], copies: tuple[int, ...] = ()) -> np.ndarray:
    width = 5 if urn.groups <= 5 else 20  # empty groups, so that less is compiled
    sizes, log_weights = padded([urn.group_sizes], width)[0], padded([urn.log_weights], width)[0]
    law = FisherHypergeometric(sizes, urn.draws, log_weights=log_weights)
    counts = np.asarray(law.expand(copies).sample(jax.random.PRNGKey(7), shape))
    whole = counts.astype(np.int64)
    assert (whole == counts).all()
    assert (whole.sum(-1) == urn.draws).all()
    assert (whole >= 0).all()
    assert (whole[..., : urn.groups] <= np.array(urn.drawable)).all()
    assert not whole[..., urn.groups :].any()
    return whole[..., : urn.groups]


@pytest.mark.parametrize("urn", FITTED, ids=str)
def test_draws_follow_the_law(urn: Urn) -> None:
    p_values = Yardstick(urn).p_values([drawn(urn, (DRAWS,))])
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


def test_draws_of_many_urns_follow_the_law() -> None:
    urn = by_name("titanic")
    p_values = Yardstick(urn).p_values([drawn(urn, (), (DRAWS,))])
    assert min(p_values) >= FALSE_ALARM / CASES / len(p_values)


def test_draws_of_all_urns_at_once_are_possible() -> None:
    urns = [*of_width(5), *of_width(20)]
    counts = np.asarray(together(urns, 20).sample(jax.random.PRNGKey(0), (50,)))
    assert (counts == np.floor(counts)).all()
    assert (counts >= 0).all()
    for urn, own in zip(urns, counts.swapaxes(0, 1), strict=True):
        assert (own.sum(-1) == urn.draws).all(), urn
        assert (own[:, : urn.groups] <= np.array(urn.drawable)).all(), urn


def test_sampling_can_be_mapped_and_compiled() -> None:
    def draw(key: Any, number: Any, log_weights: Any) -> Any:
        return FisherHypergeometric([3, 5, 4], number, log_weights=log_weights).sample(key, (4,))

    keys, numbers = jax.random.split(jax.random.PRNGKey(1), 12), jnp.array([5] * 11 + [13])
    counts = jax.jit(jax.vmap(draw, (0, 0, None)))(keys, numbers, jnp.zeros(3))
    assert counts.shape == (12, 4, 3)
    counts = np.asarray(counts)
    assert (counts[:11].sum(-1) == 5).all()
    assert len(np.unique(counts[:11].reshape(-1, 3), axis=0)) > 5
    assert np.isnan(counts[11]).all()  # there are 12 balls


def test_draws_that_float32_cannot_hold_are_refused(float32_in_jax: None) -> None:
    urn = FisherHypergeometric([10**9, 10**9], 10**8, weights=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"draws is 100000000\.0, but float32 holds .* 16777216"):
        urn.sample(jax.random.PRNGKey(0))


# --------------------------------------------------------------------------------------------------
# Derivatives
# --------------------------------------------------------------------------------------------------

SIZES, DRAWN = (3, 5, 2), 4
POINT = np.array([0.3, -0.5, 1.1])


def brute_log_normalizer(log_weights: Any) -> Any:
    """By enumeration, with JAX's own derivatives."""
    listed = oracles.enumeration(Urn("small", SIZES, DRAWN, (0.0,) * 3)).outcomes
    ways = [math.prod(map(math.comb, SIZES, x)) for x in listed]
    terms = jnp.log(jnp.array(ways, float)) + jnp.array(listed, float) @ log_weights
    return jax.scipy.special.logsumexp(terms)


@cache
def cumulants(order: int) -> np.ndarray:
    function = brute_log_normalizer
    for _ in range(order):
        function = jax.jacfwd(function)
    return np.asarray(function(jnp.array(POINT)))


def small(log_weights: Any) -> FisherHypergeometric:
    return FisherHypergeometric(SIZES, DRAWN, log_weights=log_weights)


COUNTS = np.array([1.0, 2.0, 1.0])


def log_prob(log_weights: Any) -> Any:
    return small(log_weights).log_prob(COUNTS)


def log_normalizer(log_weights: Any) -> Any:
    return small(log_weights).log_normalizer


def mean(log_weights: Any) -> Any:
    return small(log_weights).mean


def covariance(log_weights: Any) -> Any:
    return small(log_weights).covariance_matrix


# Of the log-probability, whose derivatives of order k are those of log Z, but for the first; and of
# moments, the derivatives of orders one and two of log Z.
DERIVATIVES = {
    "grad of log_prob": (jax.grad(log_prob), 1),
    "hessian of log_prob": (jax.hessian(log_prob), 2),
    "jacrev of hessian of log_prob": (jax.jacrev(jax.hessian(log_prob)), 3),
    "grad of log_normalizer": (jax.grad(log_normalizer), 1),
    "jacfwd of mean": (jax.jacfwd(mean), 2),
    "jacfwd of jacrev of covariance": (jax.jacfwd(jax.jacrev(covariance)), 4),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if order > 2 else [])
        for name, (_, order) in DERIVATIVES.items()
    ],
)
def test_derivatives_are_those_of_the_enumeration(name: str) -> None:
    derivative, order = DERIVATIVES[name]
    exact = cumulants(order)
    if "log_prob" in name:
        exact = (COUNTS if order == 1 else 0) - exact
    ours = jax.jit(derivative)(jnp.array(POINT))
    np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-11)


def test_entropy_has_the_right_gradient() -> None:
    def brute(log_weights: Any) -> Any:
        listed = oracles.enumeration(Urn("small", SIZES, DRAWN, (0.0,) * 3)).outcomes
        ways = jnp.array([math.prod(map(math.comb, SIZES, x)) for x in listed], float)
        log_p = jnp.log(ways) + jnp.array(listed, float) @ log_weights
        log_p = log_p - jax.scipy.special.logsumexp(log_p)
        return -(jnp.exp(log_p) * log_p).sum()

    ours = jax.grad(lambda lw: small(lw).entropy())(jnp.array(POINT))
    np.testing.assert_allclose(ours, jax.grad(brute)(jnp.array(POINT)), rtol=1e-9, atol=1e-11)


def test_log_prob_is_differentiable_in_real_counts() -> None:
    def continued(x: Any) -> Any:
        gamma = jax.scipy.special.gammaln
        sizes = jnp.array(SIZES, float)
        ways = gamma(sizes + 1) - gamma(x + 1) - gamma(sizes - x + 1)
        return (ways + x * POINT).sum()

    x = jnp.array([1.5, 1.7, 0.8])
    ours = jax.grad(lambda x: small(jnp.array(POINT)).log_prob(x))(x)
    np.testing.assert_allclose(ours, jax.grad(continued)(x), rtol=1e-9)


def test_a_weight_of_zero_has_a_slope() -> None:
    def mean(weights: Any) -> Any:
        return FisherHypergeometric([3, 5, 2], 4, weights=weights).mean

    at_zero, beside = jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 2.0, 1e-6])
    assert mean(at_zero)[2] == 0
    slope = jax.jacfwd(mean)(at_zero)[:, 2]
    np.testing.assert_allclose(slope, (mean(beside) - mean(at_zero)) / 1e-6, rtol=1e-5)


def test_straight_through_draws_have_the_slope_of_the_mean() -> None:
    key, log_weights = jax.random.PRNGKey(3), jnp.array(POINT)

    def value(lw: Any) -> Any:
        return straight_through(key, small(lw), (5,))

    assert jnp.array_equal(value(log_weights), small(log_weights).sample(key, (5,)))
    slopes = jax.jacrev(value)(log_weights)
    np.testing.assert_allclose(slopes, np.broadcast_to(cumulants(2), (5, 3, 3)), rtol=1e-9)


# --------------------------------------------------------------------------------------------------
# Shapes, transformations, arguments
# --------------------------------------------------------------------------------------------------


def test_batches_broadcast_expand_and_flatten() -> None:
    urn = FisherHypergeometric([3, 5, 2], jnp.array([1, 4]), weights=jnp.ones((7, 1, 3)))
    assert (urn.batch_shape, urn.event_shape) == ((7, 2), (3,))
    larger = urn.expand((4, 7, 2))
    assert isinstance(larger, FisherHypergeometric)

    def results(urn: FisherHypergeometric) -> list[Any]:
        of_event = urn.to_event(1).log_prob(jnp.zeros((7, 2, 3)))
        counts = urn.sample(jax.random.PRNGKey(0), (6,))
        return [urn.log_prob(jnp.zeros(3)), of_event, urn.covariance_matrix, counts]

    shapes = [each.shape for each in jax.eval_shape(lambda: results(larger))]
    assert shapes == [(4, 7, 2), (4, 7), (4, 7, 2, 3, 3), (6, 4, 7, 2, 3)]
    leaves, structure = jax.tree_util.tree_flatten(urn)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert jax.eval_shape(lambda urn: urn.mean, again).shape == (7, 2, 3)
    support = jax.tree_util.tree_map(lambda each: each, urn.support)
    assert bool(support(jnp.array([1, 0, 0]))[0, 0])


def test_vmap_over_an_urn_gives_the_batch() -> None:
    log_weights = jnp.stack([jnp.array(POINT), jnp.zeros(3)])
    mapped = jax.vmap(lambda lw: small(lw).log_prob(COUNTS))(log_weights)
    np.testing.assert_allclose(mapped, small(log_weights).log_prob(COUNTS), rtol=1e-12)


def test_results_have_the_dtype_of_the_weights() -> None:
    urn = FisherHypergeometric([3, 5, 2], 4, weights=jnp.ones(3, jnp.float32))
    assert {urn.mean.dtype, urn.log_prob(COUNTS).dtype} == {jnp.dtype("float32")}
    assert jax.eval_shape(lambda: urn.sample(jax.random.PRNGKey(0))).dtype == jnp.float32
    exact = FisherHypergeometric([3, 5, 2], 4, weights=jnp.ones(3))
    assert float(urn.mean[0]) == float(exact.mean[0].astype(jnp.float32))


def test_values_outside_the_support_are_impossible() -> None:
    urn = small(jnp.array(POINT))
    assert urn.log_prob(jnp.array([4, 0, 0])) == -jnp.inf
    assert urn.log_prob(jnp.array([1, 1, 1])) == -jnp.inf
    assert urn.support(jnp.array([[1, 2, 1], [4, 0, 0], [1, 1, 1]])).tolist() == [
        True,
        False,
        False,
    ]
    assert bool(urn.support(urn.support.feasible_like(jnp.zeros(3))))


def test_traced_urns_that_are_not_valid_give_nan() -> None:
    mean = jax.jit(lambda n: FisherHypergeometric([3, 5], n, weights=[1.0, 2.0]).mean)
    assert jnp.isnan(mean(9)).all()
    assert not jnp.isnan(mean(8)).any()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"weights": None}, "give either weights or log_weights, got neither"),
        ({"log_weights": [0.0, 0.0]}, "give either weights or log_weights, got both"),
        ({"weights": [1.0, -2.0]}, r"weights at index \(1,\) is -2.0, but a weight must be a"),
        ({"weights": [1.0, math.nan]}, r"weights at index \(1,\) is nan"),
        ({"weights": ["a", "b"]}, "weights has dtype <U1, but must be real numbers"),
        ({"weights": 1.0}, r"group_sizes \(2,\) and weights \(\) both need a last dimension"),
        ({"weights": [1.0, 2.0, 3.0]}, r"do not broadcast: group_sizes \(2,\), weights \(3,\)"),
        ({"weights": [0.0, 1.0], "draws": 6}, "but cannot exceed .* with positive weight, 5"),
        ({"group_sizes": [3, 2.5]}, r"group_sizes at index \(1,\) is 2.5, but must be an integer"),
        ({"group_sizes": [3, -1]}, r"group_sizes at index \(1,\) is -1, but must be an integer"),
        ({"draws": 9}, "draws is 9.0, but cannot exceed the number of balls, 8"),
        ({"draws": -1}, "draws is -1, but must be an integer from 0"),
    ],
)
def test_bad_arguments_are_told_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    good = {"group_sizes": [3, 5], "draws": 4, "weights": [1.0, 2.0]}
    with pytest.raises(ValueError, match=sentence):
        FisherHypergeometric(**{**good, **arguments})


def test_bad_counts_are_told_in_a_sentence() -> None:
    urn = FisherHypergeometric([3, 5], 4, weights=[1.0, 2.0], validate_args=True)
    with pytest.raises(ValueError, match=r"value at index \(0,\) is 4, but counts must be"):
        urn.log_prob([4, 0])
    with pytest.raises(ValueError, match=r"value.sum\(-1\) is 3, but the counts must sum to"):
        urn.log_prob([1, 2])
    with pytest.raises(ValueError, match=r"value has shape \(3,\), but .* the 2 groups"):
        urn.log_prob([1, 2, 1])


# --------------------------------------------------------------------------------------------------
# Imports
# --------------------------------------------------------------------------------------------------


def after(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("code", "loaded", "missing"),
    [
        ("import diffurn; diffurn.jax.FisherHypergeometric", "jax", "torch"),
        ("from diffurn import *", "torch", "jax"),
    ],
)
def test_only_one_framework_is_loaded(code: str, loaded: str, missing: str) -> None:
    modules = set(after(f"import sys; {code}; print(*sys.modules)").stdout.split())
    assert loaded in modules
    assert missing not in modules


def test_without_numpyro_the_import_says_what_to_install() -> None:
    done = after("import sys; sys.modules['numpyro'] = None; import diffurn.jax")
    assert "diffurn.jax needs numpyro: pip install 'diffurn[jax]'" in done.stderr
