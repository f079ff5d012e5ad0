"""As kl-random, with fixed sets. The second HGVAE leaves the KL of k̂ out.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random, random_sets
from diffurn_studies.pairs.methods import Prior

# log ω₀: the choice of the arm ``prior-fixed``.
PRIOR: Prior = "learned"

OPTIONS = kl_random.options(PRIOR, None, base=replace(random_sets.OPTIONS, sampler="fixed"))
