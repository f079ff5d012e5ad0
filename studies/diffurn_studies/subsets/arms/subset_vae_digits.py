"""A VAE of scikit-learn's digits with six subsets of 3 of 6 as its latent."""

from diffurn_studies.subsets.arms import subset_vae

OPTIONS = subset_vae.OPTIONS.on_digits(k=3, latents=6)
