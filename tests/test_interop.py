"""Interoperability: NumPy's arrays, torch's wrappers of distributions, Pyro's inference and
Lightning's trainer.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily

from diffurn import (
    CovarianceST,
    FisherHypergeometric,
    WalleniusHypergeometric,
    exact_test,
    fit,
)
from diffurn.nn import SubsetSampler

EXAMPLES = Path(__file__).parents[1] / "examples"
LAWS = [FisherHypergeometric, WalleniusHypergeometric]
every_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
SIZES, DRAWS, WEIGHTS, COUNTS = [10, 7, 8], 9, [1.0, 2.0, 0.5], [4, 3, 2]


# --- NumPy
# --------------------------------------------------------------------------------------------------


def read_only(values: Any) -> np.ndarray:
    array = np.array(values)
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "array": np.array,
    "column of a matrix": lambda values: np.stack([values, values], -1)[:, 1],
    "reversed": lambda values: np.array(values[::-1])[::-1],
    "read-only": read_only,
    "foreign byte order": lambda values: np.array(values).astype(
        np.array(values).dtype.newbyteorder()
    ),
    "list of NumPy numbers": lambda values: list(np.array(values)),
}


@every_law
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_kind_go_in_and_come_out(kind: str, law: Any) -> None:
    array = ARRAYS[kind]
    urn, plain = (
        law(array(SIZES), np.int32(DRAWS), weights=array(WEIGHTS)),
        law(SIZES, DRAWS, weights=torch.tensor(WEIGHTS)),
    )
    for actual, expected in (
        (urn.mean, plain.mean),
        (urn.log_prob(array(COUNTS)), plain.log_prob(COUNTS)),
    ):
        assert actual.numpy().dtype == np.float64
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-12)
    assert urn.sample((5,)).numpy().sum(-1).tolist() == [DRAWS] * 5


@pytest.mark.parametrize("kind", ARRAYS)
def test_values_and_fits_take_arrays_of_every_kind(kind: str) -> None:
    array, urn = ARRAYS[kind], FisherHypergeometric(SIZES, DRAWS, weights=WEIGHTS)
    for actual, expected in (
        (urn.marginals.log_prob(array(COUNTS)), urn.marginals.log_prob(COUNTS)),
        (urn.marginals.cdf(array(COUNTS)), urn.marginals.cdf(COUNTS)),
        (fit(array(COUNTS), array(SIZES)).weights, fit(COUNTS, SIZES).weights),
    ):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-12)


@every_law
def test_arrays_of_parameters_broadcast_as_in_scipy(law: Any) -> None:
    scipy_law = (
        stats.nchypergeom_fisher if law is FisherHypergeometric else stats.nchypergeom_wallenius
    )
    odds, draws, counts = np.array([0.5, 1.0, 4.0]), np.array([[5], [9]]), np.array([2, 3, 4])
    urn = law([10, 7], draws, weights=np.stack([odds, np.ones(3)], -1))
    value = np.stack(np.broadcast_arrays(counts, draws - counts), -1)
    np.testing.assert_allclose(
        urn.log_prob(value).exp().numpy(), scipy_law.pmf(counts, 17, 10, draws, odds), rtol=1e-7
    )
    np.testing.assert_allclose(
        urn.mean[..., 0].numpy(), scipy_law.mean(17, 10, draws, odds), rtol=1e-7
    )


def test_the_dtype_of_an_array_of_weights_is_that_of_the_results() -> None:
    for dtype in (np.float32, np.float64):
        urn = FisherHypergeometric(np.array(SIZES), DRAWS, weights=np.array(WEIGHTS, dtype))
        assert urn.mean.numpy().dtype == urn.sample().numpy().dtype == dtype


def test_a_fit_takes_arrays_for_all_that_it_is_given() -> None:
    counts, sizes = np.array([COUNTS, [3, 4, 1]]), np.array([SIZES, SIZES])
    plain = fit(
        counts.tolist(), sizes.tolist(), frequencies=[2, 3], groups=["a", "b", "c"], reference=1
    )
    arrays = fit(
        counts,
        sizes,
        frequencies=np.array([2, 3]),
        groups=np.array(["a", "b", "c"]),
        reference=np.int64(1),
    )
    assert arrays.groups == plain.groups
    assert arrays.reference == "b"
    np.testing.assert_array_equal(arrays.coefficients.numpy(), plain.coefficients.numpy())
    np.testing.assert_array_equal(
        arrays.predict(np.array(SIZES), np.int64(5)).numpy(), plain.predict(SIZES, 5).numpy()
    )
    features = np.array([[0.0], [1.0], [2.0]])[::-1]
    with_features = fit(counts, sizes, covariates=features).coefficients.numpy()
    np.testing.assert_array_equal(
        with_features, fit(counts, sizes, covariates=features.tolist()).coefficients.numpy()
    )


def test_an_exact_test_takes_arrays() -> None:
    table = np.array([[8, 2], [1, 5]])
    assert exact_test(table[::-1]).p_value.numpy() == pytest.approx(
        stats.fisher_exact(table[::-1]).pvalue, rel=1e-12
    )


# --- torch's wrappers
# --------------------------------------------------------------------------------------------------


@every_law
def test_independent_urns_are_one_distribution(law: Any) -> None:
    urns = law(SIZES, DRAWS, log_weights=torch.randn(2, 4, 3))
    joint = Independent(urns, 1)
    counts = joint.rsample((5,))
    assert (joint.batch_shape, joint.event_shape, counts.shape) == ((2,), (4, 3), (5, 2, 4, 3))
    torch.testing.assert_close(joint.log_prob(counts), urns.log_prob(counts).sum(-1))
    assert bool(joint.support.check(counts).all())


@every_law
def test_a_mixture_of_urns_is_what_its_outcomes_say(law: Any) -> None:
    urns = law(SIZES, DRAWS, log_weights=torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.0]]))
    share = torch.tensor([0.3, 0.7])
    mixture = MixtureSameFamily(Categorical(share), urns)
    outcomes = law(SIZES, DRAWS, weights=torch.ones(3)).enumerate_support()
    p = mixture.log_prob(outcomes).exp()
    torch.testing.assert_close(p, urns.log_prob(outcomes.unsqueeze(1)).exp() @ share)
    torch.testing.assert_close(p.sum(), torch.tensor(1.0))
    torch.testing.assert_close(mixture.mean, p @ outcomes)
    torch.testing.assert_close(mixture.variance, p @ outcomes.square() - (p @ outcomes).square())
    counts = mixture.sample((2000,))
    assert bool(mixture.support.check(counts).all())
    # each mean is about normal: beyond 5 standard errors once in 600,000 runs, and three are looked
    # at
    assert bool(
        ((counts.mean(0) - mixture.mean).abs() < 5 * (mixture.variance / 2000).sqrt()).all()
    )


@every_law
def test_a_mixture_of_urns_is_learned_by_its_likelihood(law: Any) -> None:
    """The gradient is that of the mixture's probabilities, by finite differences."""
    log_weights, logits = (
        torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.0]]),
        torch.tensor([0.2, -0.4]),
    )

    def log_prob(log_weights: Tensor, logits: Tensor) -> Tensor:
        return MixtureSameFamily(
            Categorical(logits=logits), law(SIZES, DRAWS, log_weights=log_weights)
        ).log_prob(torch.tensor(COUNTS))

    assert torch.autograd.gradcheck(
        log_prob, (log_weights.requires_grad_(), logits.requires_grad_())
    )


# --- Pyro
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pyro() -> Any:
    return pytest.importorskip("pyro", reason="Pyro is not installed: pip install pyro-ppl")


@pytest.fixture(scope="module")
def baskets(pyro: Any) -> dict[str, Any]:
    """The example, whose two classes are what Pyro needs."""
    return runpy.run_path(str(EXAMPLES / "pyro_svi.py"))


@pytest.fixture
def clean(pyro: Any) -> Any:
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    with pyro.validation_enabled(True):
        yield
    pyro.clear_param_store()


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("name", ["FisherHypergeometric", "WalleniusHypergeometric"])
class TestInPyro:
    def test_shapes_follow_plates_and_events(
        self, name: str, pyro: Any, baskets: dict[str, Any]
    ) -> None:
        urn = baskets[name](SIZES, DRAWS, log_weights=torch.zeros(3))

        def model() -> None:
            with pyro.plate("columns", 4), pyro.plate("rows", 2):
                pyro.sample("one each", urn)
            with pyro.plate("of five", 5):
                pyro.sample("three at once", urn.expand([5, 3]).to_event(1))
            pyro.sample("masked", urn.mask(torch.tensor(False)))
            pyro.sample("seen", urn, obs=torch.tensor(COUNTS))

        trace = pyro.poutine.trace(model).get_trace()
        trace.compute_log_prob()
        shapes = {
            site: (trace.nodes[site]["value"].shape, trace.nodes[site]["log_prob"].shape)
            for site in trace.stochastic_nodes
        }
        assert shapes["one each"] == ((2, 4, 3), (2, 4))
        assert shapes["three at once"] == ((5, 3, 3), (5,))
        assert shapes["masked"] == ((3,), ())
        assert float(trace.nodes["masked"]["log_prob"]) == 0
        assert float(trace.nodes["seen"]["log_prob"]) == float(urn.log_prob(COUNTS))
        assert type(urn.expand([5])) is baskets[name]

    def test_the_mode_of_a_posterior_is_the_ridge_estimate(
        self, name: str, pyro: Any, baskets: dict[str, Any]
    ) -> None:
        """A normal prior on log ω is a ridge penalty: at its estimate, steps of a guide that is a
        point go nowhere.
        """
        counts, sizes = (
            torch.tensor([[4.0, 3, 2], [3, 5, 1], [1, 2, 3]]),
            torch.tensor([SIZES, [5, 6, 9], [4, 4, 4]]),
        )
        law = "fisher" if name.startswith("Fisher") else "wallenius"
        estimate = fit(counts, sizes, model=law, penalty="ridge", ridge=1.0).coefficients

        def model() -> None:
            log_weights = pyro.sample(
                "log_weights", pyro.distributions.Normal(torch.zeros(3), 1.0).to_event(1)
            )
            with pyro.plate("rows", len(counts)):
                pyro.sample(
                    "counts",
                    baskets[name](sizes, counts.sum(-1), log_weights=log_weights),
                    obs=counts,
                )

        start = pyro.infer.autoguide.init_to_value(values={"log_weights": estimate})
        guide = pyro.infer.autoguide.AutoDelta(model, init_loc_fn=start)
        inference = pyro.infer.SVI(
            model, guide, pyro.optim.SGD({"lr": 0.1}), pyro.infer.Trace_ELBO()
        )
        for _ in range(3):
            inference.step()
        torch.testing.assert_close(guide.median()["log_weights"], estimate, rtol=0, atol=1e-9)

    def test_the_gradient_of_the_bound_is_that_of_all_outcomes(
        self, name: str, pyro: Any, baskets: dict[str, Any]
    ) -> None:
        """Without bias by the score function; by the covariance estimator (Fisher's urn alone) the
        bias is a few percent.
        """
        law, seen, prices = baskets[name], torch.tensor(30.0), torch.tensor([1.0, 5.0, 10.0])
        log_weights = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
        normal, particles = pyro.distributions.Normal, 2000

        def model() -> None:
            counts = pyro.sample("counts", law([6, 5, 4], 7, log_weights=torch.zeros(3)))
            pyro.sample("price", normal(counts @ prices, 4.0), obs=seen)

        def guide(estimator: CovarianceST | None) -> None:
            urn = law([6, 5, 4], 7, log_weights=log_weights, estimator=estimator)
            assert urn.has_rsample == (estimator is not None)
            pyro.sample("counts", urn)

        def loss_of(draws: Tensor) -> Tensor:
            prior, own = (
                law([6, 5, 4], 7, log_weights=torch.zeros(3)),
                law([6, 5, 4], 7, log_weights=log_weights),
            )
            return (
                own.log_prob(draws)
                - prior.log_prob(draws)
                - normal(draws @ prices, 4.0).log_prob(seen)
            )

        own = law([6, 5, 4], 7, log_weights=log_weights)
        outcomes = own.enumerate_support()
        (exact,) = torch.autograd.grad(
            own.log_prob(outcomes).exp() @ loss_of(outcomes), log_weights
        )
        elbo = pyro.infer.Trace_ELBO(
            num_particles=particles, vectorize_particles=True, max_plate_nesting=0
        )
        (score,) = torch.autograd.grad(
            elbo.differentiable_loss(model, lambda: guide(None)), log_weights
        )
        # the variance of one draw's gradient, by listing the draws
        slopes = torch.stack(
            [
                torch.autograd.grad(own.log_prob(x), log_weights, retain_graph=True)[0]
                for x in outcomes
            ]
        )
        terms = slopes * (1 + loss_of(outcomes).detach()).unsqueeze(-1)
        p = own.log_prob(outcomes).exp().detach()
        errors = ((p @ terms.square() - (p @ terms).square()) / particles).sqrt()
        assert bool(((score - exact).abs() < 5 * errors).all())  # once in 600,000 runs each
        if name.startswith("Fisher"):
            (through,) = torch.autograd.grad(
                elbo.differentiable_loss(model, lambda: guide(CovarianceST())), log_weights
            )
            assert float((through - exact).norm() / exact.norm()) < 0.15


@pytest.mark.usefixtures("clean")
def test_the_pyro_example_comes_close_to_the_best_bound(
    baskets: dict[str, Any],
) -> None:
    prices = torch.tensor([20.0, 40.0])
    learned = baskets["train"](prices, steps=150, particles=50)
    bound, evidence = baskets["exact_bound"](prices, learned)
    best = torch.zeros(2, 3, requires_grad=True)
    optimiser = torch.optim.LBFGS([best], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = -baskets["exact_bound"](prices, best)[0].sum()
        value.backward()
        return value

    optimiser.step(loss)
    highest, _ = baskets["exact_bound"](prices, best.detach())
    assert bool((highest <= evidence).all())
    assert bool((highest - bound < 0.1).all())


# --- Lightning
# --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"
)  # Lightning asks torch so
def test_a_trainer_learns_the_importances_of_the_lightning_example() -> None:
    pytest.importorskip(
        "pytorch_lightning", reason="Lightning is not installed: pip install pytorch-lightning"
    )
    torch.set_default_dtype(torch.float32)
    example = runpy.run_path(str(EXAMPLES / "lightning_module.py"))
    learned = example["train"](epochs=3, baskets=8000, batch=200).importance
    torch.testing.assert_close(learned, example["IMPORTANCE"], rtol=0.1, atol=0)


@pytest.mark.filterwarnings(
    r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated",
    "ignore:.*does not have many workers",
)
def test_a_trainer_learns_which_items_matter(tmp_path: Path) -> None:
    """A layer of subsets in a Lightning module, saved and loaded by Lightning's checkpoints."""
    lightning = pytest.importorskip(
        "pytorch_lightning", reason="Lightning is not installed: pip install pytorch-lightning"
    )
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(5)

    class Chooser(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.zeros(12))
            self.sampler = SubsetSampler(2)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            features, answers = batch
            chosen = self.sampler(self.logits.expand(len(features), -1))
            return ((features * chosen).sum(-1) - answers).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    features = torch.randn(2000, 12)
    answers = features[:, 3] + features[:, 8]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(features, answers), batch_size=100
    )
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", **dict.fromkeys(quiet, False))
    module = Chooser()
    trainer.fit(module, loader)
    trainer.save_checkpoint(tmp_path / "chooser.ckpt")
    loaded = Chooser.load_from_checkpoint(tmp_path / "chooser.ckpt").eval()
    assert loaded.sampler(loaded.logits).nonzero().flatten().tolist() == [3, 8]
