"""Graph attention."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.errors import ShiftproofError
from shiftproof.nn.segment import segment_softmax
from shiftproof.ranges import Count, Layers, Width
from shiftproof.registry import register, with_options_of
from shiftproof.robustness.adjacency import Adjacency, product, row_sums
from shiftproof.robustness.defences.base import Defence, Weights
from shiftproof.robustness.features import Features, linear


class _Attention(Weights):
    def __init__(self, inputs: int, outputs: int, heads: Count) -> None:
        super().__init__(inputs, outputs)
        self.heads = heads
        self.to_source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, outputs // heads)))
        self.to_target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, outputs // heads)))


@register("gat", "defences")
class GAT(Defence):
    r"""Attention over neighbours and the node itself, hidden layers with `heads` heads of width `hidden / heads`.

    .. math:: \alpha_{ij} = \mathrm{softmax}_{j \in N(i) \cup i}\,
        \mathrm{LeakyReLU}_{0.2}(a_t^\top W h_i + a_s^\top W h_j)

    Weights of the adjacency multiply the unnormalised attention, so that a weight of 0 is an absent edge.
    """

    @with_options_of(Defence)
    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: Width = 64,
        layers: Layers = 3,
        heads: Count = 8,
        **options: Any,
    ) -> None:
        if hidden % heads:
            raise ShiftproofError(f"hidden of GAT is a multiple of its heads; {hidden} is none of {heads}")
        super().__init__(in_features, classes, hidden=hidden, layers=layers, **options)
        counts = [heads] * (layers - 1) + [1]
        self.convs = nn.ModuleList(
            _Attention(a, b, count) for (a, b), count in zip(pairwise(self.widths), counts, strict=True)
        )

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: _Attention = self.convs[layer]  # type: ignore[assignment]
        heads = conv.heads
        values = linear(h, conv.weight).view(state.num_nodes, heads, -1)
        pattern, origin = state.pattern.looped[0].repeated(heads)
        source = (values * conv.to_source).sum(2).flatten()
        target = (values * conv.to_target).sum(2).flatten()
        scores = target.index_select(0, pattern.row) + source.index_select(0, pattern.col)
        share = segment_softmax(F.leaky_relu(scores, 0.2), pattern.row, pattern.num_nodes)
        if state.weighted:
            loops = torch.ones(state.num_nodes, dtype=values.dtype, device=values.device)
            share = share * state.looped_weight(loops, values.dtype).index_select(0, origin)
            share = share / row_sums(pattern, share).index_select(0, pattern.row)
        out = product(pattern, share, values.reshape(state.num_nodes * heads, -1))
        return out.view(state.num_nodes, -1) + conv.bias, state
