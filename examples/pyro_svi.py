"""An urn in a Pyro model and in its guide, which infers the contents of baskets from their prices.

A basket holds 7 items from shelves of 6, 5 and 4, and its price was noted with some error. The
model draws the basket from an urn of known importances. The guide has an urn of its own for every
basket, and stochastic variational inference learns its importances. The possible contents of a
basket can be listed, so the bound can be compared with the true log-evidence. It needs Pyro: ``pip
install pyro-ppl``.
"""

import pyro
import torch
from pyro.distributions import Normal
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import ClippedAdam
from torch import Tensor

import diffurn

SHELVES, BASKET, PRICES, ERROR = [6, 5, 4], 7, torch.tensor([1.0, 5.0, 10.0]), 3.0


class FisherHypergeometric(diffurn.FisherHypergeometric, TorchDistributionMixin):
    """Fisher's urn with the methods that Pyro adds to torch's distributions."""


class WalleniusHypergeometric(diffurn.WalleniusHypergeometric, TorchDistributionMixin):
    """Wallenius' urn with the same methods. Give it no estimator in a guide: its log_prob has no
    gradient in the counts, so Pyro has to use the score function.
    """


def model(prices: Tensor) -> None:
    with pyro.plate("baskets", len(prices)):
        counts = pyro.sample(
            "counts", FisherHypergeometric(SHELVES, BASKET, log_weights=torch.zeros(3))
        )
        pyro.sample("price", Normal(counts @ PRICES.to(counts), ERROR), obs=prices)


def guide(prices: Tensor) -> None:
    log_weights = pyro.param("log_weights", torch.zeros(len(prices), 3))
    urns = FisherHypergeometric(SHELVES, BASKET, log_weights=log_weights)
    with pyro.plate("baskets", len(prices)):
        # Without an estimator, Pyro uses the score function, which has no bias.
        pyro.sample("counts", urns)


def train(prices: Tensor, steps: int = 300, particles: int = 50) -> Tensor:
    """The guide's log-weights, centred: one row for each basket."""
    pyro.clear_param_store()
    elbo = Trace_ELBO(num_particles=particles, vectorize_particles=True, max_plate_nesting=1)
    optimiser = ClippedAdam({"lr": 0.1, "lrd": 0.05 ** (1 / steps)})
    inference = SVI(model, guide, optimiser, elbo)
    for _ in range(steps):
        inference.step(prices)
    log_weights = pyro.param("log_weights").detach()
    return log_weights - log_weights.mean(-1, keepdim=True)


def exact_bound(prices: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """The evidence lower bound of each basket, and its log-evidence, by listing all outcomes."""
    prior = diffurn.FisherHypergeometric(SHELVES, BASKET, log_weights=torch.zeros(3))
    outcomes = prior.enumerate_support().unsqueeze(1)
    joint = prior.log_prob(outcomes) + Normal(outcomes @ PRICES.to(outcomes), ERROR).log_prob(
        prices
    )
    log_guide = diffurn.FisherHypergeometric(SHELVES, BASKET, log_weights=log_weights).log_prob(
        outcomes
    )
    return (log_guide.exp() * (joint - log_guide)).sum(0), joint.logsumexp(0)


if __name__ == "__main__":
    pyro.set_rng_seed(0)
    prices = torch.tensor([20.0, 30.0, 40.0, 50.0])
    before, evidence = exact_bound(prices, torch.zeros(len(prices), 3))
    learned = train(prices)
    after, _ = exact_bound(prices, learned)
    expected = diffurn.FisherHypergeometric(SHELVES, BASKET, log_weights=learned).mean
    print("price  bound before  after  log-evidence  items expected of each shelf")
    for row in zip(prices, before, after, evidence, expected, strict=True):
        price, first, last, best, counts = (values.tolist() for values in row)
        print(
            f"{price:5.0f}  {first:12.2f}  {last:5.2f}  {best:12.2f}  "
            f"{', '.join(f'{count:.1f}' for count in counts)}"
        )
