"""ASAP's pooling with the weights of the coarsened edges, which PyG's layer cannot differentiate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.nn.pyg_layers import ASAPooling, add_remaining_self_loops, scatter, softmax
from shiftproof.nn.segment import segment_sum


class ClusterPooling(ASAPooling):
    r"""Every node and its neighbours are a cluster; the best share of the clusters are the nodes of a coarser graph.

    .. math:: a_{ij} = \mathrm{softmax}_j \mathrm{LeakyReLU}(att[q_i ‖ x_j]),\quad q_i = W \max_j x_j,\quad
        x^c_i = \sum_j a_{ij} x_j,\quad φ = σ(LEConv(x^c)),\quad A' = S^\top A S

    Layers, parameters and results are those of PyG's `ASAPooling`. Torch has no gradient for the product of sparse
    matrices behind :math:`A'`, so it is summed up over the paths :math:`k ← u → v → l` here.
    """

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Rows of the kept clusters, their edges and weights (no loops), and the graph each belongs to."""
        count = x.shape[0]
        edges, _ = add_remaining_self_loops(edge_index, num_nodes=count)
        source, target = edges[0], edges[1]
        neighbours = x.index_select(0, source)
        query = self.lin(scatter(neighbours, target, dim_size=count, reduce="max")).index_select(0, target)
        score = F.leaky_relu(self.att(torch.cat([query, neighbours], dim=1)).view(-1), self.negative_slope)
        score = F.dropout(softmax(score, target, num_nodes=count), self.dropout, self.training)
        clusters = segment_sum(neighbours * score.unsqueeze(1), target, count)
        fitness = self.gnn_score(clusters, edges).sigmoid().view(-1)
        chosen = self.select(fitness, batch).node_index
        rows = clusters.index_select(0, chosen) * fitness.index_select(0, chosen).unsqueeze(1)
        coarse, weight = coarsened(edges, score, chosen, count)
        return rows, coarse, weight, batch.index_select(0, chosen)


def coarsened(edges: Tensor, score: Tensor, chosen: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The edges between chosen clusters and their weights, the entries of :math:`S^\\top A S` beside the diagonal.

    `score` weighs node `edges[0]` in the cluster of node `edges[1]`; every edge counts 1 in A.
    """
    number = torch.full((count,), -1, device=edges.device).index_copy_(
        0, chosen, torch.arange(len(chosen), device=edges.device)
    )
    inside = (number[edges[1]] >= 0).nonzero().squeeze(1)
    member, cluster, share = edges[0, inside], number[edges[1, inside]], score[inside]
    first, step = joined(member, edges[0], count)
    second, last = joined(edges[1, step], member, count)
    start, end = cluster[first[second]], cluster[last]
    apart = start != end
    paths = share[first[second]][apart] * share[last][apart]
    keys, entry = torch.unique(start[apart] * len(chosen) + end[apart], return_inverse=True)
    pairs = torch.stack([keys.div(max(len(chosen), 1), rounding_mode="floor"), keys % max(len(chosen), 1)])
    return pairs, segment_sum(paths, entry, len(keys))


def joined(left: Tensor, right: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """All pairs of positions with `left[i] == right[j]`, keys from 0 to below `count`."""
    order, size = right.argsort(stable=True), torch.bincount(right, minlength=count)
    repeats, begin = size[left], (size.cumsum(0) - size)[left]
    i = torch.repeat_interleave(torch.arange(len(left), device=left.device), repeats)
    within = torch.arange(len(i), device=left.device) - (repeats.cumsum(0) - repeats)[i]
    return i, order[begin[i] + within]
