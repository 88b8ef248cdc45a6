"""Toy groups: trees of typed points in space, in which two groups of three points must both be whole."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.room import require_room
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.points import Neighbours, at_random, point_graphs
from shiftproof.data.seeds import stream
from shiftproof.ranges import AtLeast, Seed
from shiftproof.registry import register

NEIGHBOURS = Neighbours(k=5)  # docs/papers/gmt.md#point-networks, those of SynMol
GROUPS = ((2, 3, 4), (5, 6, 7))  # the kinds of a group's points, in the order in which they hang together
BACKGROUND, KINDS = 2, 8  # kinds 0 and 1 are everywhere
BOND = 1.0
LEAST_DISTANCE = 0.8  # of points that are not joined in the tree
FEWEST, MOST = 18, 26  # points
BLUR = 0.05


@register("toy-groups", tags=("graphs", "generated", "points", "ground-truth"))
def toy_groups(graphs: Annotated[int, AtLeast(10)] = 1000, seed: Seed = 0) -> Dataset:
    """Toy groups: trees of 18 to 26 typed points in space; are two groups of three points both whole, which is truth.

    Every cloud has each of the six kinds of points that make up the groups exactly once, so kinds alone say nothing:
    in a whole group they hang together in a row, in a broken one none touches another. Half of the clouds are positive;
    of the others, the first group, the second or both are broken, a third each. Points have a place (`pos`) and their
    kind; each is joined to the five nearest, itself among them. A stand-in to try the geometric methods on, not one of
    the published sets. Split 70/15/15.
    """
    given = dict(locals())
    require_room(graphs, 26 * (8 + 3 * 5), "toy-groups")  # 26 points with five edges each
    rng = stream(seed, 0)
    positive = np.arange(graphs) < graphs // 2
    whole = np.where(positive[:, None], True, np.array([(0, 1), (1, 0), (0, 0)], bool)[np.arange(graphs) % 3])
    clouds = [_cloud(both, rng) for both in whole]
    sizes = torch.tensor([len(kind) for _, kind in clouds])
    kind = torch.from_numpy(np.concatenate([kind for _, kind in clouds]))
    everything = point_graphs(
        torch.from_numpy(np.concatenate([pos for pos, _ in clouds])).float(),
        sizes,
        NEIGHBOURS,
        x=torch.nn.functional.one_hot(kind, KINDS).float(),
        truth=(kind >= BACKGROUND) & torch.repeat_interleave(torch.from_numpy(positive), sizes),
        y=torch.from_numpy(positive.astype(np.float32)),
    )
    return Dataset(
        at_random(everything, stream(seed, 1)),
        name="toy-groups",
        task="binary",
        provenance="generated (toy groups, a stand-in for SynMol)",
        options=named_options(toy_groups, given, always=("seed",)),
    )


def _cloud(whole: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Places `[points, 3]` and kinds of one cloud, in random order; `whole` says which of the groups are."""
    while True:
        pos, parent = _tree(int(rng.integers(FEWEST, MOST + 1)), rng)
        kind = rng.integers(0, BACKGROUND, size=len(parent))
        rows = _rows(parent, whole, rng)
        if rows is None:  # this tree has no place for them
            continue
        for row, kinds in zip(rows, GROUPS, strict=True):
            kind[row] = kinds
        order = rng.permutation(len(kind))
        return (pos + rng.normal(0, BLUR, size=pos.shape))[order], kind[order]


def _tree(points: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A tree whose points hang one bond from their parents and keep clear of all others; the root is its own parent."""
    pos, parent = np.zeros((points, 3)), np.zeros(points, np.int64)
    placed = 1
    while placed < points:
        on, way = int(rng.integers(placed)), rng.normal(size=3)
        place = pos[on] + BOND * way / np.linalg.norm(way)
        if (np.linalg.norm(pos[:placed] - place, axis=1) >= LEAST_DISTANCE).all():
            pos[placed], parent[placed] = place, on
            placed += 1
    return pos, parent


def _rows(parent: np.ndarray, whole: np.ndarray, rng: np.random.Generator) -> list[np.ndarray] | None:
    """Three points for each group, all different: in a row of the tree where the group is whole, else far apart."""
    points = len(parent)
    joined = np.zeros((points, points), bool)
    joined[np.arange(1, points), parent[1:]] = True
    joined |= joined.T
    free, rows = np.ones(points, bool), []
    for is_whole in whole[np.argsort(~whole, kind="stable")]:  # whole ones first: they need room in a row
        row = _in_a_row(joined, free, rng) if is_whole else _apart(joined, free, rng)
        if row is None:
            return None
        free[row] = False
        rows.append(row)
    return [rows[place] for place in np.argsort(np.argsort(~whole, kind="stable"))]


def _in_a_row(joined: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    usable = joined & free & free[:, None]
    middles = np.flatnonzero(usable.sum(1) >= 2)
    if not len(middles):
        return None
    middle = rng.choice(middles)
    first, last = rng.choice(np.flatnonzero(usable[middle]), 2, replace=False)
    return np.array([first, middle, last])


def _apart(joined: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Three free points of which none touches another, nor has a neighbour in common with it."""
    near = joined | (joined.astype(np.int64) @ joined.astype(np.int64) > 0)
    row: list[int] = []
    for point in rng.permutation(np.flatnonzero(free)):
        if not near[point, row].any():
            row.append(int(point))
        if len(row) == 3:
            return np.array(row)
    return None
