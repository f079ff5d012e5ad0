"""Deep clustering with a prior on the sizes of clusters."""
