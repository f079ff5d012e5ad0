"""The paper's settings: LabelVAE, AdaVAE and HGVAE on arm scenes.

Result (``results/pairs``): the estimates ŝ of LabelVAE and AdaVAE do not follow s. HGVAE drifts
towards "all latents independent", so its ŝ does not follow s either.
"""

from diffurn_studies.pairs.options import Options

# Every other field has the paper's setting as its default. The published runs of all arms were
# started with ``--device cuda --set compiled=true``.
OPTIONS = Options(together=True, held=True)
