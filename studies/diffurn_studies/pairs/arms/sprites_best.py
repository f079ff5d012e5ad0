"""As kl-random on Sprites: all methods at one rate and objective.

Not run yet. 50,000 steps, as in the arm ``sprites``, which says where the file must be.
"""

from diffurn_studies.pairs.arms import kl_random, sprites

OPTIONS = kl_random.options(kl_random.PRIOR, "learned", base=sprites.OPTIONS)
