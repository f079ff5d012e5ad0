"""What the paper leaves open: m = n, 2n, 10n or ∞ balls of each cluster.

Not run yet. By the law of counts. Short: 300 epochs, three seeds.
"""

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Uniform

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    versions=(1.0, 0.6),
    priors=(
        Uniform(),
        Categorical(),
        *(Hypergeometric(balls=balls) for balls in (1.0, 2.0, 10.0, None)),
    ),
    seeds=3,
    epochs=300,
)
