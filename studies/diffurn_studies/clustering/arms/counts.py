"""The paper's prior alone, from VaDE's weights.

Result (``results/clustering-counts``): 89.0, 90.3 and 88.3 % accuracy on the three versions. That
is 2.3, 6.3 and 4.0 points more than the categorical prior, and level with the uniform one; both
rivals are models of the arm ``assignments``, with the same mixtures, batches and noise.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Hypergeometric

OPTIONS = Options(pretrained="vade_ae_mnist.npz", priors=(Hypergeometric(),))
