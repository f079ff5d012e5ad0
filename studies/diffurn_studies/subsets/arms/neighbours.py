"""An embedding of MNIST whose 10 stochastic neighbours are of one class."""

from diffurn_studies.subsets.options import TrainingOptions

OPTIONS = TrainingOptions(
    task="neighbours",
    k=10,
    steps=50_000,
    tuning_steps=10_000,
    rates=(1e-4, 3e-4, 1e-3),
)
