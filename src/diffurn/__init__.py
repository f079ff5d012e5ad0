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

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffurn._kernels.library import native_kernels
    from diffurn.conditional import conditional_log_likelihood
    from diffurn.estimators import (
        ConditionalST,
        CovarianceST,
        Estimator,
        ExponentialAnnealing,
        GumbelDraw,
        GumbelSoftmax,
        GumbelTopK,
        ScoreFunction,
        TwoStageGumbel,
        neuralsort,
        score_surrogate,
        select_top,
    )
    from diffurn.fisher import FisherHypergeometric
    from diffurn.inference import ClogitResult, FitResult, anova, clogit, exact_test, fit, fit_by
    from diffurn.partition import RandomPartition
    from diffurn.wallenius import WalleniusHypergeometric

__version__ = "0.2.0"

__all__ = [
    "ClogitResult",
    "ConditionalST",
    "CovarianceST",
    "Estimator",
    "ExponentialAnnealing",
    "FisherHypergeometric",
    "FitResult",
    "GumbelDraw",
    "GumbelSoftmax",
    "GumbelTopK",
    "RandomPartition",
    "ScoreFunction",
    "TwoStageGumbel",
    "WalleniusHypergeometric",
    "__version__",
    "anova",
    "clogit",
    "conditional_log_likelihood",
    "exact_test",
    "fit",
    "fit_by",
    "native_kernels",
    "neuralsort",
    "score_surrogate",
    "select_top",
]

# The module that defines each public name. It is imported when the name is first used, so that
# `import diffurn` and `diffurn --help` do not wait for torch.
_HOMES = {
    "ClogitResult": "diffurn.inference",
    "ConditionalST": "diffurn.estimators",
    "CovarianceST": "diffurn.estimators",
    "Estimator": "diffurn.estimators",
    "ExponentialAnnealing": "diffurn.estimators",
    "FisherHypergeometric": "diffurn.fisher",
    "FitResult": "diffurn.inference",
    "GumbelDraw": "diffurn.estimators",
    "GumbelSoftmax": "diffurn.estimators",
    "GumbelTopK": "diffurn.estimators",
    "RandomPartition": "diffurn.partition",
    "ScoreFunction": "diffurn.estimators",
    "TwoStageGumbel": "diffurn.estimators",
    "WalleniusHypergeometric": "diffurn.wallenius",
    "anova": "diffurn.inference",
    "clogit": "diffurn.inference",
    "conditional_log_likelihood": "diffurn.conditional",
    "exact_test": "diffurn.inference",
    "fit": "diffurn.inference",
    "fit_by": "diffurn.inference",
    "native_kernels": "diffurn._kernels.library",
    "neuralsort": "diffurn.estimators",
    "score_surrogate": "diffurn.estimators",
    "select_top": "diffurn.estimators",
}
_MODULES = ("compat", "data", "estimators", "inference", "jax", "nn")


if not TYPE_CHECKING:  # where it would hide misspelt names from the type checker

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"diffurn.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'diffurn' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # later uses find the name without this function
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
