"""Where runs are trained, by name: on this machine or on a Ray cluster."""

from __future__ import annotations

import time

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.runtime.deadline import require_limits
from shiftproof.sweeps.jobs import Engine, Local


def engine_named(
    name: str,
    *,
    workers: int = 1,
    stack: int = 1,
    address: str | None = None,
    gpu_share: float = 0.25,
    minutes: float | None = None,
) -> Engine:
    """The engine called "local" or "ray", with what was said of it."""
    if name == "local":
        if address is not None:
            raise ShiftproofError("--address names a Ray cluster; give --engine ray with it")
        if minutes is not None:
            require_limits(minutes)
        return Local(workers, stack, None if minutes is None else time.time() + 60 * minutes)
    if minutes is not None:
        raise ShiftproofError("--minutes is a limit of this machine's own engine; leave out --engine ray or --minutes")
    if stack > 1:
        raise ShiftproofError("--stack trains seeds together in a process of this machine; leave out --engine ray")
    if name != "ray":
        raise unknown("engine", name, ("local", "ray"))
    from shiftproof.sweeps.ray_engine import Ray

    # one is what is meant where nothing is said, and then the cluster decides
    return Ray(address, gpu_share, workers=None if workers == 1 else workers)
