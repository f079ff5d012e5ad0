"""Numerical tools that do not depend on urns."""
