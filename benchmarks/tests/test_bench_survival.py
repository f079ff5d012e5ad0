"""R's survival as a floor of conditional logistic regression."""

from __future__ import annotations

import pytest
import torch

from benchmarks import survival
from benchmarks.limits import CannotDoError
from diffurn import clogit


@pytest.mark.needs("survival")
def test_survival_fits_the_same_coefficients() -> None:
    covariates = torch.randn(60, 2, dtype=torch.float64)
    cases = torch.zeros(60)
    cases[::7] = 1.0
    fit = survival.fits(cases, covariates)
    wanted = clogit(cases, covariates).coefficients
    for _ in range(2):
        torch.testing.assert_close(fit(), wanted, rtol=1e-6, atol=1e-8)


def test_a_missing_r_is_a_reason_to_skip_the_cell() -> None:
    with pytest.raises(CannotDoError, match="no-such-program was not found"):
        survival.fits(torch.ones(1), torch.ones(1, 1), rscript="no-such-program")
