"""Asking a trained model for its reasons."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftproof.data.dataset import Dataset, Split, Task
from shiftproof.data.graphs import GraphSet
from shiftproof.data.neighbourhoods import EDGE, neighbourhoods
from shiftproof.data.node_sets import NodeSet
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.new_samples import given_samples
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.explainers import OWN, explain_by
from shiftproof.methods.base import Method
from shiftproof.methods.explanation import Explanation, edge_scores
from shiftproof.methods.weighted import as_weighted
from shiftproof.training.run import Run


def explain(
    model: Any,
    data: Any,
    *,
    split: str | None = None,
    smiles: str | None = None,
    by: Any = None,
    task: Task | None = None,
    **options: Any,
) -> Explanation:
    """The scores of the edges of some graphs: how much each decided the prediction.

    `model` is a run (or its folder), a method, a PyG module of your own or any function of
    (x, edge_index, edge_weight, batch, edge_attr); `data` is anything that `load` takes: of a data set with splits
    `split` ("test" where it is not said), of lists, frames and files every row. `smiles` names the column of SMILES
    where it is another than in training.

    `by` says how. "own" asks the method itself; "gnnexplainer", "pgexplainer", "graphmask", "gradient", "occlusion" and
    "influence" look at any model from outside, as does an explainer of PyG (`GNNExplainer(epochs=200)`). Left out, it
    is "own" for methods that give reasons, "gnnexplainer" for other models whose edges can be weighted, "occlusion" for
    all others. `options` are those of the explainer (`steps=200`). `task` names what logits of a model of your own
    mean; several columns are taken for classes and one for a binary label.
    """
    model = as_model(model)
    method = model.method if isinstance(model, Run) else model
    if isinstance(method, Method) and method.shape.kind == "nodes":
        return _explain_nodes(model, data, split, by, options)
    graphs = graphs_of(data, split, model=model, smiles=smiles)
    ask: Any = getattr(method, "explain", None) if isinstance(method, Method) else None
    if isinstance(method, Method):
        _require_fitting(method, graphs)
    if by is None:
        by = OWN if ask is not None else "gnnexplainer" if as_weighted(method).takes_weights else "occlusion"
    known = method.shape.task if isinstance(method, Method) else task
    if by != OWN:
        return replace(explain_by(method, graphs, by, options, task), task=known)
    if ask is None:
        name = model.name if isinstance(model, Run) else type(method).__name__
        raise ShiftproofError(f"'{name}' gives no reasons of its own; by='gnnexplainer' or by='occlusion' finds some")
    if options:
        raise ShiftproofError(f"a method's own reasons take no option '{next(iter(options))}'")
    return replace(ask(graphs.to(next(method.parameters()).device).whole()), task=known)


def _explain_nodes(model: Any, data: Any, split: str | None, by: Any, options: Mapping[str, Any]) -> Explanation:
    """The scores of the edges around some nodes; a method's own come from the whole graph.

    The option `hops` is how far edges are looked at: the layers of the network where it is not said.
    """
    method = model.method if isinstance(model, Run) else model
    nodes = nodes_of(data, split).to(next(method.parameters()).device)
    if nodes.num_features != method.shape.in_shape[0]:
        raise ShiftproofError(
            f"the run was trained on {method.shape.in_shape[0]} node features, these nodes have {nodes.num_features}"
        )
    options = dict(options)
    hops = int(options.pop("hops", 0)) or layers_of(method)
    graphs = neighbourhoods(nodes, hops + 1)
    ask: Any = getattr(method, "explain", None)
    if by is None:
        by = OWN if ask is not None else "gnnexplainer" if as_weighted(method).takes_weights else "occlusion"
    if by != OWN:
        return replace(explain_by(method, graphs, by, options, None), task=method.shape.task)
    if ask is None:
        raise ShiftproofError("this run gives no reasons of its own; by='gnnexplainer' or by='occlusion' finds some")
    found, batch = ask(nodes.whole()), graphs.whole()
    scores = edge_scores(found)[batch.edge_columns[EDGE]]
    return replace(found, batch=batch, edge_scores=scores, node_scores=None, task=method.shape.task)


def layers_of(method: Method) -> int:
    """From how far a network hears of nodes."""
    encoder: Any = getattr(getattr(method, "featurizer", None), "encoder", None)
    return len(encoder.convs) if hasattr(encoder, "convs") else int(getattr(encoder, "steps", 2))


def nodes_of(data: Any, split: str | None = None) -> NodeSet:
    """The nodes to be explained: a set of them, or a split of a data set or of a node graph."""
    nodes = (
        data
        if isinstance(data, Split)
        else (data if isinstance(data, Dataset) else load_samples(data))[split or "test"]
    )
    if not isinstance(nodes, NodeSet):
        raise ShiftproofError("this run classifies nodes, and these data hold no nodes of a graph")
    return nodes


def as_model(model: Any) -> Any:
    """A run for a folder; anything else as it is."""
    return Run.load(model) if isinstance(model, (str, Path)) else model


def graphs_of(data: Any, split: str | None = None, *, model: Any = None, smiles: str | None = None) -> GraphSet:
    """The graphs to be explained, read as the run's own data were; rows that are none are named in a warning."""
    reading = model.config.get("reading") if isinstance(model, Run) else None
    given = given_samples(data, reading, split=split, smiles=smiles)
    if given.problems:
        row, why = next(iter(given.problems.items()))
        said = f"{len(given.problems)} of {given.count} rows are not explained; row {row + 1}: {why}"
        if given.samples is None:
            raise ShiftproofError(said)
        warnings.warn(said, stacklevel=3)
    if isinstance(given.samples, NodeSet):
        named = f"'{data}'" if isinstance(data, str | Path) else "what was given"
        raise ShiftproofError(f"{named} is one graph whose nodes are classified, and the model is one of whole graphs")
    if not isinstance(given.samples, GraphSet):
        raise ShiftproofError("reasons are given for graphs; this data set holds plain tensors")
    if not len(given.samples):
        raise ShiftproofError("there is no graph to explain")
    return given.samples


def _require_fitting(method: Method, graphs: GraphSet) -> None:
    if method.shape.kind != "graphs":
        raise ShiftproofError("reasons are given for graphs; this run was trained on plain tensors")
    wanted = method.shape.in_shape[0]
    if graphs.num_features != wanted:
        raise ShiftproofError(f"the run was trained on {wanted} node features, these graphs have {graphs.num_features}")
