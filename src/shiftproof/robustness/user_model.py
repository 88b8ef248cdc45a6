"""A user's own PyG model among the defences: attacked and audited like the built-in ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, kind_of
from shiftproof.registry import options_of
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.features import Features, dense
from shiftproof.runtime.user_code import load_module
from shiftproof.training.weights import restore

INPUTS = ("in_channels", "in_features", "num_features", "in_dim", "input_dim")
OUTPUTS = ("out_channels", "out_features", "num_classes", "classes", "out_dim", "output_dim")


class OutsideModel(nn.Module):
    """A model `f(x, edge_index)` (or `f(x, edge_index, edge_weight)`) in the form of this package's defences.

    `classes` is the width its output must have; a result of another shape is an error of one sentence.
    """

    def __init__(self, module: nn.Module, classes: int | None = None) -> None:
        super().__init__()
        self.module, self.classes = module, classes
        self.takes_weights = "edge_weight" in inspect.signature(module.forward).parameters

    def forward(self, x: Tensor | Features, adjacency: Adjacency) -> Tensor:
        x, name = dense(x), type(self.module).__name__
        edges = adjacency.once("edge_index", lambda: adjacency.edge_index)
        if adjacency.weighted and not self.takes_weights:
            raise ShiftproofError(
                f"{name} takes no 'edge_weight', so edges cannot be weighted for it: use an attack that does not "
                "optimise edges, or another surrogate"
            )
        weights = {"edge_weight": adjacency.weight(x.dtype)} if adjacency.weighted else {}
        out = self.module(x, edges, **weights)
        if not isinstance(out, Tensor):
            raise ShiftproofError(f"{name} returns {type(out).__name__}; a tensor of shape [nodes, classes] is needed")
        if out.ndim != 2 or out.shape[0] != x.shape[0] or (self.classes is not None and out.shape[1] != self.classes):
            wanted = f"[{x.shape[0]}, {self.classes if self.classes is not None else 'classes'}]"
            raise ShiftproofError(f"{name} returns a tensor of shape {list(out.shape)}; {wanted} is needed")
        if not out.is_floating_point():
            raise ShiftproofError(f"{name} returns {out.dtype}; logits or log-probabilities (floats) are needed")
        return out


def as_defence(model: Any, graph: NodeGraph) -> nn.Module:
    """A plain PyG module `f(x, edge_index)` in the form of the defences; what has that form already stays."""
    if not isinstance(model, nn.Module):
        raise ShiftproofError(f"a model of nodes is a torch module f(x, edge_index), not {kind_of(model)}")
    if isinstance(model, Defence | OutsideModel) or "adjacency" in inspect.signature(model.forward).parameters:
        return model
    return OutsideModel(model, graph.num_classes).eval()


def load_outside(
    where: str, weights: str | Path, graph: NodeGraph, options: Mapping[str, Any] | None = None
) -> OutsideModel:
    """The class `file.py:Class` with the weights of a safetensors file, checked on `graph` by one forward pass.

    The constructor's input and output widths are filled in where they have a usual name (`in_channels`,
    `num_classes`, ...); `options` gives the rest. The Python file is run as any module is: give only one you trust.
    Weights are never unpickled.
    """
    module = _made(_class_at(where), where, graph, dict(options or {}))
    path = Path(weights)
    if path.suffix != ".safetensors":
        raise ShiftproofError(
            f"{path} is not a .safetensors file; pickled weights are not read: save them with "
            "safetensors.torch.save_file(model.state_dict(), path)"
        )
    if not path.is_file():
        raise ShiftproofError(f"{path} is not there; the weights of {where} are needed")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ShiftproofError(f"{path} is not readable as safetensors ({error})") from None
    restore(module, tensors, str(path))
    model = OutsideModel(module.to(graph.device).eval(), graph.num_classes)
    _try(model, graph, where)
    return model


def _class_at(where: str) -> type[nn.Module]:
    file, colon, name = where.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise ShiftproofError(f"'{where}' does not name a model; write it as file.py:Class")
    path = Path(file)
    if not path.is_file():
        raise ShiftproofError(f"{path} is not there; '{where}' needs it")
    module = load_module(path)
    found = getattr(module, name, None)
    if not (inspect.isclass(found) and issubclass(found, nn.Module)):
        raise ShiftproofError(f"{path} has no torch.nn.Module named '{name}'")
    return found


def _made(kind: type[nn.Module], where: str, graph: NodeGraph, options: dict[str, Any]) -> nn.Module:
    accepted = inspect.signature(kind).parameters
    for names, size in ((INPUTS, graph.num_features), (OUTPUTS, graph.num_classes)):
        for name in names:
            if name in accepted and name not in options:
                options[name] = size
    given = {**dict.fromkeys(options_of(kind)), **options}
    needed = [
        name
        for name, parameter in accepted.items()
        if name not in given and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if needed:
        raise ShiftproofError(f"the constructor of {where} also needs '{needed[0]}'; give it as an option")
    try:
        return kind(**options)
    except Exception as error:
        raise ShiftproofError(f"{where} cannot be built with {options}: {type(error).__name__}: {error}") from error


def _try(model: OutsideModel, graph: NodeGraph, where: str) -> None:
    try:
        with torch.no_grad():
            model(graph.x, Adjacency(graph.edge_index, graph.num_nodes))
    except ShiftproofError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise ShiftproofError(f"{where} fails on {graph.name}: {type(error).__name__}: {said}") from error
