"""C kernels that draw. Their seed is drawn by PyTorch's generator, so `torch.manual_seed` works."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from diffurn._fisher.sampling import rejection
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel

# Plain operations draw more groups faster, by blocks.
MOST_GROUPS = rejection.FEWEST_GROUPS_FOR_BLOCKS - 1

_draw_each = Kernel("draw_each", 5, numbers=5)


@replaces(rejection.draw_rows, on="cpu")
def draw_rows(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, num_samples: int) -> Tensor:
    urns, groups = log_odds.shape
    if groups > MOST_GROUPS:
        plain = rejection.draw_rows.__wrapped__  # type: ignore[attr-defined]
        return plain(log_odds, group_sizes, draws, num_samples)  # type: ignore[no-any-return]
    operands = [operand.contiguous() for operand in (log_odds, group_sizes, draws)]
    counts = log_odds.new_empty(num_samples, urns, groups)
    rounds = rejection.rounds_for(groups)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    failed = ctypes.c_int64(-1)
    numbers = groups, urns, num_samples, rounds, seed
    work = counts.numel()
    _draw_each(
        *operands, counts, ctypes.addressof(failed), *numbers, rows=work // groups, work=work
    )
    if failed.value >= 0:
        raise rejection.nothing_accepted(group_sizes[failed.value], draws[failed.value])
    return counts
