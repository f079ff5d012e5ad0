"""An urn inside a Lightning module, which learns the importance of groups from prices alone.

Each example is a basket of 40 items from shelves of 30, 20, 25 and 15. The importance of the
shelves is unknown, and the same for all baskets. Only the prices of a basket are observed. The
module draws baskets of its own and compares their prices with the observed ones: gradients flow
from the prices through the whole-numbered draw into the importances. It needs Lightning: ``pip
install pytorch-lightning`` (or ``lightning``).
"""

import logging
import warnings

import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from diffurn import FisherHypergeometric

SHELVES = torch.tensor([30, 20, 25, 15])
BASKET = 40
PRICES = torch.tensor(
    [[1.0, 2.0, 5.0, 10.0], [3.0, 1.0, 0.0, 2.0], [0.0, 4.0, 1.0, 1.0]]
)  # in three currencies
IMPORTANCE = torch.tensor([1.0, 3.0, 0.5, 2.0])  # unknown to the module


class Baskets(LightningModule):
    """Learns log ω of the shelves from the prices of baskets."""

    def __init__(self, learning_rate: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.log_weights = nn.Parameter(torch.zeros(len(SHELVES)))

    def forward(self) -> FisherHypergeometric:
        return FisherHypergeometric(SHELVES, BASKET, log_weights=self.log_weights)

    def training_step(self, batch: tuple[Tensor], _: int) -> Tensor:
        (prices,) = batch
        predicted = self().rsample((len(prices),)) @ PRICES.T.to(prices)
        loss = (predicted.mean(0) - prices.mean(0)).square().sum()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["learning_rate"])

    @property
    def importance(self) -> Tensor:
        """ω relative to the first shelf."""
        return (self.log_weights - self.log_weights[0]).exp().detach()


def train(epochs: int = 3, baskets: int = 20_000, batch: int = 500) -> Baskets:
    """A module trained on prices of baskets, on the CPU and without writing files."""
    prices = FisherHypergeometric(SHELVES, BASKET, weights=IMPORTANCE).sample((baskets,)) @ PRICES.T
    loader = DataLoader(TensorDataset(prices), batch_size=batch, shuffle=True)
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Baskets()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*does not have many workers"
        )  # one process loads numbers fast enough
        trainer.fit(module, loader)
    return module


if __name__ == "__main__":
    torch.manual_seed(0)
    learned = train().importance
    print("shelf  importance  learned")
    for shelf, (truth, found) in enumerate(zip(IMPORTANCE.tolist(), learned.tolist(), strict=True)):
        print(f"{shelf:5}  {truth:10.2f}  {found:7.2f}")
