"""To PyG's explanations and back, and models as PyG's explainers take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.masks import predicted
from shiftproof.explanations.elements import require_scores
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.weighted import as_weighted

if TYPE_CHECKING:
    from torch_geometric.explain import Explainer
    from torch_geometric.explain import Explanation as PyGExplanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm

_FIELDS = ("x", "edge_index", "edge_attr", "y", "edge_truth", "node_truth")
_NO_COLUMNS = {*_FIELDS, "edge_mask", "node_mask", "prediction", "target", "index", "batch", "ptr"}


def to_pyg(explanation: Explanation) -> list[PyGExplanation]:
    """One PyG explanation a graph: `edge_mask`, `node_mask`, the graph itself, its truth and the prediction.

    PyG's metrics and drawings work on these. Ground truth is under `edge_truth` and `node_truth`, columns of graphs,
    nodes and edges are under their names.
    """
    from torch_geometric.explain import Explanation as PyGExplanation

    batch = require_scores(explanation).batch
    order = torch.sort(batch.edge_batch, stable=True).indices
    counts = torch.bincount(batch.edge_batch, minlength=batch.num_graphs)[: batch.num_graphs].tolist()
    sizes = batch.ptr.diff().tolist()
    shift = batch.ptr.index_select(0, batch.edge_batch.index_select(0, order))
    node_scores = explanation.node_scores
    pieces: dict[str, Sequence[Tensor]] = {
        "x": batch.x.split(sizes),
        "edge_index": (batch.edge_index.index_select(1, order) - shift).split(counts, dim=1),
    }
    per_edge = {"edge_mask": explanation.edge_scores, "edge_attr": batch.edge_attr, "edge_truth": batch.edge_truth}
    per_node = {
        "node_mask": None if node_scores is None else node_scores.unsqueeze(-1),
        "node_truth": batch.node_truth,
        **batch.node_columns,
    }
    for name, values in {**per_edge, **batch.edge_columns}.items():
        if values is not None:
            pieces[name] = values.index_select(0, order).split(counts)
    for name, values in per_node.items():
        if values is not None:
            pieces[name] = values.split(sizes)
    for name, values in {"y": batch.y, "prediction": explanation.logits, **batch.columns}.items():
        if values is not None:
            pieces[name] = values.split(1)
    return [PyGExplanation(**{name: parts[i] for name, parts in pieces.items()}) for i in range(batch.num_graphs)]


def from_pyg(explanations: PyGExplanation | Sequence[PyGExplanation]) -> Explanation:
    """PyG explanations of graphs as one of ours, for our measures and drawings.

    Each needs the graph it explains (`x`, `edge_index`) and a mask; a mask over features is averaged over them.
    A single one may be of a whole batch (with `batch`). Other tensors with a row a graph, node or edge become columns.
    """
    from torch_geometric.data import Data

    given: list[Any] = [explanations] if isinstance(explanations, Data) else _listed(explanations)
    if not given:
        raise ShiftproofError("there is no explanation to convert")
    for number, one in enumerate(given):
        if not isinstance(one, Data):
            raise ShiftproofError(f"explanation {number} is a {type(one).__name__}, not an Explanation of PyG")
        if one.get("x") is None or one.get("edge_index") is None:
            raise ShiftproofError(f"explanation {number} does not hold its graph, x and edge_index")
        if one.get("edge_mask") is None and one.get("node_mask") is None:
            raise ShiftproofError(f"explanation {number} has neither an edge_mask nor a node_mask")
        mask, edges = one.get("edge_mask"), one["edge_index"].shape[1]
        if mask is not None and mask.shape != (edges,):
            raise ShiftproofError(
                f"the edge_mask of explanation {number} is {tuple(mask.shape)}, its edges are {edges}"
            )
    edge_masks, node_masks = [one.get("edge_mask") for one in given], [_per_node(n, one) for n, one in enumerate(given)]
    if len(given) == 1 and given[0].get("batch") is not None:
        return _of_batch(given[0], edge_masks[0], node_masks[0])
    edge_scores, node_scores = _joined(edge_masks), _joined(node_masks)
    if edge_scores is None and node_scores is None:
        raise ShiftproofError(
            "explanations with an edge_mask alone and with a node_mask alone are not one; convert them apart"
        )
    keep = (*_FIELDS, *_columns(given))
    graphs = GraphSet.from_pyg([_plain(one, keep) for one in given], where="explanations")
    predictions = [one.get("prediction") for one in given]
    if len({None if row is None else row.shape[1:] for row in predictions}) > 1:
        raise ShiftproofError("the explanations' predictions are not of one shape, so they are not of one model")
    return Explanation(graphs.whole(), edge_scores, node_scores, logits=_joined(predictions))


def pyg_explainer(
    model: Any,
    algorithm: ExplainerAlgorithm,
    *,
    task: Task | None = None,
    explanation_type: Literal["model", "phenomenon"] = "model",
) -> Explainer:
    """A `torch_geometric.explain.Explainer` of any model: a run, a method, a PyG module or a function.

    Call it as PyG's own, `explainer(x, edge_index, batch=batch)`, and judge what it gives with PyG's metrics or, after
    `from_pyg`, with ours. `task` has to be given where the model is the user's own and its task is not "multiclass".
    """
    from torch_geometric.explain import Explainer

    asked = as_weighted(model, task)
    modes = {"multiclass": "multiclass_classification", "binary": "binary_classification", "regression": "regression"}
    kind = asked.task or "multiclass"
    if kind not in modes:
        raise ShiftproofError(f"PyG's explainers take no {kind} task")
    return Explainer(
        PyGModel(asked),
        algorithm=algorithm,
        explanation_type=explanation_type,
        edge_mask_type="object",
        model_config={"mode": modes[kind], "task_level": "graph", "return_type": "raw"},
    )


def explain_by_pyg(model: Any, batch: GraphBatch, algorithm: ExplainerAlgorithm, task: Task | None = None) -> Tensor:
    """The edge scores a PyG explainer gives, all graphs of the batch under one mask.

    Its weights of size and entropy then are those of the batch, not of a graph; `by="gnnexplainer"` keeps graphs apart.
    A `PGExplainer` that is not trained yet is trained on the batch first. Explainers that change layers, as
    `GraphMaskExplainer` does, do not see into models of ours.
    """
    from torch_geometric.explain import GraphMaskExplainer

    if isinstance(algorithm, GraphMaskExplainer):
        raise ShiftproofError(
            "GraphMaskExplainer changes a model's own layers: call PyG's Explainer on the model and convert what it "
            "gives with from_pyg, or take by='graphmask'"
        )
    if not batch.num_graphs:
        raise ShiftproofError("there is no graph to explain")
    asked = as_weighted(model, task)
    with torch.no_grad(), asked.frozen():
        logits = asked(batch)
    kind = asked.task_of(logits)
    try:
        explainer = pyg_explainer(asked, algorithm, task=kind, explanation_type="phenomenon")
    except ShiftproofError:
        raise
    except ValueError as error:  # so PyG says that an explainer does not do what it is asked for
        raise ShiftproofError(f"PyG's explainers are asked for edges that lead to a prediction; {error}") from None
    target = predicted(logits, kind)
    target = target.long() if kind == "binary" else target
    inputs = {"target": target, "batch": batch.batch, "edge_attr": batch.edge_attr}
    trains: Any = algorithm
    if hasattr(trains, "_curr_epoch") and trains._curr_epoch < trains.epochs - 1:
        trains.to(batch.x.device)
        for epoch in range(trains.epochs):
            trains.train(epoch, explainer.model, batch.x, batch.edge_index, **inputs)
    mask = explainer(batch.x, batch.edge_index, **inputs).get("edge_mask")
    if mask is None:
        raise ShiftproofError(f"{type(algorithm).__name__} gave no edge_mask")
    return mask.detach()


class PyGModel(nn.Module):
    """A model under the signature PyG expects, `(x, edge_index, batch, edge_attr)`, whose edges PyG can mask.

    PyG's explainers plant masks into the message-passing layers they find. A model of ours has none of PyG's, so one
    such layer is put beside it: node embeddings pass through it, and a mask planted there weighs the model's edges.
    """

    def __init__(self, model: Any, task: Task | None = None) -> None:
        super().__init__()
        self.asked = as_weighted(model, task)
        self.tap = _tap()

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        owner = torch.zeros(len(x), dtype=torch.long, device=x.device) if batch is None else batch
        made = _batch_of(x, edge_index, owner, edge_attr=edge_attr)
        with self.asked.frozen():
            if self.tap.watched() and self.asked.embed is not None:
                self.tap(self.asked.nodes(made))
            logits = self.asked(made, self.tap.weight())
        return logits.unsqueeze(-1) if logits.dim() == 1 else logits


def _tap() -> Any:
    from shiftproof.nn.pyg_layers import MessagePassing

    class Tap(MessagePassing):
        def forward(self, h: Tensor) -> Tensor:
            return h

        def weight(self) -> Tensor | None:
            mask = self._edge_mask
            if mask is None:
                return None
            return mask.sigmoid() if self._apply_sigmoid else mask

        def watched(self) -> bool:
            return bool(self._forward_hooks)

    return Tap()


def _batch_of(x: Tensor, edge_index: Tensor, owner: Tensor, **more: Any) -> GraphBatch:
    graphs = int(owner.max()) + 1 if len(owner) else 0
    ptr = torch.cat([owner.new_zeros(1), torch.bincount(owner, minlength=graphs).cumsum(0)])
    return GraphBatch(x, edge_index, owner, ptr, graphs, index=torch.arange(graphs, device=x.device), **more)


def _of_batch(one: Any, edge_mask: Tensor | None, node_mask: Tensor | None) -> Explanation:
    if len(one.batch) != len(one.x) or bool((one.batch.diff() < 0).any()):
        raise ShiftproofError("the 'batch' of an explanation names the graph of each node, one graph after the other")
    fields = ("y", "edge_attr", "node_truth", "edge_truth")
    batch = _batch_of(one.x, one.edge_index, one.batch, **{name: one.get(name) for name in fields})
    return Explanation(batch, edge_mask, node_mask, one.get("prediction"))


def _listed(explanations: Any) -> list[Any]:
    try:
        return list(explanations)
    except TypeError:
        name = type(explanations).__name__
        raise ShiftproofError(f"from_pyg takes explanations of PyG, one or a list, not {name}") from None


def _columns(given: Sequence[Any]) -> list[str]:
    """What else all explanations hold that has a row for their graph, or for each of its nodes or edges."""
    rows = [(1, one.num_nodes, one.edge_index.shape[1]) for one in given]
    shared = set.intersection(*(set(one.keys()) for one in given)) - _NO_COLUMNS

    def fits(name: str) -> bool:
        values = [one[name] for one in given]
        if not all(isinstance(value, Tensor) and value.dim() for value in values):
            return False
        return any(all(len(v) == r[kind] for v, r in zip(values, rows, strict=True)) for kind in range(3))

    return sorted(name for name in shared if fits(name))


def _plain(one: Any, keep: Sequence[str]) -> Any:
    from torch_geometric.data import Data

    return Data(**{name: one[name] for name in keep if one.get(name) is not None})


def _per_node(number: int, one: Any) -> Tensor | None:
    mask = one.get("node_mask")
    if mask is None:
        return None
    if mask.dim() != 2 or len(mask) not in (1, one.num_nodes):
        raise ShiftproofError(
            f"the node_mask of explanation {number} is {tuple(mask.shape)}; it has a row for each of "
            f"{one.num_nodes} nodes (or one for all) and a column for each feature (or one)"
        )
    return mask.float().mean(-1).expand(one.num_nodes)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if len(known) == len(parts) else None
