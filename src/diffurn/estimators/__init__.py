"""Estimators of gradients through a draw, all with the interface `Estimator`."""

from diffurn.estimators.annealing import ExponentialAnnealing
from diffurn.estimators.covariance import CovarianceST
from diffurn.estimators.estimator import Estimator
from diffurn.estimators.gumbel import GumbelDraw, GumbelSoftmax
from diffurn.estimators.gumbel_top_k import GumbelTopK
from diffurn.estimators.neuralsort import neuralsort, select_top
from diffurn.estimators.partitions import ConditionalST, TwoStageGumbel
from diffurn.estimators.score import ScoreFunction, score_surrogate

__all__ = [
    "ConditionalST",
    "CovarianceST",
    "Estimator",
    "ExponentialAnnealing",
    "GumbelDraw",
    "GumbelSoftmax",
    "GumbelTopK",
    "ScoreFunction",
    "TwoStageGumbel",
    "neuralsort",
    "score_surrogate",
    "select_top",
]
