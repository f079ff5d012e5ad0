"""The paper's three priors, by the law of counts.

The default arm. The priors are uniform, categorical and hypergeometric. Every version and seed has
an autoencoder of its own. With ``--set pretrained=PATH`` all start from VaDE's released weights;
the arms ``counts`` and ``assignments`` are the committed runs of that kind.
"""

from diffurn_studies.clustering.options import Options

OPTIONS = Options()
