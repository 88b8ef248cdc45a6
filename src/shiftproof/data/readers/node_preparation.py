"""Features and splits of node graphs as the robustness benchmarks prepare them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError

Features = Literal["arctan", "row", "raw", "embedded"]
Parts = tuple[Tensor, Tensor, Tensor]
EMBEDDED = 302  # the width of GRB's Cora
LEAVE_OUT, BLOCKS, BLOCK_SHARE, TEST_SHARE, TRAIN_SHARE = 0.05, 3, 0.3, 0.1, 0.6  # docs/papers/hao.md#splits


def arctan_normalize(x: Tensor) -> Tensor:
    r"""Features within (-1, 1): :math:`\tfrac2\pi\arctan\frac{x-\mu}{\sigma}`, mean and deviation over all entries.

    The deviation is the unbiased one; the order of the entries is kept, and a shift or a positive scale of the raw
    features changes nothing (docs/papers/hao.md#features).
    """
    if x.numel() < 2:
        raise ShiftproofError("the arctan normalisation needs two features or more")
    # sums in double precision: a million rows of float32 would lose digits
    mean = x.sum(dtype=torch.float64) / x.numel()
    spread = _centred_squares(x, mean) / (x.numel() - 1)
    if not float(spread) > 0:
        raise ShiftproofError("all features are equal: there is nothing to normalise, use features=raw")
    scaled = x.sub(mean.to(x.dtype)).div_(spread.sqrt().to(x.dtype))
    return scaled.atan_().mul_(2 / math.pi)


def _centred_squares(x: Tensor, mean: Tensor) -> Tensor:
    blocks = x.flatten().split(1 << 24)
    return torch.stack([(block.double() - mean).square().sum() for block in blocks]).sum()


def prepared(x: Tensor, features: Features) -> Tensor:
    """Raw features as they are, each row summing to 1 ("row"), within (-1, 1) ("arctan"), or dense ("embedded")."""
    if features == "arctan":
        return arctan_normalize(x)
    if features == "row":
        return x / x.sum(1, keepdim=True).where(x.sum(1, keepdim=True) != 0, x.new_ones(1))
    if features == "embedded":
        return arctan_normalize(embedded_words(x))
    if features == "raw":
        return x
    raise ShiftproofError(f"option 'features' is arctan, row, raw or embedded, not '{features}'")


def embedded_words(x: Tensor, width: int = EMBEDDED) -> Tensor:
    """Bags of words as dense vectors: tf-idf of unit length, the leading singular vectors, turned at random.

    It stands in for the dense features of GRB's citation graphs, whose files are not public text: without the turn the
    columns would have unequal scales and one box for all of them would fit none. The same words give the same vectors.
    """
    if bool((x < 0).any()):
        raise ShiftproofError("features=embedded takes counts of words, and some features are negative")
    seen = (x > 0).sum(0).clamp(min=1)
    rows = x.double() * torch.log(len(x) / seen.double())
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    width = min(width, int((values > 1e-10 * values[-1]).sum()))
    leading = vectors[:, -width:].flip(1)
    sign = leading.gather(0, leading.abs().argmax(0, keepdim=True)).sign()  # of two opposite vectors always the same
    turn = torch.linalg.qr(torch.from_numpy(stream(0).standard_normal((width, width)))).Q
    return (rows @ (leading * sign) @ turn).float()


def grb_degree_split(degree: Tensor, seed: int = 0) -> Parts:
    """Training, validation and test nodes by the degree split of the Graph Robustness Benchmark.

    The lowest 5 % of the degrees never test; the next three blocks of 30 % (easy, medium, hard) give 10 % of the nodes
    each to the test set; of all others the first 60 % of the nodes, shuffled, train and the rest validates. Node
    numbers come sorted (docs/papers/hao.md#splits).
    """
    n = len(degree)
    if n < 10:
        raise ShiftproofError(f"the degree split needs 10 nodes or more, not {n}")
    left_out = _share(LEAVE_OUT, n)
    block, take = _share(BLOCK_SHARE, n - left_out), _share(TEST_SHARE, n)
    order = np.argsort(degree.cpu().numpy(), kind="stable")
    draw = stream(seed)
    test = np.concatenate(
        [
            draw.choice(order[left_out + i * block : left_out + (i + 1) * block], take, replace=False)
            for i in range(BLOCKS)
        ]
    )
    others = np.setdiff1d(np.arange(n), test)
    draw.shuffle(others)
    train = _share(TRAIN_SHARE, n)
    parts = (others[:train], others[train:], test)
    train_nodes, val_nodes, test_nodes = (torch.from_numpy(np.sort(part)).to(degree.device) for part in parts)
    return train_nodes, val_nodes, test_nodes


def random_split(num_nodes: int, seed: int = 0, shares: tuple[float, float] = (0.6, 0.1)) -> Parts:
    """Training, validation and test nodes drawn at random; what the two shares leave is for testing."""
    order = stream(seed).permutation(num_nodes)
    ends = np.cumsum([_share(share, num_nodes) for share in shares])
    train, val, test = (torch.from_numpy(np.sort(part)) for part in np.split(order, ends))
    return train, val, test


def with_drawn_split(graph: NodeGraph, split: Literal["grb", "random"], seed: int) -> NodeGraph:
    """The graph with a degree split ("grb") or a random one; nodes without a label are left out of it."""
    if split == "grb":
        parts = grb_degree_split(graph.degree, seed)
    else:
        parts = random_split(graph.num_nodes, seed)
    return with_labelled_split(graph, *parts)


def with_labelled_split(graph: NodeGraph, train: Tensor, val: Tensor, test: Tensor) -> NodeGraph:
    """The graph with these splits, less the nodes whose label is not known."""
    train, val, test = (part[graph.y[part] >= 0] for part in (train, val, test))
    return graph.with_split(train, val, test)


def _share(share: float, n: int) -> int:
    # in whole numbers: a product of floats can fall just under the count that is meant (0.29 * 100 is 28.999...)
    return round(share * 100) * n // 100
