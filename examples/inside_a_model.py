"""An urn inside a model: a network looks at features and says how important each group is; only a
price of the drawn counts is seen.

Each example is a basket of 40 items drawn from shelves of 30, 20, 25 and 15. A shopper's features
decide how important each shelf is, in a way unknown to us; what we see of a basket is one number,
its price. The network has to find the importances from prices alone, so gradients must flow from
the price through the whole-numbered draw into the log-weights. Run it with ``--estimator gumbel``
to train through Gumbel-Softmax draws instead.
"""

from typing import Annotated

import torch
import typer
from torch import Tensor, nn

from diffurn import CovarianceST, ExponentialAnnealing, FisherHypergeometric, GumbelSoftmax
from diffurn.estimators import Estimator

SHELVES = torch.tensor([30, 20, 25, 15])
BASKET = 40
PRICES = torch.tensor([1.0, 2.0, 5.0, 10.0])
FEATURES = 3


class Shopper(nn.Module):
    """Features to the urn of a basket: amortised log-weights, one urn an example."""

    def __init__(self) -> None:
        super().__init__()
        self.log_weights = nn.Sequential(
            nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, len(SHELVES))
        )

    def forward(self, features: Tensor, estimator: Estimator | None = None) -> FisherHypergeometric:
        return FisherHypergeometric(
            SHELVES, BASKET, log_weights=self.log_weights(features), estimator=estimator
        )


def true_baskets(features: Tensor) -> FisherHypergeometric:
    """What the network does not know: each feature makes one shelf more important."""
    return FisherHypergeometric(SHELVES, BASKET, log_weights=nn.functional.pad(features, (0, 1)))


def train(
    shopper: Shopper, steps: int, batch: int = 256, annealing: ExponentialAnnealing | None = None
) -> None:
    """A plain training loop; with `annealing` through Gumbel-Softmax draws, otherwise through exact
    ones.
    """
    optimizer = torch.optim.Adam(shopper.parameters(), lr=3e-3)
    for step in range(steps):
        estimator = CovarianceST() if annealing is None else GumbelSoftmax(annealing(step))
        features = torch.randn(batch, FEATURES)
        prices = true_baskets(features).sample() @ PRICES
        predicted = shopper(features, estimator).rsample() @ PRICES
        loss = (predicted - prices).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def price_error(shopper: Shopper, examples: int = 2000) -> float:
    """Root mean squared error of the expected price, relative to always guessing the average."""
    features = torch.randn(examples, FEATURES)
    truth, learned = true_baskets(features).mean @ PRICES, shopper(features).mean @ PRICES
    return float((learned - truth).square().mean().sqrt() / truth.std())


def main(
    steps: Annotated[int, typer.Option(help="Training steps.")] = 600,
    estimator: Annotated[str, typer.Option(help="covariance or gumbel.")] = "covariance",
    seed: Annotated[int, typer.Option(help="Seed of weights, features and draws.")] = 0,
) -> None:
    """Learn importances of shelves from the prices of baskets."""
    torch.manual_seed(seed)
    shopper = Shopper()
    print(f"error before training: {price_error(shopper):.3f} of the spread of prices")
    train(
        shopper,
        steps,
        annealing=ExponentialAnnealing(1.0, 0.5, steps) if estimator == "gumbel" else None,
    )
    print(f"error after {steps} steps:  {price_error(shopper):.3f}")


if __name__ == "__main__":
    typer.run(main)
