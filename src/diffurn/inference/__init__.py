"""What do counts say about ω? Exact maximum likelihood with standard errors, intervals and tests.

Read `fit` for what it takes, `FitResult` for what it gives; `likelihood` for the sum behind it,
`newton` for its maximum, `separation` for maxima at infinity. `exact_test` is Fisher's exact test
of 2×2 tables.
"""

from diffurn.inference.contrasts import Contrasts
from diffurn.inference.design import interactions
from diffurn.inference.exact_test import ExactTest, exact_test
from diffurn.inference.fit import fit
from diffurn.inference.result import FitResult
from diffurn.inference.tests_of_fit import GoodnessOfFit, LikelihoodRatio

__all__ = [
    "Contrasts",
    "ExactTest",
    "FitResult",
    "GoodnessOfFit",
    "LikelihoodRatio",
    "exact_test",
    "fit",
    "interactions",
]
