"""Explaining a trained model after the fact, graph by graph: masks found by gradient descent, gradients, occlusion.

Each function takes a `WeightedModel` and a batch and gives one score in [0, 1] for each stored edge. All graphs of a
batch are explained at once; no graph's scores depend on the others.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.columns import take
from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.weighted import WeightedModel, without_edges
from shiftproof.nn import reverse_edges, segment_count, segment_mean, segment_normalise, segment_sum, symmetrise
from shiftproof.ranges import Count, NonNegative, Positive, Seed, checked

LEAST = 1e-12
MOST_EDGES_AT_ONCE = 400_000  # of all the copies of graphs that occlusion sends through together


@checked
def gnnexplainer(
    model: WeightedModel,
    batch: GraphBatch,
    *,
    steps: Count = 100,
    lr: Positive = 0.1,
    size: NonNegative = 0.1,
    entropy: NonNegative = 1.0,
    seed: Seed = 0,
    noise: Tensor | None = None,
) -> Tensor:
    """GNNExplainer: for every graph the few edges that keep the model's prediction.

    .. math:: \\min_M CE(f(G ⊙ σ(M)), \\hat y) + c_{size} \\sum_e σ(M_e) + c_{ent}\\, mean_e H(σ(M_e))

    `M` starts at `N(1, 2 / nodes)`. Adam moves every entry by itself and the model is in evaluation mode, so one mask
    over the whole batch is the same as one graph after the other. With a `size` too small everything is kept; 0.1 is
    the published weight for BA-2Motifs and GIN (docs/papers/gmt.md#gnnexplainer).
    """
    owner, graphs = batch.edge_batch, batch.num_graphs
    with model.frozen():
        with torch.no_grad():
            logits = model(batch)
        target = predicted(logits, model.task_of(logits))
        if noise is None:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(batch.num_edges, generator=generator).to(batch.x.device, batch.x.dtype)
        nodes = segment_count(batch.batch, graphs + 1, batch.x.dtype)[:graphs].clamp(min=1)
        mask = (1 + noise * (2 / nodes).sqrt().index_select(0, owner)).requires_grad_()
        optimizer = torch.optim.Adam([mask], lr=lr)
        for _ in range(steps):
            keep = mask.sigmoid()
            cost = disagreement(model(batch, keep), target, model.task_of(logits))
            cost = cost + size * segment_sum(keep, owner, graphs)
            cost = cost + entropy * segment_mean(bernoulli_entropy(keep), owner, graphs)
            (mask.grad,) = torch.autograd.grad(cost.sum(), [mask])
            optimizer.step()
    return symmetrise(mask.detach().sigmoid(), reverse_edges(batch.edge_index, batch.num_nodes))


def gradient(model: WeightedModel, batch: GraphBatch) -> Tensor:
    """How much the predicted class moves with the weight of each edge, `|∂ z_ŷ / ∂ w_e|`, stretched over each graph."""
    with model.frozen():
        weight = torch.ones(batch.num_edges, dtype=batch.x.dtype, device=batch.x.device, requires_grad=True)
        logits = model(batch, weight)
        task = model.task_of(logits)
        chosen = logits.gather(1, logits.argmax(1, keepdim=True)) if task == "multiclass" else logits
        (slope,) = torch.autograd.grad(chosen.sum(), [weight])
    slope = symmetrise(slope.abs(), reverse_edges(batch.edge_index, batch.num_nodes))
    return segment_normalise(slope, batch.edge_batch, batch.num_graphs)


@checked
def occlusion(model: WeightedModel, batch: GraphBatch, *, most_edges: Count = MOST_EDGES_AT_ONCE) -> Tensor:
    """How much the prediction changes when an edge (both directions) is taken away, stretched over each graph.

    This asks nothing of the model but predictions; a graph with `m` edges is predicted `m` times.
    """
    reverse = reverse_edges(batch.edge_index, batch.num_nodes)
    own = torch.arange(batch.num_edges, device=reverse.device)
    first = torch.minimum(own, reverse)
    asked = (first == own).nonzero().squeeze(1)  # one question for both directions
    owner = batch.edge_batch
    counts = segment_count(owner, batch.num_graphs)
    change = torch.zeros(batch.num_edges, dtype=batch.x.dtype, device=batch.x.device)
    with torch.no_grad(), model.frozen():
        logits = model(batch)
        task = model.task_of(logits)
        before = distributions(logits, task)
        load = counts.index_select(0, owner.index_select(0, asked)).cumsum(0)
        for part in torch.arange(len(asked), device=load.device).split(_pieces(load, most_edges)):
            edge = asked.index_select(0, part)
            graph = owner.index_select(0, edge)
            copies, source = repeat_graphs(batch, graph)
            missing = edge.index_select(0, copies.edge_batch)
            keep = (source != missing) & (source != reverse.index_select(0, missing))
            after = distributions(model(without_edges(copies, keep)), task)
            change[edge] = (after - before.index_select(0, graph)).abs().flatten(1).sum(1).to(change.dtype)
    return segment_normalise(change.index_select(0, first), owner, batch.num_graphs)


def _pieces(load: Tensor, most: int) -> list[int]:
    """How to cut questions into pieces whose graphs together have at most so many edges (or one question)."""
    if not len(load):
        return []
    piece = (load - 1) // most
    return torch.unique_consecutive(piece, return_counts=True)[1].tolist()


def repeat_graphs(batch: GraphBatch, graphs: Tensor) -> tuple[GraphBatch, Tensor]:
    """A batch of the named graphs in that order, repeats allowed, and the edge of the old batch that each edge was."""
    sizes = batch.ptr.diff()
    order = torch.sort(batch.edge_batch, stable=True).indices
    counts = segment_count(batch.edge_batch, batch.num_graphs)
    edge_start = counts.cumsum(0) - counts
    new_sizes, new_counts = sizes.index_select(0, graphs), counts.index_select(0, graphs)
    ptr = torch.cat([new_sizes.new_zeros(1), new_sizes.cumsum(0)])
    nodes = _spread(batch.ptr[:-1].index_select(0, graphs), new_sizes)
    edges = order.index_select(0, _spread(edge_start.index_select(0, graphs), new_counts))
    shift = torch.repeat_interleave(ptr[:-1] - batch.ptr[:-1].index_select(0, graphs), new_counts)
    number = torch.arange(len(graphs), device=graphs.device)
    made = GraphBatch(
        x=batch.x.index_select(0, nodes),
        edge_index=batch.edge_index.index_select(1, edges) + shift,
        batch=torch.repeat_interleave(number, new_sizes),
        ptr=ptr,
        num_graphs=len(graphs),
        edge_attr=None if batch.edge_attr is None else batch.edge_attr.index_select(0, edges),
        index=batch.index.index_select(0, graphs),
        columns=take(batch.columns, graphs),
        node_columns=take(batch.node_columns, nodes),
    )
    return made, edges


def _spread(start: Tensor, count: Tensor) -> Tensor:
    """`start[i], start[i] + 1, ...`, `count[i]` of them, one after the other."""
    before = count.cumsum(0) - count
    total = torch.arange(int(count.sum()), device=start.device)
    return total + torch.repeat_interleave(start - before, count)


def predicted(logits: Tensor, task: Task) -> Tensor:
    """What the model says, as the labels of its task."""
    if task == "multiclass":
        return logits.argmax(-1)
    return logits.detach() if task == "regression" else (logits > 0).to(logits.dtype)


def disagreement(logits: Tensor, target: Tensor, task: Task) -> Tensor:
    """The loss of every graph against given labels."""
    if task == "multiclass":
        return F.cross_entropy(logits, target, reduction="none")
    if task == "regression":
        return (logits - target).square().flatten(1).sum(1) if logits.dim() > 1 else (logits - target).square()
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return loss.flatten(1).mean(1) if loss.dim() > 1 else loss


def bernoulli_entropy(p: Tensor) -> Tensor:
    """`-p log p - (1 - p) log(1 - p)`, in nats."""
    p = p.clamp(LEAST, 1 - 1e-7)
    return -p * p.log() - (1 - p) * torch.log1p(-p)


def distributions(logits: Tensor, task: Task) -> Tensor:
    """What a prediction says as distributions `[graphs, labels, classes]`; a regression's is its value alone."""
    if task == "multiclass":
        return logits.softmax(-1).unsqueeze(1)
    values = logits.unsqueeze(1) if logits.dim() == 1 else logits
    if task == "regression":
        return values.unsqueeze(-1)
    chance = values.sigmoid()
    return torch.stack([(-values).sigmoid(), chance], -1)
