"""A node graph as a data set: environments by a measure or a column, and a test split that is shifted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.node_sets import NodeSet, Surroundings
from shiftproof.data.nodes import SPLITS, NodeGraph
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import AtLeast, BelowOne, Chance, Seed

MEASURED = ("degree", "pagerank", "homophily", "word")
Shift = Literal["covariate", "concept", "none"]
DAMPING, ROUNDS = 0.85, 50  # of PageRank: the usual damping; the error falls by it in every round, 0.85^50 < 1e-3
AGREE = 0.9  # ours: how often, in training, a node whose label goes with its domain is kept, and otherwise 1 - this


def node_data(
    graph: NodeGraph,
    *,
    by: str | None = None,
    shift: Shift = "covariate",
    environments: Annotated[int, AtLeast(2)] = 5,
    test: str | None = None,
    val: str | None = None,
    share: Chance = 0.2,
    held_out: BelowOne = 0.15,
    seed: Seed = 0,
) -> Dataset:
    """The nodes of a graph as samples, split so that the test nodes are of another kind than the training nodes.

    Without `by` the graph's own splits are taken. `by` is "degree", "pagerank", "homophily" (of the labels of
    neighbours), "word" (how many features are above their least value), or a column of the graph: a country, a
    university, a time. Of a measure or a column of many values the nodes with the largest `share` are tested, the next
    `share` validate and the rest trains, in `environments` bins; of a column of few values whole values are: those
    named by `test` and `val` ("RU+TW" names two, and the same in both is halved), or else the smallest two of them.
    Of the training part, `held_out` twice is put aside as "id_val" and "id_test", so that what the model loses where
    nodes are of another kind stands beside it. `shift="concept"` keeps the values alike and turns round how labels go
    with them; `shift="none"` splits at random, with the same sizes.

    Nodes of all splits stay in the graph that messages pass through; nodes without a label are in no split.
    """
    if by is None:
        return _as_split(graph)
    values, names = domain_values(graph, by)
    known = graph.y >= 0
    categorical = bool(names) or len(values.unique()) <= environments
    draw = torch.Generator().manual_seed(seed)
    if shift == "none":
        parts = _at_random(values, known, share, draw)
    elif shift == "concept":
        parts = _by_concept(graph, values, known, share, draw)
    elif shift == "covariate" and categorical:
        parts = _by_value(graph, values, names, known, by, test, val, draw)
    elif shift == "covariate":
        parts = _by_rank(values, known, share, draw)
    else:
        raise unknown("shift", shift, ("covariate", "concept", "none"))
    train, id_val, id_test = _held_out(parts[0], held_out, draw)
    env, env_names = _environments(values, train, names, environments)
    splits = {"train": train, "val": parts[1], "test": parts[2], "id_val": id_val, "id_test": id_test}
    options = {"by": by, **({} if shift == "covariate" else {"shift": shift}), **({} if seed == 0 else {"seed": seed})}
    # only what differs from the defaults, so that the name of the data set stays short
    options |= {name: value for name, value in (("test", test), ("val", val)) if value is not None}
    _require_classes(graph, train)
    return _dataset(graph, {n: part for n, part in splits.items() if len(part)}, env, by, env_names, options)


def domain_values(graph: NodeGraph, by: str) -> tuple[Tensor, tuple[str, ...]]:
    """The value of every node by which nodes are told apart, and what its numbers mean where it has names."""
    if by in graph.columns:
        return graph.columns[by].double(), tuple(graph.value_names.get(by, ()))
    if by == "degree":
        return graph.degree.double(), ()
    if by == "pagerank":
        return pagerank(graph), ()
    if by == "homophily":
        return homophily(graph), ()
    if by == "word":
        return (graph.x > graph.x.min()).sum(1).double(), ()  # the least is that of no word, also after scaling
    raise unknown("way to tell nodes apart", by, (*MEASURED, *graph.columns))


def pagerank(graph: NodeGraph) -> Tensor:
    """How often a walker who starts anew with chance 0.15 is at each node; of a node without neighbours it jumps."""
    n, (src, dst) = graph.num_nodes, graph.edge_index
    degree, rank = graph.degree.double(), torch.full((n,), 1 / n, dtype=torch.double, device=graph.device)
    for _ in range(ROUNDS):
        sent = torch.where(degree > 0, rank / degree.clamp(min=1), 0.0)
        lost = rank[degree == 0].sum() / n
        rank = (1 - DAMPING) / n + DAMPING * (torch.zeros_like(rank).index_add(0, dst, sent[src]) + lost)
    return rank


def homophily(graph: NodeGraph) -> Tensor:
    """The share of each node's neighbours that have its label; one for a node with no labelled neighbour.

    Labels of all nodes are looked at to split the nodes, none to train.
    """
    (src, dst), y = graph.edge_index, graph.y
    counted = ((y[src] >= 0) & (y[dst] >= 0)).double()
    same = counted * (y[src] == y[dst])
    total, like = (torch.zeros(graph.num_nodes, dtype=torch.double).index_add(0, dst, w) for w in (counted, same))
    return torch.where(total > 0, like / total.clamp(min=1), 1.0)


def _as_split(graph: NodeGraph) -> Dataset:
    """The graph's own splits; nodes without one cannot be trained on."""
    parts = {part: getattr(graph, part) for part in SPLITS if len(getattr(graph, part))}
    if "train" not in parts:
        raise ShiftproofError(
            f"{graph.name} has no training nodes; say how its nodes are split: by=degree, word, pagerank, homophily"
            + "".join(f", {name}" for name in graph.columns)
        )
    return _dataset(graph, parts, None, None, (), {})


def _dataset(
    graph: NodeGraph,
    parts: dict[str, Tensor],
    env: Tensor | None,
    by: str | None,
    names: tuple[str, ...],
    options: dict[str, object],
) -> Dataset:
    if graph.num_features == 0:
        raise ShiftproofError(f"the nodes of {graph.name} have no features; features=degree gives them their degrees")
    around: dict[tuple[int, ...], Surroundings] = {}  # splits of the same graphs share what is around their nodes
    splits = {name: NodeSet.of(graph, nodes, env=env, known=around) for name, nodes in parts.items()}
    source = graph.provenance.get("source") if graph.provenance else None
    own = {k: v for k, v in dict(graph.provenance).items() if k not in ("source", "file")}
    return Dataset(
        splits,
        name=graph.name,
        num_classes=max(graph.num_classes, 2),
        provenance=str(source or "given by the user"),
        options={**({} if by is None else own), **options} if source is None else options,
        environment=by,
        value_names={by: names} if by and names else {},
    )


def _by_rank(values: Tensor, known: Tensor, share: float, draw: torch.Generator) -> list[Tensor]:
    """Training, validation and test nodes in the order of their values; equal values in random order."""
    nodes = known.nonzero()[:, 0]
    nodes = nodes[torch.randperm(len(nodes), generator=draw)]
    nodes = nodes[torch.argsort(values[nodes], stable=True)]
    last = round(share * len(nodes))
    return [part.sort().values for part in nodes.split([len(nodes) - 2 * last, last, last])]


def _at_random(values: Tensor, known: Tensor, share: float, draw: torch.Generator) -> list[Tensor]:
    return _by_rank(torch.rand(len(values), generator=draw), known, share, draw)


def _by_concept(graph: NodeGraph, values: Tensor, known: Tensor, share: float, draw: torch.Generator) -> list[Tensor]:
    """Nodes whose label goes with the rank of their value mostly train, and the others are mostly tested."""
    rank = values.argsort(stable=True).argsort(stable=True)
    group = (rank * graph.num_classes) // max(len(values), 1)
    chance = torch.where(group == graph.y, AGREE, 1 - AGREE)
    order = torch.rand(len(values), generator=draw, dtype=torch.double).log() / chance.clamp(min=1e-6)
    return _by_rank(-order, known, share, draw)


def _by_value(
    graph: NodeGraph,
    values: Tensor,
    names: Sequence[str],
    known: Tensor,
    by: str,
    test: str | None,
    val: str | None,
    draw: torch.Generator,
) -> list[Tensor]:
    """Whole values: some are tested, some validate, the others train; those named for both are halved."""
    there = values[known].long()
    numbers = there.unique().tolist()
    if len(numbers) < (2 if test is not None and test == val else 3):
        raise ShiftproofError(f"'{by}' of {graph.name} has {len(numbers)} values; to train, validate and test it has 3")
    label: dict[int, str] = {int(n): str(names[n]) if n < len(names) else str(n) for n in numbers}
    sizes = sorted(numbers, key=lambda n: (-int((there == n).sum()), n))

    def chosen(named: str | None, otherwise: list[int], what: str) -> list[int]:
        if named is None:
            return otherwise
        number: dict[str, int] = {word: n for n, word in label.items()}
        for word in str(named).split("+"):
            if word not in number:
                raise unknown(f"value of '{by}' for {what}", word, number)
        return sorted(number[word] for word in str(named).split("+"))

    validates = chosen(val, [], "val")
    tested = chosen(test, [n for n in sizes if n not in validates][-1:], "test")
    validates = validates or [n for n in sizes if n not in tested][-1:]
    if not set(numbers) - {*tested, *validates}:
        raise ShiftproofError(f"no value of '{by}' is left to train on")
    at = values.long()
    of_test, of_val = (torch.isin(at, torch.tensor(some)) for some in (tested, validates))
    if tested == validates:
        both = (known & of_test).nonzero()[:, 0]
        both = both[torch.randperm(len(both), generator=draw)]
        parts = [part.sort().values for part in both.split([len(both) // 2, len(both) - len(both) // 2])]
        return [(known & ~of_test).nonzero()[:, 0], *parts]
    if set(tested) & set(validates):
        raise ShiftproofError(f"'{label[min(set(tested) & set(validates))]}' cannot be tested and validate at once")
    return [(known & keep).nonzero()[:, 0] for keep in (~of_test & ~of_val, of_val, of_test)]


def _held_out(train: Tensor, share: float, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The training nodes less two random parts of the same kind."""
    aside = int(share * len(train))
    order = train[torch.randperm(len(train), generator=draw)]
    left, val, test = (part.sort().values for part in order.split([len(train) - 2 * aside, aside, aside]))
    return left, val, test


def _environments(
    values: Tensor, train: Tensor, names: Sequence[str], environments: int
) -> tuple[Tensor, tuple[str, ...]]:
    """The environment of every node: those of the training part come first, and others are numbered after them."""
    distinct = values[train].unique()
    if names or len(distinct) <= environments:
        others = values.unique()
        order = torch.cat([distinct, others[~torch.isin(others, distinct)]])
        env = (values.unsqueeze(1) == order).long().argmax(1)
        numbers = [int(n) for n in order.tolist()]
        shown = tuple(names[n] if n < len(names) else f"{order[i]:g}" for i, n in enumerate(numbers))
        return env, shown
    steps = torch.linspace(0, 1, environments + 1, dtype=torch.double)[1:-1]
    cuts = torch.quantile(values[train].double(), steps).unique()
    low, high = values[train].min(), values[train].max()
    env = torch.bucketize(values, cuts)
    outside = (values < low) | (values > high)
    env = torch.where(outside, len(cuts) + 1, env)
    edges = [f"{v:.3g}" for v in (low, *cuts, high)]
    return env, (*(f"{a} to {b}" for a, b in pairwise(edges)), "beyond")


def _require_classes(graph: NodeGraph, train: Tensor) -> None:
    if len(graph.y[train].unique()) < 2:
        raise ShiftproofError(f"the training nodes of {graph.name} are all of one class; split them by something else")
