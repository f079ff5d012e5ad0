"""Clusters of Fashion-MNIST: 20 latents, and a tenth of the weight on their divergence."""

from diffurn_studies.partitions.options import Options

OPTIONS = Options(dataset="fashion-mnist", latent=20, beta=0.1)
