"""Fixtures of every test folder; its conftest.py imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def float64_and_a_fixed_seed() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    torch.distributions.Distribution.set_default_validate_args(
        True
    )  # torch.compile turns it off for the whole process
    yield
    torch.set_default_dtype(
        torch.float32
    )  # torch's own, for doctests, whatever the test left behind
