"""Train a node classifier by the inductive protocol: it never sees a test node, nor an edge to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.ranges import Count, Fraction, NonNegative, Positive, Seed, checked
from shiftproof.registry import defences, fitting_options, parse_name
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.features import Features
from shiftproof.robustness.flag import FLAG, RecordedFLAG, flag_backward
from shiftproof.runtime import files
from shiftproof.runtime.fingerprints import digest_of
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import jsonable
from shiftproof.training.best import Best
from shiftproof.training.callbacks import Callback, Training, require_callbacks
from shiftproof.training.epochs import EpochLoop
from shiftproof.training.identity import require_same
from shiftproof.training.resuming import go_on_from, state_of, whole_checkpoint
from shiftproof.training.run_files import CHECKPOINT

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


@checked
def build_defence(name: str | type[nn.Module], graph: NodeGraph, *, seed: Seed = 0, **options: Any) -> nn.Module:
    """A fresh model sized for `graph`: a registered name (with options, "eguard:threshold=0.2") or a class."""
    make = name
    if isinstance(name, str):
        plain, said = parse_name(name)
        entry = defences[plain]
        make = entry.make
        options = fitting_options({**said, **options}, entry.options, f"defence '{plain}'")
    with seeded(seed, graph.device):
        return make(graph.num_features, graph.num_classes, **options).to(graph.device)  # type: ignore[operator]


@checked
def train_defence(
    model: nn.Module | str,
    graph: NodeGraph,
    *,
    epochs: Count = 400,
    lr: Positive = 0.01,
    weight_decay: NonNegative = 0.0,
    patience: Count | None = None,
    evaluate_from: Fraction = 0.5,
    flag: FLAG | None = None,
    protocol: Protocol = "inductive",
    seed: Seed = 0,
    progress: Style = "none",
    callbacks: Sequence[Callback | Callable[[Training], Any]] = (),
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: NonNegative = 5.0,
) -> Trained:
    """Train on the graph of the training nodes, select on that of training and validation nodes, score on all.

    Validation accuracy is taken after every epoch past the share `evaluate_from` of `epochs`; the weights of the first
    best one are kept. With `patience`, training stops after that many evaluations without a better one.
    `protocol="transductive"` trains on the whole graph, which is how attacks on training graphs (Metattack) are scored.
    Equal seeds give equal results. `callbacks` are those of `shiftproof.fit`. With `out`, training that is killed goes
    on from there with `resume=True`, to the same result.
    """
    if isinstance(model, str):
        model = build_defence(model, graph, seed=seed)
    _require_split(graph, epochs, evaluate_from)
    train, val = stages(graph, protocol)
    settings = {"lr": lr, "weight_decay": weight_decay, "patience": patience, "evaluate_from": evaluate_from}
    settings |= {"flag": None if flag is None else asdict(flag), "protocol": protocol}
    with seeded(seed, graph.device):
        training = NodeTraining(
            model,
            graph,
            train,
            val,
            optimizer=adam(model, lr, weight_decay),
            flag=flag,
            evaluate_from=evaluate_from,
            patience=patience,
            settings=settings,
            epochs=epochs,
            seed=seed,
            device=graph.device,
            style=progress,
            callbacks=callbacks,
            folder=None if out is None else Path(out),
            checkpoint_seconds=checkpoint_seconds,
        )
        return training.run(resume=resume)


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


class NodeTraining(EpochLoop):
    """A node classifier trained on one graph and selected on another: an epoch is a step on the whole graph."""

    def __init__(
        self,
        model: nn.Module,
        graph: NodeGraph,
        train: Stage,
        val: Stage,
        *,
        optimizer: torch.optim.Optimizer,
        evaluate_from: float,
        settings: dict[str, Any],
        flag: FLAG | None = None,
        patience: int | None = None,
        **loop: Any,
    ) -> None:
        super().__init__(**loop)
        require_callbacks(loop.get("callbacks", ()))
        self.model, self.graph, self.train, self.val, self.optimizer = model, graph, train, val, optimizer
        self.evaluate_from, self.patience = evaluate_from, patience
        self.names = ["task"]
        self.best = Best(lambda new, old: new > old)
        self.scores: list[float] = []
        self.waited = 0  # evaluations without a better one
        self.move = _stepper(model, train, optimizer, flag)
        self.config = {"classifier": type(model).__name__, "epochs": self.epochs, "seed": self.seed, **settings}

    def title(self) -> str:
        return type(self.model).__name__

    def parts(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    @property
    def best_epoch(self) -> int:
        return self.best.epoch

    def one_epoch(self) -> str:
        self.model.train()
        self.note_step(self.move().reshape(1))
        judged = self.epoch + 1 > self.evaluate_from * self.epochs or self.epoch + 1 == self.epochs
        self.scores.append(self.judge() if judged else math.nan)
        return f"validation {self.best.value:.3f}" if self.best.epoch >= 0 else ""

    def judge(self) -> float:
        """Score the model as it is now, and keep its weights where it is better than ever."""
        score = self.val.score(self.model)
        if self.best.improves(score):
            self.best.take(self.epoch, score, self.parts())
            self.waited = 0
        else:
            self.waited += 1
        self.stopped = self.patience is not None and self.waited > self.patience
        return score

    def tell_epoch(self) -> None:
        if self.callbacks:
            self.look()
            self.history[-1]["val"] = {self.metric: jsonable(self.scores[-1])}
            super().tell_epoch()

    def run(self, *, resume: bool = False) -> Trained:
        """Train, go back to the best weights, and score them on every split."""
        self._begin(resume)
        try:
            self.train_through()
            self.look()
        finally:
            self.callbacks.end(None)
        self.save()
        self.best.restore(self.parts())
        # a split's accuracy is the one of the graph it is used on: training nodes are scored on the training graph
        accuracies = {
            "train": self.train.score(self.model),
            "val": self.val.score(self.model),
            "test": accuracy(self.model, self.graph, self.graph.test) if len(self.graph.test) else math.nan,
        }
        history = {"loss": [record["losses"]["task"] for record in self.history], "val": self.scores}
        return Trained(self.model.eval(), history, accuracies, self.best.epoch, self.seconds)

    def diverged(self, what: str) -> TrainingDiverged:
        return super().diverged(f"{type(self.model).__name__}: {what}")

    # files

    def save(self) -> None:
        if self.folder is not None:
            self.look()
            files.write_tensors(self.folder / CHECKPOINT, *self.state())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the training needs to go on from here: tensors, and a note with the rest."""
        tensors, note = state_of(self, self.optimizer, self.best)
        return tensors, {**note, "scores": [jsonable(score) for score in self.scores], "waited": self.waited}

    def take(self, tensors: dict[str, Tensor], note: dict[str, Any], path: Path) -> None:
        """Go on from a state that `path` holds."""
        go_on_from(self, tensors, note, path, self.optimizer, self.best)
        self.scores = [math.nan if score is None else score for score in note["scores"]]
        self.waited = note["waited"]

    def _begin(self, resume: bool) -> None:
        """Go on from what lies in the folder, if that is wanted; refuse to write over it if not."""
        if self.folder is None:
            return
        self.config["data"] = fingerprint(self.graph)
        path = self.folder / CHECKPOINT
        if not path.exists():
            return
        if not resume:
            raise ShiftproofError(f"{self.folder} already holds a training; resume it or choose another folder")
        tensors, note = files.read_tensors(path, "resuming")
        require_same(self.config, note.get("config"), path)
        with whole_checkpoint(path):
            self.take(tensors, note, path)


def fingerprint(graph: NodeGraph) -> str:
    """A short digest of everything training sees, so that a model is never taken for one of other data."""
    return digest_of((graph.x, graph.edge_index, graph.y, graph.train, graph.val))


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


def _require_split(graph: NodeGraph, epochs: int, evaluate_from: float) -> None:
    if not len(graph.train):
        raise ShiftproofError(f"{graph.name} has no training nodes; give it a split (graph.with_split)")
    if epochs < 1 or not 0 <= evaluate_from <= 1:
        raise ShiftproofError(
            f"training takes at least one epoch and evaluate_from in [0, 1], not {epochs} and {evaluate_from}"
        )
