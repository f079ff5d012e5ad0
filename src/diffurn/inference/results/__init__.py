"""Results as objects, text, tables and figures, and comparisons of results."""
