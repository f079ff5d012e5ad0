"""Imitates an urn by unconstrained categoricals."""
