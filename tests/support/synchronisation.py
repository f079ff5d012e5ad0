"""Steps that never wait for a device, tried on the device "meta", which has no numbers."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library finds that a CUDA graph is being captured."""
    for question in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, question, lambda: True)


_tensor = torch.tensor


def _tensor_of_cpu(data: Any, *arguments: Any, **options: Any) -> Tensor:
    """`torch.tensor`, whose copies to a device no dispatch mode sees."""
    assert torch.device(options.get("device") or "cpu").type == "cpu", "a copy to the device"
    return _tensor(data, *arguments, **options)


class NoSynchronisation(TorchDispatchMode):
    """Fails where a number is read from the device or copied to it, or a shape depends on one."""

    forbidden = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "equal",
        "unique",
        "lift_fresh",
        "bincount",
        "repeat_interleave.Tensor",
    )

    def __enter__(self) -> NoSynchronisation:
        self._patch = patch.object(torch, "tensor", _tensor_of_cpu)
        self._patch.start()
        entered: NoSynchronisation = super().__enter__()
        return entered

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._patch.stop()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        name = function.name().removeprefix("aten::")
        assert not name.startswith(self.forbidden), name
        result = function(*arguments, **(options or {}))
        tensors = [x for x in (*arguments, result) if isinstance(x, Tensor)]
        assert len({x.device.type for x in tensors if x.ndim}) <= 1, name
        return result
