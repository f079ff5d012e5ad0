"""Urn models that can be learned: exact, differentiable noncentral hypergeometric distributions for
PyTorch.

An urn holds c groups of m = (m_1, …, m_c) balls. Someone takes n of them, and prefers some groups:
a ball of group j has *importance* ω_j. How many balls of each group come out, and what do the
counts say about ω?

>>> import torch
>>> from diffurn import FisherHypergeometric
>>> weights = torch.tensor([1.0, 3.0, 1.0])
>>> urn = FisherHypergeometric(group_sizes=[200, 200, 200], draws=180, weights=weights)
>>> urn.mean                          # exact, as are variance, covariance_matrix, mode, entropy()
tensor([44.0676, 91.8647, 44.0676])
>>> urn.sample((2,)).sum(-1)                    # exact draws; 180 balls each
tensor([180., 180.])

Learning ω from counts is maximum likelihood, by `fit`, with standard errors, intervals and tests.
(Balls that are taken one after another, in competition, follow `WalleniusHypergeometric`.)

>>> from diffurn import fit
>>> fit(counts=[50, 80, 50], group_sizes=[200, 200, 200], reference=0).weights
tensor([1.0000, 1.9976, 1.0000], dtype=torch.float64)

Learning ω inside a model, where only a function of the draw is observed, needs gradients *through*
the draw: `rsample`, with an estimator of your choice (`CovarianceST` by default: a hard exact draw
whose backward pass multiplies by the exact covariance).

>>> log_weights = torch.zeros(3, requires_grad=True)
>>> counts = FisherHypergeometric([200, 200, 200], 180, log_weights=log_weights).rsample()
>>> (counts - torch.tensor([50.0, 80.0, 50.0])).square().sum().backward()
>>> log_weights.grad.shape
torch.Size([3])
"""

from diffurn import _interrupts  # noqa: F401 (Ctrl-C while torch loads)
from diffurn.estimators import (
    CovarianceST,
    ExponentialAnnealing,
    GumbelDraw,
    GumbelSoftmax,
    neuralsort,
    score_surrogate,
    select_top,
)
from diffurn.fisher import FisherHypergeometric
from diffurn.inference import FitResult, exact_test, fit
from diffurn.wallenius import WalleniusHypergeometric

__version__ = "0.1.0"

__all__ = [
    "CovarianceST",
    "ExponentialAnnealing",
    "FisherHypergeometric",
    "FitResult",
    "GumbelDraw",
    "GumbelSoftmax",
    "WalleniusHypergeometric",
    "__version__",
    "exact_test",
    "fit",
    "neuralsort",
    "score_surrogate",
    "select_top",
]
