"""The paper's example: ten data sets, ten epochs, five seeds.

Each data set has 1,000 counts. Result (``results/minimal``): on data of Fisher's law the exact
covariance ends within 0.019 of log ω₂, the merged chain up to 0.197 away. On data of the merged
chain it is the other way round.
"""

from diffurn_studies.minimal.options import Options

OPTIONS = Options()
