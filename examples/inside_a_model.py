"""An urn inside a model: a network predicts the importance of groups from features, and learns from
the prices of the drawn counts alone.

Each example is a basket of 40 items drawn from shelves of 30, 20, 25 and 15. The features of a
shopper determine the importance of each shelf, in an unknown way. Only the price of the basket is
observed. So gradients must flow from the price through the whole-numbered draw into the
log-weights. With ``--estimator gumbel`` they flow through Gumbel-Softmax draws.
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
    """Maps features to the urn of a basket: amortised log-weights, one urn per example."""

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
    """The truth, unknown to the network: each feature makes one shelf more important."""
    return FisherHypergeometric(SHELVES, BASKET, log_weights=nn.functional.pad(features, (0, 1)))


def train(
    shopper: Shopper, steps: int, batch: int = 256, annealing: ExponentialAnnealing | None = None
) -> None:
    """Trains through Gumbel-Softmax draws if `annealing` is given, and through exact draws
    otherwise.
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
