"""Small problems whose exact gradients are known, all contenders."""

from diffurn_studies.subsets.options import Options

OPTIONS = Options()
