"""To choose log ω₀ as prior-fixed does, for seven latents.

Not run yet. The value becomes `PRIOR` of the arm ``kl-fixed-7``.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import prior_fixed

OPTIONS = replace(prior_fixed.OPTIONS, latent=7)
