"""As kl-random, one model for all s: random s in every pair.

Not run yet. A pair has its own number of changed factors, uniform on 1 to 6, so s is never 0. The
tables show the results by the true s of a pair as well.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random

OPTIONS = replace(kl_random.OPTIONS, shared=(-1,))
