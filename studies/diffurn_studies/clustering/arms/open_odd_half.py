"""As open-last-half: the odd digits are reduced.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.clustering.arms import open_last_half

OPTIONS = replace(open_last_half.OPTIONS, reduced=(1, 3, 5, 7, 9))
