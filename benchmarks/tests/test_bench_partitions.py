"""The cells of random partitions run, and draw what they say."""

from __future__ import annotations

import torch

from benchmarks.alone import cells, partitions
from benchmarks.ours import Inputs


def test_cells_of_partitions_return_gradients_of_their_inputs() -> None:
    inputs = Inputs(torch.device("cpu"))
    size = 3, 7, 2
    for cell in (
        partitions._of_log_prob(size),
        *(
            partitions._of_draw(name, estimator, size)
            for name, (estimator, _) in partitions._ESTIMATORS.items()
        ),
    ):
        scores, weights = cell.prepare(inputs)()
        assert scores.shape == (3, 7)
        assert weights.shape == (3, 2)
        assert (scores != 0).any()
        assert cell.name.endswith("7 items, K = 2, B = 3")


def test_cells_of_values_are_of_one_partition() -> None:
    inputs = Inputs(torch.device("cpu"))
    found = {
        name: partitions._of_value(name, (2, 5, 3)).prepare(inputs)() for name in partitions._VALUES
    }
    assert found["sample"].shape == found["mode"].shape == (2, 5)
    torch.testing.assert_close(found["inclusion"].sum(-1), torch.ones(2, 5, dtype=torch.float64))


def test_names_of_all_cells_are_unique() -> None:
    names = [cell.name for cell in cells()]
    assert len(names) == len(set(names))
