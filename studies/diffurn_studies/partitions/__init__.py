"""Random partitions in models: variational clustering."""
