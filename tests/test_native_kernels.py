"""C kernels on the CPU: the same numbers as PyTorch's operations, and only where these may be
replaced. `test_accuracy` and others compare both with oracles.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import mpmath
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, vmap

import diffurn
from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher import moments, tilt
from diffurn._fisher.sampling import rejection
from diffurn._kernels import dispatch
from diffurn._numerics import inversion
from support.kernel_cases import (
    NATIVE,
    allowed_error,
    binomial_cases,
    log_binomial,
    plain,
)
from support.urns import URNS, Urn

if not dispatch.HAS_NATIVE:
    pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0", allow_module_level=True)

from diffurn._kernels.native import fisher as kernels
from diffurn._kernels.native import sampling


def operands(urns: list[Urn]) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, sizes and draws of urns with one number of groups."""
    return (
        torch.tensor([urn.log_weights for urn in urns], dtype=torch.float64),
        torch.tensor([urn.group_sizes for urn in urns], dtype=torch.float64),
        torch.tensor([urn.draws for urn in urns], dtype=torch.float64),
    )


@pytest.mark.parametrize("name", NATIVE)
def test_a_kernel_is_found_from_the_primitive_that_it_replaces(name: str) -> None:
    assert dispatch.native_kernel_of(NATIVE[name]) is getattr(kernels, name)


def assert_near(ours: Tensor, theirs: Tensor, allowed: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ((ours == theirs) | ((ours - theirs).abs() <= allowed)).all()


def assert_as_plain(urns: list[Urn]) -> None:
    log_weights, sizes, draws = operands(urns)
    wanted = plain("log_tilt", log_weights, sizes, draws)
    never = log_weights == -torch.inf
    log_odds = torch.where(never, 0.0, log_weights + wanted.unsqueeze(-1))
    sizes = torch.where(never, 0.0, sizes)
    # Tilts move the mean of the sum by their variance; both stop when it is right to a small part
    # of a standard deviation.
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    allowed = 1e-3 / spread.sqrt().clamp(min=0.5) + 1e-15 * wanted.abs()
    assert_near(kernels.log_tilt(log_weights, sizes, draws), wanted, allowed)
    own = kernels.centring_tilt(log_odds, sizes, draws)
    assert_near(own, plain("centring_tilt", log_odds, sizes, draws), allowed)

    urn = log_odds, sizes, draws
    wanted = plain("log_mass", *urn)
    assert_near(kernels.log_mass(*urn), wanted, 1e-13 * wanted.abs().clamp(min=1))
    wanted = plain("mean", *urn)
    assert_near(kernels.mean(*urn), wanted, 1e-13 * wanted)
    wanted = plain("mean_shift", *urn)
    assert_near(kernels.mean_shift(*urn), wanted, 1e-13 * (wanted.abs() + spread.unsqueeze(-1)))
    untilted = torch.where(never, 0.0, log_weights), sizes, draws
    wanted = plain("mean_anywhere", *untilted)
    assert_near(kernels.mean_anywhere(*untilted), wanted, 1e-13 * wanted)
    counts = torch.minimum(sizes, wanted.round())  # need not sum to n
    log_prob = plain("log_prob", *untilted, counts)
    error = 1e-12 * log_prob.abs().clamp(min=1) + 1e-15 * sizes.sum(-1)
    assert_near(kernels.log_prob(*untilted, counts), log_prob, error)
    vector = torch.randn_like(log_odds)
    for wanted, ours in (
        (plain("covariance_product", *urn, vector), kernels.covariance_product(*urn, vector)),
        (plain("variance", *urn), kernels.variance(*urn)),
    ):
        assert_near(ours, wanted, 1e-12 * wanted.abs().amax(-1, keepdim=True))
    matrix, wanted = kernels.covariance(*urn), plain("covariance", *urn)
    assert_near(matrix, wanted, 1e-12 * wanted.abs().amax((-2, -1), keepdim=True))
    if matrix.shape[-1] <= kernels.MOST_IN_MATRIX:
        assert matrix.equal(matrix.mT)


@pytest.mark.parametrize("groups", sorted({urn.groups for urn in URNS}))
def test_numbers_of_all_urns_are_those_of_the_plain_path(groups: int) -> None:
    assert_as_plain([urn for urn in URNS if urn.groups == groups])


@pytest.mark.parametrize("groups", sorted({urn.groups for urn in URNS}))
def test_derivatives_of_a_likelihood_are_those_of_the_plain_path(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At averages of draws, which need not be whole numbers, and at certain outcomes."""
    urns = [urn for urn in URNS if urn.groups == groups and min(urn.log_weights) > -torch.inf]
    if not urns:
        return
    log_weights, sizes, draws = operands(urns)
    counts = plain("mean_anywhere", log_weights, sizes, draws).round()
    counts[:, 0] += draws - counts.sum(-1)
    counts = torch.minimum(counts, sizes).clamp(min=0)
    half = 0.5 * torch.minimum(counts[:, 0], sizes[:, -1] - counts[:, -1])
    if groups > 1:
        counts[:, 0] -= half
        counts[:, -1] += half
    found = moments.log_prob_and_derivatives(log_weights, sizes, counts)
    monkeypatch.setattr(dispatch, "HAS_NATIVE", False)
    wanted = moments.log_prob_and_derivatives(log_weights, sizes, counts)
    balls = sizes.sum(-1)
    assert_near(found[0], wanted[0], 1e-12 * wanted[0].abs().clamp(min=1) + 1e-15 * balls)
    assert_near(found[1], wanted[1], 1e-12 + 1e-13 * sizes)
    assert_near(found[2], wanted[2], 1e-12 * wanted[2].abs().amax((-2, -1), keepdim=True))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_fits_of_small_tables_start_no_threads() -> None:
    """Some operations of PyTorch hand even the smallest matrix to a pool of threads, which wait for
    each other while the machine is busy.
    """
    code = """if True:
        import os, torch
        from diffurn import fit
        before = len(os.listdir("/proc/self/task"))
        for sets, groups in ((1, 2), (1, 3), (100, 3)):
            counts = torch.arange(1, sets * groups + 1).reshape(sets, 1, groups)
            result = fit(counts, [1000] * groups, interval="wald")
            assert bool(result.converged.all()), sets
            assert bool(result.standard_errors.isfinite().all()), sets
        print(len(os.listdir("/proc/self/task")) - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "0", done.stderr


def test_derivatives_at_counts_of_nan_are_nan_in_their_own_row() -> None:
    counts = torch.tensor([[2.0, 3.0], [torch.nan, 1.0]], dtype=torch.float64)
    sizes = torch.full((2, 2), 5.0, dtype=torch.float64)
    value, score, _ = moments.log_prob_and_derivatives(torch.zeros_like(sizes), sizes, counts)
    assert value[0].isfinite()
    assert score[0].isfinite().all()
    assert value[1].isnan()
    assert score[1].isnan().all()


def test_groups_beyond_one_tile_are_counted_too() -> None:
    for groups in (31, 32, 33, 67, 1027):
        spread = tuple(3.0 * ((7 * j) % groups) / groups for j in range(groups))
        gaps = tuple(5 * (j % 2) for j in range(groups))
        many = tuple(j % 19 for j in range(groups))
        assert_as_plain(
            [
                Urn("many", many, 4 * groups, spread),
                Urn("gaps", gaps, 2 * groups, tuple(20 * w for w in spread)),
                Urn("single balls", (1,) * groups, groups // 3, spread),
            ]
        )


def test_hard_tilts_reach_half_a_ball_below_the_draws() -> None:
    """Ties, and draws at the end of a group with much lighter ones behind it."""
    sizes = torch.tensor(
        [[37925558.0] * 4, [1e7, 2e7, 7.0, 1e7], [445511339.0, 21.0, 2279886477.0, 930856.0]]
    ).double()
    draws = torch.tensor([75851116.0, 30000004.0, 2280817333.0]).double()
    log_weights = torch.tensor([[0.0] * 4, [0.0, 0.0, 0.0, -50.0], [0.0, -23.4, 70.1, 23.4]])
    assert_tilted(log_weights.double(), sizes, draws)


def assert_tilted(log_weights: Tensor, sizes: Tensor, draws: Tensor) -> None:
    log_odds = log_weights + kernels.log_tilt(log_weights, sizes, draws).unsqueeze(-1)
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1)
    missed = (sizes * torch.sigmoid(log_odds)).sum(-1) - (draws - 0.5)
    assert (missed.abs() < 0.01 * spread.sqrt() + 1e-15 * draws).all()


def test_tilts_of_random_urns_reach_half_a_ball_below_the_draws() -> None:
    for scale, most in ((1.0, 10), (30.0, 50), (300.0, 3), (1e5, 10**6)):
        sizes = torch.randint(0, most, (400, 6)).double()
        sizes[:, 0] += 1
        draws = (1 + torch.rand(400) * (sizes.sum(-1) - 1)).floor()
        log_weights = scale * torch.randn(400, 6)
        log_weights[::3, 1] = log_weights[::3, 2]  # equal weights
        assert_tilted(log_weights, sizes, draws)


@pytest.mark.parametrize(
    "function", ["log_tilt", "log_mass", "mean", "covariance_product", "variance"]
)
def test_draws_of_nan_give_nan(function: str) -> None:
    log_odds, sizes = torch.zeros(1, 3), torch.full((1, 3), 4.0)
    arguments = [log_odds, sizes, torch.full((1,), torch.nan)]
    arguments += [log_odds + 1] if function == "covariance_product" else []
    assert getattr(kernels, function)(*arguments).isnan().all()
    assert plain(function, *arguments).isnan().all()


def test_shapes_broadcast_and_strides_do_not_matter() -> None:
    sizes, draws = torch.tensor([[325.0, 285.0, 706.0, 885.0]]), torch.tensor([711.0])
    log_odds = torch.randn(4, 3).mT
    log_odds = log_odds + tilt.log_tilt(log_odds, sizes, draws).unsqueeze(-1)
    vectors = torch.randn(5, 1, 4)
    found = kernels.covariance_product(log_odds, sizes[0], draws, vectors)
    wanted = plain("covariance_product", log_odds.expand(5, 3, 4), sizes[0], draws, vectors)
    assert_near(found, wanted, torch.tensor(1e-11))
    wanted = plain("mean", log_odds.contiguous(), sizes, draws)
    assert_near(moments.mean_value(log_odds, sizes, draws), wanted, 1e-13 * wanted)
    assert kernels.log_tilt(log_odds[0], sizes, torch.stack([draws, draws - 1])).shape == (2, 1)


def test_empty_batches_have_no_results() -> None:
    log_odds, sizes, draws = torch.zeros(0, 4), torch.ones(4), torch.ones(1)
    assert kernels.mean(log_odds, sizes, draws).shape == (0, 4)
    assert kernels.log_tilt(log_odds, sizes, draws).shape == (0,)
    assert kernels.covariance_product(log_odds, sizes, draws, sizes).shape == (0, 4)
    assert kernels.binomial_log_pmf(log_odds, log_odds, log_odds).shape == (0, 4)


# --------------------------------------------------------------------------------------------------
# Binomial masses
# --------------------------------------------------------------------------------------------------


def as_columns(cases: list[tuple[float, int, float]]) -> list[Tensor]:
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*cases, strict=True)]


def test_binomial_masses_agree_with_fifty_digits() -> None:
    cases = binomial_cases()
    ours = kernels.binomial_log_pmf(*as_columns(cases)).tolist()
    with mpmath.workdps(50):
        for case, found in zip(cases, ours, strict=True):
            exact, mean = log_binomial(*case)
            assert abs(found - exact) <= allowed_error(case, exact, mean), case


def test_binomial_masses_of_impossible_counts_are_those_of_pytorch() -> None:
    nan, inf = torch.nan, torch.inf
    cases = [(nan, 5, 0.0), (1, nan, 0.0), (1, 5, nan), (nan, 0, 700.0), (-1, 5, 0.3)]
    cases += [(-1e-300, 5, 0.3), (6, 5, -0.3), (5.001, 5, -0.3), (inf, 5, 0.3), (-inf, 5, 0.3)]
    cases += [(1, 0, 2.0), (0, 0, 3.0), (0, 0, -900.0), (0, 5, -inf), (5, 5, inf), (0, 5, inf)]
    cases += [(5, 5, -inf), (2, 5, inf), (2, 5, -inf)]
    wanted = plain("binomial_log_pmf", *as_columns(cases))
    found = kernels.binomial_log_pmf(*as_columns(cases))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


# --------------------------------------------------------------------------------------------------
# Where they are called
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are called in place of primitives."""
    names: list[str] = []
    dispatch.native_kernel_of(tilt.log_tilt)  # registers all of them
    for primitive, kernel in list(dispatch._native_kernels.items()):

        def recorded(*operands: Tensor, _kernel=kernel) -> Tensor:
            names.append(_kernel.__name__)
            return _kernel(*operands)

        monkeypatch.setitem(dispatch._native_kernels, primitive, recorded)
    return names


SIZES, DRAWS, COUNTS = [200, 150, 90], 180, torch.tensor([80.0, 70.0, 30.0])


def log_prob(log_weights: Tensor) -> Tensor:
    return FisherHypergeometric(SIZES, DRAWS, log_weights=log_weights).log_prob(COUNTS)


def test_a_log_probability_and_its_gradient_take_one_kernel_each(called: list[str]) -> None:
    leaf = torch.tensor([0.3, -1.0, 0.5], requires_grad=True)
    log_prob(leaf).backward()
    assert called == ["are_outcomes", "log_prob", "mean_anywhere"]


@pytest.mark.filterwarnings(r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "transformed",
    [
        lambda x: vmap(log_prob)(torch.stack([x, 2 * x])),
        lambda x: grad(log_prob)(x),
        lambda x: jacfwd(log_prob)(x),
        lambda x: jacrev(jacrev(log_prob))(x),
        lambda x: jacfwd(jacrev(log_prob))(x),
        lambda x: vmap(grad(log_prob))(torch.stack([x, 2 * x])),
    ],
    ids=["vmap", "grad", "jacfwd", "reverse twice", "forward over reverse", "vmap of grad"],
)
def test_transforms_give_the_numbers_of_the_plain_path(
    transformed: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_weights = torch.tensor([0.3, -1.0, 0.5])
    found = transformed(log_weights)
    monkeypatch.setattr(dispatch, "HAS_NATIVE", False)
    torch.testing.assert_close(found, transformed(log_weights), rtol=1e-11, atol=1e-11)


def test_vmap_takes_the_plain_path(called: list[str]) -> None:
    found = vmap(moments.mean_value)(
        torch.zeros(2, 3), torch.full((2, 3), 4.0), torch.full((2,), 6.0)
    )
    assert called == []
    torch.testing.assert_close(found, torch.full((2, 3), 2.0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own making
def test_compiled_code_takes_the_plain_path(called: list[str]) -> None:
    leaf = torch.tensor([0.3, -1.0, 0.5], requires_grad=True)
    compiled = torch.compile(log_prob, fullgraph=True, backend="aot_eager")
    compiled(leaf).backward()
    assert called == []
    torch.testing.assert_close(leaf.grad, grad(log_prob)(leaf.detach()), rtol=1e-11, atol=1e-11)


def test_tracing_takes_the_plain_path(called: list[str]) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    operands = torch.zeros(3), torch.tensor([5.0, 6.0, 7.0]), torch.tensor(9.0)
    graph = make_fx(moments.mean_value)(*operands)
    assert called == []
    assert len(graph.graph.nodes) > 10
    torch.testing.assert_close(graph(*operands), kernels.mean(*operands))


def test_other_dtypes_and_subclasses_take_the_plain_path(called: list[str]) -> None:
    class Tagged(Tensor):
        pass

    operands = torch.zeros(3), torch.tensor([5.0, 6.0, 7.0]), torch.tensor(9.0)
    moments.mean_value(*(x.float() for x in operands))
    moments.mean_value(operands[0].as_subclass(Tagged), *operands[1:])
    assert called == []
    moments.mean_value(torch.nn.Parameter(operands[0], requires_grad=False), *operands[1:])
    assert called == ["mean"]


def test_kernels_are_preferred_to_tables_for_few_urns(monkeypatch: pytest.MonkeyPatch) -> None:
    def laws(batch: tuple[int, ...], num_samples: int, groups: int = 3) -> list[str]:
        urn = FisherHypergeometric([5] * groups, 7, log_weights=torch.randn(*batch, groups))
        of_draws = _dispatch.fisher_for_draws(urn, num_samples)
        return [type(law).__name__ for law in (_dispatch.fisher_for_values(urn), of_draws)]

    assert laws((), 1) == laws((), 1, groups=2) == laws((2000,), 3) == ["Quadrature"] * 2
    assert laws((64,), 100) == ["Quadrature", "Tabulated"]
    assert laws((2000,), 1, groups=2) == ["Tabulated"] * 2
    monkeypatch.setattr(dispatch, "HAS_NATIVE", False)
    assert laws((), 1) == ["Tabulated"] * 2


def test_the_environment_switches_the_kernels_off() -> None:
    code = "import diffurn; from diffurn._kernels.dispatch import HAS_NATIVE as there;"
    code += "print(diffurn.native_kernels(), there)"
    for value, expected in (("0", "None False"), ("1", f"{diffurn.native_kernels()} True")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "DIFFURN_NATIVE": value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected.split()


# --------------------------------------------------------------------------------------------------
# Threads and processes
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch):
    """Sets the number of threads that kernels are told to use."""

    def use(number: int) -> None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: number)

    return use


def many_urns() -> tuple[Tensor, Tensor, Tensor]:
    sizes = torch.randint(0, 40, (5000, 3)).double()
    draws = (sizes.sum(-1) * torch.rand(5000)).floor()
    return 2 * torch.randn(5000, 3), sizes, draws


def test_results_do_not_depend_on_the_number_of_threads(threads) -> None:
    urns = many_urns()
    found = []
    for number in (1, 2, 3, 7):
        threads(number)
        found.append((kernels.mean_anywhere(*urns), sampling.draw_each(*urns, 2, seed=5)))
    for values, draws in found[1:]:
        assert values.equal(found[0][0])
        assert draws.equal(found[0][1])


def test_several_threads_may_call_at_once(threads) -> None:
    threads(3)
    urns = many_urns()
    wanted, found = kernels.mean_anywhere(*urns), []

    def work() -> None:
        for _ in range(5):
            found.append(kernels.mean_anywhere(*urns))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 20
    assert all(values.equal(wanted) for values in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own(threads) -> None:
    threads(2)
    urns = many_urns()
    wanted = kernels.mean_anywhere(*urns)  # starts the threads
    child = os.fork()
    if child == 0:
        os._exit(0 if kernels.mean_anywhere(*urns).equal(wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------


def test_a_seed_decides_the_draws() -> None:
    urn = FisherHypergeometric(SIZES, DRAWS, log_weights=torch.randn(50, 3))
    torch.manual_seed(3)
    first, second = urn.sample(), urn.sample()
    torch.manual_seed(3)
    assert urn.sample().equal(first)
    assert not first.equal(second)
    assert urn.sample().equal(second)


@pytest.mark.parametrize("columns", [1, 2, 7, 64, 1001])
def test_columns_are_found_as_by_comparing_all_of_them(columns: int) -> None:
    mass = torch.rand(3, 4, columns)
    mass[..., ::3] = 0.0
    cumulative = mass.cumsum(-1)
    for shape in ((), (50,)):
        target = (1 - torch.rand(*shape, 3, 4)) * cumulative[..., -1]
        target[..., 0, 0], target[..., 1, 0] = torch.nan, cumulative[1, 0, -1]
        found = inversion.first_reached(cumulative, target)
        assert found.dtype == torch.int64
        wanted = inversion.first_reached.__wrapped__(cumulative, target)  # type: ignore[attr-defined]
        assert found.equal(wanted)
    transposed = cumulative.mT.contiguous().mT
    assert inversion.first_reached(transposed, target).equal(wanted)


def test_rows_of_equal_urns_are_drawn_independently() -> None:
    urn = [
        x.expand(2000, *x.shape) for x in (torch.zeros(2), torch.full((2,), 1e6), torch.tensor(1e6))
    ]
    draws = sampling.draw_each(*urn, 3, seed=1)[..., 0]
    assert len(draws.flatten().unique()) > 1500
    centred = draws - draws.mean()
    for shift in (1, 2):
        pairs = (centred * centred.roll(shift, -1)).mean() / centred.square().mean()
        assert pairs.abs() < 4.5 / 6000**0.5  # false alarms in 7e-6 of the seeds


GROUPS_OF_DRAWS = {
    "inversion": ((5, 7, 4), 8, (0.5, -0.5, 1.0)),
    "transformed rejection": ((200, 150, 300), 250, (0.5, -0.5, 1.0)),
    "common balls": ((300, 200, 100), 560, (1.0, 3.0, -1.0)),
    "one narrow group": ((3, 900), 400, (2.0, 0.0)),
    "many groups": ((9,) * 20, 70, tuple(0.1 * j for j in range(20))),
}


@pytest.mark.parametrize("name", GROUPS_OF_DRAWS)
def test_draws_follow_the_law_of_each_group(name: str) -> None:
    """With a fresh seed one of the five tests fails once in ten thousand runs."""
    sizes, n, log_weights = GROUPS_OF_DRAWS[name]
    urn = FisherHypergeometric(sizes, n, log_weights=torch.tensor(log_weights))
    number = 40_000
    draws = sampling.draw_each(*(x.unsqueeze(0) for x in urn._operands()), number, seed=11)[:, 0]
    assert (draws.sum(-1) == n).all()
    for group in (0, len(sizes) - 1):
        counts = torch.arange(min(sizes[group], n) + 1.0)
        others = counts.unsqueeze(-1).expand(-1, len(sizes))
        expected = number * urn.marginals.log_prob(others)[:, group].exp()
        seen = torch.bincount(draws[:, group].long(), minlength=len(counts)).double()
        likely = expected > 10
        pooled = torch.stack([seen[~likely].sum(), expected[~likely].sum()])
        statistic = ((seen - expected).square() / expected)[likely].sum()
        statistic = statistic + (pooled[0] - pooled[1]).square() / pooled[1].clamp(min=1)
        assert likely.sum() >= 3
        assert stats.chi2.sf(float(statistic), int(likely.sum())) > 1e-5


def test_hard_urns_are_drawn_within_their_support() -> None:
    for urn in URNS:
        if urn.groups >= rejection.FEWEST_GROUPS_FOR_BLOCKS:
            continue
        law = FisherHypergeometric(
            urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights)
        )
        operands = [x.unsqueeze(0) for x in law._operands()]
        draws = sampling.draw_each(*operands, 5, seed=2)[:, 0]
        assert (draws == draws.round()).all(), urn
        assert (draws.sum(-1) == urn.draws).all(), urn
        assert ((draws >= 0) & (draws <= torch.tensor(urn.drawable))).all(), urn


def test_draws_of_nan_are_nan_and_impossible_urns_raise() -> None:
    sizes = torch.full((2, 3), 4.0)
    found = sampling.draw_each(torch.zeros(2, 3), sizes, torch.tensor([5.0, torch.nan]), 2, seed=0)
    assert found[:, 0].sum(-1).tolist() == [5.0, 5.0]
    assert found[:, 1].isnan().all()
    with pytest.raises(RuntimeError, match="no proposal was accepted for the urn m = "):
        sampling.draw_each(torch.zeros(2, 3), sizes, torch.tensor([5.0, 13.0]), 1, seed=0)
