"""Attack a graph: one function for every attack."""

from __future__ import annotations

import math
import time
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError, kind_of
from shiftproof.ranges import NonNegative, Seed, Whole, checked
from shiftproof.registry import attacks, fitting_options, parse_name, require_choices
from shiftproof.robustness.attacks.situation import Situation, default_surrogate, evaluating, own_labels
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.targets import check_targets
from shiftproof.robustness.training import train_defence
from shiftproof.robustness.user_model import as_defence
from shiftproof.robustness.verify import verify


class Attack(Protocol):
    """What `attack` runs: `kind` says which budget it spends, `targets_only` whether its edges end at targets."""

    @property
    def kind(self) -> Literal["injection", "modification"]: ...

    @property
    def targets_only(self) -> bool: ...

    def run(self, situation: Situation) -> Perturbation: ...


@checked
def attack(
    name: str | Attack,
    graph: Any,
    *,
    budget: Budget,
    surrogate: nn.Module | str | None = None,
    targets: Tensor | None = None,
    hao: NonNegative = 0.0,
    compat: Literal["reference"] | None = None,
    seed: Seed = 0,
    steps: Whole | None = None,
    isolated: bool = False,
    **options: Any,
) -> Perturbation:
    """What `name` does to `graph` within `budget`, so that the targets are misclassified.

    `name` is a registered attack (`shiftproof list attacks`), with options if you like ("tdgia:step=0.1"), or an object
    like `Attack`; `graph` is a `NodeGraph`, one of PyG's, or a name. The attacker sees the clean graph and a
    `surrogate` model of its own (a trained module f(x, edge_index), one of the defences, the name of a defence to
    train, or none: a 3-layer GCN is trained); the true labels of the targets it never sees.
    `targets` are the test nodes unless given; a given target without a neighbour is an error unless `isolated`.
    `hao` above 0 keeps injected nodes as similar to their neighbours as it is large. `compat="reference"` gives the
    released behaviour where ours departs from it. Equal seeds give equal results; the global random numbers and the
    surrogate stay as they are. The result has passed `verify`.

    >>> import shiftproof as sp
    >>> from shiftproof.robustness import Budget
    >>> graph = sp.load("cora")                                                       # doctest: +SKIP
    >>> found = sp.attack("tdgia", graph, budget=Budget(60, 20), hao=3.0)             # doctest: +SKIP
    >>> attacked = found.apply(graph)                                                 # doctest: +SKIP
    """
    graph = graph if isinstance(graph, NodeGraph) else load_nodes(graph)
    if not isinstance(budget, Budget):
        raise ShiftproofError(f"'budget' is a shiftproof.robustness.Budget(nodes=..., ...), not {kind_of(budget)}")
    label = name if isinstance(name, str) else type(name).__name__
    return run_attack(
        build_attack(name, steps=steps, **options),
        label,
        graph,
        budget=budget,
        surrogate=surrogate,
        targets=targets,
        hao=hao,
        compat=compat,
        seed=seed,
        isolated=isolated,
    )


def run_attack(
    method: Attack,
    label: str,
    graph: NodeGraph,
    *,
    budget: Budget,
    surrogate: nn.Module | str | None = None,
    targets: Tensor | None = None,
    hao: float = 0.0,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
    isolated: bool = False,
) -> Perturbation:
    """What `attack` does once the attack is built; `label` is what it goes by."""
    budget.require(method.kind, f"the attack '{label}'", graph)
    _require_sense(graph, budget, hao, compat, label)
    targets = check_targets(graph, targets, isolated=isolated)
    start = time.perf_counter()
    model = _surrogate(surrogate, graph, seed)
    with evaluating(model):
        labels = own_labels(model, graph, targets)
        trained = time.perf_counter()
        situation = Situation(
            graph,
            model,
            targets,
            labels,
            budget,
            float(hao),
            compat == "reference",
            torch.Generator().manual_seed(seed),
        )
        found = method.run(situation)
    verify(graph, found, budget, targets=targets if method.targets_only else None)
    about = {"attack": label, "hao": float(hao), "compat": compat, "seed": seed, "targets": len(targets)}
    seconds = {"surrogate_seconds": round(trained - start, 4), "seconds": round(time.perf_counter() - trained, 4)}
    return Perturbation(
        found.features.detach(), found.edges, found.added, found.removed, found.inner, {**about, **seconds, **found.log}
    )


def build_attack(name: str | Attack, *, steps: int | None = None, **options: Any) -> Attack:
    """The attack of that name with these options; an object is returned as it is."""
    if not isinstance(name, str):
        if missing := [part for part in ("run", "kind", "targets_only") if not hasattr(name, part)]:
            raise ShiftproofError(
                f"an attack is a name or an object with 'run', 'kind' and 'targets_only'; "
                f"{type(name).__name__} has no '{missing[0]}'"
            )
        if options or steps is not None:
            raise ShiftproofError("options go with the name of an attack; an object has its own")
        return name
    plain, said = parse_name(name)
    entry = attacks[plain]
    given = {**said, **options}
    if steps is not None and "steps" in entry.options:  # an attack that optimises nothing takes no steps
        given["steps"] = steps
    fitted = fitting_options(given, entry.options, f"attack '{plain}'")
    require_choices(fitted, entry.options, f"attack '{plain}'")
    return entry.make(**fitted)


def _require_sense(graph: NodeGraph, budget: Budget, hao: float, compat: str | None, label: str) -> None:
    if not (math.isfinite(hao) and hao >= 0):
        raise ShiftproofError(f"'hao' of the attack '{label}' is a number from 0, not {hao}")
    if compat not in (None, "reference"):
        raise ShiftproofError(f"'compat' of the attack '{label}' is None or 'reference', not {compat!r}")
    low, high = budget.box(graph)
    least, most = float(graph.x.min()), float(graph.x.max())
    if least < low or most > high:
        raise ShiftproofError(
            f"the features of {graph.name} reach from {least:.6g} to {most:.6g}, outside the box "
            f"[{low:.6g}, {high:.6g}] of the budget: give a box that holds them, or none"
        )


def _surrogate(surrogate: nn.Module | str | None, graph: NodeGraph, seed: int) -> nn.Module:
    if surrogate is None:
        return default_surrogate(graph, seed)
    if not isinstance(surrogate, str):
        return as_defence(surrogate, graph)
    return train_defence(surrogate, graph, seed=seed).model
