"""To choose log ω₀: the best HGVAE with the KL of k̂, random sets.

Short runs on seeds that no other arm has, at one small and one large s. The choice is by
MSE(7−s, k̂) of the urn's mode: of the values that are below AdaVAE at s = 5, the one with the
smallest error at s = 1; if there is none, the one with the smallest error at s = 5. It becomes
`PRIOR` of the arm ``kl-random``. ``learned`` learns log ω₀ for each data set.

Result (``results/pairs-prior-random``): −6, which alone is below AdaVAE at s = 5 (0.80 against
0.83). Over both s the learned log ω₀ has the smallest error (1.22 against 1.91).
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import BEST, RIVALS, with_prior

OPTIONS = replace(
    random_sets.OPTIONS,
    shared=(1, 5),
    methods=(
        *(method for method in RIVALS if method.kind == "adaptive"),
        *(with_prior(BEST, log_weight) for log_weight in (-2.5, -4.0, -6.0)),
        with_prior(BEST, "learned"),
    ),
    seeds=3,
    seed=1,  # the choice must not see the seeds of the arms that use it
    steps=40_000,
    annealing_steps=20_000,
    evaluate_every=2_000,
    # the choice is by k̂ alone, so few pairs train classifiers
    test_pairs=6_000,
    score_train=1_000,
    pictures=False,
)
