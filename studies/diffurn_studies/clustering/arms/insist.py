"""As beyond on the 60 % version, with few balls per cluster.

Few balls enforce balanced clusters. Result (``results/clustering-insist``): 87.5 and 87.4 % with
0.15 n and 0.2 n balls after 300 epochs. Balanced clusters do not help where classes are unequal.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Hypergeometric, Uniform

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    versions=(0.6,),
    priors=(
        Uniform(),
        Hypergeometric(balls=0.15, shares="batch", law="assignments"),
        Hypergeometric(balls=0.2, shares="batch", law="assignments"),
    ),
    epochs=300,
    mixture_balls=0.11,
    held_epochs=200,
)
