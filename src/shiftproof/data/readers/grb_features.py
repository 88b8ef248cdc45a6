"""Dense features of citation graphs that are as like their neighbours' as those of the Graph Robustness Benchmark.

GRB's Cora and Citeseer hold embedded text that is not published as words, so that its features cannot be made again.
How like its neighbours a node is decides what an attack that hides among them can do, and that is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.readers.node_preparation import arctan_normalize
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError


@dataclass(frozen=True)
class Calibration:
    """How dense features are made: `topics` of words, in `width` columns, with noise and a direction that all share.

    Noise and shared direction are deviations beside those of the mean word vectors, which are 1.
    """

    width: int
    topics: int
    noise: float
    shared: float


# Set by the clean statistics of GRB's graphs; these and what comes out: docs/papers/hao.md#features-like-grbs
CALIBRATED = {"cora": Calibration(302, 24, 0.5, 0.92), "citeseer": Calibration(768, 24, 0.5, 3.9)}


def grb_like(x: Tensor, name: str) -> Tensor:
    """Counts of words as mean word vectors with noise and a shared direction, brought within (-1, 1).

    A word's vector is its row in the leading singular vectors of the table of counts, centred and of unit length. The
    shared direction has the heavy tails that means of word vectors have: without them no entry would come near 0.94.
    Equal words give equal features.
    """
    if name not in CALIBRATED:
        known = " and ".join(CALIBRATED)
        raise ShiftproofError(f"features=grb-like is calibrated for {known}, not for {name}: use features=embedded")
    if bool((x < 0).any()):
        raise ShiftproofError("features=grb-like takes counts of words, and some features are negative")
    made, counts, draw = CALIBRATED[name], x.double(), stream(0)
    words = _word_vectors(counts, made.topics)
    turn = torch.linalg.qr(torch.from_numpy(draw.standard_normal((made.width, made.width)))).Q[: words.shape[1]]
    means = (counts @ words) / counts.sum(1, keepdim=True).clamp(min=1)
    means = (means - means.mean(0)) @ turn
    shared = _heavy_tails(made.width)[torch.from_numpy(draw.permutation(made.width))]
    noise = torch.from_numpy(draw.standard_normal(tuple(means.shape)))
    return arctan_normalize((means / means.std() + made.shared * shared + made.noise * noise).float())


def _word_vectors(counts: Tensor, topics: int) -> Tensor:
    """[words, topics], centred rows of unit length; of two opposite directions always the same."""
    values, vectors = torch.linalg.eigh(counts.T @ counts)
    leading = vectors[:, -topics:] * values[-topics:].clamp(min=0) ** 0.25
    leading = leading * leading.gather(0, leading.abs().argmax(0, keepdim=True)).sign()
    leading = leading - leading.mean(0)
    return leading / leading.norm(dim=1, keepdim=True).clamp(min=1e-12)


def _heavy_tails(width: int) -> Tensor:
    """The quantiles of Student's t with two degrees of freedom, of mean square 1: their reach is not left to a draw."""
    share = (torch.arange(width, dtype=torch.float64) + 0.5) / width
    quantiles = (2 * share - 1) / (2 * share * (1 - share)).sqrt()
    return quantiles * math.sqrt(width) / quantiles.norm()
