"""The layer that chooses k of d items, against sums over all subsets."""

from __future__ import annotations

import io
import itertools
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffurn import CovarianceST, GumbelSoftmax, GumbelTopK, ScoreFunction
from diffurn.estimators.gumbel_top_k import relaxed_top
from diffurn.nn import SubsetSampler
from support.goodness import chi_square_p_value
from support.synchronisation import NoSynchronisation, capturing

DOUBLE = torch.float64
LAWS = ("fisher", "wallenius")
every_law = pytest.mark.parametrize("law", LAWS)
# The seeds are fixed. With a fresh seed and right code, a statistical test here fails with at most
# this probability.
FALSE_ALARM = 1e-5
# A standard normal variate is beyond ±5.5 with probability 4e-8, so one of 200 with 1e-5.
DEVIATIONS = 5.5


# --------------------------------------------------------------------------------------------------
# The oracle: all subsets, written out
# --------------------------------------------------------------------------------------------------


def all_subsets(items: int, k: int) -> Tensor:
    """All subsets as zeros and ones, ``(subsets, items)``."""
    chosen = torch.tensor(list(itertools.combinations(range(items), k)), dtype=torch.int64)
    chosen = chosen.reshape(-1, k)
    return torch.zeros(len(chosen), items, dtype=DOUBLE).scatter(-1, chosen, 1.0)


def log_probabilities(law: str, logits: Tensor, k: int) -> Tensor:
    """Of all subsets, in the order of `all_subsets`; differentiable in the logits ``(items,)``."""
    subsets = all_subsets(len(logits), k)
    if law == "fisher":
        return torch.log_softmax(subsets @ logits, 0)
    weights = logits.exp()
    reached = {(): weights.new_ones(())}  # the probability that these are the first items
    for _ in range(k):
        after: dict[tuple[int, ...], Tensor] = {}
        for first, probability in reached.items():
            left = [j for j in range(len(logits)) if j not in first]
            total = weights[left].sum()
            for j in left:
                key = tuple(sorted((*first, j)))
                after[key] = after.get(key, 0.0) + probability * weights[j] / total
        reached = after
    return torch.stack([reached[x] for x in itertools.combinations(range(len(logits)), k)]).log()


def some_logits(items: int, scale: float = 1.0) -> Tensor:
    return torch.tensor([scale * math.sin(3.0 * j + 1.0) for j in range(items)], dtype=DOUBLE)


def gradient(value: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(value, of)[0]


# --------------------------------------------------------------------------------------------------
# Draws and their scores
# --------------------------------------------------------------------------------------------------

SIZES = pytest.mark.parametrize(("items", "k"), [(6, 3), (10, 5)])
NUMBER = 20_000


def drawn_and_expected(law: str, items: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each subset is drawn, in a batch of rows and as samples of one row."""
    logits, subsets = some_logits(items), all_subsets(items, k)
    sampler = SubsetSampler(k, law)
    rows = sampler(logits.expand(NUMBER // 2, -1))
    samples = sampler(logits, num_samples=NUMBER // 2)
    places = {tuple(row): place for place, row in enumerate(subsets.tolist())}
    observed = np.zeros(len(subsets), dtype=np.int64)
    for row in torch.cat([rows, samples]).tolist():
        observed[places[tuple(row)]] += 1
    return observed, log_probabilities(law, logits, k).exp().numpy()


@SIZES
@every_law
def test_draws_follow_the_law_that_is_scored(law: str, items: int, k: int) -> None:
    observed, probability = drawn_and_expected(law, items, k)
    assert chi_square_p_value(observed, probability) > FALSE_ALARM
    # The total variation of N right draws has the mean Σ √(p(1 - p) / 2πN), and a standard
    # deviation below 1/√(4N).
    noise = np.sqrt(probability * (1 - probability) / (2 * math.pi * NUMBER)).sum()
    variation = 0.5 * np.abs(observed / NUMBER - probability).sum()
    assert variation < noise + 5 / math.sqrt(4 * NUMBER)


def test_the_draws_of_one_law_are_told_from_the_other_law() -> None:
    """So the tests of draws can fail: Gumbel top-k draws do not follow Fisher's law."""
    observed, _ = drawn_and_expected("wallenius", 6, 3)
    probability = log_probabilities("fisher", some_logits(6), 3).exp().numpy()
    assert chi_square_p_value(observed, probability) < FALSE_ALARM


@SIZES
@every_law
def test_the_mean_score_of_draws_is_zero(law: str, items: int, k: int) -> None:
    number = 4000
    logits = some_logits(items).expand(number, -1).clone().requires_grad_()
    sampler = SubsetSampler(k, law)
    subsets = sampler(logits.detach())
    score = gradient(sampler.log_prob(logits, subsets).sum(), logits)
    deviation = score.mean(0) / (score.std(0) / math.sqrt(number))
    assert deviation.abs().max() < DEVIATIONS


# --------------------------------------------------------------------------------------------------
# Probabilities, entropy and divergence
# --------------------------------------------------------------------------------------------------


@SIZES
@every_law
def test_probabilities_are_those_of_all_subsets(law: str, items: int, k: int) -> None:
    logits, subsets = some_logits(items).requires_grad_(), all_subsets(items, k)
    wanted = log_probabilities(law, logits, k)
    sampler = SubsetSampler(k, law)
    found = sampler.log_prob(logits, subsets)
    assert (found - wanted).abs().max() <= 1e-10
    inclusion = wanted.exp() @ subsets
    assert (sampler.inclusion(logits) - inclusion).abs().max() <= 1e-11
    vector = some_logits(items, 2.0)
    slopes = [gradient(each @ vector, logits) for each in (sampler.inclusion(logits), inclusion)]
    assert (slopes[0] - slopes[1]).abs().max() <= 1e-10


@SIZES
@every_law
def test_entropy_and_divergence_are_those_of_all_subsets(law: str, items: int, k: int) -> None:
    logits, other = some_logits(items).requires_grad_(), some_logits(items, -0.7).requires_grad_()
    log_p, log_q = log_probabilities(law, logits, k), log_probabilities(law, other, k)
    sampler, uniform = SubsetSampler(k, law), math.log(math.comb(items, k))
    for found, wanted in (
        (sampler.entropy(logits), -(log_p.exp() * log_p).sum()),
        (sampler.kl(logits), (log_p.exp() * (log_p + uniform)).sum()),
        (sampler.kl(logits, other), (log_p.exp() * (log_p - log_q)).sum()),
    ):
        assert abs(found - wanted) <= 1e-10
        for of in (logits, other):
            slopes = [
                torch.autograd.grad(x, of, retain_graph=True, allow_unused=True)[0]
                for x in (found, wanted)
            ]
            assert (slopes[0] is None) == (slopes[1] is None)
            if slopes[0] is not None:
                assert (slopes[0] - slopes[1]).abs().max() <= 1e-10


@pytest.mark.parametrize("k", [0, 1, 40, 79, 80])
def test_the_entropy_of_fishers_subsets_is_exact_for_many_items(k: int) -> None:
    """All logits but two are equal, so the subsets are of few kinds."""
    logits = torch.tensor([1.5, -2.0, *[0.3] * 78], dtype=DOUBLE)
    kinds = []
    for first, second in itertools.product((0, 1), (0, 1)):
        others = k - first - second
        if 0 <= others <= 78:
            kinds.append((math.comb(78, others), 1.5 * first - 2.0 * second + 0.3 * others))
    numbers, scores = (torch.tensor(x, dtype=DOUBLE) for x in zip(*kinds, strict=True))
    normaliser = torch.logsumexp(numbers.log() + scores, 0)
    log_prob = scores - normaliser
    wanted = -(numbers * log_prob.exp() * log_prob).sum()
    assert abs(SubsetSampler(k).entropy(logits) - wanted) <= 1e-11


def test_entropy_of_many_wallenius_subsets_is_estimated_without_bias() -> None:
    """By n = 1, where the law is a categorical one, and many rows."""
    items, rows = 300, 4
    logits = (some_logits(items) * 0.5).expand(rows, -1).clone().requires_grad_()
    log_p = torch.log_softmax(logits.detach(), -1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    sampler = SubsetSampler(1, "wallenius")
    found = sampler.entropy(logits, num_samples=100)
    spread = (log_p.exp() * (log_p + entropy.unsqueeze(-1)).square()).sum(-1).sqrt()
    assert ((found - entropy).abs() < DEVIATIONS * spread / 10).all()
    wanted = -log_p.exp() * (log_p + entropy.unsqueeze(-1))
    direction = wanted / wanted.norm()
    slope = gradient(sampler.entropy(logits, num_samples=2000).sum(), logits)
    assert abs((slope * direction).sum() / wanted.norm() - 1) < 0.2


# --------------------------------------------------------------------------------------------------
# Gradients
# --------------------------------------------------------------------------------------------------


def curved(x: Tensor) -> Tensor:
    """A loss that is not linear: squared distances, and a product."""
    goal = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)
    return (x - goal).square().sum(-1) + 3 * x[..., 0] * x[..., -1] + (x @ goal).square()


def gradients(sampler: SubsetSampler, items: int, rows: int) -> tuple[Tensor, Tensor]:
    """One gradient of each row, and the exact one, by a sum over all subsets."""
    logits = some_logits(items).requires_grad_()
    subsets = all_subsets(items, sampler.k)
    exact = (log_probabilities(sampler.law, logits, sampler.k).exp() * curved(subsets)).sum()
    copies = logits.detach().expand(rows, -1).clone().requires_grad_()
    loss = sampler.expectation(curved, copies, num_samples=4)
    return gradient(loss.sum(), copies), gradient(exact, logits)


@SIZES
@every_law
@pytest.mark.parametrize("control", [None, "covariance"])
def test_gradients_of_score_functions_are_unbiased(
    control: Any, law: str, items: int, k: int
) -> None:
    found, exact = gradients(SubsetSampler(k, law, ScoreFunction(control)), items, 800)
    error = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)))
    # Under three standard errors on average over items, and no item far off.
    assert error.abs().max() < DEVIATIONS
    assert error.square().mean().sqrt() < 3


@pytest.mark.parametrize("control", [None, "covariance"])
def test_a_loss_of_two_subsets_has_an_unbiased_gradient(control: Any) -> None:
    """The product of a sum over one subset and a sum over another, which are independent."""
    logits = torch.stack([some_logits(6), some_logits(6, -0.5)])
    goal = torch.linspace(-1, 2, 6, dtype=DOUBLE)
    copies = logits.expand(4000, 2, 6).clone().requires_grad_()
    sampler = SubsetSampler(3, "fisher", ScoreFunction(control))
    loss = sampler.expectation(lambda x: (x @ goal).prod(-1), copies, num_samples=4)
    assert loss.shape == (4000,)
    found = gradient(loss.sum(), copies)
    subsets, exact = all_subsets(6, 3), logits.clone().requires_grad_()
    means = [log_probabilities("fisher", row, 3).exp() @ (subsets @ goal) for row in exact]
    wanted = gradient(means[0] * means[1], exact)
    error = (found.mean(0) - wanted) / (found.std(0) / math.sqrt(len(found)))
    assert error.abs().max() < DEVIATIONS
    assert error.square().mean().sqrt() < 3


@SIZES
@every_law
def test_straight_through_gradients_are_exact_for_linear_losses(
    law: str, items: int, k: int
) -> None:
    logits, vector = some_logits(items).requires_grad_(), some_logits(items, 2.0)
    mean = log_probabilities(law, logits, k).exp() @ all_subsets(items, k)
    found = gradient(SubsetSampler(k, law)(logits) @ vector, logits)
    assert (found - gradient(mean @ vector, logits)).abs().max() <= 1e-10


def test_the_covariance_lowers_the_variance_of_the_score() -> None:
    spread = [
        gradients(SubsetSampler(5, "fisher", ScoreFunction(control)), 10, 2000)[0].var(0).sum()
        for control in (None, "covariance")
    ]
    assert spread[1] < spread[0]


@pytest.mark.parametrize(("items", "k"), [(6, 3), (8, 0), (8, 8), (5, 1)])
def test_relaxed_subsets_sum_to_k(items: int, k: int) -> None:
    scores = some_logits(items, 4.0).requires_grad_()
    number = torch.tensor(float(k), dtype=DOUBLE)
    soft = relaxed_top(scores, torch.ones(items, dtype=DOUBLE), number)
    assert abs(soft.sum() - k) <= 1e-12
    step, vector = 1e-6, some_logits(items)
    moved = relaxed_top(scores.detach() + step * vector, torch.ones(items, dtype=DOUBLE), number)
    (slope,) = torch.autograd.grad(soft @ vector, scores)
    assert abs((moved - soft) @ vector / step - slope @ vector) <= 1e-5


@pytest.mark.parametrize(
    ("law", "estimator"),
    [("wallenius", GumbelTopK(0.5)), ("fisher", GumbelSoftmax(0.5))],
    ids=["gumbel-top-k", "gumbel-softmax"],
)
def test_relaxed_estimators_give_hard_subsets_and_gradients(law: Any, estimator: Any) -> None:
    logits = some_logits(8).expand(50, -1).clone().requires_grad_()
    subset = SubsetSampler(3, law, estimator)(logits)
    assert ((subset == 0) | (subset == 1)).all()
    assert (subset.sum(-1) == 3).all()
    slope = gradient((subset @ some_logits(8, 2.0)).sum(), logits)
    mean = gradient(
        (log_probabilities(law, logits[0], 3).exp() @ all_subsets(8, 3)) @ some_logits(8, 2.0),
        logits,
    )[0]
    assert (slope.mean(0) @ mean) / (slope.mean(0).norm() * mean.norm()) > 0.9


# --------------------------------------------------------------------------------------------------
# The layer
# --------------------------------------------------------------------------------------------------


@every_law
@pytest.mark.parametrize("items", [7, 100])
def test_evaluation_takes_the_largest_logits(law: Any, items: int) -> None:
    logits = torch.randn(5, items)
    logits[0] = 0.0  # ties go to earlier items
    subset = SubsetSampler(3, law).eval()(logits, num_samples=2)
    assert subset.shape == (2, 5, items)
    wanted = torch.zeros(5, items).scatter(-1, logits.topk(3).indices, 1.0)
    wanted[0] = torch.tensor([1.0] * 3 + [0.0] * (items - 3))
    assert (subset == wanted).all()


def test_the_most_probable_subset_of_wallenius_law_is_that_of_the_largest_logits() -> None:
    logits = some_logits(7, 2.0)
    likeliest = log_probabilities("wallenius", logits, 3).argmax()
    assert (SubsetSampler(3, "wallenius").eval()(logits) == all_subsets(7, 3)[likeliest]).all()


@every_law
@pytest.mark.parametrize("items", [9, 80])
def test_masked_items_are_never_chosen_and_change_nothing(law: Any, items: int) -> None:
    sampler, mask = SubsetSampler(3, law), torch.arange(items) < 6
    logits = torch.randn(4, items, dtype=DOUBLE, requires_grad=True)
    kept = logits.detach()[:, :6].requires_grad_()
    subset = sampler(logits, mask)
    assert (subset[:, 6:] == 0).all()
    assert (subset.sum(-1) == 3).all()
    vector = torch.randn(items, dtype=DOUBLE)
    alone = torch.nn.functional.pad(subset.detach()[:, :6], (0, 0))
    for found, wanted in (
        (subset @ vector, sampler.inclusion(kept) @ vector[:6]),
        (sampler.inclusion(logits, mask) @ vector, sampler.inclusion(kept) @ vector[:6]),
        (sampler.log_prob(logits, subset.detach(), mask), sampler.log_prob(kept, alone)),
    ):
        slope = gradient(found.sum(), logits)
        assert (slope[:, 6:] == 0).all()
        assert (slope[:, :6] - gradient(wanted.sum(), kept)).abs().max() <= 1e-10
    assert (sampler.eval()(logits, mask)[:, :6] == sampler(kept)).all()


@every_law
@pytest.mark.parametrize("items", [12, 70])
def test_every_row_may_have_its_own_k(law: Any, items: int) -> None:
    logits, k = torch.randn(4, items), torch.tensor([0, 1, 5, items])
    sampler = SubsetSampler(2, law)
    assert (sampler(logits, k=k).sum(-1) == k).all()
    assert (sampler.eval()(logits, k=k).sum(-1) == k).all()
    inclusion = sampler.inclusion(logits, k=k)
    for row in range(4):
        alone = sampler.inclusion(logits[row], k=int(k[row]))
        assert (inclusion[row] - alone).abs().max() <= 1e-6
    assert torch.isfinite(sampler.entropy(logits, k=k)).all()


@every_law
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_logits_work_under_autocast(law: Any, dtype: torch.dtype) -> None:
    linear, sampler = nn.Linear(5, 80), SubsetSampler(7, law)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = linear(torch.randn(3, 5)).to(dtype)
        subset = sampler(logits)
        entropy = sampler.entropy(logits).sum()
    assert subset.dtype == dtype
    assert (subset.float().sum(-1) == 7).all()
    (subset.float().square().sum() + entropy.float()).backward()
    assert linear.weight.grad is not None
    assert linear.weight.grad.isfinite().all()
    exact = sampler.inclusion(logits.detach().double())
    assert (sampler.inclusion(logits.detach()) - exact).abs().max() <= 1e-6


@pytest.mark.parametrize(
    ("law", "estimator"),
    [
        ("fisher", CovarianceST()),
        ("wallenius", GumbelTopK(0.5)),
        ("fisher", ScoreFunction("covariance")),
    ],
    ids=str,
)
def test_the_layer_has_no_parameters_and_can_be_pickled(law: Any, estimator: Any) -> None:
    sampler = SubsetSampler(2, law, estimator)
    assert not list(sampler.parameters())
    again = pickle.loads(pickle.dumps(sampler))
    assert str(again) == str(sampler)
    logits = torch.randn(6)
    torch.manual_seed(3)
    first = sampler(logits)
    torch.manual_seed(3)
    assert (again(logits) == first).all()


# torch's own compiler makes an object of an autograd function.
compiling = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:.*is deprecated:DeprecationWarning",
)


@compiling
@every_law
@pytest.mark.parametrize("with_mask", [False, True], ids=["", "mask"])
def test_a_step_compiles_without_a_graph_break(law: Any, with_mask: bool) -> None:
    items, k = 80, torch.tensor([3, 9])
    sampler, mask = SubsetSampler(9, law), torch.arange(items) < 70
    arguments: dict[str, Any] = {"mask": mask, "k": k} if with_mask else {}
    vector = torch.randn(items)
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(sampler, fullgraph=True, backend="aot_eager")
    logits = torch.randn(2, items, requires_grad=True)
    subset = compiled(logits, **arguments)
    assert (subset.sum(-1) == (k if with_mask else 9)).all()
    assert (compiled(logits, **arguments) != subset).any()
    wanted = gradient((sampler.inclusion(logits, **arguments) @ vector).sum(), logits)
    assert (gradient((subset @ vector).sum(), logits) - wanted).abs().max() <= 1e-5


def probabilities(sampler: SubsetSampler, logits: Tensor) -> dict[str, Tensor]:
    subset = sampler.eval()(logits.detach())
    return {"inclusion": sampler.inclusion(logits), "log_prob": sampler.log_prob(logits, subset)}


@compiling
@pytest.mark.slow
@every_law
def test_probabilities_compile_without_a_graph_break(law: Any) -> None:
    logits, sampler = torch.randn(2, 80, requires_grad=True), SubsetSampler(9, law)
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(probabilities, fullgraph=True, backend="aot_eager")
    plain, found = probabilities(sampler, logits), compiled(sampler, logits)
    for name, wanted in plain.items():
        assert (found[name] - wanted).abs().max() <= 1e-5
        vector = torch.randn(wanted.shape)
        slopes = [
            torch.autograd.grad((x[name] * vector).sum(), logits, retain_graph=True)[0]
            for x in (plain, found)
        ]
        assert (slopes[0] - slopes[1]).abs().max() <= 1e-5


@compiling
@every_law
@pytest.mark.parametrize("control", [None, "covariance"])
def test_unbiased_losses_compile_without_a_graph_break(law: Any, control: Any) -> None:
    logits, vector = torch.randn(2, 80), torch.randn(80)
    sampler = SubsetSampler(9, law, ScoreFunction(control))

    def loss(logits: Tensor) -> Tensor:
        return sampler.expectation(lambda x: 3.0 + x @ vector, logits, num_samples=2)

    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(loss, fullgraph=True, backend="aot_eager")
    logits.requires_grad_()
    slope = gradient(compiled(logits).sum(), logits)
    assert slope.isfinite().all()
    if control is not None:  # exact for linear losses
        wanted = gradient((sampler.inclusion(logits) @ vector).sum(), logits)
        assert (slope - wanted).abs().max() <= 1e-4


def test_a_subset_may_be_booleans() -> None:
    logits, sampler = torch.randn(4, 9), SubsetSampler(3)
    subset = sampler(logits)
    found = sampler.log_prob(logits, subset.bool())
    assert (found == sampler.log_prob(logits, subset)).all()


@pytest.mark.parametrize("training", [False, True])
@every_law
def test_the_layer_can_be_exported_and_saved(law: Any, training: bool) -> None:
    class Chooser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.sampler = nn.Linear(5, 80), SubsetSampler(7, law)

        def forward(self, x: Tensor) -> Tensor:
            return self.sampler(self.linear(x))

    model, x = Chooser().train(training), torch.randn(3, 5)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning))
        torch.export.save(torch.export.export(model, (x,)), file)
        file.seek(0)
        loaded = torch.export.load(file).module()
    subset = loaded(x)
    assert (subset.sum(-1) == 7).all()
    if not training:
        assert (subset == model(x)).all()


@pytest.mark.parametrize("estimator", [CovarianceST(), GumbelTopK(0.5)], ids=str)
def test_a_captured_step_of_wallenius_subsets_never_synchronises(
    estimator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    capturing(monkeypatch)
    sampler = SubsetSampler(9, "wallenius", estimator)
    logits = torch.empty(3, 80, device="meta", requires_grad=True)
    with NoSynchronisation():
        subset = sampler(logits)
        assert gradient(subset.sum(), logits).shape == logits.shape


@every_law
def test_numbers_on_other_devices_are_not_read(law: Any) -> None:
    """On the device "meta", which has no numbers, every look at one would fail."""
    logits, mask = torch.empty(3, 80, device="meta"), torch.ones(80, dtype=torch.bool)
    urn = SubsetSampler(9, law).urn(logits, mask.to("meta"))
    assert urn.batch_shape == (3,)
    assert urn.group_sizes.device.type == "meta"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SubsetSampler(-1), "k is -1, but must be an integer ≥ 0"),
        (lambda: SubsetSampler(2.5), "k is 2.5, but must be an integer ≥ 0"),
        (lambda: SubsetSampler(2, "gumbel"), "law is 'gumbel', but must be one of"),
        (lambda: SubsetSampler(2, "fisher", "score"), "estimator is 'score', but must be"),
        (lambda: ScoreFunction("mean"), "control_variate is 'mean'"),
        (lambda: GumbelTopK(0), "temperature is 0, but must be > 0"),
        (lambda: SubsetSampler(4)(torch.zeros(3)), "k is 4, but must be from 0 to 3"),
        (lambda: SubsetSampler(1)([0.0]), "logits must be a tensor of real numbers"),
        (lambda: SubsetSampler(1)(torch.ones(3), torch.ones(3)), "mask has the dtype"),
        (
            lambda: SubsetSampler(1)(torch.ones(2, 3), torch.ones(2, 4) > 0),
            r"mask has the shape \(2, 4\), but must broadcast with the logits, \(2, 3\)",
        ),
        (
            lambda: SubsetSampler(1, "fisher", ScoreFunction())(torch.ones(3, requires_grad=True)),
            r"draws of ScoreFunction.* carry no gradient to the logits: call expectation\(f, lo",
        ),
        (
            lambda: SubsetSampler(2)(torch.zeros(2, 3), torch.eye(3)[:2] > 0),
            r"mask.sum\(-1\) at index \(0,\) is 1, but must be k or more",
        ),
    ],
)
def test_bad_input_gets_a_clear_sentence(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_estimators_and_laws_that_do_not_fit_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"GumbelTopK draws .* Wallenius' law and not Fi"):
        SubsetSampler(2, "fisher", GumbelTopK())
    with pytest.raises(NotImplementedError, match="GumbelSoftmax needs the conditional laws"):
        SubsetSampler(2, "wallenius", GumbelSoftmax())
