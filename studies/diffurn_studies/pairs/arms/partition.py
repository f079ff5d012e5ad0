"""DRPM-VAE beside HGVAE and the baselines, random sets.

Not run yet. All methods have the objective and the learning rate of the best HGVAE, and five seeds
that no choice has seen. DRPM-VAE has the gradients of the paper's Gumbel-Softmax and NeuralSort,
without and with the KL divergence of the partition, or exact conditional gradients; its scores come
from a network or are the logarithms of the divergences. On Sprites: ``--set dataset=sprites --set
data=sprites7f_64.npz --set pictures=false``.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import kl_random, random_sets
from diffurn_studies.pairs.methods import BEST, PARTITION, RIVALS, Partition, with_prior
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.sampler import Sampler

_PARTITION = replace(PARTITION, payment=BEST.payment, learning_rate=BEST.learning_rate)
_GUMBEL, _CONDITIONAL, _BY_DIVERGENCE = (
    replace(_PARTITION, aggregation=aggregation)
    for aggregation in (
        Partition(scale="log1p"),
        Partition("conditional", "log1p"),
        Partition("conditional", "log1p", "divergence"),
    )
)


def options(sampler: Sampler) -> Options:
    """The run on these sets of shared factors."""
    return replace(
        random_sets.OPTIONS,
        methods=(
            *RIVALS,
            BEST,
            with_prior(BEST, "learned"),
            _GUMBEL,
            *(with_prior(each, "learned") for each in (_GUMBEL, _CONDITIONAL, _BY_DIVERGENCE)),
        ),
        sampler=sampler,
        seeds=kl_random.OPTIONS.seeds,
        seed=kl_random.OPTIONS.seed,
        together=False,
    )


OPTIONS = options("exact")
