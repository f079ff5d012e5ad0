"""A VAE of MNIST with ten subsets of 5 of 10 as its latent."""

from diffurn_studies.subsets.options import TrainingOptions

OPTIONS = TrainingOptions(
    task="vae",
    k=5,
    latents=10,
    steps=50_000,
    tuning_steps=10_000,
    rates=(1e-4, 3e-4, 1e-3),
)
