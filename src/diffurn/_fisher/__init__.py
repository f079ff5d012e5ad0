"""The mathematics: pure functions of float64 tensors that know nothing of distributions, estimators
or training.

An urn is three tensors, bundled as `TiltedUrn`: the log-odds log r + log ω of its balls, the group
sizes m and the draws n. Read `tilt` for what r is, `quadrature` for the one sum behind every mass
and moment, `law` for what is built on it, `tree` and `rejection` for draws.
"""

from diffurn._fisher.equal_weights import CentralUrn
from diffurn._fisher.marginals import entropy, marginal_log_prob, marginal_tail
from diffurn._fisher.mode import mode
from diffurn._fisher.moments import (
    covariance,
    covariance_product,
    kl_divergence,
    log_mass,
    mean,
    variance,
)
from diffurn._fisher.sampling.choice import sample, sample_by_rejection, sample_from_tables
from diffurn._fisher.straight_through import sample_straight_through
from diffurn._fisher.tails import Marginal, certain_outside
from diffurn._fisher.tilt import log_tilt
from diffurn._fisher.urn import AnyUrn, TiltedUrn
from diffurn._numerics.binomial import binomial_log_pmf, typical_log_odds
from diffurn._numerics.enumeration import enumerate_counts

__all__ = [
    "AnyUrn",
    "CentralUrn",
    "Marginal",
    "TiltedUrn",
    "binomial_log_pmf",
    "certain_outside",
    "covariance",
    "covariance_product",
    "entropy",
    "enumerate_counts",
    "kl_divergence",
    "log_mass",
    "log_tilt",
    "marginal_log_prob",
    "marginal_tail",
    "mean",
    "mode",
    "sample",
    "sample_by_rejection",
    "sample_from_tables",
    "sample_straight_through",
    "typical_log_odds",
    "variance",
]
