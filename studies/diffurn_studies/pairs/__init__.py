"""Weakly supervised learning from pairs of images that share factors."""
