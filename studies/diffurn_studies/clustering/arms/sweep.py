"""Other urns: more or fewer balls, other shares and counts.

Result (``results/clustering-sweep``, whose tables leave -assignments out): all nine have 81.7 to
82.2 % after 200 epochs from the same three mixtures, as the categorical prior (82.2 %). The uniform
prior has 83.1 %.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Uniform

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    versions=(1.0,),
    priors=(
        Uniform(),
        Categorical(),
        Hypergeometric(law="assignments"),
        Hypergeometric(balls=2, law="assignments"),
        Hypergeometric(balls=10, law="assignments"),
        Hypergeometric(balls=None, law="assignments"),
        Hypergeometric(shares="mean", law="assignments"),
        Hypergeometric(conditionals="merged", law="assignments"),
        Hypergeometric(counts="expected", law="assignments"),
        Hypergeometric(balls=0.2, shares="mean", law="assignments"),
        Hypergeometric(balls=0.2, shares="batch", law="assignments"),
    ),
    seeds=3,
    epochs=200,
)
