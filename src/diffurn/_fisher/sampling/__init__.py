"""Exact draws from Fisher's law."""
