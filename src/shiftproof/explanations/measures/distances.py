"""How far apart two predictions are: total variation, Kullback-Leibler and Jensen-Shannon.

Source: docs/papers/gmt.md#measures.

Each takes distributions `[graphs, labels, classes]` and gives one value a graph, the mean over its labels.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

LEAST = 1e-12


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """`½ Σ |p - q|`, from 0 to 1."""
    return ((p - q).abs().sum(-1) / 2).mean(-1)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """`Σ p log(p / q)`, p the original and q the changed prediction; chances below 1e-12 count as that."""
    p, q = p.clamp(min=LEAST), q.clamp(min=LEAST)
    return (p * (p / q).log()).sum(-1).mean(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """`½ KL(p ‖ m) + ½ KL(q ‖ m)` with `m = (p + q) / 2`, from 0 to ln 2."""
    m = (p + q) / 2
    return (kl_divergence(p, m) + kl_divergence(q, m)) / 2


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tv": total_variation,
    "kl": kl_divergence,
    "jsd": jensen_shannon,
}
