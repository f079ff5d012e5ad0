"""Fisher's law: pure functions of float64 tensors, and the algorithms built on them.

Read `tilt` for the factor r on all weights, `nodes` for the one sum behind every mass and moment,
and `quadrature` for the law of any urn. `tabulated` and `equal_weights` are faster for some urns.
"""

from typing import NamedTuple

from torch import Tensor

from diffurn._fisher.marginals import Marginal, entropy, marginal_log_prob
from diffurn._fisher.moments import (
    covariance,
    covariance_product,
    kl_divergence,
    log_mass,
    mean,
    variance,
)
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.binomial import binomial_log_pmf, typical_log_odds


class TiltedUrn(NamedTuple):
    log_odds: Tensor
    group_sizes: Tensor
    draws: Tensor


__all__ = [
    "Marginal",
    "TiltedUrn",
    "binomial_log_pmf",
    "covariance",
    "covariance_product",
    "entropy",
    "kl_divergence",
    "log_mass",
    "log_tilt",
    "marginal_log_prob",
    "mean",
    "typical_log_odds",
    "variance",
]
