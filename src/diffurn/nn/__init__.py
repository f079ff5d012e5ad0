"""Layers for networks."""

from diffurn.nn.subset_sampler import SubsetSampler

__all__ = ["SubsetSampler"]
