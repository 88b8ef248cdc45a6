"""Anybody's module as a network: a PyG module, a module of the batch, or a torch module of `x`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.domains import DomainBatch
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.node_sets import NodeBatch
from shiftproof.data.shape import DataShape
from shiftproof.errors import ShiftproofError

PARTS = ("x", "edge_index", "edge_weight", "edge_attr", "batch", "pos")
OF_BATCH = ("batch", "data", "graphs", "samples")  # what a module calls its one argument where it is the whole batch


class UserModule(nn.Module):
    """A user's module called with a batch, whatever its signature asks for; the module itself stays `module`."""

    def __init__(self, module: nn.Module, shape: DataShape) -> None:
        super().__init__()
        self.module = module
        self.ask = how_asked(module, shape)
        own = getattr(module, "out_channels", None)
        self.out_channels = own if isinstance(own, int) else self._tried(shape)
        # without a stated width, as many numbers as the task has outputs are its logits
        self.gives_logits = not isinstance(own, int) and self.out_channels == shape.num_outputs

    def forward(self, batch: GraphBatch | DomainBatch | NodeBatch) -> Tensor:
        out = of_samples(self.ask(batch), batch)
        return out.unsqueeze(-1) if out.dim() == 1 else out

    def _tried(self, shape: DataShape) -> int:
        """The width of what the module gives for two tiny samples."""
        name, batch = type(self.module).__name__, tiny_batch(shape)
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        modes = {part: part.training for part in self.module.modules()}
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                self.module.eval()
                out = of_samples(self.ask(batch.to(device)), batch)
        except ShiftproofError:
            raise
        except Exception as error:
            given = ", ".join(str(n) for n in batch.x.shape)
            raise ShiftproofError(
                f"the network {name} could not be tried on two samples (x of shape [{given}]): "
                f"{type(error).__name__}: {error}"
            ) from None
        finally:
            for part, mode in modes.items():
                part.training = mode
        if not isinstance(out, Tensor) or out.dim() not in (1, 2) or len(out) != 2:
            shown = f"a tensor {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise ShiftproofError(f"the network {name} gives {shown} for two samples; it is to give one row for each")
        return 1 if out.dim() == 1 else out.shape[1]


def as_featurizer(module: nn.Module, shape: DataShape) -> nn.Module:
    """The module itself where it takes a batch and says its width (`out_channels`), else one that asks it rightly."""
    if isinstance(module, UserModule):
        return module
    states_width = isinstance(getattr(module, "out_channels", None), int)
    return module if states_width and _asks_for(module) == () else UserModule(module, shape)


def how_asked(module: nn.Module, shape: DataShape) -> Callable[[Any], Tensor]:
    """How the module is called with a batch, found out by the names of its arguments."""
    named = _asks_for(module)
    if named == ():
        return module
    if named is None or named == ("x",):
        return lambda batch: module(batch.x)
    if shape.kind == "tensors":
        return lambda batch: module(**{name: getattr(batch, name) for name in named if name in ("x",)})
    return lambda batch: module(**{name: _part(batch, name) for name in named})


def of_samples(out: Tensor, batch: GraphBatch | DomainBatch | NodeBatch) -> Tensor:
    """The rows of the nodes that are samples, where a module gives a row for each node of the graph."""
    given = isinstance(batch, NodeBatch) and isinstance(out, Tensor) and out.dim() > 0
    return out.index_select(0, batch.nodes) if given and len(out) == batch.num_nodes else out  # type: ignore[union-attr]


def _part(batch: Any, name: str) -> Any:
    if name == "edge_weight":
        return None
    return batch.node_columns.get("pos") if name == "pos" else getattr(batch, name)


def _asks_for(module: nn.Module) -> tuple[str, ...] | None:
    """The parts of a batch that a module's arguments name; `()`: the whole batch, None: its one argument is `x`."""
    signature = inspect.signature(module.forward)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = [p for p in signature.parameters.values() if p.kind in kinds]
    required = [p.name for p in given if p.default is p.empty]
    if len(given) == 1 or len(required) == 1:
        only = (required or [given[0].name])[0]
        if only in OF_BATCH or "batch" in str(given[0].annotation).lower():
            return ()
        if len(given) == 1 or not {p.name for p in given} & {"edge_index"}:
            return ("x",) if only == "x" else None
    strange = [name for name in required if name not in PARTS]
    if strange:
        raise ShiftproofError(
            f"the network {type(module).__name__} needs '{strange[0]}'; a network is called with {', '.join(PARTS)} by "
            "these names, with a batch, or with x alone"
        )
    return tuple(p.name for p in given if p.name in PARTS)


def tiny_batch(shape: DataShape) -> GraphBatch | DomainBatch | NodeBatch:
    """Two samples of zeros in the shape of the data; graphs are triangles, nodes two of a triangle."""
    label = torch.zeros(2)
    if shape.kind == "tensors":
        return DomainBatch(x=torch.zeros(2, *shape.in_shape), y=label)
    ring = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    if shape.kind == "nodes":
        owner = torch.zeros(3, dtype=torch.long)
        return NodeBatch(torch.zeros(3, *shape.in_shape), ring, torch.tensor([0, 1]), owner, 1, y=label)
    edges = torch.cat([ring, ring + 3], 1)
    features = None if shape.edge_dim is None else torch.zeros(12, shape.edge_dim)
    owner, ptr = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 3, 6])
    places = {"pos": torch.zeros(6, 3)}
    return GraphBatch(
        torch.zeros(6, *shape.in_shape), edges, owner, ptr, 2, y=label, edge_attr=features, node_columns=places
    )
