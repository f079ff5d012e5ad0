"""To choose log ω₀ as prior-random does, for seven latents.

Not run yet. The value becomes `PRIOR` of the arm ``kl-random-7``.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import prior_random

OPTIONS = replace(prior_random.OPTIONS, latent=7)
