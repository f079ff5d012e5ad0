"""To choose log ω₀ as prior-random does, for fixed sets.

Not run yet. The value becomes `PRIOR` of the arm ``kl-fixed``.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import prior_random

OPTIONS = replace(prior_random.OPTIONS, sampler="fixed")
