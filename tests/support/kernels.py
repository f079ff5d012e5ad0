"""Where Triton kernels run, and which of them were launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from diffurn import _dispatch
from diffurn._kernels import dispatch


@contextmanager
def _kernels_on(device_type: str | None) -> Iterator[None]:
    def has_kernels(device: object) -> bool:
        return getattr(device, "type", None) == device_type

    with (
        patch.object(dispatch, "has_kernels", has_kernels),
        patch.object(_dispatch, "has_kernels", has_kernels),
    ):
        yield


def without_kernels() -> contextmanager:
    """No kernels anywhere: the path of PyTorch's own operations."""
    return _kernels_on(None)
