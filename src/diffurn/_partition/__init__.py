"""The law of random partitions: probabilities of the items given the sizes of the subsets."""
