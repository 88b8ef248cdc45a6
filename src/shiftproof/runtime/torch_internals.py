"""What this library asks of torch that torch does not promise: all of it stands here, and a test says when it changes.

Each name has a plain function or value; the rest of the library imports it from here alone. `torch._foreach_*` are not
among them: torch documents those.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor  # type: ignore[import]
from torch.autograd import forward_ad


def is_batched_gradient(grad: Tensor) -> bool:
    """Whether a gradient stands for many at once (`torch.autograd.grad(..., is_grads_batched=True)`)."""
    return is_legacy_batchedtensor(grad)


def is_watched() -> bool:
    """Whether somebody has put a dispatch mode around torch's operations."""
    return torch._C._len_torch_dispatch_stack() > 0


def is_transformed() -> bool:
    """Whether `torch.func` transforms what is computed (vmap, grad, jvp), or forward-mode differentiation is on."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def recomputing_more() -> AbstractContextManager[None]:
    """Inside, `torch.compile` makes cheap values again in the backward pass instead of keeping them."""
    from torch._functorch import config

    return config.patch(aggressive_recomputation=True)


def fused_adam(*tensors: list[Tensor], **options: Any) -> None:
    """One step of Adam on lists of parameters, gradients, averages, squares, maxima and step counts, in place."""
    torch._fused_adam_(*tensors, **options)


def without_compiler(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of torch's without what `torch._compile` has put around it; somebody else's wrapper stays."""
    theirs = getattr(method, "__globals__", {}).get("__name__") == "torch._compile"
    return getattr(method, "__wrapped__", method) if theirs else method
