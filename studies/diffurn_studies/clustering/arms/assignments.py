"""The same priors by the law of assignments, from VaDE's weights.

Result (``results/clustering``, whose tables call the last prior hypergeometric): accuracy 89.2,
90.4 and 88.5 % (uniform), 86.7, 84.0 and 84.3 % (categorical), 86.8, 83.7 and 82.9 %
(hypergeometric). By this law the hypergeometric prior does as the categorical one does.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Uniform

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    priors=(Uniform(), Categorical(), Hypergeometric(law="assignments")),
)
