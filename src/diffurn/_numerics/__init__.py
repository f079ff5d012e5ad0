"""Numerical tools that know nothing of urns."""
