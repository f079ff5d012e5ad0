"""As kl-random, with seven latents and the same log ω₀.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random, random_sets

OPTIONS = kl_random.options(kl_random.PRIOR, replace(random_sets.OPTIONS, latent=7))
