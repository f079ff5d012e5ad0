"""Learning weights through a categorical relaxation."""
