"""To choose log ω₀ as prior-random does, for fixed sets.

Result (``results/pairs-prior-fixed``): all values are below AdaVAE at s = 5, and the learned log ω₀
has the smallest error at s = 1 (1.17 against 3.3 and more). It is `PRIOR` of the arm ``kl-fixed``.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import prior_random

OPTIONS = replace(prior_random.OPTIONS, sampler="fixed")
