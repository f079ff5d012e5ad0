"""As kl-random, with seven latents and the same priors.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random

OPTIONS = replace(kl_random.OPTIONS, latent=7)
