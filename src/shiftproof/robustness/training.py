"""Train a node classifier by the inductive protocol: it never sees a test node, nor an edge to one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.registry import defences, fitting_options, parse_name
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.features import Features
from shiftproof.robustness.flag import FLAG, RecordedFLAG, flag_backward
from shiftproof.runtime.progress import Style
from shiftproof.runtime.progress import progress as show

Protocol = Literal["inductive", "transductive"]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained classifier: its weights are those of the best validation epoch.

    `history` holds "loss" of every epoch and "val" (accuracy, NaN where not evaluated); `accuracies` are fractions on
    the clean graph by split.
    """

    model: nn.Module
    history: Mapping[str, list[float]]
    accuracies: Mapping[str, float]
    best_epoch: int
    seconds: float = field(compare=False)


def build_defence(name: str | type[nn.Module], graph: NodeGraph, *, seed: int = 0, **options: Any) -> nn.Module:
    """A fresh model sized for `graph`: a registered name (with options, "eguard:threshold=0.2") or a class."""
    make = name
    if isinstance(name, str):
        plain, said = parse_name(name)
        entry = defences[plain]
        make = entry.make
        options = fitting_options({**said, **options}, entry.options, f"defence '{plain}'")
    with seeded(seed, graph.device):
        return make(graph.num_features, graph.num_classes, **options).to(graph.device)  # type: ignore[operator]


def train_defence(
    model: nn.Module | str,
    graph: NodeGraph,
    *,
    epochs: int = 400,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    patience: int | None = None,
    evaluate_from: float = 0.5,
    flag: FLAG | None = None,
    protocol: Protocol = "inductive",
    seed: int = 0,
    progress: Style = "none",
) -> Trained:
    """Train on the graph of the training nodes, select on that of training and validation nodes, score on all.

    Validation accuracy is taken after every epoch past the share `evaluate_from` of `epochs`; the weights of the first
    best one are kept. With `patience`, training stops after that many evaluations without a better one.
    `protocol="transductive"` trains on the whole graph, which is how attacks on training graphs (Metattack) are scored.
    Equal seeds give equal results.
    """
    if isinstance(model, str):
        model = build_defence(model, graph, seed=seed)
    _require_split(graph, epochs, evaluate_from)
    start = time.perf_counter()
    train, val = stages(graph, protocol)
    with seeded(seed, graph.device), show(type(model).__name__, epochs, progress) as shown:
        step = _stepper(model, train, adam(model, lr, weight_decay), flag)
        best = Selection(model)
        losses, scores = [], []
        for epoch in range(epochs):
            model.train()
            losses.append(step())
            judged = epoch + 1 > evaluate_from * epochs or epoch + 1 == epochs
            scores.append(best.look(val, epoch) if judged else float("nan"))
            shown.advance(epoch + 1, f"validation {best.score:.3f}" if best.epoch >= 0 else "")
            if patience is not None and judged and best.waited > patience:
                break
    best.restore()
    history = {"loss": torch.stack(losses).tolist(), "val": scores}
    if not all(map(_finite, history["loss"])):
        bad = next(i for i, value in enumerate(history["loss"]) if not _finite(value))
        raise TrainingDiverged(f"the training loss of {type(model).__name__} is not finite in epoch {bad + 1}")
    # a split's accuracy is the one of the graph it is used on: training nodes are scored on the training graph
    accuracies = {
        "train": train.score(model),
        "val": val.score(model),
        "test": accuracy(model, graph, graph.test) if len(graph.test) else float("nan"),
    }
    return Trained(model.eval(), history, accuracies, best.epoch, time.perf_counter() - start)


def predict(model: nn.Module, graph: NodeGraph) -> Tensor:
    """The logits of every node of `graph`, [nodes, classes]; the model's mode is left as it was."""
    return predict_on(model, graph.x, Adjacency(graph.edge_index, graph.num_nodes))


@torch.no_grad()
def predict_on(model: nn.Module, x: Tensor | Features, adjacency: Adjacency) -> Tensor:
    """The same where several models look at one graph: they share what its adjacency keeps."""
    was = model.training
    model.eval()
    try:
        return model(x, adjacency)
    finally:
        model.train(was)


def accuracy(model: nn.Module, graph: NodeGraph, nodes: Tensor | None = None) -> float:
    """The share of `nodes` (the test nodes if not given) whose class is predicted rightly."""
    nodes = graph.test if nodes is None else nodes
    if not len(nodes):
        raise ShiftproofError(f"no nodes of {graph.name} to score: give some, or a graph with test nodes")
    return float((predict(model, graph)[nodes].argmax(1) == graph.y[nodes]).double().mean())


def adam(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Adam:
    """The optimiser of all defences; fused, because the models are small and their steps short."""
    return torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from `seed` inside; outside, the global streams go on as if nothing had happened."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True, eq=False)
class Stage:
    """One graph of the protocol, what is derived from it once, and the nodes that count."""

    features: Features
    adjacency: Adjacency
    y: Tensor
    nodes: Tensor

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        """The accuracy on the nodes that count; leaves the model in evaluation mode."""
        model.eval()
        logits = model(self.features, self.adjacency)[self.nodes]
        return float((logits.argmax(1) == self.y[self.nodes]).double().mean())


def stages(graph: NodeGraph, protocol: Protocol) -> tuple[Stage, Stage]:
    """The graph to train on and the graph to select on."""
    if protocol == "transductive":
        features, adjacency = Features(graph.x), Adjacency(graph.edge_index, graph.num_nodes)
        return tuple(Stage(features, adjacency, graph.y, nodes) for nodes in (graph.train, graph.val))  # type: ignore
    if protocol != "inductive":
        raise ShiftproofError(f"protocol is 'inductive' or 'transductive', not '{protocol}'")
    inner = graph.subgraph(graph.train)
    outer = graph.subgraph(torch.cat([graph.train, graph.val])) if len(graph.val) else inner
    return (_stage_of(inner, inner.train), _stage_of(outer, outer.val if len(graph.val) else outer.train))


def _stage_of(graph: NodeGraph, nodes: Tensor) -> Stage:
    return Stage(Features(graph.x), Adjacency(graph.edge_index, graph.num_nodes), graph.y, nodes)


def _stepper(
    model: nn.Module, train: Stage, optimizer: torch.optim.Optimizer, flag: FLAG | None
) -> Callable[[], Tensor]:
    """One optimiser step on the training graph; returns the loss, still on the device."""
    labels = train.y[train.nodes]
    whole = len(train.nodes) == len(train.y) and bool(torch.equal(train.nodes, torch.arange(len(labels)).to(labels)))

    def loss(x: Tensor | Features) -> Tensor:
        logits = model(x, train.adjacency)
        return F.cross_entropy(logits if whole else logits[train.nodes], labels)

    def plain() -> Tensor:
        optimizer.zero_grad()
        value = loss(train.features) if flag is None else flag_backward(loss, train.features.x, flag)
        if flag is None:
            value.backward()
        optimizer.step()
        return value.detach()

    if flag is None or not train.features.x.is_cuda:
        return plain
    model.train()
    recorded = RecordedFLAG(loss, train.features.x, flag, list(model.parameters()))

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        value = recorded()
        optimizer.step()
        return value

    return step


class Selection:
    """The weights of the first best validation accuracy."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.score, self.epoch, self.waited = model, float("nan"), -1, 0
        self._state: dict[str, Tensor] = {}

    def look(self, stage: Stage, epoch: int) -> float:
        """Score the model as it is now, and keep its weights where it is better than ever."""
        score = stage.score(self.model)
        if not self._state or score > self.score:
            self.score, self.epoch, self.waited = score, epoch, 0
            self._state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        else:
            self.waited += 1
        return score

    def restore(self) -> None:
        self.model.load_state_dict(self._state)


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")


def _require_split(graph: NodeGraph, epochs: int, evaluate_from: float) -> None:
    if not len(graph.train):
        raise ShiftproofError(f"{graph.name} has no training nodes; give it a split (graph.with_split)")
    if epochs < 1 or not 0 <= evaluate_from <= 1:
        raise ShiftproofError(
            f"training takes at least one epoch and evaluate_from in [0, 1], not {epochs} and {evaluate_from}"
        )
