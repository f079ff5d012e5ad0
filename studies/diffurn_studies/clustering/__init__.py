"""Deep clustering with a prior over the assignments."""
