"""Triton kernels, and the rule for when they replace PyTorch operations."""
