"""The C kernel for Newton steps of fits."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel
from diffurn._numerics import gauge as gauges

MOST_COEFFICIENTS = 16  # of gauge.c

_positive_solutions = Kernel("positive_solutions", 4, numbers=2)


@replaces(gauges.positive_solution, on="cpu")
def positive_solution(information: Tensor, right: Tensor, gauge: Tensor) -> Tensor:
    sets, p, columns = right.shape
    if p > MOST_COEFFICIENTS:
        plain: Tensor = gauges.positive_solution.__wrapped__(information, right, gauge)  # type: ignore[attr-defined]
        return plain
    operands = [x.contiguous() for x in (information, right, gauge.expand_as(information))]
    values = torch.empty_like(operands[1])
    numbers, work = (p, columns), sets * p * (p + columns) // 4
    _positive_solutions(*operands, values, numbers=numbers, rows=sets, work=work)
    return values
