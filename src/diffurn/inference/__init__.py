"""Weights ω from counts, and coefficients from cases and controls, by exact maximum likelihood.

`fit` and `fit_by` take tables of counts, `clogit` takes cases and controls, `anova` compares nested
fits, and `exact_test` is Fisher's exact test of 2×2 tables. Data flow one way, through three
folders:

- `reading`: the arguments become a `Sample` of counts or `Strata` of cases and controls;
- `solving`: their likelihood is an `Objective`, and its maximum a `Solution`, with standard errors
  and intervals;
- `results`: a `FitResult` or `ClogitResult`, as an object, as text and as a figure.
"""

from diffurn.inference._clogit import clogit
from diffurn.inference._exact_test import ExactTest, exact_test
from diffurn.inference._fit import fit
from diffurn.inference._fit_by import FitsBy, fit_by
from diffurn.inference.reading.counts import interactions
from diffurn.inference.results.clogit_result import ClogitResult, StratumResiduals
from diffurn.inference.results.fit_result import FitResult, GoodnessOfFit
from diffurn.inference.results.fitted import LikelihoodRatio
from diffurn.inference.results.nested import Anova, anova
from diffurn.inference.results.residuals import Residuals
from diffurn.inference.results.selection import Selection
from diffurn.inference.solving.estimates import Contrasts

__all__ = [
    "Anova",
    "ClogitResult",
    "Contrasts",
    "ExactTest",
    "FitResult",
    "FitsBy",
    "GoodnessOfFit",
    "LikelihoodRatio",
    "Residuals",
    "Selection",
    "StratumResiduals",
    "anova",
    "clogit",
    "exact_test",
    "fit",
    "fit_by",
    "interactions",
]
