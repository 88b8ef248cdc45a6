"""What a homophily defender can promise: which nodes no unnoticed injection beside them can turn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.homophily import edge_homophily, node_homophily


@dataclass(frozen=True, eq=False)
class Certificate:
    """For each node the margin of the defended model and the least one that the injection can leave it.

    `robust` marks the nodes whose prediction cannot be turned; `threshold` is the similarity below which the defender
    cuts, `pruned` the share of clean edges that it costs.
    """

    nodes: Tensor
    prediction: Tensor
    margin: Tensor
    worst_margin: Tensor
    threshold: float
    pruned: float

    @property
    def robust(self) -> Tensor:
        return self.worst_margin > 0


def required_similarity(
    graph: NodeGraph, margin: Tensor, *, alpha: float = 1.0, beta: float = 1.0, nodes: Tensor | None = None
) -> Tensor:
    r"""How unlike its target an injected node must be to matter, as the proposition states it.

    .. math:: \mathrm{sim}(X_u, X_w) \le -\alpha\sqrt{\tfrac{d_u}{d_u+1}}\,(h_u + \beta\gamma_u)

    `margin` is γ, that of an MLP at each of the nodes (all where none are named); degrees count the loop. The higher
    the degree, the homophily and the margin, the more an effective attack has to destroy. The constants α and β are not
    fixed by the proposition: for a promise that can be relied on use `certify_linear`.
    """
    if alpha < 0 or beta < 0:
        raise ShiftproofError(f"'alpha' and 'beta' are 0 or more, not {alpha} and {beta}")
    nodes = torch.arange(graph.num_nodes, device=graph.device) if nodes is None else nodes
    if margin.shape != nodes.shape:
        raise ShiftproofError(f"{len(nodes)} margins are needed, one a node, not {list(margin.shape)}")
    degree = (graph.degree[nodes] + 1).to(margin.dtype)
    return -alpha * (degree / (degree + 1)).sqrt() * (node_homophily(graph)[nodes] + beta * margin)


def certify_linear(
    graph: NodeGraph,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    threshold: float,
    injected: int = 1,
    radius: float | None = None,
    nodes: Tensor | None = None,
) -> Certificate:
    r"""Which nodes a one-layer linear GNN behind a homophily defender holds against nodes injected beside them.

    The model is :math:`\hat A X\Theta + b` after the defender has cut every edge with :math:`\cos < \tau`. Up to
    `injected` nodes are joined to the node in question (and to others, but not to its neighbours), with features of
    norm up to `radius` (that of the corners of the graph's feature box where it is None). An injected node that is
    kept lies within the angle :math:`\arccos\tau` of :math:`X_u`, so that the class c gains at most

    .. math:: \frac{-R\,\|\Theta_y-\Theta_c\|\cos(\min(\pi, \varphi+\arccos\tau))}{\sqrt{2(d+q)}}

    from each of q of them, φ being the angle between :math:`X_u` and :math:`\Theta_y-\Theta_c`; the bound is the
    exact worst case over that ball and cone.
    """
    if not -1 <= threshold <= 1:
        raise ShiftproofError(f"option 'threshold' is a cosine between -1 and 1, not {threshold}")
    if weight.ndim != 2 or weight.shape[0] != graph.num_features or weight.shape[1] < 2:
        raise ShiftproofError(f"the weights are a table [{graph.num_features}, classes], not {list(weight.shape)}")
    if injected < 0:
        raise ShiftproofError(f"option 'injected' is 0 or more nodes, not {injected}")
    nodes = torch.arange(graph.num_nodes, device=graph.device) if nodes is None else nodes
    kept = edge_homophily(graph) >= threshold
    defended = NodeGraph.from_edges(graph.x, graph.edges[:, kept], graph.y)
    corner = max(abs(float(graph.x.min())), abs(float(graph.x.max()))) * graph.num_features**0.5
    x, theta = graph.x.double(), weight.detach().double()
    offset = theta.new_zeros(theta.shape[1]) if bias is None else bias.detach().double()
    whole = (Adjacency(defended.edge_index, graph.num_nodes).normalized(dtype=torch.float64) @ (x @ theta))[nodes]
    degree = (defended.degree[nodes] + 1).double()[:, None]
    own = (x[nodes] @ theta) / degree
    prediction = (whole + offset).argmax(1)
    gain = _least_gain(x[nodes], theta, prediction, threshold, corner if radius is None else radius)

    def against(scores: Tensor) -> Tensor:
        return scores.gather(1, prediction[:, None]) - scores

    near, self_part, fixed = against(whole - own), against(own), offset[prediction][:, None] - offset[None]
    others = torch.arange(theta.shape[1], device=theta.device)[None] != prediction[:, None]
    worst = torch.full((len(nodes),), torch.inf, dtype=torch.float64, device=x.device)
    for count in range(injected + 1):
        after = (degree / (degree + count)).sqrt() * near + degree / (degree + count) * self_part + fixed
        after = after + count * gain / (2 * (degree + count)).sqrt()
        worst = torch.minimum(worst, after.where(others, torch.inf).amin(1))
    margin = (near + self_part + fixed).where(others, torch.inf).amin(1)
    pruned = 1 - float(kept.double().mean()) if len(kept) else 0.0
    return Certificate(nodes, prediction, margin, worst, threshold, pruned)


def _least_gain(x: Tensor, theta: Tensor, prediction: Tensor, threshold: float, radius: float) -> Tensor:
    """For each node and class the least of (Θ_y − Θ_c)·x over features of norm ≤ radius within the cone around X_u."""
    size = theta.square().sum(0)
    gram = theta.T @ theta
    norm = (size[prediction][:, None] + size[None] - 2 * gram[prediction]).clamp(min=0).sqrt()
    scores = x @ theta
    dot = scores.gather(1, prediction[:, None]) - scores
    length = x.norm(dim=1, keepdim=True)
    cosine = (dot / (norm * length).clamp(min=1e-300)).clamp(-1, 1)
    angle = torch.arccos(cosine) + torch.arccos(torch.tensor(threshold, dtype=torch.float64))
    # a node whose features are all zero has cosine 0 with everything: kept for thresholds up to 0, cut above
    everywhere = torch.full_like(angle, torch.pi if threshold <= 0 else 0.0)
    angle = torch.where(length > 0, angle, everywhere)
    return radius * norm * torch.cos(angle.clamp(max=torch.pi)).clamp(max=0)
