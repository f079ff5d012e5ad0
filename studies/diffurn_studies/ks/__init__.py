"""Kolmogorov-Smirnov tests of samplers."""
