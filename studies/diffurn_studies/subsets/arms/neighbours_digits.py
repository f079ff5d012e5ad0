"""An embedding of scikit-learn's digits by 10 stochastic neighbours."""

from diffurn_studies.subsets.arms import neighbours

OPTIONS = neighbours.OPTIONS.on_digits(k=10)
