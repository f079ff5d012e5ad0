"""Learns the weights of an urn from counts by gradient descent."""
