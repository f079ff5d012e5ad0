"""The commands `diffurn reproduce` and `diffurn report`."""
