"""Measurements and reproductions, one readable module each; they need the extra ``diffurn[experiments]``."""
