"""Batch norm of many samples as GPU kernels in Triton; `sample_norm` is what calls them.

A program has some columns (features of a sample) of one network and goes through their rows, first for the statistics
and then for what comes of them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows_at(begin, mask, network, num_rows, inside, ROWS: tl.constexpr, PADDED: tl.constexpr):
    """The numbers of some rows, which entries of them there are, and which of those count."""
    rows = (begin + tl.arange(0, ROWS)).to(tl.int64)
    there = rows < num_rows
    real = there
    if PADDED:
        real = tl.load(mask + network * num_rows + rows, mask=there, other=0) != 0
    return rows, there[:, None] & inside[None, :], real[:, None] & inside[None, :]


@triton.jit
def forward(
    x, weight, bias, mask, count, num_rows, out, to_mean, to_var, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, AFFINE: tl.constexpr, RELU: tl.constexpr, PADDED: tl.constexpr,
    EPS: tl.constexpr,
):  # fmt: skip
    """Store normalised rows, zeros for those that do not count, and the mean and variance of every column."""
    network = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = cols < WIDTH
    base = network * num_rows * WIDTH
    counted = tl.load(count + network)
    total = tl.zeros([COLS], tl.float32)
    for begin in range(0, num_rows, ROWS):
        rows, _, real = _rows_at(begin, mask, network, num_rows, inside, ROWS, PADDED)
        total += tl.sum(tl.load(x + base + rows[:, None] * WIDTH + cols[None, :], mask=real, other=0.0), 0)
    mean = total / counted
    square = tl.zeros([COLS], tl.float32)
    for begin in range(0, num_rows, ROWS):
        rows, _, real = _rows_at(begin, mask, network, num_rows, inside, ROWS, PADDED)
        value = tl.load(x + base + rows[:, None] * WIDTH + cols[None, :], mask=real, other=0.0)
        centred = tl.where(real, value - mean[None, :], 0.0)
        square += tl.sum(centred * centred, 0)
    var = square / counted
    tl.store(to_mean + network * WIDTH + cols, mean, mask=inside)
    tl.store(to_var + network * WIDTH + cols, var, mask=inside)
    scale = tl.rsqrt(var + EPS)
    shift = tl.zeros([COLS], tl.float32)
    if AFFINE:
        scale *= tl.load(weight + network * CHANNELS + cols % CHANNELS, mask=inside, other=0.0)
        shift += tl.load(bias + network * CHANNELS + cols % CHANNELS, mask=inside, other=0.0)
    for begin in range(0, num_rows, ROWS):
        rows, there, real = _rows_at(begin, mask, network, num_rows, inside, ROWS, PADDED)
        places = base + rows[:, None] * WIDTH + cols[None, :]
        value = (tl.load(x + places, mask=real, other=0.0) - mean[None, :]) * scale[None, :] + shift[None, :]
        if RELU:
            value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out + places, tl.where(real, value, 0.0), mask=there)


@triton.jit
def backward(
    x, weight, bias, mask, count, num_rows, mean, var, slope, to_x, to_weight, to_bias, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, AFFINE: tl.constexpr, RELU: tl.constexpr,
    PADDED: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Store the gradient of the rows, and what each column gives to the gradients of weight and bias."""
    network = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = cols < WIDTH
    base = network * num_rows * WIDTH
    counted = tl.load(count + network)
    centre = tl.load(mean + network * WIDTH + cols, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.load(var + network * WIDTH + cols, mask=inside, other=0.0) + EPS)
    factor = scale
    shift = tl.zeros([COLS], tl.float32)
    if AFFINE:
        factor = scale * tl.load(weight + network * CHANNELS + cols % CHANNELS, mask=inside, other=0.0)
        shift += tl.load(bias + network * CHANNELS + cols % CHANNELS, mask=inside, other=0.0)
    total = tl.zeros([COLS], tl.float32)
    along = tl.zeros([COLS], tl.float32)
    for begin in range(0, num_rows, ROWS):
        rows, _, real = _rows_at(begin, mask, network, num_rows, inside, ROWS, PADDED)
        places = base + rows[:, None] * WIDTH + cols[None, :]
        centred = tl.load(x + places, mask=real, other=0.0) - centre[None, :]
        pull = tl.load(slope + places, mask=real, other=0.0)
        if RELU:
            pull = tl.where(centred * factor[None, :] + shift[None, :] > 0, pull, 0.0)
        total += tl.sum(pull, 0)
        along += tl.sum(pull * centred, 0)
    if AFFINE:
        tl.store(to_weight + network * WIDTH + cols, along * scale, mask=inside)
        tl.store(to_bias + network * WIDTH + cols, total, mask=inside)
    level = total / counted
    tilt = along * scale * scale / counted
    for begin in range(0, num_rows, ROWS):
        rows, there, real = _rows_at(begin, mask, network, num_rows, inside, ROWS, PADDED)
        places = base + rows[:, None] * WIDTH + cols[None, :]
        centred = tl.load(x + places, mask=real, other=0.0) - centre[None, :]
        pull = tl.load(slope + places, mask=real, other=0.0)
        if RELU:
            pull = tl.where(centred * factor[None, :] + shift[None, :] > 0, pull, 0.0)
        inward = (pull - level[None, :] - centred * tilt[None, :]) * factor[None, :]
        tl.store(to_x + places, tl.where(real, inward, 0.0), mask=there)
