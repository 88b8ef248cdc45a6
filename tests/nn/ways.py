"""Which way layers compute, chosen by a test: GPU kernels, compiled loops, or torch's own operations."""

from __future__ import annotations

from typing import Literal

import pytest

from shiftproof.nn import dropout, norms
from shiftproof.nn.kernels import dispatch as sums

Way = Literal["kernels", "loops", "torch"]


def take(monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    """Let layers take this way, whatever would serve; loops must be able to."""
    for module in (sums, norms, dropout):
        if hasattr(module, "kernel_serves"):
            monkeypatch.setattr(module, "kernel_serves", lambda *_: way == "kernels")
        monkeypatch.setattr(module, "loops_serve", lambda *_: way == "loops")
    monkeypatch.setattr(sums, "WORTH_A_LOOP", 0)
