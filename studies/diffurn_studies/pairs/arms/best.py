"""The best HGVAE found, beside baselines with the same objective and learning rate.

Result (``results/pairs-best``): ŝ of this HGVAE follows s, it rises by 3.1 while s rises by 5.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import ADAPTIVE, BEST, LABEL

# Like BEST, the baselines count the KL of a shared latent once.
OPTIONS = replace(
    random_sets.OPTIONS,
    methods=(
        replace(LABEL, payment="once", learning_rate=1e-3),
        replace(ADAPTIVE, payment="once", learning_rate=1e-3),
        BEST,
    ),
)
