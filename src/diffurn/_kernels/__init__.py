"""Triton kernels, and the rule by which they replace PyTorch operations."""
