"""Whether there is room for what a generator is asked for, before any of it is drawn."""

from __future__ import annotations

from shiftproof.runtime.memory import require_memory

NUMBER_BYTES = 8  # numbers are drawn as float64 or int64
PEAK = 3  # times what is kept: a draw, its copy by sample and the tensors


def require_room(samples: float, numbers: float, owner: str) -> None:
    """Refuse `samples` of so many numbers each (nodes, edges, features and labels counted) that memory cannot hold."""
    needed = PEAK * NUMBER_BYTES * float(samples) * float(numbers)
    require_memory(needed, f"{owner} with {samples:,} samples", "ask for fewer or smaller ones")
