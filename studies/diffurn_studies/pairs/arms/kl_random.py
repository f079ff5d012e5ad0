"""The best HGVAE with the KL of k̂, beside baselines, random sets.

Not run yet. The baselines have the same objective and learning rate. Five seeds that neither the
choice of `BEST` nor that of `PRIOR` has seen. The learned log ω₀ runs as well, since it had the
smallest error over all s where `PRIOR` was chosen.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import BEST, RIVALS, Prior, with_prior
from diffurn_studies.pairs.options import Options

# log ω₀: the choice of the arm ``prior-random``.
PRIOR: Prior = -6.0


def options(*priors: Prior, base: Options = random_sets.OPTIONS) -> Options:
    """The run with these priors of k̂ and everything else as in `base`."""
    methods = (*RIVALS, *(with_prior(BEST, prior) for prior in priors))
    # A stack for each number of shared factors, so that finished ones can be kept.
    return replace(base, methods=methods, seeds=5, seed=2, together=False)


OPTIONS = options(PRIOR, "learned")
