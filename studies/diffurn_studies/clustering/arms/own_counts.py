"""As own, by the law of counts.

Not run yet. The rivals are the models of the arm ``own``, which have the same autoencoders,
mixtures, batches and noise.
"""

from dataclasses import replace

from diffurn_studies.clustering.arms import own
from diffurn_studies.clustering.priors import Hypergeometric

OPTIONS = replace(own.OPTIONS, priors=(Hypergeometric(),))
