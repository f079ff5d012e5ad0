"""Newton steps of fits: solutions orthogonal to a gauge, by C and by PyTorch's operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from diffurn._kernels import dispatch
from diffurn._numerics.gauge import positive_solution, solve


@pytest.fixture(params=["C", "PyTorch"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "C" and not dispatch.HAS_NATIVE:
        pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0")
    monkeypatch.setattr(dispatch, "HAS_NATIVE", request.param == "C")


def problem(sets: int, p: int, columns: int, fixed: int, seed: int) -> tuple[Tensor, ...]:
    """Information, right sides and the projection onto some fixed directions."""
    random = np.random.default_rng(seed)
    factors = random.standard_normal((sets, p, 2 * p))
    scale = 10.0 ** random.uniform(-8, 8, (sets, 1, 1))
    basis = np.linalg.qr(random.standard_normal((sets, p, p)))[0][:, :, :fixed]
    right = random.standard_normal((sets, p, columns))
    found = scale * factors @ factors.transpose(0, 2, 1), right, basis @ basis.transpose(0, 2, 1)
    return tuple(map(torch.from_numpy, found))


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize(
    ("p", "fixed"), [(1, 0), (2, 1), (3, 1), (7, 0), (16, 3), (17, 1), (40, 5)]
)
@pytest.mark.parametrize("columns", [1, 3])
def test_a_solution_is_that_of_the_pseudo_inverse(p: int, fixed: int, columns: int) -> None:
    information, right, gauge = problem(5, p, columns, fixed, p)
    free = np.eye(p) - gauge.numpy()
    for found, a, b, f in zip(
        solve(information, right, gauge), information.numpy(), right.numpy(), free, strict=True
    ):
        wanted = np.linalg.pinv(f @ a @ f, rcond=1e-12) @ b
        np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-10 * abs(wanted).max())


@pytest.mark.usefixtures("_path")
def test_only_an_indefinite_information_takes_absolute_eigenvalues() -> None:
    information, right, gauge = problem(4, 3, 1, 0, 0)
    values = torch.tensor([-2.0, 3.0, 0.5], dtype=torch.float64)
    vectors = torch.linalg.qr(information[1])[0]
    information[1] = vectors @ torch.diag(values) @ vectors.mT
    positive = positive_solution(information, right, gauge)
    assert positive[1].isnan().all()
    assert positive[[0, 2, 3]].isfinite().all()
    found = solve(information, right, gauge)
    assert torch.equal(found[[0, 2, 3]], positive[[0, 2, 3]])
    wanted = vectors @ torch.diag(1 / values.abs()) @ vectors.mT @ right[1]
    torch.testing.assert_close(found[1], wanted, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("_path")
def test_a_right_side_of_nan_spoils_its_own_data_set_alone() -> None:
    information, right, gauge = problem(3, 4, 1, 1, 1)
    right[2, 0] = torch.nan
    positive = positive_solution(information, right, gauge)
    assert positive[:2].isfinite().all()
    assert not positive[2].isfinite().all()
