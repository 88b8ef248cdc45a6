"""Molecules that are alike: clusters of them, and how far one set lies from another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.molecule_vectors import raw_vectors
from shiftproof.data.splitting import SHARES, Parts

ALIKE = 0.4  # Tanimoto of ECFP4 from which molecules are neighbours; unrelated drugs have about 0.15
CLOSEST = 0.5  # a test molecule of the split "similarity" is no closer to a training molecule
MOST_BY_NEIGHBOURS = 20_000  # more molecules join the first centre that is near enough, in one pass
ROWS_AT_ONCE = 1000


def fingerprints(graphs: GraphSet) -> Tensor:
    """Which circular neighbourhoods (ECFP4) each molecule has, [molecules, 2048] of 0 and 1."""
    return torch.from_numpy((raw_vectors([graphs], ["ecfp"])[0]["ecfp"] > 0).astype(np.float32))


def likeness(first: Tensor, second: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Tanimoto similarities of rows of bits, a piece of rows after another: where the piece starts, [some, m]."""
    sizes = second.sum(1)
    for start in range(0, len(first), ROWS_AT_ONCE):
        own = first[start : start + ROWS_AT_ONCE]
        shared = own @ second.t()
        either = own.sum(1, keepdim=True) + sizes - shared
        yield start, torch.where(either > 0, shared / either.clamp(min=1), 1.0)


def nearest(graphs: GraphSet, others: GraphSet, most: int | None = None) -> np.ndarray:
    """Of each molecule its Tanimoto similarity (ECFP4) to the nearest of the others; of more than `most` of some."""
    if most is not None and len(graphs) > most:
        graphs = graphs[torch.linspace(0, len(graphs) - 1, most).long()]
    first, second = fingerprints(graphs), fingerprints(others)
    return torch.cat([piece.amax(1) for _, piece in likeness(first, second)]).numpy()


def said_of(near: np.ndarray) -> str:
    """How far test molecules lie from training, in a sentence."""
    same = float((near >= 1).mean())
    twins = f"; {same:.0%} have the neighbourhoods of one" if same else ""
    return (
        f"the nearest training molecule of a test molecule has a Tanimoto similarity (ECFP4) of {np.median(near):.2f} "
        f"in the middle, and at most {np.quantile(near, 0.1):.2f} for a tenth of them{twins}"
    )


def clusters_of(bits: Tensor, alike: float = ALIKE) -> np.ndarray:
    """The number of each molecule's cluster: Butina's, the molecule with the most neighbours first.

    D. Butina, Unsupervised data base clustering based on Daylight's fingerprint and Tanimoto similarity (1999). Of
    many molecules each joins the first centre that is near enough, in the order of the file.
    """
    count = len(bits)
    number = np.full(count, -1, np.int64)
    if count > MOST_BY_NEIGHBOURS:
        return _by_first_centre(bits, alike)
    neighbours: list[np.ndarray] = []
    for _, piece in likeness(bits, bits):
        neighbours += [np.flatnonzero(row) for row in (piece >= alike).numpy()]
    found = 0
    for centre in sorted(range(count), key=lambda row: (-len(neighbours[row]), row)):
        if number[centre] < 0:
            own = neighbours[centre]
            number[own[number[own] < 0]] = found
            number[centre] = found
            found += 1
    return number


def _by_first_centre(bits: Tensor, alike: float) -> np.ndarray:
    number = np.full(len(bits), -1, np.int64)
    centres: list[int] = []
    for start in range(0, len(bits), ROWS_AT_ONCE):
        own = bits[start : start + ROWS_AT_ONCE]
        if centres:
            for begin, piece in likeness(own, bits[centres]):
                near, place = piece.max(1)
                rows = np.flatnonzero((near >= alike).numpy())
                number[start + begin + rows] = place.numpy()[rows]
        left = np.flatnonzero(number[start : start + len(own)] < 0)
        if len(left):
            inside = clusters_of(own[left], alike)
            for cluster in range(int(inside.max()) + 1):
                members = left[inside == cluster]
                number[start + members] = len(centres)
                centres.append(start + int(members[0]))
    return number


def pieces_of(bits: Tensor, closest: float) -> np.ndarray:
    """The number of each molecule's piece: molecules of two pieces are less alike than `closest`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = []
    for start, piece in likeness(bits, bits):
        near = (piece >= closest).nonzero().numpy()
        near[:, 0] += start
        pairs.append(near[near[:, 0] < near[:, 1]])
    ends = np.concatenate(pairs)
    links = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(bits), len(bits)))
    return connected_components(links, directed=False)[1].astype(np.int64)


def largest_trains(groups: np.ndarray, shares: tuple[float, float, float] = SHARES) -> Parts:
    """Whole groups: the largest train until their share is full, however large the first is; the rest is halved.

    Where one group is left it is the test, and there is no val.
    """
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    ordered = np.argsort(-counts, kind="stable")
    before = counts[ordered].cumsum() - counts[ordered]
    train = ordered[before < shares[0] * len(groups)]
    rest = ordered[len(train) :]
    half = counts[rest].cumsum() <= counts[rest].sum() * shares[1] / (shares[1] + shares[2])
    if len(rest) > 1 and not half.any():
        half[-1] = True  # the smallest group, where every larger one is more than half
    part = np.zeros(len(counts), np.int64)
    part[rest] = np.where(half, 1, 2)
    own = part[number.reshape(-1)]
    parts = {name: np.flatnonzero(own == place) for place, name in enumerate(("train", "val", "test"))}
    return {name: rows for name, rows in parts.items() if name != "val" or len(rows) or len(rest) != 1}
