"""Random partitions in models: variational clustering, and neurons shared among tasks."""
