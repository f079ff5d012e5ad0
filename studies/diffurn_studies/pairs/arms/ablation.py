"""The ablations of the paper's appendix, and the same for the best HGVAE.

Result (``results/pairs-ablation``): the final temperature hardly matters, the loss falls with the
learning rate up to 1e-3, and a larger β gives fewer independent latents.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import ADAPTIVE, BEST, HYPERGEOMETRIC, LABEL

OPTIONS = replace(
    random_sets.OPTIONS,
    shared=(1, 5),
    methods=(
        replace(LABEL, learning_rate=1e-3),
        replace(ADAPTIVE, learning_rate=1e-3),
        replace(ADAPTIVE, payment="once", learning_rate=1e-3),
        HYPERGEOMETRIC,
        replace(HYPERGEOMETRIC, final_temperature=0.1),
        replace(HYPERGEOMETRIC, final_temperature=1.0),
        replace(HYPERGEOMETRIC, learning_rate=1e-5),
        replace(HYPERGEOMETRIC, learning_rate=1e-4),
        replace(HYPERGEOMETRIC, learning_rate=1e-3),
        replace(HYPERGEOMETRIC, beta=2.0),
        replace(HYPERGEOMETRIC, beta=4.0),
        BEST,
        replace(BEST, learning_rate=3e-4),
        replace(BEST, beta=2.0),
        replace(BEST, beta=4.0),
        replace(BEST, beta=8.0),
        replace(BEST, averaging="product"),
    ),
    seeds=2,
    steps=25_000,
    annealing_steps=12_500,
    pictures=False,
)
