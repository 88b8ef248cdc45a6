"""On which features and which split a user's model was trained: what its weights say, what it scores, what to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import safe_open
from torch import nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets, parse_name
from shiftproof.robustness.training import accuracy

CHOICES = ("features", "split")  # the options of a graph that decide what a model is fed and what it is judged on
DENSE = ("embedded", "grb-like")
CLEARLY = 0.05  # accuracy on the labelled nodes by which other features must be better to be taken for the model's own
ROUNDING = 0.006  # a figure with two digits after the point, 0.78, stands for anything within half of the last one


@dataclass(frozen=True)
class Preparation:
    """One way in which a named graph can be loaded, and what the model scores there."""

    options: Mapping[str, Any]
    known: float  # accuracy on all labelled nodes
    test: float
    targets: int

    def __str__(self) -> str:
        said = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{said}: {100 * self.test:.1f} % of {self.targets:,} test nodes"


def load_as_trained(source: str, weights: str | Path | None, load: Any = load_nodes) -> tuple[NodeGraph, list[str]]:
    """The graph `source` stands for, and the options of `features` and `split` that nobody has said.

    Where the weights file says them in its metadata (`save_file(tensors, path, {"features": "raw"})`), they are taken
    from there.
    """
    name, said = parse_name(source)
    if name not in datasets:
        return load(source), []
    open_options = [choice for choice in CHOICES if choice in datasets[name].options and choice not in said]
    noted = {} if weights is None else _metadata(weights)
    taken = {choice: noted[choice] for choice in open_options if choice in noted}
    return load(source, **taken), [choice for choice in open_options if choice not in taken]


def require_as_trained(
    model: nn.Module, graph: NodeGraph, unsaid: list[str] | None = None, expected: float | None = None
) -> None:
    """Raise one sentence that asks where the graph need not be the one the model was trained on.

    That is where options of its features or split are `unsaid`, where the accuracy on the test nodes is not the
    `expected` one, and where the model does clearly better on other features of the same graph.
    """
    name = getattr(model, "module", model).__class__.__name__
    found = accuracy(model, graph)
    if expected is not None:
        if abs(found - expected) <= ROUNDING:
            return
        raise ShiftproofError(
            f"{name} classifies {100 * found:.1f} % of the {len(graph.test):,} test nodes of {_described(graph)} "
            f"rightly, not {100 * expected:.1f} %{_elsewhere(model, graph, CHOICES)}"
        )
    if unsaid:
        asked = " and ".join(f"{choice}=..." for choice in unsaid)
        raise ShiftproofError(
            f"say on what {name} was trained, {asked} after the name of the graph: {_described(graph)} is only the "
            f"default, on which {100 * found:.1f} % of {len(graph.test):,} test nodes are classified rightly"
            f"{_elsewhere(model, graph, unsaid)}"
        )
    if "features" not in graph.provenance:
        return
    here = _known(model, graph)
    others = [one for one in _others(model, graph, ("features",)) if one.known > here + CLEARLY]
    if others:
        best = max(others, key=lambda one: one.known)
        raise ShiftproofError(
            f"{name} does not seem to have been trained on features={graph.provenance['features']} of {graph.name}: "
            f"there it classifies {100 * here:.1f} % of the labelled nodes rightly and with "
            f"features={best.options['features']} {100 * best.known:.1f} %; load the graph as it was in training, or "
            f"give the accuracy on the test nodes that you expect, {found:.3f}, to go on with this one"
        )


def _described(graph: NodeGraph) -> str:
    said = ",".join(f"{choice}={graph.provenance[choice]}" for choice in CHOICES if choice in graph.provenance)
    return f"{graph.name}:{said}" if said else graph.name


def _elsewhere(model: nn.Module, graph: NodeGraph, choices: Any) -> str:
    ranked = sorted(_others(model, graph, choices), key=lambda one: -one.known)[:4]
    return "; found elsewhere: " + "; ".join(map(str, ranked)) if ranked else ""


def _known(model: nn.Module, graph: NodeGraph) -> float:
    return accuracy(model, graph, (graph.y >= 0).nonzero()[:, 0])


def _others(model: nn.Module, graph: NodeGraph, choices: Any) -> Iterator[Preparation]:
    """The same graph with other features and splits, as far as it has a name and the model takes them."""
    if graph.name not in datasets:
        return
    options = datasets[graph.name].options
    given = {name: value for name, value in graph.provenance.items() if name in options}
    features = get_args(options["features"].annotation) if "features" in choices and "features" in options else ()
    splits = get_args(options["split"].annotation) if "split" in choices and "split" in options else ()
    dense = given.get("features") in DENSE  # of another width: no model takes both these and bags of words
    for feature in [one for one in features if (one in DENSE) == dense] or (given.get("features"),):
        for split in splits or (given.get("split"),):
            wanted = {name: value for name, value in (("features", feature), ("split", split)) if value is not None}
            if all(given.get(name) == value for name, value in wanted.items()):
                continue
            try:
                other = load_nodes(graph.name, **{**given, **wanted}).to(graph.device)
                with torch.no_grad():
                    found = Preparation(wanted, _known(model, other), accuracy(model, other), len(other.test))
            except (ShiftproofError, RuntimeError):  # a file that is not there, or features of another width
                continue
            yield found


def _metadata(weights: str | Path) -> dict[str, str]:
    try:
        with safe_open(str(weights), "pt") as file:
            return dict(file.metadata() or {})
    except Exception:  # the reader of weights says what is wrong with the file
        return {}
