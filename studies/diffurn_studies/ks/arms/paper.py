"""The paper's tests, with its urns and 50,000 draws.

Result (``results/ks``): the paper's own test rejects none of 30 hypotheses. Against Fisher's law
the merged chain is rejected in all 27 cases in which the merge changes the law.
"""

from diffurn_studies.ks.options import Options

OPTIONS = Options()
