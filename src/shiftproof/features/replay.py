"""A step captured once as a CUDA graph and replayed: small models wait for kernels to be launched, not for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UPS = 3


def capture(
    step: Callable[[], Tensor], tensors: Sequence[Tensor], optimizer: torch.optim.Optimizer
) -> tuple[torch.cuda.CUDAGraph, Tensor] | None:
    """The captured step and the tensor that holds what it returns after every replay; None, with a warning, where it
    cannot be captured.

    `tensors` are all that the step changes beside the optimiser's state; they and the state are as before afterwards,
    though the step was run to warm up. A replay reads and writes these very tensors: change them in place only.
    """
    device = tensors[0].device
    before = [tensor.detach().clone() for tensor in tensors]
    slots = {p: {k: v.clone() for k, v in s.items() if isinstance(v, Tensor)} for p, s in optimizer.state.items()}
    random = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    try:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            value = step()
        return graph, value
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"a step of feature learning cannot be captured ({reason}); it goes on eagerly", stacklevel=2)
        return None
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
            for parameter, state in optimizer.state.items():
                for key, slot in state.items():
                    if isinstance(slot, Tensor):
                        kept = slots.get(parameter, {}).get(key)
                        slot.copy_(kept) if kept is not None else slot.zero_()
        torch.set_rng_state(random[0])
        torch.cuda.set_rng_state(random[1], device)
