"""As partition, with fixed sets.

Not run yet.
"""

from diffurn_studies.pairs.arms import partition

OPTIONS = partition.options("fixed")
