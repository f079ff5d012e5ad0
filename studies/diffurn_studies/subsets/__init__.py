"""Subsets of k of d items inside networks: samplers and gradients of the field, and ours."""
