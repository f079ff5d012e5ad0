"""Learning the weights of one urn from its counts by gradient descent."""
