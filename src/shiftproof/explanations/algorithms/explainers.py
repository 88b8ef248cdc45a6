"""The explainers `explain` knows by name, each a function of a model and some graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.explanations.algorithms.amortised import MaskNetwork
from shiftproof.explanations.algorithms.edge_influence import influence
from shiftproof.explanations.algorithms.graphmask import ALLOWANCE, LayerGates, layer_gates
from shiftproof.explanations.algorithms.masks import gnnexplainer, gradient, occlusion
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.weighted import WeightedModel, as_weighted
from shiftproof.ranges import Count, NonNegative, Positive, Seed, checked
from shiftproof.registry import fitting_options

GRAPHS_AT_ONCE = 512
OWN = "own"


@checked
def pgexplainer(
    model: WeightedModel,
    graphs: GraphSet,
    *,
    epochs: Count = 100,
    lr: Positive = 1e-3,
    size: NonNegative | None = None,
    entropy: NonNegative | None = None,
    batch_size: Count = 128,
    seed: Seed = 0,
    train: GraphSet | None = None,
) -> Tensor:
    """Scores by PGExplainer's mask network, trained on the graphs `train` or else on those to be explained."""
    with _seeded(seed):
        network = MaskNetwork(_channels(model, graphs), "pgexplainer", size=size, entropy=entropy)
    return _by_network(network, model, graphs, train, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed)


@checked
def graphmask(
    model: WeightedModel,
    graphs: GraphSet,
    *,
    epochs: Count = 100,
    lr: Positive = 1e-3,
    size: NonNegative | None = None,
    entropy: NonNegative | None = None,
    layerwise: bool = False,
    allowance: NonNegative = ALLOWANCE,
    batch_size: Count = 128,
    seed: Seed = 0,
    train: GraphSet | None = None,
) -> Tensor:
    """Scores by GraphMask's gates: one an edge, or `layerwise` one for each message of each layer."""
    with _seeded(seed):
        if layerwise:
            network = layer_gates(model, size=size, entropy=entropy, allowance=allowance)
        else:
            network = MaskNetwork(_channels(model, graphs), "graphmask", size=size, entropy=entropy)
    return _by_network(network, model, graphs, train, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed)


def _by_network(
    network: MaskNetwork | LayerGates, model: WeightedModel, graphs: GraphSet, train: GraphSet | None, **training: Any
) -> Tensor:
    network.fit(model, graphs if train is None else _learned_from(train).to(graphs.device), **training)
    return torch.cat([network.scores(model, batch) for batch in graphs.batches(GRAPHS_AT_ONCE)])


def _learned_from(train: Any) -> GraphSet:
    if not isinstance(train, Sized) or not len(train):
        raise ShiftproofError(
            "'train' holds the graphs to learn masks from: a GraphSet or a list of PyG graphs, not empty"
        )
    return train if isinstance(train, GraphSet) else GraphSet.from_pyg(cast(Any, train))


def _channels(model: WeightedModel, graphs: GraphSet) -> int:
    with torch.no_grad(), model.frozen():
        return model.nodes(graphs[:1].whole()).shape[-1]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        yield


def _batchwise(explain_batch: Callable[..., Tensor], model: WeightedModel, graphs: GraphSet, options: dict) -> Tensor:
    return torch.cat([explain_batch(model, batch, **options) for batch in graphs.batches(GRAPHS_AT_ONCE)])


_BATCHWISE: Mapping[str, Callable[..., Tensor]] = {
    "gnnexplainer": gnnexplainer,
    "gradient": gradient,
    "occlusion": occlusion,
    "influence": influence,
}
_AMORTISED: Mapping[str, Callable[..., Tensor]] = {"pgexplainer": pgexplainer, "graphmask": graphmask}
EXPLAINERS = (*_BATCHWISE, *_AMORTISED)


def options_of_explainer(name: str) -> dict[str, inspect.Parameter]:
    """What may be set of an explainer, from the signature of its function."""
    if name not in EXPLAINERS:
        raise unknown("explainer", name, (OWN, *EXPLAINERS))
    taken = inspect.signature({**_BATCHWISE, **_AMORTISED}[name], eval_str=True).parameters
    return {n: p for n, p in taken.items() if p.kind is p.KEYWORD_ONLY and n != "noise"}


def explain_by(model: Any, graphs: GraphSet, by: Any, options: Mapping[str, Any], task: Task | None) -> Explanation:
    """An explanation by a named explainer or by one of PyG's (an `ExplainerAlgorithm`)."""
    asked = as_weighted(model, task)
    placed = graphs if asked.device is None else graphs.to(asked.device)
    whole = placed.whole()
    if isinstance(by, str):
        given = fitting_options(options, options_of_explainer(by), f"explainer '{by}'")
        if by in _BATCHWISE:
            scores = _batchwise(_BATCHWISE[by], asked, placed, given)
        else:
            scores = _AMORTISED[by](asked, placed, **given)
    else:
        scores = _by_pyg(asked, placed, by, options)
    with torch.no_grad(), asked.frozen():
        logits = torch.cat([asked(batch) for batch in placed.batches(GRAPHS_AT_ONCE)])
    return Explanation(whole, edge_scores=scores, logits=logits)


def _by_pyg(model: WeightedModel, graphs: GraphSet, algorithm: Any, options: Mapping[str, Any]) -> Tensor:
    from torch_geometric.explain.algorithm import ExplainerAlgorithm

    from shiftproof.explanations.converting import explain_by_pyg

    if not isinstance(algorithm, ExplainerAlgorithm):
        names = ", ".join((OWN, *EXPLAINERS))
        raise ShiftproofError(f"'by' is one of {names} or an explainer of PyG, not {type(algorithm).__name__}")
    if options:
        raise ShiftproofError(f"an explainer of PyG takes '{next(iter(options))}' where it is made, not here")
    return explain_by_pyg(model, graphs.whole(), algorithm)
