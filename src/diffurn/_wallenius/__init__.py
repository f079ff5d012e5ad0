"""Wallenius' law: probabilities, moments, marginals and draws."""
