"""From soft edge weights to the ones a classifier is trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import unknown
from shiftproof.nn.segment import top_edges

DECODINGS = ("normal", "min0", "max1", "min0max1")


def decode(weight: Tensor, edge_batch: Tensor, num_graphs: int, how: str = "min0", ratio: float = 0.5) -> Tensor:
    """Sharpened edge weights `[E]`: in each graph the share `ratio` of the edges with the largest weights is on top.

    "normal" changes nothing, "min0" sets the rest to 0, "max1" the top to 1, "min0max1" both. A graph of m stored edges
    has `⌈ratio · m⌉` on top; of equal weights the one stored first (docs/papers/gmt.md#gmt-sam).
    """
    if how not in DECODINGS:
        raise unknown("decoding", how, DECODINGS)
    if how == "normal":
        return weight
    top = top_edges(weight.detach(), edge_batch, num_graphs, ratio)
    weight = weight if how == "max1" else torch.where(top, weight, 0)
    return weight if how == "min0" else torch.where(top, 1, weight)
