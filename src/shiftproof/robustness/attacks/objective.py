"""What an attack maximises: the surrogate's loss at the targets, and how like their neighbours injected nodes are."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import unknown
from shiftproof.robustness.attacks.blocks import csr
from shiftproof.robustness.homophily import EPS

Mask = Literal["target", "logits", "none"]
HOPELESS = 1e-8  # docs/papers/hao.md#sign-update: a target of smaller probability counts no more


def attack_loss(logits: Tensor, labels: Tensor, mask: Mask = "none") -> Tensor:
    r"""The mean cross-entropy :math:`\frac1{|V_c|}\sum_u m_u\,\mathrm{CE}_u` of the targets.

    With the mask "target", :math:`m_u = 0` where :math:`p_u[y'_u] < 10^{-8}`: a hopeless target would else drown the
    homophily term. "logits" is the printed form, which zeroes every logit of smaller probability. The mean is over all
    targets, masked ones too.
    """
    if mask == "logits":
        kept = logits * (F.softmax(logits.detach(), 1) >= HOPELESS)
        return (kept.logsumexp(1) - kept.gather(1, labels[:, None])[:, 0]).mean()
    ce = F.cross_entropy(logits, labels, reduction="none")
    if mask == "none":
        return ce.mean()
    if mask == "target":
        return (ce * (ce.detach() <= -math.log(HOPELESS))).mean()
    raise unknown("mask", mask, ("target", "logits", "none"))


class Harmony:
    r"""How like its neighbourhood each injected node is, :math:`\cos(X_w, r_w)`.

    :math:`r_w \propto \sum_{j\in N(w)} X_j/\sqrt{d_j}` with degrees after the injection. As long as injected nodes are
    joined to nodes of the graph alone, it does not depend on their features and is summed once; edges among them
    (`inner`) are added at every call, without a gradient.
    """

    def __init__(self, graph: NodeGraph, edges: Tensor, count: int, inner: Tensor | None = None) -> None:
        n = graph.num_nodes
        joined = torch.bincount(edges[1], minlength=n)
        scale = (graph.degree + joined).clamp(min=1).to(graph.x.dtype).rsqrt()
        order = torch.argsort(edges[0] * n + edges[1])
        row, col = edges[:, order]
        self.outer = csr(row, col, scale[col], (count, n)) @ graph.x
        self.inner = None
        if inner is not None and inner.shape[1]:
            both = torch.cat([inner, inner.flip(0)], 1)
            degree = torch.bincount(torch.cat([edges[0], both[0]]), minlength=count).clamp(min=1)
            both = both[:, torch.argsort(both[0] * count + both[1])]
            self.inner = csr(both[0], both[1], degree.to(graph.x.dtype).rsqrt()[both[1]], (count, count))
        self._direction = _unit(self.outer)

    def direction(self, features: Tensor) -> Tensor:
        """The unit vectors towards which the injected nodes would have to turn."""
        return self._direction if self.inner is None else _unit(self.outer + self.inner @ features.detach())

    def __call__(self, features: Tensor) -> Tensor:
        """The cosine of every injected node, differentiable in its own features."""
        size = features.norm(dim=1)
        # at zero the cosine is 0 and the way up is the neighbours' direction
        return torch.linalg.vecdot(features, self.direction(features)) / torch.where(size > EPS, size, 1.0)


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=EPS)
