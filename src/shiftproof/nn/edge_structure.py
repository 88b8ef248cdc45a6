"""What every message-passing layer of a batch shares: its edges, degrees and padding, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from shiftproof.nn.kernels.reference import ByNode
from shiftproof.nn.norms import RealRows
from shiftproof.nn.segment import segment_count, segment_sum, take_rows

OnMessages = Callable[[Tensor], Tensor]
EdgeWeight = Tensor | OnMessages


class Wiring:
    """The edges of a batch with the degrees the layers need, each computed at most once.

    Build it once for a batch and hand it to every layer. `node_mask` marks the real nodes of a padded batch; degrees
    are kept in `dtype`, that of the features.
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, node_mask: Tensor | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self.src, self.dst = edge_index[0], edge_index[1]
        self.num_nodes = num_nodes
        self.node_mask = node_mask
        self.real_rows = None if node_mask is None else RealRows(node_mask, dtype)
        self.dtype = dtype
        self._known: tuple[Tensor, Tensor, Tensor] | None = None
        self._by_node: ByNode | None = None
        self._by_source: ByNode | None = None

    def __repr__(self) -> str:
        padded = "" if self.node_mask is None else ", padded"
        return f"Wiring({self.num_nodes} nodes, {len(self.src)} edges{padded})"

    @property
    def out_degree(self) -> Tensor:
        """One plus the stored edges that leave each node, `[N, 1]`: the degree of the OGB-style GCN."""
        return self._degrees()[0]

    @property
    def inv_degree(self) -> Tensor:
        return self._degrees()[1]

    @property
    def inv_sqrt_degree(self) -> Tensor:
        return self._degrees()[2]

    def _degrees(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._known is None:  # by hand, since the lock of functools.cached_property stops torch.compile
            degree = (1 + segment_count(self.src, self.num_nodes, self.dtype)).unsqueeze(1)
            self._known = degree, degree.reciprocal(), degree.rsqrt()
        return self._known

    @property
    def by_node(self) -> ByNode:
        """The edges in the order of the nodes they arrive at."""
        if self._by_node is None:
            self._by_node = ByNode.of(self.dst, self.num_nodes)
        return self._by_node

    @property
    def by_source(self) -> ByNode:
        """The edges in the order of the nodes they leave."""
        if self._by_source is None:
            self._by_source = ByNode.of(self.src, self.num_nodes)
        return self._by_source

    def gather(self, x: Tensor) -> Tensor:
        """Each edge's copy of its source row."""
        return take_rows(x, self.src)

    def aggregate(self, messages: Tensor) -> Tensor:
        """The sum of the messages that arrive at each node."""
        return segment_sum(messages, self.dst, self.num_nodes)


def as_wiring(edges: Wiring | Tensor, x: Tensor) -> Wiring:
    """The wiring itself, or one made of an `edge_index` between the rows of `x`."""
    return edges if isinstance(edges, Wiring) else Wiring(edges, x.shape[0], dtype=x.dtype)


def per_row(values: Tensor, rows: Tensor) -> Tensor:
    """A `[N, 1]` or `[N, p]` factor shaped to fit `rows`, `[N, p]` or `[N, t, p]`."""
    return values if rows.dim() == 2 else values.unsqueeze(1)


class LayerWise(Protocol):
    """What may be given to an encoder in place of edge weights: for every layer, what becomes of its messages.

    It is told the number of the layer, the node rows that it starts from, and the edges.
    """

    def at(self, layer: int, h: Tensor, wiring: Wiring) -> OnMessages: ...


def weigh(messages: Tensor, weight: EdgeWeight | None) -> Tensor:
    """Messages times their weights, or what a function makes of them.

    Weights `[E, t]` make `t` parallel copies of messages `[E, p]`.
    """
    if weight is None:
        return messages
    if not isinstance(weight, Tensor):
        return weight(messages)
    if weight.dim() == 1:
        return messages * weight.view(-1, *[1] * (messages.dim() - 1))
    if messages.dim() == 2:
        messages = messages.unsqueeze(1)
    return messages * weight.unsqueeze(-1)
