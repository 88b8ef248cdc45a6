"""Any model as a function of a batch and its edge weights: a method of ours, a PyG module, a plain function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from shiftproof.data.columns import at, take
from shiftproof.data.dataset import TASKS, Task
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.neighbourhoods import about_centres
from shiftproof.errors import ShiftproofError, kind_of, unknown
from shiftproof.methods.base import Method
from shiftproof.methods.erm import ERM
from shiftproof.methods.gmt_sam import GMTSam
from shiftproof.methods.gsat import GSAT
from shiftproof.methods.interpretable import InterpretableMethod
from shiftproof.nn import GNNEncoder, GraphFeaturizer, LayerWise, decode

_FIELDS = ("x", "edge_index", "edge_weight", "batch", "edge_attr")
Weigh = Callable[[GraphBatch, Any], Tensor]  # of a batch and weights of its edges, a `LayerWise`, or None


@dataclass(frozen=True, eq=False)
class WeightedModel:
    """A classifier of graphs whose edges can be weighted (`takes_weights`) or at least be taken away.

    `model(batch, edge_weight)` gives logits, one row a graph (flat for one logit); `nodes(batch)` node embeddings. With
    an `encoder` a `LayerWise` may stand in place of weights.
    """

    source: Any
    predict: Weigh
    takes_weights: bool
    task: Task | None = None
    embed: Callable[[GraphBatch], Tensor] | None = None
    device: torch.device | None = None
    encoder: GNNEncoder | None = None

    def __call__(self, batch: GraphBatch, edge_weight: Tensor | LayerWise | None = None) -> Tensor:
        if edge_weight is not None and not self.takes_weights:
            name = type(self.source).__name__
            raise ShiftproofError(
                f"{name} takes no edge weights; ask it with edges taken away instead (by='occlusion', removal='delete')"
            )
        logits = self.predict(batch, edge_weight)
        if not isinstance(logits, Tensor) or logits.dim() not in (1, 2) or len(logits) != batch.num_graphs:
            name = getattr(self.source, "__name__", type(self.source).__name__)
            shape = f"a tensor {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise ShiftproofError(
                f"{name} gives {shape}; a model gives one row of logits for each of {batch.num_graphs} graphs"
            )
        single = logits.dim() == 2 and logits.shape[1] == 1 and self.task != "multiclass"  # which may have one class
        return logits.squeeze(-1) if single else logits

    def nodes(self, batch: GraphBatch) -> Tensor:
        if self.embed is None:
            raise ShiftproofError(f"{type(self.source).__name__} shows no node embeddings, which this explainer needs")
        return self.embed(batch)

    def task_of(self, logits: Tensor) -> Task:
        """What the logits mean: as the method says, else several columns are classes and one is a binary label."""
        return self.task or ("multiclass" if logits.dim() == 2 else "binary")

    @contextmanager
    def frozen(self) -> Iterator[WeightedModel]:
        """The model in evaluation mode, its weights without gradients; as it was before when this ends."""
        module = self.source if isinstance(self.source, nn.Module) else nn.Module()
        modes = {part: part.training for part in module.modules()}
        grads = {p: p.requires_grad for p in module.parameters()}
        module.eval().requires_grad_(False)
        try:
            yield self
        finally:
            for part, mode in modes.items():
                part.training = mode
            for p, wanted in grads.items():
                p.requires_grad_(wanted)


def as_weighted(model: Any, task: Task | None = None) -> WeightedModel:
    """Whatever classifies graphs: a `WeightedModel`, a run, a method, a PyG module or a function.

    A module or function of the user's is called with those of `x, edge_index, edge_weight, batch, edge_attr` that its
    signature names, one with a single argument gets the whole batch. Where it takes no `edge_weight`, its PyG layers
    weigh their messages the way PyG's own explainers do it.
    """
    if task is not None and task not in TASKS:
        raise unknown("task", str(task), TASKS)
    if isinstance(model, WeightedModel):
        return model if task is None else replace(model, task=task)
    inner = getattr(model, "method", None)
    if isinstance(inner, Method):  # a run
        model = inner
    if isinstance(model, Method):
        return _of_method(model)
    if not callable(model) or isinstance(model, type):
        raise ShiftproofError(f"a model is a run, a method, a module or a function, not {kind_of(model)}")
    return _of_callable(model, task)


def without_edges(batch: GraphBatch, keep: Tensor) -> GraphBatch:
    """The batch with the edges of the mask alone; all nodes stay."""
    edges = keep.nonzero().squeeze(1)
    return batch.replace(
        edge_index=batch.edge_index.index_select(1, edges),
        edge_attr=at(batch.edge_attr, edges),
        edge_truth=at(batch.edge_truth, edges),
        edge_columns=take(batch.edge_columns, edges),
    )


def _of_method(method: Method) -> WeightedModel:
    weigh, embed = _weights_of(method)
    device = next((p.device for p in method.parameters()), None)
    if method.shape.kind == "nodes":  # each graph is the neighbourhood of a node
        of_nodes = weigh or (lambda batch, _: method(batch))

        def ask(batch: GraphBatch, weight: Any) -> Tensor:
            return of_nodes(cast(Any, about_centres(batch)), weight)

        return WeightedModel(method, ask, weigh is not None, method.shape.task, embed, device, _encoder_of(method))
    if weigh is not None:
        return WeightedModel(method, weigh, True, method.shape.task, embed, device, _encoder_of(method))
    return WeightedModel(method, lambda batch, _: method(batch), False, method.shape.task, embed, device)


def _weights_of(method: Method) -> tuple[Weigh | None, Callable[[GraphBatch], Tensor] | None]:
    """How a method takes further edge weights and shows node embeddings, as far as it does.

    A method of one's own takes part by defining `weighted_logits(batch, edge_weight)`.
    """
    featurizer = getattr(method, "featurizer", None)
    embed = featurizer.nodes if isinstance(featurizer, GraphFeaturizer) else None
    own: Any = getattr(method, "weighted_logits", None)
    if own is not None:
        return own, getattr(method, "node_embeddings", embed)
    if isinstance(method, ERM) and embed is not None:
        plain = cast(Any, method)
        return lambda batch, weight: plain.classify(plain.featurizer(batch, weight)), embed
    if isinstance(method, InterpretableMethod):
        return lambda batch, weight: _through_subgraph(method, batch, weight), embed
    if isinstance(method, GSAT):
        return lambda batch, weight: _through_attention(method, batch, weight), embed
    if isinstance(method, GMTSam):
        return lambda batch, weight: _through_decoder(method, batch, weight), embed
    return None, embed


def _encoder_of(method: Method) -> GNNEncoder | None:
    """The one encoder that a plain model's messages pass, or the plain model's that a method explains."""
    plain = method if isinstance(method, ERM) else getattr(method, "model", None)
    found = getattr(getattr(plain, "featurizer", None), "encoder", None)
    return found if isinstance(plain, ERM) and isinstance(found, GNNEncoder) else None


def _through_subgraph(method: InterpretableMethod, batch: GraphBatch, weight: Tensor | None) -> Tensor:
    if weight is None:
        return method(batch)
    part = method.extract(batch).kept
    chosen = weight.index_select(0, part.edges)
    kept = replace(part, edge_weight=chosen if part.edge_weight is None else part.edge_weight * chosen)
    return method.logits(method.represent(kept))


def _through_attention(method: GSAT, batch: GraphBatch, weight: Tensor | None) -> Tensor:
    if weight is None:
        return method(batch)
    return method.classify(batch, method.attention(batch) * weight)


def _through_decoder(method: GMTSam, batch: GraphBatch, weight: Tensor | None) -> Tensor:
    if weight is None:
        return method(batch)
    logits = method.attention_logits(batch)
    kept = method.extractor.distribution(batch, logits).probs
    kept = decode(kept, batch.edge_batch, batch.num_graphs, method.decoding, method.ratio)
    return method.extractor.flat(method.head(method.featurizer(batch, kept * weight, method.layers)))


def _of_callable(model: Callable[..., Any], task: Task | None) -> WeightedModel:
    module = model if isinstance(model, nn.Module) else None
    names = _named(model)
    layers = [] if module is None else _message_passing(module)
    by_argument = "edge_weight" in names

    def ask(batch: GraphBatch, edge_weight: Tensor | None) -> Tensor:
        if not names:
            return model(batch)
        values = {name: getattr(batch, name) for name in names if name != "edge_weight"}
        if by_argument:
            values["edge_weight"] = edge_weight
        return model(**values)

    def predict(batch: GraphBatch, edge_weight: Tensor | None) -> Tensor:
        if edge_weight is None or by_argument or module is None:
            return ask(batch, edge_weight)
        with _masked(module, edge_weight, batch.edge_index):
            return ask(batch, None)

    def embed(batch: GraphBatch) -> Tensor:
        seen: list[Any] = []
        handle = layers[-1].register_forward_hook(lambda _m, _i, out: seen.append(out))
        try:
            ask(batch, None)
        finally:
            handle.remove()
        return seen[-1]

    device = None if module is None else next((p.device for p in module.parameters()), None)
    return WeightedModel(model, predict, by_argument or bool(layers), task, embed if layers else None, device)


def _named(model: Callable[..., Any]) -> tuple[str, ...]:
    """Which parts of a batch a model's signature names; none where it takes the batch as its only argument."""
    try:
        signature = inspect.signature(model.forward if isinstance(model, nn.Module) else model)
    except (TypeError, ValueError):
        return ("x", "edge_index", "edge_weight", "batch", "edge_attr")
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = [p for p in signature.parameters.values() if p.kind in kinds]
    required = [p for p in given if p.default is p.empty]
    named = tuple(p.name for p in given if p.name in _FIELDS)
    if len(given) == 1 and not named:
        return ()
    strange = [p.name for p in required if p.name not in _FIELDS]
    if strange:
        raise ShiftproofError(
            f"a model is called with {', '.join(_FIELDS)} by these names; "
            f"{getattr(model, '__name__', type(model).__name__)} needs '{strange[0]}' too"
        )
    return named


def _message_passing(module: nn.Module) -> list[nn.Module]:
    from shiftproof.nn.pyg_layers import MessagePassing

    return [part for part in module.modules() if isinstance(part, MessagePassing)]


@contextmanager
def _masked(module: nn.Module, edge_weight: Tensor, edge_index: Tensor) -> Iterator[None]:
    from shiftproof.nn.pyg_layers import clear_masks, set_masks

    for layer in _message_passing(module):
        # PyG's own explainers leave an empty parameter behind, and then every later mask is made a parameter: no
        # gradient would reach the weights
        if layer._parameters.get("_edge_mask", layer) is None:
            del layer._parameters["_edge_mask"]
            cast(Any, layer)._edge_mask = None
    set_masks(module, edge_weight, edge_index, apply_sigmoid=False)
    try:
        yield
    finally:
        clear_masks(module)
