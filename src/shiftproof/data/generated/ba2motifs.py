"""BA-2Motifs: a random tree with a house or a cycle hanging on it."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.motifs import MOTIF_EDGES, MOTIF_NODES
from shiftproof.data.generated.room import require_room
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.array_files import ArrayFile
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import AtLeast, Seed
from shiftproof.registry import register

BASE_NODES = 20
PUBLISHED = 1000  # graphs
FEATURES, FEATURE_VALUE = 10, 0.1  # every node looks the same, as in the published file
SHARES = (0.8, 0.1)


@register("ba-2motifs", tags=("graphs", "generated", "ground-truth"))
def ba_2motifs(
    source: Literal["generated", "published"] = "generated",
    seed: Seed = 0,
    graphs: Annotated[int, AtLeast(10)] = PUBLISHED,
) -> Dataset:
    """BA-2Motifs: 1,000 graphs of 25 nodes, the class is the motif (cycle 0, house 1), motif edges are ground truth.

    Each is a Barabasi-Albert tree of 20 nodes joined to the motif by one edge; edges are stored in both directions.
    The graphs are generated, or read from the published file; `seed` draws the random split 80/10/10.
    """
    given = dict(locals())
    if source not in ("generated", "published"):
        raise unknown("source of ba-2motifs", source, ("generated", "published"))
    if source == "published" and graphs != PUBLISHED:
        raise ShiftproofError(f"option 'graphs' is for generated ones; the published file holds {PUBLISHED}")
    require_room(graphs, 25 * (10 + 4 * 3), "ba-2motifs")  # 25 nodes of 10 features, two edges a node both ways
    everything = _generated(graphs, seed) if source == "generated" else _published()
    order = torch.from_numpy(stream(seed, 0).permutation(len(everything)))
    train, val = (int(share * len(everything)) for share in SHARES)
    return Dataset(
        {
            "train": everything[order[:train]],
            "val": everything[order[train : train + val]],
            "test": everything[order[train + val :]],
        },
        name="ba-2motifs",
        task="binary",
        provenance="generated (BA-2Motifs)" if source == "generated" else "the published BA-2Motifs of PGExplainer",
        options=named_options(ba_2motifs, given, always=("seed",)),
        value_names={"motif": ("cycle", "house")},
    )


def _generated(count: int, seed: int) -> GraphSet:
    """Half cycles, half houses, like the published file: preferential attachment runs in all graphs at once."""
    rng = stream(seed, 1)
    parents = _attachment_trees(count, rng)
    house = np.arange(count) >= count // 2
    first = BASE_NODES
    joint = np.stack([rng.integers(0, BASE_NODES, size=count), rng.integers(first, first + MOTIF_NODES, size=count)])
    tree = np.stack([parents.ravel(), np.tile(np.arange(1, BASE_NODES), count)])
    tree_owner = np.repeat(np.arange(count), BASE_NODES - 1)
    owners, pieces = [tree_owner, np.arange(count)], [tree, joint]
    for is_house, motif in ((False, MOTIF_EDGES[0]), (True, MOTIF_EDGES[1])):
        holders = np.flatnonzero(house == is_house)
        owners.append(np.repeat(holders, len(motif)))
        pieces.append(np.tile(np.array(motif).T + first, len(holders)))
    owner, edges = np.concatenate(owners), np.concatenate(pieces, axis=1)
    owner, edges = np.concatenate([owner, owner]), np.concatenate([edges, edges[::-1]], axis=1)
    order = np.lexsort((edges[1], edges[0], owner))
    return _with_truth(
        torch.full((count,), BASE_NODES + MOTIF_NODES),
        torch.from_numpy(np.bincount(owner, minlength=count)),
        torch.from_numpy(edges[:, order]),
        torch.full((count * (BASE_NODES + MOTIF_NODES), FEATURES), FEATURE_VALUE),
        torch.from_numpy(house.astype(np.float32)),
    )


def _attachment_trees(count: int, rng: np.random.Generator) -> np.ndarray:
    """Parents `[count, 19]` of the nodes 1 to 19: each new node joins an old one with chance proportional to degree."""
    ends = np.zeros((count, 2 * (BASE_NODES - 1)), np.int64)  # the end points of the edges so far, a node per degree
    ends[:, 1] = 1
    parents = np.zeros((count, BASE_NODES - 1), np.int64)
    for node in range(2, BASE_NODES):
        filled = 2 * (node - 1)
        parent = ends[np.arange(count), rng.integers(0, filled, size=count)]
        parents[:, node - 1] = ends[:, filled] = parent
        ends[:, filled + 1] = node
    return parents


def _published() -> GraphSet:
    path = find("interpretability/ba_2motifs.npz", what="the published BA-2Motifs")
    file = ArrayFile(path, "the published BA-2Motifs")
    nodes = file.starts("node_ptr")
    edges = file.starts("edge_ptr", len(nodes) - 1)
    x = file.table("x", nodes[-1], FEATURES)
    if not np.allclose(x, FEATURE_VALUE):
        raise ShiftproofError(f"{path}: every node of the published BA-2Motifs has the features {FEATURE_VALUE}")
    packed = _with_truth(
        torch.from_numpy(np.diff(nodes)),
        torch.from_numpy(np.diff(edges)),
        torch.from_numpy(file.edges("edge_index", edges[-1])),
        torch.from_numpy(x),
        torch.from_numpy(file.column("y", len(nodes) - 1).astype(np.float32)),
    )
    if packed.edge_truth is None or not np.array_equal(packed.edge_truth.numpy(), file.column("edge_label")):
        raise ShiftproofError(f"{path}: the marked edges are not the motifs on the nodes 20 to 24")
    return packed


def _with_truth(
    sizes: torch.Tensor, counts: torch.Tensor, edges: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> GraphSet:
    inside = torch.arange(len(x)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return GraphSet.from_parts(
        sizes,
        counts,
        edges,
        x=x,
        y=y,
        edge_truth=(edges >= BASE_NODES).all(0),
        node_truth=inside >= BASE_NODES,
        columns={"motif": y.long()},
    )
