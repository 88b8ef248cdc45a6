"""Data sets whose shifts are known because they were put in."""

from __future__ import annotations

import numpy as np
import torch

from shiftproof.data import Dataset, DomainSet, GraphSet


def graph_part(
    rng: np.random.Generator,
    count: int = 300,
    *,
    sizes: tuple[int, int] = (10, 30),
    edges_a_node: float = 1.5,
    class_one: float = 0.5,
    attribute: float = 0.0,
    edge_attribute: float = 0.0,
    agrees: float = 0.5,
    environments: int = 1,
    class_one_in: tuple[float, ...] | None = None,
) -> GraphSet:
    """Random graphs of two classes.

    Sizes are uniform, edges are as many a node as asked and fall anywhere; `attribute` is the mean of the first node
    feature, `edge_attribute` that of the edge feature; the second node feature says the class in `agrees` of them.
    """
    env = rng.integers(environments, size=count)
    share = np.full(count, class_one) if class_one_in is None else np.asarray(class_one_in)[env]
    y = (rng.random(count) < share).astype(np.int64)
    nodes = rng.integers(sizes[0], sizes[1] + 1, size=count)
    edges = rng.binomial(np.round(2 * edges_a_node * nodes).astype(int), 0.5)
    owner = np.repeat(np.arange(count), edges)
    ends = (rng.random((2, len(owner))) * nodes[owner]).astype(np.int64)
    x = rng.normal(size=(nodes.sum(), 3))
    x[:, 0] += attribute
    sign = np.where(rng.random(count) < agrees, y, 1 - y)
    x[:, 1] = np.repeat(2.0 * sign - 1, nodes)
    edge_attr = rng.normal(edge_attribute, 1, size=(len(owner), 1))
    return GraphSet.from_parts(
        torch.from_numpy(nodes),
        torch.from_numpy(edges),
        torch.from_numpy(ends),
        x=torch.from_numpy(x.astype(np.float32)),
        edge_attr=torch.from_numpy(edge_attr.astype(np.float32)),
        y=torch.from_numpy(y),
        env=torch.from_numpy(env) if environments > 1 else None,
    )


def graphs(seed: int = 0, *, count: int = 300, everywhere: dict | None = None, **in_test) -> Dataset:
    """Train and test alike up to what is said of test."""
    rng = np.random.default_rng(seed)
    shared = everywhere or {}
    parts = {"train": graph_part(rng, count, **shared), "test": graph_part(rng, count, **{**shared, **in_test})}
    return Dataset(parts, name="graphs")


def tensor_part(
    rng: np.random.Generator,
    count: int = 400,
    *,
    class_one: float = 0.5,
    moved: float = 0.0,
    wider: float = 1.0,
    agrees: float = 0.5,
    environments: int = 1,
    class_one_in: tuple[float, ...] | None = None,
    agrees_in: tuple[float, ...] | None = None,
) -> DomainSet:
    """Vectors of two classes: the first feature is the noisy class, the second agrees with it as often as asked.

    The third feature is drawn around `moved` with the deviation `wider` and has nothing to do with the class.
    """
    env = rng.integers(environments, size=count)
    share = np.full(count, class_one) if class_one_in is None else np.asarray(class_one_in)[env]
    y = (rng.random(count) < share).astype(np.int64)
    rate = np.full(count, agrees) if agrees_in is None else np.asarray(agrees_in)[env]
    second = np.where(rng.random(count) < rate, y, 1 - y)
    noise = rng.normal(size=(count, 3)) * [1.0, 0.3, wider]
    x = noise + np.stack([2.0 * y - 1, 2.0 * second - 1, np.full(count, moved)], axis=1)
    return DomainSet(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(y),
        torch.from_numpy(env) if environments > 1 else None,
    )


def tensors(seed: int = 0, *, count: int = 400, everywhere: dict | None = None, **in_test) -> Dataset:
    rng = np.random.default_rng(seed)
    shared = everywhere or {}
    parts = {"train": tensor_part(rng, count, **shared), "test": tensor_part(rng, count, **{**shared, **in_test})}
    return Dataset(parts, name="tensors")
