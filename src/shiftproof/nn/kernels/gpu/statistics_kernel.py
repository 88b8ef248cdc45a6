"""The statistics of arriving messages as GPU kernels in Triton; `node_statistics` is what calls them.

A program has one node in `TILE` samples and one part of the messages (the node's own row, its neighbour's or the
edge's). It makes the messages while it goes through the edges that arrive, so none is ever stored, and asks for each
edge once for all its samples. The place of a statistic that nobody asked for is -1.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_at(
    start, stop, real, num_samples, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr
):
    """A program's node, samples (and which there are), columns (and which entries there are), first and last edge."""
    node = tl.program_id(0).to(tl.int64)
    samples = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    cols = tl.arange(0, BLOCK)
    some = samples < num_samples
    inside = some[:, None] & (cols < WIDTH)[None, :]
    first, last = tl.load(start + node), tl.load(stop + node)
    if PADDED:
        last = tl.where(tl.load(real + node), last, first)
    return node, samples, some, cols, inside, first, last


@triton.jit
def _raw(rows, row_stride, sample_stride, source, node, edge, samples, cols, inside, PART: tl.constexpr):
    """The rows that a part of a message is made of in every sample, and their number."""
    if PART == 0:
        row = node
    elif PART == 1:
        row = tl.load(source + edge)
    else:
        row = edge
    places = rows + row * row_stride + samples[:, None] * sample_stride + cols[None, :]
    return tl.load(places, mask=inside, other=0.0), row


@triton.jit
def _weights(weight, weight_stride, weight_sample, edge, samples, some, DELETE: tl.constexpr):
    """The weights of an edge in every sample, and whether its messages count."""
    w = tl.load(weight + edge * weight_stride + samples * weight_sample, mask=some, other=0.0)[:, None]
    present = tl.full(w.shape, 1.0, tl.float32)
    if DELETE:
        present = tl.where(w == 0, 0.0, 1.0)
    return w, present


@triton.jit
def _arriving(
    rows, row_stride, sample_stride, weight, weight_stride, weight_sample, source, order, first, last, node, samples,
    some, cols, inside, TILE: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, WEIGHTED: tl.constexpr,
    DELETE: tl.constexpr, TIES: tl.constexpr,
):  # fmt: skip
    """Count, sum, mean, variance and extremes of the messages, and how many of them tie for each.

    The variance is that of the messages so far, carried on with each (Welford): E[m²] - E[m]² would lose the variance
    of messages that are nearly equal, and with it the slope of their deviation.
    """
    total = tl.zeros([TILE, BLOCK], tl.float32)
    mean = tl.zeros([TILE, BLOCK], tl.float32)
    apart = tl.zeros([TILE, BLOCK], tl.float32)
    low = tl.full([TILE, BLOCK], float("inf"), tl.float32)
    high = tl.full([TILE, BLOCK], float("-inf"), tl.float32)
    lowest = tl.zeros([TILE, BLOCK], tl.float32)
    highest = tl.zeros([TILE, BLOCK], tl.float32)
    count = tl.zeros([TILE, 1], tl.float32)
    present = tl.full([TILE, 1], 1.0, tl.float32)
    for place in range(first, last):
        edge = tl.load(order + place)
        one, _ = _raw(rows, row_stride, sample_stride, source, node, edge, samples, cols, inside, PART)
        if WEIGHTED:
            w, present = _weights(weight, weight_stride, weight_sample, edge, samples, some, DELETE)
            one = one * w
        count += present
        total += one
        off = one - mean
        mean += off * (present / tl.maximum(count, 1.0))
        apart += off * (one - mean) * present
        if TIES:
            fewer = tl.where(one < low, 1.0, lowest + tl.where(one == low, 1.0, 0.0))
            lowest = tl.where(present > 0, fewer, lowest)
            fewer = tl.where(one > high, 1.0, highest + tl.where(one == high, 1.0, 0.0))
            highest = tl.where(present > 0, fewer, highest)
        # a message that is not a number shows, as in torch's own extremes
        low = tl.where(present > 0, tl.minimum(low, one, propagate_nan=tl.PropagateNan.ALL), low)
        high = tl.where(present > 0, tl.maximum(high, one, propagate_nan=tl.PropagateNan.ALL), high)
    variance = tl.maximum(apart / tl.maximum(count, 1.0), 0.0, propagate_nan=tl.PropagateNan.ALL)
    return count, total, mean, variance, low, high, lowest, highest


@triton.jit
def forward(
    rows, row_stride, sample_stride, weight, weight_stride, weight_sample, source, order, start, stop, real,
    num_samples, out, out_stride, out_sample, out_statistic, WIDTH: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, PART: tl.constexpr, WEIGHTED: tl.constexpr, DELETE: tl.constexpr, PADDED: tl.constexpr,
    LEAST: tl.constexpr, MEAN: tl.constexpr, MIN: tl.constexpr, MAX: tl.constexpr, STD: tl.constexpr,
    SUM: tl.constexpr,
):  # fmt: skip
    """Store the statistics of one part of the messages."""
    node, samples, some, cols, inside, first, last = program_at(
        start, stop, real, num_samples, WIDTH, TILE, BLOCK, PADDED
    )
    count, total, _, variance, low, high, _, _ = _arriving(
        rows, row_stride, sample_stride, weight, weight_stride, weight_sample, source, order, first, last, node,
        samples, some, cols, inside, TILE, BLOCK, PART, WEIGHTED, DELETE, False,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    to = out + node * out_stride + samples[:, None] * out_sample + cols[None, :]
    if MEAN >= 0:
        tl.store(to + MEAN * out_statistic, total / tl.maximum(count, 1.0), mask=inside)
    if MIN >= 0:
        tl.store(to + MIN * out_statistic, tl.where(count > 0, low, 0.0), mask=inside)
    if MAX >= 0:
        tl.store(to + MAX * out_statistic, tl.where(count > 0, high, 0.0), mask=inside)
    if STD >= 0:
        tl.store(to + STD * out_statistic, tl.sqrt(variance + LEAST), mask=inside)
    if SUM >= 0:
        tl.store(to + SUM * out_statistic, total, mask=inside)


@triton.jit
def backward(
    rows, row_stride, sample_stride, weight, weight_stride, weight_sample, source, order, start, stop, real,
    num_samples, slope, slope_stride, slope_sample, slope_statistic, to_rows, to_row_stride, to_sample_stride,
    to_weight, to_weight_stride, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr,
    WEIGHTED: tl.constexpr, DELETE: tl.constexpr, PADDED: tl.constexpr, LEAST: tl.constexpr,
    OF_ROWS: tl.constexpr, SHARED: tl.constexpr, OF_WEIGHT: tl.constexpr,
    MEAN: tl.constexpr, MIN: tl.constexpr, MAX: tl.constexpr, STD: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Add the gradient of one part of the messages to that of its rows, and store what its weights get from it.

    Rows that all samples share get the sum over them. A node's own row is the first to get something, so that, where
    each sample has its own, nothing is read before.
    """
    node, samples, some, cols, inside, first, last = program_at(
        start, stop, real, num_samples, WIDTH, TILE, BLOCK, PADDED
    )
    count, _, mean, variance, low, high, lowest, highest = _arriving(
        rows, row_stride, sample_stride, weight, weight_stride, weight_sample, source, order, first, last, node,
        samples, some, cols, inside, TILE, BLOCK, PART, WEIGHTED, DELETE, True,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    arrived = tl.maximum(count, 1.0)
    inward = slope + node * slope_stride + samples[:, None] * slope_sample + cols[None, :]
    alike = tl.zeros([TILE, BLOCK], tl.float32)  # what every message of the node gets
    steep = tl.zeros([TILE, BLOCK], tl.float32)  # what it gets in proportion to how far it is from the mean
    of_low = tl.zeros([TILE, BLOCK], tl.float32)
    of_high = tl.zeros([TILE, BLOCK], tl.float32)
    if STD >= 0:
        steep = tl.load(inward + STD * slope_statistic, mask=inside, other=0.0) / (arrived * tl.sqrt(variance + LEAST))
        steep = tl.where(variance > 0, steep, 0.0)
    if MEAN >= 0:
        alike += tl.load(inward + MEAN * slope_statistic, mask=inside, other=0.0) / arrived
    if SUM >= 0:
        alike += tl.load(inward + SUM * slope_statistic, mask=inside, other=0.0)
    if MIN >= 0:
        of_low = tl.load(inward + MIN * slope_statistic, mask=inside, other=0.0) / tl.maximum(lowest, 1.0)
    if MAX >= 0:
        of_high = tl.load(inward + MAX * slope_statistic, mask=inside, other=0.0) / tl.maximum(highest, 1.0)
    own = tl.zeros([TILE, BLOCK], tl.float32)
    present = tl.full([TILE, 1], 1.0, tl.float32)
    for place in range(first, last):
        edge = tl.load(order + place)
        raw, row = _raw(rows, row_stride, sample_stride, source, node, edge, samples, cols, inside, PART)
        one = raw
        w = present
        if WEIGHTED:
            w, present = _weights(weight, weight_stride, weight_sample, edge, samples, some, DELETE)
            one = raw * w
        pull = alike + steep * (one - mean)
        extreme = tl.where(one == low, of_low, 0.0) + tl.where(one == high, of_high, 0.0)
        pull += tl.where(present > 0, extreme, 0.0)
        if WEIGHTED:
            if OF_WEIGHT:
                along = tl.sum(tl.where(inside, pull * raw, 0.0), 1)
                tl.store(to_weight + edge * to_weight_stride + samples, along, mask=some)
            pull = pull * w
        if OF_ROWS:
            if PART == 0:
                own += pull
            else:
                _put(to_rows + row * to_row_stride, to_sample_stride, samples, cols, inside, pull, PART, WIDTH, SHARED)
    if OF_ROWS and PART == 0:
        _put(to_rows + node * to_row_stride, to_sample_stride, samples, cols, inside, own, PART, WIDTH, SHARED)


@triton.jit
def _put(to, sample_stride, samples, cols, inside, pull, PART: tl.constexpr, WIDTH: tl.constexpr, SHARED: tl.constexpr):
    """Give a row its gradient; others may be adding to it at the same time, unless it is a node's own."""
    if SHARED:
        tl.atomic_add(to + cols, tl.sum(tl.where(inside, pull, 0.0), 0), mask=cols < WIDTH)
    elif PART == 0:
        tl.store(to + samples[:, None] * sample_stride + cols[None, :], pull, mask=inside)
    else:
        tl.atomic_add(to + samples[:, None] * sample_stride + cols[None, :], pull, mask=inside)
