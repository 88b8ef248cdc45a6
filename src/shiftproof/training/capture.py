"""A step captured once as a CUDA graph and replayed: small models wait for kernels to be launched, not for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WARM_UPS = 3  # libraries allocate their workspaces in the first steps


class CannotCapture(RuntimeError):
    """The step waits for the device, or its sizes depend on the data; the message says which."""


@dataclass(frozen=True, eq=False)
class Captured:
    """A step that is replayed by calling it; `value` is what it returned, in the same memory after every replay."""

    graph: torch.cuda.CUDAGraph
    value: Any

    def __call__(self) -> Any:
        self.graph.replay()
        return self.value


def capture(
    step: Callable[[], Any],
    *,
    device: torch.device | None = None,
    tensors: Sequence[Tensor] = (),
    optimizer: torch.optim.Optimizer | None = None,
    warm_ups: int = WARM_UPS,
) -> Captured:
    """Run a step to warm up and capture it; what it moved, and the random numbers, are then as they were before.

    `tensors` are all that the step changes beside the state of its `optimizer`. A replay reads and writes these very
    tensors: change them in place only. A step that cannot be captured raises `CannotCapture`.
    """
    device = torch.device("cuda", torch.cuda.current_device()) if device is None else device
    with _put_back(device, tensors, optimizer):
        try:
            side = torch.cuda.Stream(device)
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                for _ in range(warm_ups):
                    step()
            torch.cuda.current_stream(device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                value = step()
            return Captured(graph, value)
        except RuntimeError as error:
            torch.cuda.synchronize(device)
            raise CannotCapture(str(error).strip().partition("\n")[0]) from None


def capture_if_possible(step: Callable[[], Any], what: str, **given: Any) -> Captured | None:
    """The same; None, with a warning that names `what`, where the step cannot be captured."""
    try:
        return capture(step, **given)
    except CannotCapture as reason:
        warnings.warn(f"{what} cannot be captured ({reason}); training goes on eagerly", stacklevel=3)
        return None


@contextmanager
def _put_back(
    device: torch.device, tensors: Sequence[Tensor], optimizer: torch.optim.Optimizer | None
) -> Iterator[None]:
    """After this context everything is as before it, in place: a captured step reads and writes these very tensors."""
    before = [tensor.detach().clone() for tensor in tensors]
    state = {} if optimizer is None else optimizer.state
    slots = {p: {k: v.clone() for k, v in s.items() if isinstance(v, Tensor)} for p, s in state.items()}
    random = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
            for parameter, values in ({} if optimizer is None else optimizer.state).items():
                for key, slot in values.items():
                    if isinstance(slot, Tensor):
                        kept = slots.get(parameter, {}).get(key)
                        slot.copy_(kept) if kept is not None else slot.zero_()
        torch.set_rng_state(random[0])
        torch.cuda.set_rng_state(random[1], device)
