"""Gradients through a draw, one estimator a file, behind one seam (`Estimator`)."""

from diffurn.estimators.covariance import CovarianceST
from diffurn.estimators.estimator import Estimator

__all__ = ["CovarianceST", "Estimator"]
