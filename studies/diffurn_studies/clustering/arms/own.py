"""As assignments, from autoencoders of our own.

Every version and seed has an autoencoder that is pretrained here. Result
(``results/clustering-own``): 86.4, 86.4 and 82.0 % (uniform), 80.9, 84.0 and 82.1 % (categorical),
81.1, 83.8 and 82.3 % (hypergeometric). The two learned priors end alike.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Uniform

OPTIONS = Options(priors=(Uniform(), Categorical(), Hypergeometric(law="assignments")))
