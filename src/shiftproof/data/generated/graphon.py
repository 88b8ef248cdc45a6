"""Random graphs from graphons: the graphon decides the class, the node features only go along with it in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.motifs import draw_matching
from shiftproof.data.generated.room import require_room
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import AtLeast, Count, Fraction, Seed
from shiftproof.registry import register

Graphon = Callable[[np.ndarray, np.ndarray], np.ndarray]
GRAPHS_AT_ONCE = 500

# All three have the same mean, so that the number of edges does not tell them apart.
GRAPHONS: dict[str, Graphon] = {
    "flat": lambda u, v: np.full(np.broadcast_shapes(u.shape, v.shape), 0.25),
    "blocks": lambda u, v: np.where((u < 0.5) == (v < 0.5), 0.45, 0.05),
    "core": lambda u, v: u * v,
}
CLASSES = len(GRAPHONS)


@register("graphon", tags=("graphs", "generated", "environments"))
def graphon(
    biases: tuple[Fraction, ...] = (0.9, 0.7),
    seed: Seed = 0,
    nodes: tuple[Annotated[int, AtLeast(2)], Annotated[int, AtLeast(2)]] = (15, 30),
    convention: Literal["below", "above"] = "below",
    train_per_class: Count = 1000,
    val_per_class: Count = 200,
    test_per_class: Count = 500,
) -> Dataset:
    """Graphs drawn from three graphons, the classes; node features name the class in a share of each environment.

    With `convention="below"` an edge is there where a uniform draw lies below the graphon (the usual reading), with
    "above" where it lies above it (as printed). `biases` are the shares of the training environments, between which
    the training and validation graphs are dealt out; in `test` the features say nothing. Graphs have `nodes` nodes.
    """
    given = dict(locals())
    if not biases:
        raise ShiftproofError("option 'biases' of graphon needs one chance for each training environment")
    if convention not in ("below", "above"):
        raise unknown("convention of graphon", convention, ("below", "above"))
    if nodes[0] > nodes[1]:
        raise ShiftproofError(f"option 'nodes' of graphon holds the fewest (from 2) and the most nodes, not {nodes}")
    per_class = max(train_per_class, val_per_class, test_per_class)
    require_room(3 * CLASSES * per_class, nodes[1] ** 2 + 8 * nodes[1], "graphon")  # all pairs are drawn
    splits = {}
    counts = (("train", train_per_class), ("val", val_per_class), ("test", test_per_class))
    for number, (name, per_class) in enumerate(counts):
        chances = (1 / CLASSES,) if name == "test" else biases
        splits[name] = _part(per_class, chances, nodes, convention == "below", seed, number)
    return Dataset(
        splits,
        name="graphon",
        num_classes=CLASSES,
        provenance="generated (graphon model, an FIIF instance of CIGA's causal graphs)",
        options=named_options(graphon, given, always=("biases", "seed")),
        environment="bias",
        value_names={
            "bias": (f"{1 / CLASSES:.2f}",),
            **{f"{split}.bias": tuple(map(str, biases)) for split in ("train", "val")},
            "graphon": tuple(GRAPHONS),
            "attribute": tuple(GRAPHONS),
        },
    )


def draw_edges(kinds: np.ndarray, sizes: np.ndarray, below: bool, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    r"""Edges `[2, m]` in both directions (nodes numbered inside each graph) and edges a graph.

    .. math:: U_v, Z_{uv} \sim \mathcal U[0, 1], \qquad A_{uv} = A_{vu} := 1(Z_{uv} < W(U_u, U_v))
    """
    slot = np.arange(sizes.max())
    position = rng.random((len(sizes), len(slot)))
    u, v = position[:, :, None], position[:, None]
    chance = np.stack([make(u, v) for make in GRAPHONS.values()])[kinds, np.arange(len(sizes))]
    draw = rng.random(chance.shape)
    there = draw < chance if below else draw > chance
    real = slot < sizes[:, None]
    there &= (slot[:, None] < slot) & real[:, :, None] & real[:, None]
    there |= there.transpose(0, 2, 1)
    _, source, target = np.nonzero(there)
    return np.stack([source, target]), there.sum((1, 2))


def _part(
    per_class: int, chances: tuple[float, ...], nodes: tuple[int, int], below: bool, seed: int, number: int
) -> GraphSet:
    structure, spurious = stream(seed, number, 0), stream(seed, number, 1)
    label = np.arange(CLASSES * per_class) % CLASSES
    env = np.arange(len(label)) // CLASSES % len(chances)
    sizes = structure.integers(nodes[0], nodes[1] + 1, size=len(label))
    cuts = [slice(start, start + GRAPHS_AT_ONCE) for start in range(0, len(label), GRAPHS_AT_ONCE)]
    drawn = [draw_edges(label[cut], sizes[cut], below, structure) for cut in cuts]
    edges, edge_counts = (np.concatenate(parts, axis=-1) for parts in zip(*drawn, strict=True))
    attribute = np.empty_like(label)
    for environment, chance in enumerate(chances):
        rows = env == environment
        attribute[rows] = draw_matching(label[rows], chance, spurious)
    return GraphSet.from_parts(
        torch.from_numpy(sizes),
        torch.from_numpy(edge_counts),
        torch.from_numpy(edges),
        x=torch.from_numpy(np.eye(CLASSES, dtype=np.float32)[np.repeat(attribute, sizes)]),
        y=torch.from_numpy(label),
        env=torch.from_numpy(env),
        columns={
            "graphon": torch.from_numpy(label.copy()),
            "attribute": torch.from_numpy(attribute),
            "bias": torch.from_numpy(env.copy()),
        },
    )
