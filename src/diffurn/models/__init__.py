"""What the experiments train; everything here is a stack of models in one program."""

from diffurn.models.pair_vae import PairVAE
from diffurn.models.priors import prior_named
from diffurn.models.vade import VaDE
from diffurn.models.views import method_named

__all__ = ["PairVAE", "VaDE", "method_named", "prior_named"]
