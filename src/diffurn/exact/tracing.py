"""Whether numbers can be looked at."""

from __future__ import annotations

import torch


def can_check() -> bool:
    """Whether tensors have values to look at: not while tracing for `torch.compile`, nor inside `torch.func.vmap`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None
