"""Several models of one architecture trained in one process."""
