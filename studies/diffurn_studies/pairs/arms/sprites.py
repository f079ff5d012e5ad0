"""The paper's methods and the best HGVAE on Sprites, each at its own rate.

Result (``results/pairs-sprites``): as on arm scenes, ŝ of the best HGVAE follows s (it rises by 4.4
while s rises by 5), ŝ of the paper's HGVAE does not (0.5). The baselines have the paper's rate and
objective; the arm ``sprites-best`` has some with those of the best HGVAE. Give the file with
``--set data=sprites7f_64.npz``, or set DIFFURN_DATA to a folder that holds
sprites/sprites7f_64.npz.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import ADAPTIVE, BEST, HYPERGEOMETRIC, LABEL

OPTIONS = replace(
    random_sets.OPTIONS,
    dataset="sprites",
    held=False,  # only arm scenes are rendered; Sprites are in memory anyway
    methods=(LABEL, ADAPTIVE, HYPERGEOMETRIC, BEST),
    steps=50_000,
    annealing_steps=25_000,
    pictures=False,  # the licence of the art is share-alike
)
