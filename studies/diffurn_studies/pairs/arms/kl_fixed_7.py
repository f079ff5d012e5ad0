"""As kl-fixed, with seven latents and the same log ω₀.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_fixed, kl_random, random_sets

OPTIONS = kl_random.options(kl_fixed.PRIOR, replace(random_sets.OPTIONS, sampler="fixed", latent=7))
