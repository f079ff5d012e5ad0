"""As multitask, without the regulariser, which pulls both sizes to one half.

Not run yet.
"""

from dataclasses import replace

from diffurn_studies.partitions.arms import multitask

OPTIONS = replace(multitask.OPTIONS, weight=0.0)
