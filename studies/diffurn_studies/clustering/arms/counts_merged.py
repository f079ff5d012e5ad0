"""As counts, by the paper's chain of merged groups.

As ``counts``, but the probability of the counts is that of the chain which the paper draws from:
group by group, all later groups merged into one. The chain is Fisher's law only where the merged
weights are equal.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Hypergeometric

OPTIONS = Options(pretrained="vade_ae_mnist.npz", priors=(Hypergeometric(conditionals="merged"),))
