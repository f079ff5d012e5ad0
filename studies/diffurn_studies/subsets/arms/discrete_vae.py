"""A VAE of MNIST with twenty subsets of 10 of 20 as its latent."""

from diffurn_studies.subsets.options import TrainingOptions

OPTIONS = TrainingOptions(
    task="vae",
    k=10,
    latents=20,
    batch_size=100,
    steps=50_000,
    tuning_steps=10_000,
    rates=(1e-4, 3e-4, 1e-3),
)
