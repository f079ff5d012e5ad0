"""As kl-random, with seven latents.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random, random_sets
from diffurn_studies.pairs.methods import Prior

# log ω₀: the choice of the arm ``prior-random-7``. Until that has run, that of short probes.
PRIOR: Prior = -4.0

OPTIONS = kl_random.options(PRIOR, replace(random_sets.OPTIONS, latent=7))
