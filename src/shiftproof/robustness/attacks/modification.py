"""Attacks that flip edges of a graph: along the surrogate's gradient, at random, or mapped to injected nodes (M2).

No table of all pairs is ever made: the gradients of candidate pairs (a target and any node) are taken block by block,
and only the best of each block is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Positive, Whole
from shiftproof.registry import register
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.attacks.blocks import Block
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.updates import PATIENCE, RATE, STEPS, SignPGD
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.defences.base import Weights
from shiftproof.robustness.defences.gcn import GCN
from shiftproof.robustness.theory.mapping import plural_mapping

BLOCK = 1 << 22  # candidate pairs whose gradient is taken at a time; for models other than a GCN, see WEIGHTED
WEIGHTED = 1 << 18  # candidate pairs that enter any other model as edges of weight 0


@dataclass(frozen=True)
class GradientFlips:
    """Metattack's rule used against a trained model: flip the pair whose gradient is largest, again and again.

    An absent edge is added where the targets' loss rises with it, a present one removed where it falls with it. One end
    is a target; a pair inside the training nodes is left alone, and no pair is flipped twice. `at_once` flips are taken
    from one gradient.
    """

    at_once: int = 1
    joined_only: bool = False  # only between nodes that have a neighbour
    kind = "modification"
    targets_only = False

    def run(self, situation: Situation) -> Perturbation:
        graph, budget = situation.graph, situation.budget
        flips = torch.zeros(2, 0, dtype=torch.long, device=graph.device)
        current, losses = graph, []
        while flips.shape[1] < budget.edges:
            wanted = min(self.at_once, budget.edges - flips.shape[1])
            found, loss = self._best(situation, current, flips, wanted)
            losses.append(loss)
            if not found.shape[1]:
                break
            flips = torch.cat([flips, found], 1)
            current = _flipped(graph, flips).apply(graph)
        situation.log["loss"] = losses
        return replace(_flipped(graph, flips), log=situation.log)

    def _best(self, situation: Situation, graph: NodeGraph, flips: Tensor, wanted: int) -> tuple[Tensor, float]:
        """The pairs of largest useful gradient, each as (u, v) with u < v."""
        n = graph.num_nodes
        gradient = _gradients(situation, graph)
        train = torch.zeros(n, dtype=torch.bool, device=graph.device)
        train[situation.graph.train] = True
        alone = situation.graph.degree == 0
        done = flips[0] * n + flips[1]
        values, keys = graph.x.new_zeros(0), flips.new_zeros(0)
        every = torch.arange(n, device=graph.device)
        is_target = torch.zeros_like(train)
        is_target[situation.targets] = True
        for u, g in gradient.blocks(situation.targets):
            low, high = torch.minimum(u[:, None], every), torch.maximum(u[:, None], every)
            key = low * n + high
            there = graph.has_edges(torch.stack([low.flatten(), high.flatten()])).view_as(low)
            useful = torch.where(there, g < 0, g > 0) & (low != high)
            # a pair of two targets appears twice: only from its smaller end
            useful &= ~(is_target[every] & (u[:, None] > every)) & ~(train[u][:, None] & train[every])
            useful &= ~torch.isin(key, done)
            if situation.budget.add_only:
                useful &= ~there
            if self.joined_only:
                useful &= ~(alone[u][:, None] | alone[every])
            size = torch.where(useful, g.abs(), 0.0).flatten()
            top = size.topk(min(wanted, len(size)))
            values, keys = torch.cat([values, top.values]), torch.cat([keys, key.flatten()[top.indices]])
        order = torch.argsort(values, descending=True, stable=True)[:wanted]
        keys = keys[order[values[order] > 0]]
        return torch.stack([keys // n, keys % n]), gradient.loss


def _flipped(graph: NodeGraph, flips: Tensor) -> Perturbation:
    there = graph.has_edges(flips)
    return Perturbation(
        features=graph.x.new_zeros(0, graph.num_features), added=flips[:, ~there], removed=flips[:, there]
    )


def _gradients(situation: Situation, graph: NodeGraph) -> PairGradients | WeightedGradients:
    kind = PairGradients if type(situation.model) is GCN else WeightedGradients
    return kind(situation.model, graph, situation.targets, situation.labels)  # type: ignore[arg-type]


class PairGradients:
    r"""The gradient of a GCN's loss in any pair, from two narrow tables of the nodes.

    With :math:`Z_l = H_{l-1}W_l`, :math:`S = D^{-1/2}`, :math:`M_l = S(A+I)S Z_l` and
    :math:`G_l = \partial L/\partial M_l`

    .. math:: \frac{\partial L}{\partial A_{uv}} = s_u s_v\sum_l (G_l[u]\cdot Z_l[v] + G_l[v]\cdot Z_l[u])
              + \frac{\partial L}{\partial d_u} + \frac{\partial L}{\partial d_v}
    """

    def __init__(self, model: GCN, graph: NodeGraph, targets: Tensor, labels: Tensor) -> None:
        row, col = graph.edge_index
        n, dtype = graph.num_nodes, model.dtype
        adjacent = Block(row, col, torch.ones(len(row), dtype=dtype, device=graph.device), (n, n))
        degree = (graph.degree + 1).to(dtype).requires_grad_()
        s = degree.rsqrt()[:, None]
        inputs, outputs = [], []
        h = model.normalised_input(graph.x)
        for layer in range(model.depth):
            conv: Weights = model.convs[layer]  # type: ignore[assignment]
            z = F.linear(h, conv.weight.detach())  # type: ignore[arg-type]
            m = s * (adjacent @ (s * z) + s * z)
            inputs.append(z.detach())
            outputs.append(m)
            h = m + conv.bias.detach()
            h = model.activate(layer, h) if layer < model.depth - 1 else h
        loss = F.cross_entropy(h[targets], labels)  # type: ignore[index]
        *to_outputs, self.to_degree = torch.autograd.grad(loss, [*outputs, degree])
        self.loss = float(loss.detach())
        scale = s.detach()
        self.left, self.right = scale * torch.cat(to_outputs, 1), scale * torch.cat(inputs, 1)

    def blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Some of the rows and the gradients of their pairs with all nodes, [rows, nodes], until all rows are done."""
        for u in rows.split(max(1, BLOCK // len(self.left))):
            yield u, self(u)

    def __call__(self, u: Tensor) -> Tensor:
        g = self.left[u] @ self.right.T + self.right[u] @ self.left.T
        return g + self.to_degree[u][:, None] + self.to_degree


class WeightedGradients:
    """The same for any model that takes weighted edges: candidates enter as edges of weight 0, some rows at a time."""

    def __init__(self, model: nn.Module, graph: NodeGraph, targets: Tensor, labels: Tensor) -> None:
        self.model, self.graph, self.targets, self.labels = model, graph, targets, labels
        with torch.no_grad():
            logits = model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))[targets]
            self.loss = float(F.cross_entropy(logits, labels))

    def blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for u in rows.split(max(1, WEIGHTED // self.graph.num_nodes)):
            yield u, self(u)

    def __call__(self, u: Tensor) -> Tensor:
        graph, n = self.graph, self.graph.num_nodes
        every = torch.arange(n, device=graph.device)
        low, high = torch.minimum(u[:, None], every).flatten(), torch.maximum(u[:, None], every).flatten()
        keys = torch.cat([graph.edges[0] * n + graph.edges[1], (low * n + high)[low != high]]).unique()
        pairs = torch.stack([keys // n, keys % n])
        weight = graph.has_edges(pairs).to(graph.x).requires_grad_()
        both, order = torch.sort(torch.cat([keys, pairs[1] * n + pairs[0]]))
        adjacency = Adjacency(torch.stack([both // n, both % n]), n)
        logits = self.model(graph.x, Adjacency.of(adjacency.pattern, torch.cat([weight, weight])[order]))
        (grad,) = torch.autograd.grad(F.cross_entropy(logits[self.targets], self.labels), weight, allow_unused=True)
        if grad is None:
            raise ShiftproofError(
                f"{type(self.model).__name__} does not react to edge weights; edges cannot be flipped by its gradient"
            )
        at = torch.searchsorted(keys, low * n + high).clamp(max=len(keys) - 1)
        return torch.where(low == high, 0.0, grad[at]).view(len(u), n)


@dataclass(frozen=True)
class RandomFlips:
    """Pairs of a target and any node, drawn at random: as likely an edge to remove as one to add."""

    kind = "modification"
    targets_only = False

    def run(self, situation: Situation) -> Perturbation:
        graph, budget, targets = situation.graph, situation.budget, situation.targets
        train = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
        train[graph.train] = True
        edges = graph.edges
        removable = edges[:, torch.isin(edges, targets).any(0) & ~train[edges].all(0)]
        removed = 0 if budget.add_only else int((situation.rand(budget.edges) < 0.5).sum())
        removed = min(removed, removable.shape[1])
        gone = removable[:, situation.randperm(removable.shape[1])[:removed]]
        return Perturbation(
            features=graph.x.new_zeros(0, graph.num_features),
            added=self._added(situation, train, budget.edges - removed),
            removed=gone,
            log=situation.log,
        )

    @staticmethod
    def _added(situation: Situation, train: Tensor, wanted: int) -> Tensor:
        """Distinct absent pairs; drawn with some to spare, until there are enough or a hundred draws are done."""
        graph, targets, n = situation.graph, situation.targets, situation.graph.num_nodes
        keys = torch.zeros(0, dtype=torch.long, device=graph.device)
        for _ in range(100):
            if len(keys) >= wanted:
                break
            size = 2 * (wanted - len(keys)) + 8
            u = targets[(situation.rand(size) * len(targets)).long().clamp(max=len(targets) - 1)]
            v = (situation.rand(size) * n).long().clamp(max=n - 1)
            pairs = torch.stack([torch.minimum(u, v), torch.maximum(u, v)])
            good = (u != v) & ~graph.has_edges(pairs) & ~(train[u] & train[v])
            keys = torch.cat([keys, (pairs[0] * n + pairs[1])[good]]).unique()
        keys = keys[situation.randperm(len(keys))[:wanted]]
        return torch.stack([keys // n, keys % n])


@dataclass(frozen=True)
class MappedFlips:
    """M2: edges added along the gradient, each then imitated by an injected node joined to its two ends, whose features
    start where a one-layer linear model sees no difference and are optimised from there."""

    update: SignPGD = field(default_factory=SignPGD)
    at_once: int = 1
    kind = "injection"
    targets_only = False

    def run(self, situation: Situation) -> Perturbation:
        budget = situation.budget
        if budget.edges_per_node < 2:
            raise ShiftproofError(
                "the attack 'm2' joins every injected node to two nodes: 'edges_per_node' of 2 or more"
            )
        adding = replace(budget, nodes=0, edges_per_node=0, edges=budget.nodes, add_only=True)
        modified = GradientFlips(self.at_once, joined_only=True).run(replace(situation, budget=adding))
        if not modified.added.shape[1]:
            raise ShiftproofError("no edge that could be added raises the surrogate's loss at the targets")
        mapped = plural_mapping(situation.graph, modified, targets=situation.targets, budget=budget)
        features = self.update(situation, mapped.edges, mapped.features)
        return replace(mapped, features=features, log=situation.log)


@register("metattack", "attacks", tags=("modification",))
def metattack(*, at_once: Count = 1) -> GradientFlips:
    """Edges flipped along the surrogate's gradient (Metattack's rule against a fixed model), `at_once` from each."""
    return GradientFlips(at_once)


@register("random-flips", "attacks", tags=("modification",))
def random_flips() -> RandomFlips:
    """Edges at the targets flipped at random."""
    return RandomFlips()


@register("m2", "attacks", tags=("injection",))
def m2(
    *, steps: Whole = STEPS, rate: Positive = RATE, patience: Whole | None = PATIENCE, at_once: Count = 1
) -> MappedFlips:
    """Edges added along the gradient, imitated by injected nodes of two edges each, then optimised features."""
    return MappedFlips(SignPGD(steps, rate, patience), at_once)
