"""As beyond on the 60 % version, with more mixture balls.

Result (``results/clustering-wider``): 87.0 % after 300 epochs. More room in the mixture's urn does
not repair the clusters of the reduced digits, which stay too large.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Hypergeometric, Uniform

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    versions=(0.6,),
    priors=(Uniform(), Hypergeometric(law="assignments")),
    epochs=300,
    mixture_balls=0.15,
    held_epochs=200,
)
