"""The random words of the Triton kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import torch

from support.samplers import Chance

SEED = 0x0123456789ABCDEF


def fixed_seed() -> Chance:
    """Kernels draw their seed by `torch.randint`."""
    return Chance({torch.randint: lambda *_, device: torch.tensor([SEED], device=device)})


def philox(
    key: int, index: np.ndarray, second: int = 0, third: np.ndarray | int = 0
) -> list[np.ndarray]:
    """Philox4x32-10 in the notation of its authors: four words for each index."""
    word, full = np.uint64(32), np.uint64(0xFFFFFFFF)
    index = index.astype(np.uint64)
    third = np.broadcast_to(np.asarray(third).astype(np.uint64), index.shape) & full
    c = [index & full, index >> word, np.full_like(index, second), third]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        product_0, product_1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (product_1 >> word) ^ c[1] ^ np.uint64(k0),
            product_1 & full,
            (product_0 >> word) ^ c[3] ^ np.uint64(k1),
            product_0 & full,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def gumbel(rows: np.ndarray, place: int, counts: np.ndarray) -> np.ndarray:
    """The Gumbel noise of counts ``(R, W)`` of the group at a place in the chain, for `SEED`."""
    high, low, *_ = philox(SEED, np.broadcast_to(rows[:, None], counts.shape), place, counts)
    uniform = ((high >> np.uint64(5)) * 2.0**26 + (low >> np.uint64(6))) / 2.0**53
    return -np.log(-np.log(np.maximum(uniform, np.finfo(float).tiny)))
