"""The memory of a run: how much there is, how much it took at most, and that not every tensor gives it back."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from shiftproof.errors import ShiftproofError

# what glibc calls them; numbers of bytes that it arrives at by itself in a process with large tensors
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
VARIABLE = "SHIFTPROOF_REUSE_MEMORY"
_inside = 0


@contextmanager
def reused_memory(device: torch.device) -> Iterator[None]:
    """Inside, memory that a tensor gives back stays with the process for the next one, where glibc is asked for it.

    Otherwise the system takes back every large piece at once and hands it out again in zeroed pages of four KiB, which
    can take longer than the work on it. It is done where `SHIFTPROOF_REUSE_MEMORY=1` asks for it, as the command and
    its workers do: glibc takes such settings for the whole process and does not tell what was there before, so that
    afterwards it is given what it arrives at by itself. Whoever has settings of their own for it in the environment
    keeps those.
    """
    global _inside
    libc = _glibc() if device.type == "cpu" and os.environ.get(VARIABLE, "0") == "1" else None
    if libc is None:
        yield
        return
    _inside += 1
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        _inside -= 1
        if not _inside:
            for name, value in USUAL.items():
                libc.mallopt(name, value)
            libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library of this process if it is glibc and nobody told it how to handle memory, else None."""
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return None
    try:
        libc = ctypes.CDLL(None)
    except OSError:
        return None
    return libc if all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None


def memory_bytes() -> int:
    """The memory of the machine, or of the container where that has a limit of its own."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(place).read_text()))
        except (OSError, ValueError):  # no such limit: the file is not there or says "max"
            continue
    return min(limits, default=8 << 30)


def forget_peak(device: torch.device) -> None:
    """Count from here on. On a CPU only Linux can forget; elsewhere the peak is that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes(device: torch.device) -> int | None:
    """The most bytes in use since `forget_peak`: of tensors on a GPU, of the process on a CPU; None where unknown."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return _of_the_process()


def _of_the_process() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # bytes there, KiB elsewhere


def require_memory(needed: float, what: str, instead: str = "") -> None:
    """Refuse what cannot fit before any of it is built: `what` needs so many bytes; `instead` says what to do."""
    free = free_bytes()
    if free is not None and needed > free:
        more = f"; {instead}" if instead else ""
        raise ShiftproofError(f"{what} needs about {_amount(needed)} of memory, and {_amount(free)} is free{more}")


def free_bytes() -> int | None:
    """The memory that this process may still take: of the machine, its container and its own limit; None if unknown."""
    limits = [limit for limit in (_of_the_machine(), _of_the_container(), _of_the_limit()) if limit is not None]
    return min(limits) if limits else None


def _of_the_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _of_the_container() -> int | None:
    """What a control group leaves; pages of files that were read count as used there and are given back when needed."""
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        lines = (group / "memory.stat").read_text().splitlines()
        pages = sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))
    except (OSError, ValueError):  # another system, or "max": no limit
        return None
    return max(0, most - used + pages)


def _of_the_limit() -> int | None:
    """What `ulimit -v` leaves."""
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft == resource.RLIM_INFINITY:
            return None
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None
    return max(0, soft - held)


def _amount(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
