"""Adversarial training against injected nodes, plain or causality-inspired (with the harmonious objective).

An attack that keeps injected nodes similar to their neighbours leaves the invariant part of a node's neighbourhood
alone, so that training on its graphs carries less label noise than on those of an attack that does not
(docs/papers/hao.md#structural-model, #adversarial-training).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.ranges import Count, Fraction, NonNegative, Positive, Seed, checked
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.training import NodeTraining, Stage, Trained, adam, build_defence, seeded, stages
from shiftproof.runtime.progress import Style
from shiftproof.training.callbacks import Callback, Training

Attack = Callable[[nn.Module, NodeGraph, Tensor, int], Perturbation]  # model, graph, targets, seed


@checked
def attacker(
    name: str = "pgd",
    *,
    hao: NonNegative = 1.0,
    budget: Budget | None = None,
    **options: Any,
) -> Attack:
    """A registered attack as `adversarial_train` calls it; `hao=0` gives plain adversarial training.

    Defaults are those of the GRB trainer: 20 injected nodes with 20 edges each, 10 steps of size 0.01.
    """
    from shiftproof.robustness.attacks import attack

    limits = budget or Budget(nodes=20, edges_per_node=20)
    settings = {"steps": 10, "isolated": True, **options}  # a training graph has nodes without neighbours

    def strike(model: nn.Module, graph: NodeGraph, targets: Tensor, seed: int) -> Perturbation:
        return attack(name, graph, surrogate=model, targets=targets, budget=limits, hao=hao, seed=seed, **settings)

    return strike


@checked
def adversarial_train(
    model: nn.Module | str,
    graph: NodeGraph,
    attack: Attack,
    *,
    epochs: Count = 200,
    refresh: Count = 1,
    clean_weight: Fraction = 0.0,
    lr: Positive = 0.01,
    weight_decay: NonNegative = 0.0,
    evaluate_from: Fraction = 0.0,
    seed: Seed = 0,
    progress: Style = "none",
    callbacks: Sequence[Callback | Callable[[Training], Any]] = (),
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: NonNegative = 5.0,
) -> Trained:
    """Train on graphs that `attack` makes of the training graph, anew after every `refresh` optimiser steps.

    The first steps see the clean graph; each attack has all training nodes as its targets and the model as it then is.
    The loss is `(1 - clean_weight)` of the attacked graph's and `clean_weight` of the clean one's. Validation is on the
    clean graph, and the weights of the best epoch are kept. `attack(model, graph, targets, seed)` returns a
    `Perturbation`; see `attacker`. `callbacks`, `out` and `resume` are as in `train_defence`.
    """
    if isinstance(model, str):
        model = build_defence(model, graph, seed=seed)
    train, val = stages(graph, "inductive")
    settings = {"lr": lr, "weight_decay": weight_decay, "evaluate_from": evaluate_from}
    settings |= {"refresh": refresh, "clean_weight": clean_weight}
    with seeded(seed, graph.device):
        training = AdversarialTraining(
            model,
            graph,
            train,
            val,
            attack=attack,
            refresh=refresh,
            clean_weight=clean_weight,
            optimizer=adam(model, lr, weight_decay),
            evaluate_from=evaluate_from,
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


class AdversarialTraining(NodeTraining):
    """The same on graphs that an attack makes of the training graph as it goes."""

    def __init__(
        self,
        model: nn.Module,
        graph: NodeGraph,
        train: Stage,
        val: Stage,
        *,
        attack: Attack,
        refresh: int,
        clean_weight: float,
        **given: Any,
    ) -> None:
        super().__init__(model, graph, train, val, **given)
        self.attack, self.refresh, self.clean_weight = attack, refresh, clean_weight
        self.inner = graph.subgraph(graph.train)
        self.attacked: tuple[Tensor, Tensor] | None = None  # features and edges of the attacked graph
        self.x, self.adjacency = train.features.x, train.adjacency
        self.move = self._attacked_step

    def title(self) -> str:
        return f"adversarial {super().title()}"

    def _attacked_step(self) -> Tensor:
        targets = self.inner.train
        labels = self.inner.y[targets]
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x, self.adjacency)[targets], labels)
        if self.clean_weight and self.attacked is not None:
            clean = F.cross_entropy(self.model(self.train.features, self.train.adjacency)[targets], labels)
            loss = (1 - self.clean_weight) * loss + self.clean_weight * clean
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def one_epoch(self) -> str:
        note = super().one_epoch()
        done = self.epoch + 1
        if done % self.refresh == 0 and done < self.epochs:
            seed = self.seed + self.epoch
            found = self.attack(self.model.eval(), self.inner, self.inner.train, seed)
            attacked = found.apply(self.inner)
            self._train_on(attacked.x, attacked.edge_index)
        return note

    def _train_on(self, x: Tensor, edge_index: Tensor) -> None:
        self.attacked = x, edge_index
        self.x, self.adjacency = x, Adjacency(edge_index, len(x))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, note = super().state()
        if self.attacked is not None:
            tensors |= dict(zip(("attacked.x", "attacked.edges"), self.attacked, strict=True))
        return tensors, note

    def take(self, tensors: dict[str, Tensor], note: dict[str, Any], path: Path) -> None:
        super().take(tensors, note, path)
        if "attacked.x" in tensors:
            self._train_on(tensors["attacked.x"].to(self.device), tensors["attacked.edges"].to(self.device))
