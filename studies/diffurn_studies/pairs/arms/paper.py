"""The settings of the paper: LabelVAE, AdaVAE and HGVAE on arm scenes (``results/pairs``).

The arm shows that the estimates ŝ of LabelVAE and AdaVAE do not follow s. HGVAE drifts towards "all
latents independent", so its ŝ does not follow s either.
"""

from diffurn_studies.pairs.options import Options

# The fields set here choose how a GPU computes the run. Everything else is the paper's setting,
# which is the default of every field.
OPTIONS = Options(together=True, held=True, compiled=True, device="cuda")
