"""How far the laws of samplers are from the exact law, by Kolmogorov-Smirnov tests."""
