"""What the experiments train; everything here is a stack of models in one program."""

from diffurn.models.priors import Categorical, Hypergeometric, Prior, Uniform, prior_named
from diffurn.models.stacked import Batches, Replayed, StackedLinear
from diffurn.models.vade import VaDE

__all__ = ["Batches", "Categorical", "Hypergeometric", "Prior", "Replayed", "StackedLinear", "Uniform", "VaDE", "prior_named"]
