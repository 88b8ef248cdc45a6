"""Repeating the smaller of two groups of training samples."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from shiftproof.ranges import Whole

Upsampling = Whole | Literal["off", "auto"]


def upsampled(correct: Tensor, upsample: Upsampling) -> Tensor:
    """Positions of all samples once, and of the smaller group (`correct` or not) `upsample` times more.

    "auto" adds one copy of the incorrect samples where the correct ones are at least twice as many
    (docs/papers/gala.md#upsampling).
    """
    everything = torch.arange(len(correct), device=correct.device)
    right = int(correct.sum())
    wrong = len(correct) - right
    if upsample == "auto":
        group, copies = ~correct, int(right >= 2 * wrong)
    else:
        group, copies = (~correct if wrong <= right else correct), 0 if upsample == "off" else int(upsample)
    return torch.cat([everything, group.nonzero().squeeze(1).repeat(copies)])
