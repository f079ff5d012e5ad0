"""A classifier of MNIST that sees 50 pixels of each image."""

from diffurn_studies.subsets.options import TrainingOptions

OPTIONS = TrainingOptions(
    task="pixels-each",
    k=50,
    steps=50_000,
    tuning_steps=10_000,
    rates=(1e-4, 3e-4, 1e-3),
)
