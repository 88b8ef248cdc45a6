"""Sums of weighted neighbours as GPU kernels in Triton; `weighted_sum` is what calls them.

A program has one node (or edge) in `TILE` samples and makes the messages while it goes through edges, so none is ever
stored.
"""

from __future__ import annotations

import triton
import triton.language as tl

from shiftproof.nn.kernels.gpu.statistics_kernel import program_at


@triton.jit
def forward(
    own, own_stride, own_sample, rows, row_stride, row_sample, weight, weight_stride, weight_sample, edges,
    source, order, start, stop, real, num_samples, out, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    OF_EDGES: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Store each node's row plus the messages that arrive; `OF_EDGES`: their rows are the edges' own, not nodes'."""
    node, samples, some, cols, inside, first, last = program_at(
        start, stop, real, num_samples, WIDTH, TILE, BLOCK, PADDED
    )
    total = tl.load(own + node * own_stride + samples[:, None] * own_sample + cols[None, :], mask=inside, other=0.0)
    for place in range(first, last):
        edge = tl.load(order + place)
        row = edge
        if not OF_EDGES:
            row = tl.load(source + edge)
        one = tl.load(rows + row * row_stride + samples[:, None] * row_sample + cols[None, :], mask=inside, other=0.0)
        if ADDED:
            one += tl.load(edges + edge * WIDTH + cols, mask=cols < WIDTH, other=0.0)[None, :]
        if RELU:
            one = tl.maximum(one, 0.0, propagate_nan=tl.PropagateNan.ALL)
        one *= tl.load(weight + edge * weight_stride + samples * weight_sample, mask=some, other=0.0)[:, None]
        total += one
    tl.store(out + (node * num_samples + samples[:, None]) * WIDTH + cols[None, :], total, mask=inside)


@triton.jit
def backward_to_nodes(
    rows, row_stride, row_sample, weight, weight_stride, weight_sample, edges, target, order, start, stop, real,
    num_samples, slope, to_rows, to_weight, to_edges, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    ADDED: tl.constexpr, RELU: tl.constexpr, PADDED: tl.constexpr, ITSELF: tl.constexpr,
    OF_WEIGHT: tl.constexpr, OF_EDGE: tl.constexpr,
):  # fmt: skip
    """Store what a node's rows get from the messages it sends, and what these messages' weights and edges get.

    `ITSELF`: the row that messages are added to is the node's own as well.
    """
    node, samples, some, cols, inside, first, last = program_at(
        start, stop, real, num_samples, WIDTH, TILE, BLOCK, PADDED
    )
    sent = tl.load(rows + node * row_stride + samples[:, None] * row_sample + cols[None, :], mask=inside, other=0.0)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    if ITSELF:
        total += tl.load(
            slope + (node * num_samples + samples[:, None]) * WIDTH + cols[None, :], mask=inside, other=0.0
        )
    for place in range(first, last):
        edge = tl.load(order + place)
        arrived = tl.load(target + edge)
        pull = tl.load(
            slope + (arrived * num_samples + samples[:, None]) * WIDTH + cols[None, :], mask=inside, other=0.0
        )
        one = sent
        if ADDED:
            one = sent + tl.load(edges + edge * WIDTH + cols, mask=cols < WIDTH, other=0.0)[None, :]
        if RELU:
            pull = tl.where(one > 0, pull, 0.0)
        if OF_WEIGHT:  # where ReLU lets nothing through, the message is 0 and so is its product
            along = tl.sum(tl.where(inside, pull * one, 0.0), 1)
            tl.store(to_weight + edge * num_samples + samples, along, mask=some)
        pull *= tl.load(weight + edge * weight_stride + samples * weight_sample, mask=some, other=0.0)[:, None]
        if OF_EDGE:  # the samples of an edge are in several programs
            tl.atomic_add(to_edges + edge * WIDTH + cols, tl.sum(tl.where(inside, pull, 0.0), 0), mask=cols < WIDTH)
        total += pull
    tl.store(to_rows + (node * num_samples + samples[:, None]) * WIDTH + cols[None, :], total, mask=inside)


@triton.jit
def backward_to_edges(
    rows, row_stride, weight, weight_stride, weight_sample, target, real, num_samples, slope, to_rows, to_weight,
    WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, OF_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Store what the row of an edge gets, which is the same in all samples, and what its weights get."""
    edge = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    within = cols < WIDTH
    arrived = tl.load(target + edge)
    end = num_samples
    if PADDED:
        end = tl.where(tl.load(real + arrived), num_samples, 0)
    sent = tl.load(rows + edge * row_stride + cols, mask=within, other=0.0)[None, :]
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, end, TILE):
        samples = (begin + tl.arange(0, TILE)).to(tl.int64)
        some = samples < num_samples
        inside = some[:, None] & within[None, :]
        pull = tl.load(
            slope + (arrived * num_samples + samples[:, None]) * WIDTH + cols[None, :], mask=inside, other=0.0
        )
        if OF_WEIGHT:
            tl.store(to_weight + edge * num_samples + samples, tl.sum(pull * sent, 1), mask=some)
        w = tl.load(weight + edge * weight_stride + samples * weight_sample, mask=some, other=0.0)[:, None]
        total += tl.sum(pull * w, 0)
    tl.store(to_rows + edge * WIDTH + cols, total, mask=within)
