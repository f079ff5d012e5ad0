"""How many digits are right: every number of FisherHypergeometric against 50-digit oracles, over
one table of urns.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from scipy import stats
from torch.distributions import kl_divergence

from diffurn import _dispatch
from support import biasedurn, oracles
from support.distributions import assert_log_probs, error, fisher
from support.tolerances import FISHER
from support.urns import LARGE, NEVER, SMALL, SUBSETS, URNS, Urn, by_name, disturbed, probe_counts

every_urn = pytest.mark.parametrize("urn", URNS, ids=str)
every_small_urn = pytest.mark.parametrize("urn", SMALL, ids=str)


def counts_tensor(counts, device: torch.device, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(counts, dtype=dtype, device=device)


def assert_close(ours: float, exact: mpf, relative: float, absolute: float = 0.0) -> None:
    assert error(ours, exact) <= max(relative * abs(float(exact)), absolute), (
        ours,
        mp.nstr(exact, 20),
    )


# --------------------------------------------------------------------------------------------------
# log_prob and log_normalizer
# --------------------------------------------------------------------------------------------------


@every_urn
def test_log_prob_keeps_eleven_digits_from_the_mode_to_the_far_tails(
    urn: Urn, device: torch.device
) -> None:
    probes = probe_counts(urn)
    ours = fisher(urn, device).log_prob(counts_tensor(probes, device))
    assert_log_probs(ours, [oracles.log_prob(urn, x) for x in probes], FISHER.log_prob)


@every_small_urn
def test_log_prob_of_every_outcome_agrees_with_the_enumeration(
    urn: Urn, device: torch.device
) -> None:
    enumerated = oracles.enumeration(urn)
    ours = fisher(urn, device).log_prob(counts_tensor(enumerated.outcomes, device))
    assert_log_probs(ours, [enumerated.log_prob(x) for x in enumerated.outcomes], FISHER.log_prob)


@every_small_urn
def test_small_urns_keep_eleven_digits_by_quadrature_too(urn: Urn, device: torch.device) -> None:
    """As they are computed in large batches, where tables do not pay; almost sure outcomes and
    all.
    """
    enumerated, law = oracles.enumeration(urn), _dispatch.fisher(fisher(urn, device))
    assert_log_probs(
        law.log_prob(counts_tensor(enumerated.outcomes, device)),
        [enumerated.log_prob(x) for x in enumerated.outcomes],
        FISHER.log_prob,
    )
    for ours, exact in zip(law.mean().tolist(), enumerated.moments().mean, strict=True):
        assert_close(ours, exact, relative=FISHER.mean)


@every_urn
def test_log_normalizer_is_right_to_rounding(urn: Urn, device: torch.device) -> None:
    """log Z itself may be as large as N, so its error is relative; nothing in the package subtracts
    it.
    """
    terms = max(
        [
            1.0,
            *(
                abs(lw) * min(m, urn.draws)
                for m, lw in zip(urn.drawable, urn.log_weights, strict=True)
                if m > 0
            ),
        ]
    )
    assert_close(
        fisher(urn, device).log_normalizer.item(),
        oracles.log_normalizer(urn),
        relative=1e-13,
        absolute=1e-14 * terms + 1e-12,
    )


# --------------------------------------------------------------------------------------------------
# Moments
# --------------------------------------------------------------------------------------------------


@every_urn
def test_mean_keeps_eleven_digits_in_every_entry(urn: Urn, device: torch.device) -> None:
    """In the smallest entry too, though it may be e^-600."""
    for ours, exact in zip(
        fisher(urn, device).mean.tolist(), oracles.moments(urn).mean, strict=True
    ):
        assert_close(ours, exact, relative=FISHER.mean)


@every_urn
def test_means_sum_to_the_draws(urn: Urn, device: torch.device) -> None:
    mean = fisher(urn, device).mean.tolist()
    assert abs(math.fsum([*mean, -urn.draws])) <= FISHER.sum_of_means * urn.draws


@every_urn
def test_covariance_keeps_nine_digits_of_its_largest_entry(urn: Urn, device: torch.device) -> None:
    exact = oracles.moments(urn).covariance
    distribution = fisher(urn, device)
    covariance, variance = distribution.covariance_matrix, distribution.variance
    largest = float(max(abs(value) for value in exact.values()))
    assert torch.isfinite(covariance).all()
    for (i, j), value in exact.items():
        assert error(covariance[i, j].item(), value) <= FISHER.covariance * largest, (
            i,
            j,
            covariance[i, j].item(),
            mp.nstr(value, 20),
        )
        if i == j:
            assert error(variance[i].item(), value) <= FISHER.covariance * largest, (
                i,
                variance[i].item(),
                mp.nstr(value, 20),
            )


@every_urn
def test_covariance_is_symmetric_and_its_rows_sum_to_zero(urn: Urn, device: torch.device) -> None:
    covariance = fisher(urn, device).covariance_matrix
    largest = covariance.abs().max().item()
    assert (covariance - covariance.mT).abs().max().item() <= FISHER.symmetry * largest
    rows = [abs(math.fsum(row)) for row in covariance.tolist()]
    assert max(rows) <= FISHER.row_sums * urn.groups * largest


# --------------------------------------------------------------------------------------------------
# Marginals
# --------------------------------------------------------------------------------------------------


def marginals_at(
    urn: Urn, xs: dict[int, list[int]], device: torch.device
) -> dict[int, torch.Tensor]:
    """Ours, of several groups at several x each, in one call; what is not asked for is x = 0,
    whatever comes out.
    """
    value = torch.zeros(max(map(len, xs.values())), urn.groups, dtype=torch.float64, device=device)
    for group, column in xs.items():
        value[: len(column), group] = counts_tensor(column, device)
    ours = fisher(urn, device).marginals.log_prob(value)
    return {group: ours[: len(column), group] for group, column in xs.items()}


def groups_to_probe(urn: Urn) -> list[int]:
    """The group of the largest variance, and the last one where the oracle is cheap."""
    covariance = oracles.moments(urn).covariance
    widest = max(range(urn.groups), key=lambda j: covariance[j, j])
    return [widest] if urn.distinct_weights > 5 else sorted({widest, urn.groups - 1})


@every_urn
def test_marginals_keep_ten_digits_down_to_log_p_of_minus_1000(
    urn: Urn, device: torch.device
) -> None:
    few = 7 if urn.distinct_weights <= 10 else 3 if urn.distinct_weights <= 50 else 2
    xs = {group: oracles.marginal_probes(urn, group)[-few:] for group in groups_to_probe(urn)}
    for group, ours in marginals_at(urn, xs, device).items():
        assert_log_probs(
            ours, [oracles.marginal_log_prob(urn, group, x) for x in xs[group]], FISHER.marginal
        )


@every_small_urn
def test_marginals_agree_with_the_enumeration_at_every_count(
    urn: Urn, device: torch.device
) -> None:
    exact = [
        {x: log_p for x, log_p in marginal.items() if log_p > -1000}
        for marginal in oracles.enumeration(urn).marginals()
    ]
    ours = marginals_at(
        urn, {group: list(marginal) for group, marginal in enumerate(exact)}, device
    )
    for group, marginal in enumerate(exact):
        assert_log_probs(ours[group], list(marginal.values()), FISHER.marginal)


@every_small_urn
def test_marginals_are_zero_where_other_groups_cannot_fill_the_draws(
    urn: Urn, device: torch.device
) -> None:
    possible = oracles.enumeration(urn).marginals()
    impossible = {
        j: [x for x in range(m + 1) if x not in possible[j]] for j, m in enumerate(urn.group_sizes)
    }
    for ours in marginals_at(urn, impossible, device).values():
        assert (ours == -math.inf).all()


def test_far_tail_probabilities_do_not_vanish(device: torch.device) -> None:
    """SciPy's survival function holds only rounding noise here, or exactly 0."""
    urn = by_name("scipy-minus-infinity-odds-1e-6")
    marginal = oracles.enumeration(urn).marginals()[0]
    tail = list(range(100, 181))
    ours = torch.logsumexp(marginals_at(urn, {0: tail}, device)[0], 0)
    with mp.workdps(50):
        exact = mp.log(sum(mp.exp(marginal[x]) for x in tail))
    assert_log_probs(ours.reshape(1), [exact], FISHER.marginal)


# --------------------------------------------------------------------------------------------------
# Entropy and KL
# --------------------------------------------------------------------------------------------------

# too large to enumerate, but with few groups that differ in size or weight, so that the oracle
# needs few marginals
FEW_KINDS = [
    urn
    for urn in URNS
    if urn not in SMALL and len({*zip(urn.drawable, urn.log_weights, strict=True)}) <= 4
]
TEN_AND_MORE = [urn for urn in LARGE if urn.groups in (7, 10)] + [
    by_name("two-weights-c50-N1e8-n5e7-117")
]


@every_small_urn
def test_entropy_agrees_with_the_enumeration(urn: Urn, device: torch.device) -> None:
    assert_close(
        fisher(urn, device).entropy().item(),
        oracles.enumeration(urn).entropy(),
        relative=FISHER.entropy,
        absolute=1e-12,
    )


@pytest.mark.parametrize("urn", list(dict.fromkeys([*FEW_KINDS, *TEN_AND_MORE, *SUBSETS])), ids=str)
def test_entropy_keeps_ten_digits_up_to_ten_billion_balls(urn: Urn, device: torch.device) -> None:
    assert_close(
        fisher(urn, device).entropy().item(),
        oracles.entropy(urn),
        relative=FISHER.entropy,
        absolute=1e-12,
    )


@every_urn
def test_kl_keeps_ten_digits(urn: Urn, device: torch.device) -> None:
    """Against laws that are nearly the same, different, and (where the oracle is cheap) utterly
    different.
    """
    for scale in (1e-4, 1.0, 30.0)[: 3 if urn.distinct_weights <= 20 else 2]:
        other = disturbed(urn, scale)
        ours = kl_divergence(fisher(urn, device), fisher(other, device)).item()
        assert_close(ours, oracles.kl(urn, other), relative=1e-10, absolute=1e-12)


@every_urn
def test_kl_of_an_urn_with_itself_is_zero(urn: Urn, device: torch.device) -> None:
    assert abs(kl_divergence(fisher(urn, device), fisher(urn, device)).item()) <= 1e-12


@every_urn
def test_kl_ignores_a_common_factor_of_the_weights(urn: Urn, device: torch.device) -> None:
    other = replace(
        urn, log_weights=tuple(lw + 0.5 for lw in urn.log_weights)
    )  # rounds some of them, to a KL of 1e-20 at most
    assert abs(kl_divergence(fisher(urn, device), fisher(other, device)).item()) <= 1e-12


def test_kl_is_infinite_only_where_an_impossible_group_was_drawn(device: torch.device) -> None:
    sometimes, never = (
        Urn("sometimes", (5, 6, 7), 9, (0.3, 1.0, -0.4)),
        Urn("never", (5, 6, 7), 9, (0.3, NEVER, -0.4)),
    )
    assert kl_divergence(fisher(sometimes, device), fisher(never, device)).item() == math.inf
    exact = oracles.enumeration(never).kl(oracles.enumeration(sometimes))
    assert_close(
        kl_divergence(fisher(never, device), fisher(sometimes, device)).item(),
        exact,
        relative=1e-10,
        absolute=1e-12,
    )


# --------------------------------------------------------------------------------------------------
# Mode
# --------------------------------------------------------------------------------------------------


@every_urn
def test_no_exchange_of_two_balls_improves_on_the_mode(urn: Urn, device: torch.device) -> None:
    """Nor leaves it as probable while an earlier group gains: that is the tie rule."""
    mode = fisher(urn, device).mode.tolist()
    counts = [int(x) for x in mode]
    assert counts == mode
    assert sum(counts) == urn.draws
    assert all(0 <= x <= m for x, m in zip(counts, urn.drawable, strict=True))
    assert oracles.better_exchange(urn, counts) is None


@every_small_urn
def test_mode_agrees_with_the_enumeration(urn: Urn, device: torch.device) -> None:
    enumerated, ours = (
        oracles.enumeration(urn),
        tuple(int(x) for x in fisher(urn, device).mode.tolist()),
    )
    best = enumerated.mode()
    assert ours == best or 0 < enumerated.log_prob(best) - enumerated.log_prob(ours) < 2e-15 * (
        1 + urn.largest_log_weight
    )


@pytest.mark.parametrize("draws", range(0, 49, 4))
@pytest.mark.parametrize(
    "sizes",
    [(19, 29), (29, 19), (5, 11, 32), (1, 3, 7, 37), (24, 24), (7, 7, 7, 7, 7, 7, 6)],
    ids=str,
)
def test_tied_balls_of_the_central_urn_go_to_earlier_groups(
    sizes: tuple[int, ...], draws: int, device: torch.device
) -> None:
    """Equal weights and small numbers: ties are common, between groups of unequal size too."""
    urn = Urn("ties", sizes, draws, (0.1,) * len(sizes))
    assert oracles.better_exchange(urn, [int(x) for x in fisher(urn, device).mode.tolist()]) is None


# --------------------------------------------------------------------------------------------------
# float32
# --------------------------------------------------------------------------------------------------

FLOAT32_URNS = [
    Urn("200x3", (200, 200, 200), 180, (0.0, 1.1, 0.0)),
    Urn("1e4x2", (10**4, 10**4), 7000, (0.7, -0.4)),
    Urn("1e4x10", (10**4,) * 10, 30_000, tuple(0.3 * j for j in range(10))),
    Urn("1e4x100", (10**4,) * 100, 321_000, tuple(0.05 * j for j in range(100))),
    Urn("1e4-uneven", (10**4, 300, 7), 400, (-3.0, 2.0, 10.0)),
    Urn("1e6x2", (10**6, 10**6), 10**6, (0.0, 1.0)),
    Urn("1e6x3", (10**6, 10**6, 10**6), 900_000, (0.0, 1.1, 0.0)),
    Urn("1e6x10", (10**6,) * 10, 4_000_000, tuple(0.3 * j for j in range(10))),
    Urn("1e6x50-spread-5", (10**6,) * 50, 30_000_001, tuple(0.2 * j - 5 for j in range(50))),
    Urn("1e6-uneven", (10**6, 10**3, 10), 5 * 10**5, (0.0, 4.0, -4.0)),
]


@pytest.mark.parametrize("urn", FLOAT32_URNS, ids=str)
def test_float32_log_prob_is_usable_at_a_million_balls_per_group(
    urn: Urn, device: torch.device
) -> None:
    rounded = replace(urn, log_weights=tuple(np.float32(urn.log_weights).tolist()))
    exact = oracles.moments(rounded)
    mean = np.array([float(value) for value in exact.mean])
    deviation = np.array([math.sqrt(exact.covariance[j, j]) for j in range(urn.groups)])
    near = [
        x
        for x in probe_counts(rounded, near=20, seed=1)
        if (np.abs(np.array(x) - mean) <= 5 * deviation + 1).all()
    ]
    ours = fisher(urn, device, torch.float32).log_prob(counts_tensor(near, device, torch.float32))
    assert ours.dtype == torch.float32
    assert len(near) >= 10
    tolerance = 1e-4 if max(urn.group_sizes) <= 10**4 else 1e-3
    for value, x in zip(ours.tolist(), near, strict=True):
        assert error(value, oracles.log_prob(rounded, x)) <= tolerance


# --------------------------------------------------------------------------------------------------
# Other packages
# --------------------------------------------------------------------------------------------------

UNIVARIATE = [
    urn
    for urn in URNS
    if urn.groups == 2
    and urn.population <= 10**5
    and min(urn.drawable) > 0
    and urn.largest_log_weight <= 10
]
CENTRAL = [
    urn
    for urn in URNS
    if urn.distinct_weights == 1
    and urn.groups > 1
    and NEVER not in urn.log_weights
    and urn.population <= 10**5
]


@pytest.mark.parametrize("urn", UNIVARIATE, ids=str)
def test_two_groups_agree_with_scipy(urn: Urn, device: torch.device) -> None:
    odds = math.exp(urn.log_weights[0] - urn.log_weights[1])
    law = stats.nchypergeom_fisher(urn.population, urn.group_sizes[0], urn.draws, odds)
    distribution = fisher(urn, device)
    x = np.array(probe_counts(urn))
    reference = law.logpmf(x[:, 0])
    seen = reference > -50  # further out SciPy loses digits, then everything
    ours = distribution.log_prob(counts_tensor(x, device)).cpu().numpy()
    np.testing.assert_allclose(ours[seen], reference[seen], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(distribution.mean[0].item(), law.mean(), rtol=1e-8)
    np.testing.assert_allclose(distribution.variance[0].item(), law.var(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("urn", CENTRAL, ids=str)
def test_equal_weights_agree_with_scipys_central_law(urn: Urn, device: torch.device) -> None:
    law = stats.multivariate_hypergeom(urn.group_sizes, urn.draws)
    distribution = fisher(urn, device)
    x = np.array(probe_counts(urn))
    np.testing.assert_allclose(
        distribution.log_prob(counts_tensor(x, device)).cpu().numpy(),
        law.logpmf(x),
        rtol=1e-9,
        atol=1e-7,
    )
    np.testing.assert_allclose(distribution.mean.cpu().numpy(), law.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        distribution.covariance_matrix.cpu().numpy(), law.cov(), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(
    "urn",
    [
        by_name("scipy-aborts-odds-1e155"),
        by_name("scipy-minus-infinity-odds-1e-6"),
        by_name("never-drawn-zero-odds"),
    ],
    ids=str,
)
def test_every_outcome_is_right_where_scipy_aborts_or_returns_nan(
    urn: Urn, device: torch.device
) -> None:
    """SciPy aborts the interpreter on the first, has -inf on most of the second's support and NaN
    for odds of zero.
    """
    xs = [(x, urn.draws - x) for x in range(urn.draws + 1)]
    reached = [x for x in xs if urn.log_weights[0] != NEVER or x[0] == 0]
    ours = fisher(urn, device).log_prob(counts_tensor(xs, device))
    assert_log_probs(ours, [oracles.enumeration(urn).log_prob(x) for x in xs], FISHER.log_prob)
    assert torch.isfinite(ours).sum().item() == len(reached)


def test_counts_above_int32_are_fine_where_scipy_raises(device: torch.device) -> None:
    urn = by_name("scipy-overflows-int32")
    probes = probe_counts(urn)
    assert_log_probs(
        fisher(urn, device).log_prob(counts_tensor(probes, device)),
        [oracles.log_prob(urn, x) for x in probes],
        FISHER.log_prob,
    )


def test_values_quoted_from_biasedurn(device: torch.device) -> None:
    two, three = (
        fisher(by_name("biasedurn-univariate"), device),
        fisher(by_name("biasedurn-three-colours"), device),
    )
    assert two.log_prob(counts_tensor((5, 7), device)).exp().item() == pytest.approx(
        0.195496318854845, rel=1e-13
    )
    assert three.log_prob(counts_tensor((4, 3, 2), device)).exp().item() == pytest.approx(
        0.110826251049377, rel=1e-13
    )


@pytest.mark.needs("BiasedUrn")
def test_probabilities_and_means_agree_with_biasedurn(device: torch.device) -> None:
    """BiasedUrn is as exact as its own ``precision`` argument asks for, and precise means need its
    enumeration.
    """
    chosen = [
        urn
        for urn in SMALL
        if 2 <= urn.groups <= 6 and urn.largest_log_weight <= 10 and not oracles.is_certain(urn)
    ]
    chosen = [urn for urn in chosen if min(urn.drawable) > 0][:40]
    assert len(chosen) >= 25
    points = [probe_counts(urn)[:4] for urn in chosen]
    expressions = []
    for urn, xs in zip(chosen, points, strict=True):
        m, odds = (
            f"c({','.join(map(str, urn.group_sizes))})",
            f"exp(c({','.join(map(repr, urn.log_weights))}))",
        )
        rows = ",".join(str(value) for x in xs for value in x)
        expressions.append(
            f"dMFNCHypergeo(matrix(c({rows}), nrow={urn.groups}), {m}, {urn.draws}, {odds}, "
            "precision=1e-14)"
        )
        expressions.append(f"meanMFNCHypergeo({m}, {urn.draws}, {odds}, precision=1e-14)")
    values = biasedurn.evaluate(expressions)
    for urn, xs, theirs, mean in zip(chosen, points, values[::2], values[1::2], strict=True):
        distribution = fisher(urn, device)
        ours = distribution.log_prob(counts_tensor(xs, device)).exp().cpu().numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=urn.name)
        np.testing.assert_allclose(
            distribution.mean.cpu().numpy(), mean, rtol=1e-9, atol=1e-9, err_msg=urn.name
        )
