"""The maximum of a likelihood, finite or at infinity, and its standard errors and intervals."""
