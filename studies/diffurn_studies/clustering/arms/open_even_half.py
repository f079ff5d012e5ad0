"""As open-last-half: the even digits are reduced.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.clustering.arms import open_last_half

OPTIONS = replace(open_last_half.OPTIONS, reduced=(0, 2, 4, 6, 8))
