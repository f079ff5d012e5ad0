"""The paper's urn of m = (10, 7, 8) balls and n = 9 draws.

Result (``results/categorical``): after training, 80 % of the draws of three parallel categoricals
break a constraint, 0.2 % of three in sequence, and none of the urn.
"""

from diffurn_studies.categorical.options import Options

OPTIONS = Options()
