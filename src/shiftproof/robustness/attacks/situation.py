"""What an attacker has before it: the graph, the surrogate, the targets and what the surrogate says of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.attacks.views import View, open_view
from shiftproof.robustness.budget import Budget
from shiftproof.robustness.training import predict, train_defence

Start = Literal["random", "normal", "sample", "zeros"]


@dataclass(frozen=True, eq=False)
class Situation:
    """Everything an attack may look at. `labels` are the surrogate's own predictions of the targets on the clean graph;
    true labels of targets are not in it. `log` collects what the attack saw on its way."""

    graph: NodeGraph
    model: nn.Module
    targets: Tensor
    labels: Tensor
    budget: Budget
    hao: float
    reference: bool
    generator: torch.Generator
    log: dict[str, Any] = field(default_factory=dict)

    @property
    def box(self) -> tuple[float, float]:
        return self.budget.box(self.graph)

    def view(self, edges: Tensor, count: int, inner: Tensor | None = None) -> View:
        """The surrogate at the targets as a function of the features of `count` injected nodes."""
        return open_view(self.model, self.graph, edges, count, self.targets, inner)

    def on(self, graph: NodeGraph) -> Situation:
        """The same with nodes injected earlier as part of the graph; the box stays that of the clean graph."""
        low, high = self.box
        return replace(self, graph=graph, budget=replace(self.budget, low=low, high=high))

    @torch.no_grad()
    def probabilities(self) -> Tensor:
        """What the surrogate now gives the targets, [targets, classes]."""
        graph = self.graph
        return F.softmax(self.model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))[self.targets], 1)

    def rand(self, *shape: int) -> Tensor:
        """Uniform numbers; drawn on the CPU, so that every device sees the same."""
        return torch.rand(*shape, generator=self.generator).to(self.graph.device)

    def randperm(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(self.graph.device)

    def start(self, count: int, style: Start = "random") -> Tensor:
        """Features of new nodes before they are optimised (docs/papers/hao.md#building-blocks)."""
        x, (low, high) = self.graph.x, self.box
        shape = (count, self.graph.num_features)
        if style == "zeros":
            return x.new_zeros(shape).clamp(low, high)
        if style == "sample":
            return x[torch.randint(len(x), (count,), generator=self.generator).to(x.device)].clamp(low, high)
        if style not in ("random", "normal"):
            raise unknown("start of features", style, ("random", "normal", "sample", "zeros"))
        drawn = torch.randn(shape, generator=self.generator).to(x)
        return drawn if style == "normal" else drawn * (high / 10)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; every part of it gets its own mode back."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def default_surrogate(graph: NodeGraph, seed: int = 0, epochs: int | None = None) -> nn.Module:
    """The attacker's own model: a 3-layer GCN trained on the clean training graph (docs/papers/hao.md#training)."""
    from shiftproof.robustness.training import build_defence
    from shiftproof.robustness.zoo import preset_for

    preset = preset_for(graph.name)
    model = build_defence("gcn", graph, seed=seed, hidden=preset.hidden)
    return train_defence(model, graph, epochs=epochs or preset.epochs, lr=preset.lr, seed=seed).model


def own_labels(model: nn.Module, graph: NodeGraph, targets: Tensor) -> Tensor:
    """What the surrogate predicts for the targets on the clean graph; one that does not fit it is an error."""
    logits = predict(model, graph)
    name = type(model).__name__
    wanted = f"[{graph.num_nodes}, {graph.num_classes}]"
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[0] != graph.num_nodes:
        shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ShiftproofError(f"the surrogate {name} returns {shape} on {graph.name}; {wanted} is needed")
    if logits.shape[1] < graph.num_classes:
        raise ShiftproofError(
            f"the surrogate {name} returns {list(logits.shape)} on {graph.name}: {logits.shape[1]} classes, "
            f"and the graph has {graph.num_classes}"
        )
    return logits[targets].argmax(1)
