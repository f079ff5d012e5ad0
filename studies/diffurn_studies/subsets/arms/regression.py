"""Which 3 of 24 terms make up the Kuramoto-Sivashinsky equation."""

from diffurn_studies.subsets.options import TrainingOptions

OPTIONS = TrainingOptions(seeds=15, tuning_seeds=3)
