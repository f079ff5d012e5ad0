"""The paper's methods on random sets, 100,000 steps.

A random subset of s factors is shared in each pair, and LabelVAE takes the latent with the largest
divergence. Result (``results/pairs``): the estimates ŝ of LabelVAE and AdaVAE do not follow s.
HGVAE drifts towards "all latents independent", so its ŝ does not follow s either.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import paper
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL

OPTIONS = replace(
    paper.OPTIONS,
    methods=(LABEL, ADAPTIVE, HYPERGEOMETRIC),
    seeds=3,
    steps=100_000,
    sampler="exact",
    together=True,
)
