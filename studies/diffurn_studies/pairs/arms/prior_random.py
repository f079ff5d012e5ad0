"""To choose log ω₀: the best HGVAE with the KL of k̂, random sets.

Not run yet. Short runs on seeds that no other arm has. The choice is by MSE(7−s, k̂) of the urn's
mode: the value that is below both baselines at the most s, and of several the one with the smallest
error over all s. It becomes `PRIOR` of the arm ``kl-random``. ``learned`` learns log ω₀ for each
data set.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import BEST, RIVALS, with_prior

OPTIONS = replace(
    random_sets.OPTIONS,
    methods=(
        *RIVALS,
        BEST,
        *(with_prior(BEST, log_weight) for log_weight in (-1.0, -2.5, -4.0, -6.0)),
        with_prior(BEST, "learned"),
    ),
    seeds=3,
    seed=1,  # the choice must not see the seeds of the arms that use it
    steps=50_000,
    annealing_steps=25_000,
    evaluate_every=2_000,
    pictures=False,
)
