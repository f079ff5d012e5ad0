"""As kl-fixed, with seven latents and the same priors.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_fixed

OPTIONS = replace(kl_fixed.OPTIONS, latent=7)
