"""The best HGVAE found, beside baselines with the same objective and learning rate.

Result (``results/pairs-best``): ŝ of this HGVAE follows s, it rises by 3.1 while s rises by 5.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import BEST, RIVALS

OPTIONS = replace(random_sets.OPTIONS, methods=(*RIVALS, BEST))
