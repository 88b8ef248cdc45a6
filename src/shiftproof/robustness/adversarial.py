"""Adversarial training against injected nodes, plain or causality-inspired (with the harmonious objective).

An attack that keeps injected nodes similar to their neighbours leaves the invariant part of a node's neighbourhood
alone, so that training on its graphs carries less label noise than on those of an attack that does not
(docs/papers/hao.md#structural-model, #adversarial-training).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.training import Selection, Trained, accuracy, adam, build_defence, seeded, stages
from shiftproof.runtime.progress import Style
from shiftproof.runtime.progress import progress as show

Attack = Callable[[nn.Module, NodeGraph, Tensor, int], Perturbation]  # model, graph, targets, seed


def attacker(
    name: str = "pgd",
    *,
    hao: float = 1.0,
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


def adversarial_train(
    model: nn.Module | str,
    graph: NodeGraph,
    attack: Attack,
    *,
    epochs: int = 200,
    refresh: int = 1,
    clean_weight: float = 0.0,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    evaluate_from: float = 0.0,
    seed: int = 0,
    progress: Style = "none",
) -> Trained:
    """Train on graphs that `attack` makes of the training graph, anew after every `refresh` optimiser steps.

    The first steps see the clean graph; each attack has all training nodes as its targets and the model as it then is.
    The loss is `(1 - clean_weight)` of the attacked graph's and `clean_weight` of the clean one's. Validation is on the
    clean graph, and the weights of the best epoch are kept. `attack(model, graph, targets, seed)` returns a
    `Perturbation`; see `attacker`.
    """
    if epochs < 1 or refresh < 1 or not 0 <= clean_weight <= 1:
        raise ShiftproofError(
            "adversarial training takes at least one epoch, refresh of at least 1 and clean_weight in [0, 1], "
            f"not {epochs}, {refresh} and {clean_weight}"
        )
    if isinstance(model, str):
        model = build_defence(model, graph, seed=seed)
    start = time.perf_counter()
    train, val = stages(graph, "inductive")
    inner = graph.subgraph(graph.train)
    targets = inner.train
    labels = inner.y[targets]
    x, adjacency = train.features.x, train.adjacency
    best, losses, scores = Selection(model), [], []
    with seeded(seed, graph.device), show(f"adversarial {type(model).__name__}", epochs, progress) as shown:
        optimizer = adam(model, lr, weight_decay)
        for epoch in range(epochs):
            model.train()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, adjacency)[targets], labels)
            if clean_weight and adjacency is not train.adjacency:
                clean = F.cross_entropy(model(train.features, train.adjacency)[targets], labels)
                loss = (1 - clean_weight) * loss + clean_weight * clean
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            scores.append(float("nan"))
            if epoch + 1 > evaluate_from * epochs or epoch + 1 == epochs:
                scores[-1] = best.look(val, epoch)
            if (epoch + 1) % refresh == 0 and epoch + 1 < epochs:
                attacked = attack(model.eval(), inner, targets, seed + epoch).apply(inner)
                x, adjacency = attacked.x, Adjacency(attacked.edge_index, attacked.num_nodes)
            shown.advance(epoch + 1, f"validation {best.score:.3f}" if best.epoch >= 0 else "")
    best.restore()
    accuracies = {"train": train.score(model), "val": val.score(model)}
    accuracies["test"] = accuracy(model, graph) if len(graph.test) else float("nan")
    history = {"loss": torch.stack(losses).tolist(), "val": scores}
    return Trained(model.eval(), history, accuracies, best.epoch, time.perf_counter() - start)
