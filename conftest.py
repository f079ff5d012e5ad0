from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from hypothesis import settings

from support import programs

# Examples in it need the extra `jax`.
collect_ignore = [] if find_spec("numpyro") else ["src/diffurn/jax"]

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # parallel workers must not compete for the same cores

# the same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="cpu",
        help="torch device the tests run on, such as cpu or cuda (default: cpu)",
    )


@pytest.hookimpl(tryfirst=True)  # before the test's fixtures start the program
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        if sentences := list(filter(None, map(programs.missing, mark.args))):
            pytest.skip("; ".join(sentences))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    device = torch.device(request.config.getoption("--device"))
    if device.type == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"--device {device} was asked for, but torch sees no CUDA device")
    return device
