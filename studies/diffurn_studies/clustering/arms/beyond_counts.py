"""As beyond, by the law of counts.

Not run yet. The rivals are the models of the arm ``beyond``, which have the same mixtures, batches
and noise.
"""

from dataclasses import replace

from diffurn_studies.clustering.arms import beyond
from diffurn_studies.clustering.priors import Hypergeometric

OPTIONS = replace(beyond.OPTIONS, priors=(Hypergeometric(),))
