"""Triton kernels for tilts, masses and moments: the same numbers as PyTorch's operations, and only
where no derivative is asked for.
"""

from __future__ import annotations

from typing import Any

import mpmath
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.func import jacfwd, vmap

from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher.tabulated import Tabulated, product_of_pair
from diffurn._kernels import dispatch
from support import oracles
from support.distributions import GeneralFisher
from support.kernel_cases import (
    PRIMITIVES,
    allowed_error,
    binomial_cases,
    by_groups,
    log_binomial,
    plain,
)
from support.kernels import (
    DEVICE,
    INTERPRETED,
    launched_kernels,
    recorded,
    with_kernels,
    without_kernels,
)
from support.urns import NEVER, URNS, Urn, by_name

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip(
        "the kernels need a CUDA device, or TRITON_INTERPRET=1 to run without one",
        allow_module_level=True,
    )

from diffurn._kernels import covariance
from diffurn._kernels import fisher as kernels
from diffurn._kernels import pair as pair_kernels

pytestmark = [
    pytest.mark.needs("triton"),
    pytest.mark.filterwarnings(
        "ignore:.*encountered in:RuntimeWarning"
    ),  # the interpreter's NumPy, on what is masked afterwards
    pytest.mark.filterwarnings(
        r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning"
    ),
]

OWN = {**vars(kernels), **vars(covariance)}

if INTERPRETED:  # it takes as long for a program of a thousand entries as for one of ten
    kernels.OF_BINOMIALS["BLOCK"] = 1 << 12
    pair_kernels.ENTRIES = 1 << 14

# In the interpreter every row costs a tenth of a second.
TOLD = [
    "almost-sure-5x3-first-filled",
    "almost-sure-1e9-filled",
    "no-draws-1e9",
    "all-balls-1e9",
    "one-draw-spread-50",
    "empty-group-middle",
    "empty-urn",
    "single-group",
    "never-drawn-middle",
    "titanic",
    "1e10-three-groups",
    "extreme-5x3-one-more",
]


def operands(urns: list[Urn]) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, sizes and draws of urns with one number of groups."""
    values = (
        [urn.log_weights for urn in urns],
        [urn.group_sizes for urn in urns],
        [urn.draws for urn in urns],
    )
    log_weights, sizes, draws = (
        torch.tensor(value, dtype=torch.float64, device=DEVICE) for value in values
    )
    return log_weights, sizes, draws


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_kernel_is_found_from_the_primitive_that_it_replaces(name: str) -> None:
    assert dispatch.kernel_of(PRIMITIVES[name]) is OWN[name]
    assert dispatch.kernel_of(product_of_pair) is pair_kernels.covariance_product


def assert_near(ours: Tensor, theirs: Tensor, allowed: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ((ours - theirs).abs() <= allowed).all()


def assert_as_plain(urns: list[Urn]) -> None:
    log_weights, sizes, draws = operands(urns)
    wanted = plain("log_tilt", log_weights, sizes, draws)
    never = log_weights == -torch.inf
    log_odds, sizes = (
        torch.where(never, 0.0, log_weights + wanted.unsqueeze(-1)),
        torch.where(never, 0.0, sizes),
    )
    # Tilts move the mean of the sum by their variance; both stop when it is right to a small part
    # of a standard deviation.
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    allowed = 1e-3 / spread.sqrt().clamp(min=0.5)
    assert_near(kernels.log_tilt(log_weights, sizes, draws), wanted, allowed)
    assert_near(
        kernels.centring_tilt(log_odds, sizes, draws),
        plain("centring_tilt", log_odds, sizes, draws),
        allowed,
    )

    urn = log_odds, sizes, draws
    wanted = plain("log_mass", *urn)
    assert_near(kernels.log_mass(*urn), wanted, 1e-13 * wanted.abs().clamp(min=1))
    wanted = plain("mean", *urn)
    assert_near(kernels.mean(*urn), wanted, 1e-13 * wanted)
    wanted = plain("mean_shift", *urn)
    assert_near(kernels.mean_shift(*urn), wanted, 1e-13 * (wanted.abs() + spread.unsqueeze(-1)))
    vector = torch.randn_like(log_odds)
    for wanted, ours in (
        (plain("covariance_product", *urn, vector), covariance.covariance_product(*urn, vector)),
        (plain("variance", *urn), covariance.variance(*urn)),
    ):
        assert_near(ours, wanted, 1e-12 * wanted.abs().amax(-1, keepdim=True))


def test_numbers_are_those_of_the_plain_path() -> None:
    chosen = [by_name(name) for name in TOLD]
    for urns in by_groups(chosen):
        assert_as_plain(urns)


@pytest.mark.slow
@pytest.mark.parametrize("groups", sorted({urn.groups for urn in URNS}))
def test_numbers_of_all_urns_are_those_of_the_plain_path(groups: int) -> None:
    assert_as_plain([urn for urn in URNS if urn.groups == groups])


@pytest.mark.parametrize("items", [1, 2, 9, 64, 70, 200])
def test_products_of_single_balls_are_those_of_the_plain_path(items: int) -> None:
    """Rows with few and with many drawn, with empty groups, and with almost certain balls."""
    log_weights = torch.randn(6, items, dtype=torch.float64, device=DEVICE)
    log_weights[1] *= 20.0
    sizes = torch.ones_like(log_weights)
    sizes[2, ::3] = 0.0
    balls = sizes.sum(-1)
    draws = torch.stack(
        [torch.ceil(balls[i] * (0.5, 0.5, 0.5, 0.0, 1.0, 0.1)[i]) for i in range(6)]
    )
    vectors = torch.randn_like(log_weights)
    log_odds = log_weights + plain("log_tilt", log_weights, sizes, draws).unsqueeze(-1)
    tilts = plain("centring_tilt", log_odds, sizes, draws)
    found = covariance.covariance_products(log_odds, sizes, draws, tilts, vectors, single=True)
    wanted = plain("covariance_product", log_odds, sizes, draws, vectors)
    assert_near(found, wanted, 1e-12 * wanted.abs().amax(-1, keepdim=True))


def test_groups_beyond_one_tile_are_counted_too() -> None:
    groups = kernels.MOST_GROUPS["tilt"] + 3
    assert groups > 2 * kernels.MOST_GROUPS["quadrature"]
    spread = tuple(3.0 * ((7 * j) % groups) / groups for j in range(groups))
    assert_as_plain(
        [
            Urn("many", tuple(j % 19 for j in range(groups)), 4000, spread),
            Urn(
                "gaps",
                tuple(5 * (j % 2) for j in range(groups)),
                1600,
                tuple(20 * w for w in spread),
            ),
        ]
    )


def test_hard_tilts_reach_half_a_ball_below_the_draws() -> None:
    """Ties, and draws at the end of a group with much lighter ones behind it; none may be left
    after the steps that are made in haste.
    """
    sizes = torch.tensor(
        [[37925558.0] * 4, [1e7, 2e7, 7.0, 1e7], [445511339.0, 21.0, 2279886477.0, 930856.0]],
        device=DEVICE,
    ).double()
    draws = torch.tensor([75851116.0, 30000004.0, 2280817333.0], device=DEVICE).double()
    log_weights = torch.tensor(
        [[0.0] * 4, [0.0, 0.0, 0.0, -50.0], [0.0, -23.4, 70.1, 23.4]], device=DEVICE
    ).double()
    log_odds = log_weights + kernels.log_tilt(log_weights, sizes, draws).unsqueeze(-1)
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    missed = (sizes * torch.sigmoid(log_odds)).sum(-1) - (draws - 0.5)
    assert (missed.abs() < 0.01 * spread.sqrt()).all()


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # the interpreter's NumPy
@pytest.mark.parametrize(
    "function", ["log_tilt", "log_mass", "mean", "covariance_product", "variance"]
)
def test_draws_of_nan_give_nan(function: str) -> None:
    log_odds, sizes = (
        torch.zeros(1, 3, dtype=torch.float64, device=DEVICE),
        torch.full((1, 3), 4.0, dtype=torch.float64, device=DEVICE),
    )
    arguments = [log_odds, sizes, torch.full((1,), torch.nan, dtype=torch.float64, device=DEVICE)]
    arguments += [log_odds + 1] if function == "covariance_product" else []
    assert OWN[function](*arguments).isnan().all()
    assert plain(function, *arguments).isnan().all()


def test_tilts_of_random_urns_reach_half_a_ball_below_the_draws() -> None:
    sizes = torch.randint(0, 50, (40, 6), device=DEVICE).double()
    sizes[:, 0] += 1
    draws = (1 + torch.rand(40, device=DEVICE) * (sizes.sum(-1) - 1)).floor()
    log_weights = 30 * torch.randn(40, 6, device=DEVICE)
    log_weights[::3, 1] = log_weights[::3, 2]  # equal weights
    log_odds = log_weights + kernels.log_tilt(log_weights, sizes, draws).unsqueeze(-1)
    torch.testing.assert_close(
        (sizes * torch.sigmoid(log_odds)).sum(-1), draws - 0.5, rtol=0, atol=1e-3
    )


def test_shapes_broadcast() -> None:
    log_weights, sizes, draws = operands([by_name("titanic")])
    vectors = torch.randn(3, 1, 4, device=DEVICE)
    many = torch.stack([draws, draws - 1])
    assert kernels.log_tilt(log_weights[0], sizes, many).shape == (2, 1)
    found = covariance.covariance_product(log_weights, sizes[0], many[:, 0], vectors)
    assert_near(
        found,
        plain("covariance_product", log_weights.expand(3, 2, 4), sizes[0], many[:, 0], vectors),
        torch.tensor(1e-9),
    )
    assert kernels.mean(log_weights[:0], sizes, draws).shape == (0, 4)
    assert kernels.log_tilt(log_weights[:0], sizes, draws).shape == (0,)


# --------------------------------------------------------------------------------------------------
# Binomial masses
# --------------------------------------------------------------------------------------------------


def as_columns(cases: list[tuple[float, int, float]]) -> list[Tensor]:
    return [
        torch.tensor(column, dtype=torch.float64, device=DEVICE)
        for column in zip(*cases, strict=True)
    ]


def test_binomial_masses_agree_with_fifty_digits() -> None:
    cases = binomial_cases()
    ours = kernels.binomial_log_pmf(*as_columns(cases)).tolist()
    with mpmath.workdps(50):
        for case, found in zip(cases, ours, strict=True):
            exact, mean = log_binomial(*case)
            assert abs(found - exact) <= allowed_error(case, exact, mean), case


def test_binomial_masses_are_as_accurate_as_those_of_the_plain_path() -> None:
    for size in (6, 30, 10**3, 10**6, 10**9, 10**13):
        p = torch.rand(250).clamp(0.01, 0.99)
        counts = (size * p + 3 * torch.randn(250) * (size * p * (1 - p)).sqrt()).clamp(0, size)
        counts[::2] = counts[::2].round()
        cases = list(zip(counts.tolist(), [size] * 250, torch.logit(p).tolist(), strict=True))
        with mpmath.workdps(50):
            exact = [log_binomial(*case)[0] for case in cases]
            errors = [
                max(
                    float(abs(found - wanted) / max(1, abs(wanted)))
                    for found, wanted in zip(values.tolist(), exact, strict=True)
                )
                for values in (
                    kernels.binomial_log_pmf(*as_columns(cases)),
                    plain("binomial_log_pmf", *as_columns(cases)),
                )
            ]
        assert errors[0] <= max(4e-15, 2 * errors[1])


def test_binomial_masses_of_impossible_counts_are_those_of_pytorch() -> None:
    nan, inf = torch.nan, torch.inf
    cases = [
        *((nan, 5, 0.0), (1, nan, 0.0), (1, 5, nan), (nan, 0, 700.0)),
        *(
            (-1, 5, 0.3),
            (-1e-300, 5, 0.3),
            (6, 5, -0.3),
            (5.001, 5, -0.3),
            (inf, 5, 0.3),
            (-inf, 5, 0.3),
            (1, 0, 2.0),
        ),
        *(
            (0, 0, 3.0),
            (0, 0, -900.0),
            (0, 5, -inf),
            (5, 5, inf),
            (0, 5, inf),
            (5, 5, -inf),
            (2, 5, inf),
            (2, 5, -inf),
        ),
    ]
    wanted = plain("binomial_log_pmf", *as_columns(cases))
    torch.testing.assert_close(
        kernels.binomial_log_pmf(*as_columns(cases)), wanted, rtol=0, atol=0, equal_nan=True
    )


def test_binomial_masses_of_operands_that_were_expanded() -> None:
    x, size, log_odds = (
        torch.randint(0, 9, (3, 1, 4)).double(),
        torch.tensor(8.0),
        torch.randn(5, 1),
    )
    operands = [operand.to(DEVICE) for operand in torch.broadcast_tensors(x, size, log_odds)]
    torch.testing.assert_close(
        kernels.binomial_log_pmf(*operands),
        plain("binomial_log_pmf", *operands),
        rtol=1e-14,
        atol=1e-14,
    )
    assert kernels.binomial_log_pmf(*(operand[:0] for operand in operands)).shape == (0, 5, 4)


# --------------------------------------------------------------------------------------------------
# Where they are launched
# --------------------------------------------------------------------------------------------------

SMALL_PAIRS = [
    Urn("5-and-7", (5, 7), 6, (0.3, -0.4)),
    Urn("sure", (6, 7), 6, (500.0, -500.0)),
    Urn("sure-the-other-way", (6, 7), 5, (-500.0, 500.0)),
    Urn("never", (4, 5), 3, (NEVER, 0.5)),
    Urn("an-empty-group", (0, 6), 5, (0.5, 3.0)),
    Urn("everything", (4, 5), 9, (0.5, -300.0)),
    Urn("nothing", (4, 5), 0, (0.5, -300.0)),
    Urn("a-big-group", (900, 4), 902, (0.5, 1.5)),
]


@pytest.mark.parametrize("urn", SMALL_PAIRS, ids=str)
def test_small_urns_of_two_groups_have_the_exact_slope_and_possible_draws(urn: Urn) -> None:
    leaf = torch.tensor(urn.log_weights, device=DEVICE, requires_grad=True)
    distribution = fisher(urn, leaf)
    law = Tabulated.build(distribution._composition, distribution._finite_log_weights())
    with with_kernels():
        counts = law.rsample(20)
    assert (counts.sum(-1) == urn.draws).all()
    assert ((counts >= 0) & (counts <= torch.tensor(urn.drawable, device=DEVICE))).all()
    vector = torch.randn_like(counts[0])
    with with_kernels():
        (gradient,) = torch.autograd.grad((counts * vector).sum(), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad(
        (20 * law.tables().mean() * vector).sum(), leaf, create_graph=True
    )
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=0.0)
    operands = (
        law.log_weights.detach(),
        law.constants.pair,
        law.constants.falling,
        vector.detach(),
    )
    found = pair_kernels.covariance_product(*operands)
    torch.testing.assert_close(found, product_of_pair.__wrapped__(*operands), rtol=1e-12, atol=0.0)
    if urn.largest_log_weight < 10:
        again = [
            torch.autograd.grad(slope.square().sum(), leaf, retain_graph=True)[0]
            for slope in (gradient, wanted)
        ]
        torch.testing.assert_close(*again, rtol=1e-10, atol=1e-10)


def test_draws_of_small_urns_of_two_groups_follow_the_law() -> None:
    """Different urns in one batch; with a fresh seed the chi-square tests of the four fail once in
    ten thousand runs.
    """
    sizes, draws, number = [[5, 7], [3, 9], [10, 2], [6, 6]], [6, 4, 3, 11], 20_000
    urn = FisherHypergeometric(sizes, draws, log_weights=torch.randn(4, 2, device=DEVICE))
    law = Tabulated.build(urn._composition, urn.log_weights)
    with with_kernels():
        counts = law.rsample(number)
    for i in range(4):
        own = FisherHypergeometric(sizes[i], draws[i], log_weights=urn.log_weights[i])
        outcomes = own.enumerate_support()
        expected = number * own.log_prob(outcomes).exp()
        seen = (counts[:, i, :1] == outcomes[:, 0]).sum(0).double()
        assert seen.sum() == number
        likely = expected > 5
        assert likely.sum() >= 2
        statistic = ((seen - expected).square() / expected)[likely].sum()
        assert stats.chi2.sf(float(statistic), int(likely.sum())) > 1e-4 / 4


def test_a_training_step_with_a_small_urn_of_two_groups_makes_no_table() -> None:
    class WithoutTables(Tabulated):
        def tables(self) -> Any:
            raise AssertionError("a table was made")

    leaf = torch.randn(3, 2, 2, device=DEVICE, requires_grad=True)
    composition = FisherHypergeometric([5, 7], 6, log_weights=leaf)._composition
    with with_kernels():
        counts = WithoutTables.build(composition, leaf).rsample(4)
        counts[..., 0].sum().backward()
    assert counts.shape == (4, 3, 2, 2)
    assert (counts.sum(-1) == 6).all()
    assert leaf.grad is not None
    assert (leaf.grad[..., 0] == -leaf.grad[..., 1]).all()


def test_draws_of_small_urns_of_two_groups_have_the_dtype_of_the_weights() -> None:
    leaf = torch.randn(3, 2, 2, device=DEVICE, dtype=torch.float32, requires_grad=True)
    with with_kernels():
        counts = FisherHypergeometric([5, 7], 6, log_weights=leaf).rsample((4,))
        none = FisherHypergeometric([5, 7], 6, log_weights=leaf[:0]).rsample()
        counts[..., 0].sum().backward()
    assert (counts.shape, counts.dtype) == ((4, 3, 2, 2), torch.float32)
    assert (counts.sum(-1) == 6).all()
    assert (leaf.grad[..., 0] == -leaf.grad[..., 1]).all()
    assert none.shape == (0, 2, 2)


def fisher(
    urn: Urn,
    log_weights: Tensor | None = None,
    kind: type[FisherHypergeometric] = FisherHypergeometric,
) -> FisherHypergeometric:
    log_weights = (
        torch.tensor(urn.log_weights, device=DEVICE) if log_weights is None else log_weights
    )
    return kind(urn.group_sizes, urn.draws, log_weights=log_weights)


@pytest.mark.parametrize(
    "name",
    ["almost-sure-5x3-one-more", "never-drawn-first", "paper-200x3-odds-10", "extreme-two-groups"],
)
def test_moments_agree_with_fifty_digits(name: str) -> None:
    urn = by_name(name)
    exact, distribution = oracles.moments(urn), fisher(urn, kind=GeneralFisher)
    with launched_kernels() as launched:
        found = distribution.mean, distribution.variance
    assert launched == ["log_tilt", "mean", "variance"]
    mean = torch.tensor([float(value) for value in exact.mean], device=DEVICE)
    torch.testing.assert_close(found[0], mean, rtol=1e-11, atol=0.0)
    variance = torch.tensor(
        [float(exact.covariance[j, j]) for j in range(urn.groups)], device=DEVICE
    )
    torch.testing.assert_close(found[1], variance, rtol=1e-9, atol=1e-9 * float(variance.max()))


def test_a_training_step_launches_a_product_backward() -> None:
    """The kernel that reads the arguments tilts, also for the covariance."""
    urn = by_name("titanic")
    leaf = torch.tensor([urn.log_weights] * 2, device=DEVICE, requires_grad=True)
    with launched_kernels() as launched:
        counts = fisher(urn, leaf).rsample()
        vector = torch.randn_like(counts)
        (counts * vector).sum().backward()
    assert launched == []  # the only launch is that of `covariance_products`
    tilted = _dispatch.fisher(fisher(urn, leaf.detach())).tilted
    wanted = plain("covariance_product", *tilted, vector)
    torch.testing.assert_close(leaf.grad, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "name",
    ["titanic", "paper-200x3-odds-10", "1e10-three-groups", "never-drawn-middle", "no-draws-1e9"],
)
def test_log_probabilities_have_the_value_and_gradients_of_the_plain_path(name: str) -> None:
    urn, found = by_name(name), []
    counts = fisher(urn).sample((3,))
    for kernels_run in (without_kernels, with_kernels):
        leaf = torch.tensor(urn.log_weights, device=DEVICE, requires_grad=True)
        x = counts.clone().requires_grad_()
        with kernels_run():
            log_prob = fisher(urn, leaf, GeneralFisher).log_prob(x)
            found.append((log_prob.detach(), *torch.autograd.grad(log_prob.sum(), (leaf, x))))
    torch.testing.assert_close(
        *found, rtol=1e-11, atol=1e-11 + 1e-15 * urn.draws
    )  # a mean is only known to its rounding


def test_a_log_probability_with_its_gradient_is_five_launches() -> None:
    urn = by_name("titanic")
    leaf = torch.tensor(urn.log_weights, device=DEVICE, requires_grad=True)
    mode = fisher(urn, leaf.detach()).mode
    with launched_kernels() as launched:
        fisher(urn, leaf).log_prob(mode).backward()
    assert launched == ["log_tilt", "binomial_log_pmf", "log_mass", "log_tilt", "mean"]


def test_second_derivatives_are_those_of_the_plain_path() -> None:
    urn, found = by_name("titanic"), []
    upstream, again = torch.randn(2, 4, device=DEVICE)
    for kernels_run in (without_kernels, with_kernels):
        leaf = torch.tensor(urn.log_weights, device=DEVICE, requires_grad=True)
        distribution = fisher(urn, leaf)
        with kernels_run():
            first = torch.autograd.grad(
                (distribution.mean * upstream).sum() + distribution.log_normalizer,
                leaf,
                create_graph=True,
            )[0]
            found.append((first.detach(), *torch.autograd.grad((first * again).sum(), leaf)))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_transforms_and_forward_mode_take_the_plain_path() -> None:
    urn = by_name("titanic")
    log_weights = torch.tensor([urn.log_weights] * 2, device=DEVICE)

    def mean(values: Tensor) -> Tensor:
        return fisher(urn, values).mean

    with launched_kernels() as launched:
        mapped, jacobian = vmap(mean)(log_weights), jacfwd(mean)(log_weights[0])
    assert launched == []
    torch.testing.assert_close(
        mapped, plain("mean", *_dispatch.fisher(fisher(urn, log_weights)).tilted)
    )
    torch.testing.assert_close(jacobian, fisher(urn, log_weights[0]).covariance_matrix)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own making
def test_compiled_functions_take_the_plain_path() -> None:
    urn = by_name("titanic")
    log_weights = torch.tensor([urn.log_weights] * 2, device=DEVICE)
    compiled = torch.compile(
        lambda values: fisher(urn, values).mean, fullgraph=True, backend="aot_eager"
    )
    with launched_kernels() as launched:
        found = compiled(log_weights)
    assert launched == []
    torch.testing.assert_close(found, fisher(urn, log_weights).mean)


@pytest.mark.skipif(INTERPRETED, reason="graphs are recorded on CUDA devices")
def test_a_recorded_step_draws_anew_and_has_the_gradient_of_its_weights() -> None:
    urn = by_name("titanic")
    leaf = torch.tensor([urn.log_weights] * 50, device=DEVICE, requires_grad=True)
    vector, sizes, draws = (
        torch.randn_like(leaf),
        torch.tensor(urn.group_sizes, device=DEVICE),
        torch.tensor(urn.draws, device=DEVICE),
    )

    def step() -> tuple[Tensor, Tensor]:
        counts = FisherHypergeometric(sizes, draws, log_weights=leaf).rsample()
        return counts.detach(), torch.autograd.grad((counts * vector).sum(), leaf)[0]

    graph, (counts, gradient) = recorded(step)
    graph.replay()
    first = counts.clone()
    with torch.no_grad():
        leaf.add_(torch.randn_like(leaf))
    graph.replay()
    assert not torch.equal(first, counts)
    assert (counts.sum(-1) == urn.draws).all()
    tilted = _dispatch.fisher(fisher(urn, leaf.detach())).tilted
    wanted = plain("covariance_product", *tilted, vector)
    torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)
