"""How much each edge or node of a graph matters, as one logit each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.dropout import relu_dropout
from shiftproof.nn.norms import GraphInstanceNorm, NodeBatchNorm
from shiftproof.nn.segment import take_rows

KINDS = ("mlp", "dot")
NORMS = ("instance", "batch")


class EdgeScorer(nn.Module):
    """One logit for each stored edge from the embeddings of its two ends.

    .. math:: s_{uv} = MLP([h_u ‖ h_v]) \\quad (kind="mlp"), \\qquad s_{uv} = ⟨h_u, h_v⟩ \\quad (kind="dot")

    Without a norm the MLP is CIGA's, `Linear(2p, 4p) - ReLU - Linear(4p, 1)`. With `norm="instance"` it is the one of
    GSAT, GALA and GMT: `Linear(2p, 4p)`, `Linear(4p, p)`, `Linear(p, 1)` with an instance norm over each graph's edges,
    ReLU and dropout between them. `symmetric=True` gives both directions of an edge the mean of their logits.
    """

    def __init__(
        self,
        channels: int,
        kind: str = "mlp",
        norm: str | None = None,
        dropout: float = 0.0,
        symmetric: bool = False,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise unknown("edge scorer", kind, KINDS)
        self.channels, self.kind, self.symmetric = channels, kind, symmetric
        self.mlp = _ScoreMLP(2 * channels, 4 * channels, channels, norm, dropout) if kind == "mlp" else None

    def forward(
        self, h: Tensor, edge_index: Tensor, batch: Tensor | None = None, num_graphs: int | None = None
    ) -> Tensor:
        src, dst = edge_index[0], edge_index[1]
        if self.mlp is None:
            scores = (take_rows(h, src) * take_rows(h, dst)).sum(-1)
        else:
            # W [h_u ‖ h_v] = W_1 h_u + W_2 h_v: one product for each node instead of one for each edge
            from_source, from_target = self.mlp.first.weight.chunk(2, dim=1)
            at_source = F.linear(h, from_source, self.mlp.first.bias)
            at_target = F.linear(h, from_target)
            hidden = take_rows(at_source, src).add_(take_rows(at_target, dst))
            group = None if batch is None or self.mlp.norm is None else batch.index_select(0, dst)
            scores = self.mlp.finish(hidden, group, num_graphs)
        return symmetrise(scores, reverse_edges(edge_index, h.shape[0])) if self.symmetric else scores

    def extra_repr(self) -> str:
        return f"{self.channels}, kind={self.kind!r}, symmetric={self.symmetric}"


class NodeScorer(nn.Module):
    """One logit for each node from its embedding, `s_v = MLP(h_v)`.

    Without a norm the MLP is `Linear(p, 2p) - ReLU - Linear(2p, 1)`; with `norm="instance"` it is GMT's
    `Linear(p, 2p)`, `Linear(2p, p)`, `Linear(p, 1)` with an instance norm over each graph's nodes, ReLU and dropout
    between them. `norm="batch"` is batch norm instead, as on point clouds. More `outputs` give `[N, outputs]`.
    """

    def __init__(self, channels: int, norm: str | None = None, dropout: float = 0.0, outputs: int = 1) -> None:
        super().__init__()
        self.channels = channels
        self.mlp = _ScoreMLP(channels, 2 * channels, channels, norm, dropout, outputs)

    def forward(self, h: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        return self.mlp.finish(self.mlp.first(h), batch, num_graphs)

    def extra_repr(self) -> str:
        return f"{self.channels}"


class _ScoreMLP(nn.Module):
    """The layers of a scorer; the first product is made by the scorer, `finish` does the rest."""

    def __init__(self, inputs: int, wide: int, narrow: int, norm: str | None, dropout: float, outputs: int = 1) -> None:
        super().__init__()
        if norm is not None and norm not in NORMS:
            raise unknown("scorer norm", norm, NORMS)
        self.norm, self.dropout, self.outputs = norm, dropout, outputs
        widths = [wide] if norm is None else [wide, narrow]
        self.first = nn.Linear(inputs, wide)
        kind = NodeBatchNorm if norm == "batch" else GraphInstanceNorm
        self.norms = nn.ModuleList(kind(width) for width in widths if norm is not None)
        self.rest = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, [*widths[1:], outputs], strict=True))

    def finish(self, hidden: Tensor, group: Tensor | None, num_graphs: int | None) -> Tensor:
        for i, layer in enumerate(self.rest):
            if self.norm == "batch":
                # the padding of a padded batch does not count
                real = None if group is None or num_graphs is None else group < num_graphs
                hidden = self.norms[i](hidden, real)
            elif self.norms:
                if group is None or num_graphs is None:
                    raise ShiftproofError(
                        "a scorer with instance norm needs each row's graph; pass batch and num_graphs"
                    )
                # one group more than graphs: the padding of a padded batch
                hidden = self.norms[i](hidden, group, num_graphs + 1)
            hidden = layer(relu_dropout(hidden, self.dropout, self.training))
        return hidden.squeeze(-1) if self.outputs == 1 else hidden

    def extra_repr(self) -> str:
        return f"norm={self.norm!r}, dropout={self.dropout}"


def reverse_edges(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The position of each edge's opposite edge, in any order of edges; an edge without one is its own.

    The result is an involution: of several copies of an edge the i-th is paired with the i-th copy of its opposite.
    """
    src, dst = edge_index[0], edge_index[1]
    here, there = src * num_nodes + dst, dst * num_nodes + src
    keys, order = torch.sort(here, stable=True)
    own = torch.arange(len(order), device=order.device)
    place = torch.empty_like(order).scatter(0, order, own)
    copy = place - torch.searchsorted(keys, here)
    target = (torch.searchsorted(keys, there) + copy).clamp(max=max(len(keys) - 1, 0))
    return torch.where(keys.index_select(0, target) == there, order.index_select(0, target), own)


def symmetrise(values: Tensor, reverse: Tensor) -> Tensor:
    """The mean of each edge's value and its opposite's, `(v_{uv} + v_{vu}) / 2`; values `[E]` or `[E, t]`."""
    return (values + values.index_select(0, reverse)) / 2


def lift_to_edges(node_scores: Tensor, edge_index: Tensor) -> Tensor:
    """Edge scores as the product of the scores of both ends, `s_{uv} = s_u s_v`; scores `[N]` or `[N, t]`."""
    return node_scores.index_select(0, edge_index[0]) * node_scores.index_select(0, edge_index[1])
