"""Clusters of MNIST, with the settings of the authors' code."""

from diffurn_studies.partitions.options import Options

OPTIONS = Options()
