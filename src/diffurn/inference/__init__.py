"""Weights ω from counts: exact maximum likelihood with standard errors, intervals and tests.

`fit` returns a `FitResult`; `interactions` makes covariates from features of rows; `exact_test` is
Fisher's exact test of 2×2 tables.

The arguments of `fit` become a `Sample` (in `reading`), its rows an `Objective` (in `likelihood`),
whose maximum is a `Solution` (in `solution`; `separation` finds maxima at infinity). `estimates`
and `profile` turn the solution into coefficients with intervals, which `result` and `report` show.
"""

from diffurn.inference._clogit import clogit
from diffurn.inference._exact_test import ExactTest, exact_test
from diffurn.inference._fit import fit
from diffurn.inference.clogit_result import ClogitResult, StratumResiduals
from diffurn.inference.estimates import Contrasts
from diffurn.inference.fitted import LikelihoodRatio
from diffurn.inference.grouped import FitsBy, fit_by
from diffurn.inference.nested import Anova, anova
from diffurn.inference.reading import interactions
from diffurn.inference.residuals import Residuals
from diffurn.inference.result import FitResult, GoodnessOfFit
from diffurn.inference.selection import Selection

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
