"""Dropout and batch norm as loops for a CPU; `dropout` and `cpu_norm` are what calls them."""

from __future__ import annotations

import numpy as np

from shiftproof.nn.kernels.cpu.loops import add_into, compiled


@compiled
def drop(x, lost, scale, key, relu, out, first, last):
    """Zeros where 16 random bits are below `lost`, and with `relu` below zero; in blocks of 64 numbers.

    Without `out` they are written where `x` is. The bits of a block are 16 outcomes of SplitMix64 (Steele et al. 2014),
    which begin where those of the last one end.
    """
    zero, words = x.dtype.type(0), np.empty(16, np.uint64)
    draws, lost32 = words.view(np.uint16), np.int32(lost)
    for block in range(first, last):
        if lost > 0:
            for k in range(16):
                z = np.uint64(key) + np.uint64(16 * block + k) * np.uint64(0x9E3779B97F4A7C15)
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                words[k] = z ^ (z >> np.uint64(31))
        here = x[64 * block : 64 * block + 64]
        to = here if out is None else out[64 * block : 64 * block + 64]
        for k in range(len(here)):
            value = scale * here[k]
            value = zero if relu and value <= 0 else value
            to[k] = zero if draws[k] < lost32 else value


@compiled
def pull_relu(out, grad, scale, to, first, last):
    """The gradient of `drop` with a ReLU: it passes where something came out."""
    zero = out.dtype.type(0)
    passed, pull, inward = out[first:last], grad[first:last], to[first:last]
    for k in range(len(pull)):
        one = scale * pull[k]
        inward[k] = zero if passed[k] <= 0 else one


@compiled
def column_moments(x, mean, variance, first, last):
    """Mean and (biased) variance of the columns `first` to `last` of rows `[N, C]`."""
    # in double precision and from the first row on, so that a difference of squares keeps enough digits
    total, square, base = np.zeros(last - first), np.zeros(last - first), x[0, first:last]
    for n in range(len(x)):
        row = x[n, first:last]
        for c in range(len(row)):
            one = np.float64(row[c]) - np.float64(base[c])
            total[c] += one
            square[c] += one * one
    for c in range(len(total)):
        average = total[c] / len(x)
        mean[first + c] = base[c] + average
        variance[first + c] = max(square[c] / len(x) - average * average, 0.0)


@compiled
def normalise(x, mean, scale, bias, relu, out, first, last):
    """`(x - mean) scale + bias` of the rows `first` to `last`, and the ReLU of that."""
    zero = x.dtype.type(0)
    for n in range(first, last):
        row, to = x[n], out[n]
        for c in range(len(row)):
            one = (row[c] - mean[c]) * scale[c] + bias[c]
            to[c] = zero if relu and one <= 0 else one


@compiled
def pull_moments(x, mean, grad, out, total, along, first, last):
    """The sums of a gradient, and of it times how far a row is from the mean, in the columns `first` to `last`.

    Where `out` is given, the gradient passes where it is positive.
    """
    zero = x.dtype.type(0)
    sums = np.zeros((2, last - first))
    level, slope, middle = sums[0], sums[1], mean[first:last]
    for n in range(len(x)):
        row, pull = x[n, first:last], grad[n, first:last]
        if out is not None:
            passed = out[n, first:last]
            for c in range(len(row)):
                one = pull[c]
                one = zero if passed[c] <= 0 else one
                level[c] += one
                slope[c] += one * (row[c] - middle[c])
        else:
            for c in range(len(row)):
                level[c] += pull[c]
                slope[c] += pull[c] * (row[c] - middle[c])
    for c in range(len(level)):
        total[first + c], along[first + c] = level[c], slope[c]


@compiled
def pull_normalised(x, mean, grad, out, factor, level, slope, to, first, last):
    """`factor g - level - slope (x - mean)` of the rows `first` to `last`, with `g` the gradient that passes."""
    zero = x.dtype.type(0)
    for n in range(first, last):
        row, pull, inward = x[n], grad[n], to[n]
        if out is not None:
            passed = out[n]
            for c in range(len(row)):
                one = pull[c]
                one = zero if passed[c] <= 0 else one
                inward[c] = factor[c] * one - level[c] - slope[c] * (row[c] - mean[c])
        else:
            for c in range(len(row)):
                inward[c] = factor[c] * pull[c] - level[c] - slope[c] * (row[c] - mean[c])


@compiled
def group_moments(x, group, share, mean, variance, first, last):
    """Mean and (biased) variance of the rows of each group, zeros of an empty one, in the columns `first` to `last`."""
    mean[:, first:last], variance[:, first:last] = x.dtype.type(0), x.dtype.type(0)
    for n in range(len(x)):
        add_into(share[group[n]], x[n, first:last], mean[group[n], first:last])
    for n in range(len(x)):
        row, middle, spread = x[n, first:last], mean[group[n], first:last], variance[group[n], first:last]
        for c in range(len(row)):
            off = row[c] - middle[c]
            spread[c] += share[group[n]] * (off * off)


@compiled
def normalise_groups(x, group, mean, scale, out, first, last):
    """`(x - mean) scale` of the rows `first` to `last`, with what their groups have."""
    for n in range(first, last):
        row, to, middle, factor = x[n], out[n], mean[group[n]], scale[group[n]]
        for c in range(len(row)):
            to[c] = (row[c] - middle[c]) * factor[c]


@compiled
def pull_group_moments(grad, out, group, share, level, along, first, last):
    """The means over each group of a gradient, and of it times what came out, in the columns `first` to `last`."""
    level[:, first:last], along[:, first:last] = out.dtype.type(0), out.dtype.type(0)
    for n in range(len(grad)):
        pull, row = grad[n, first:last], out[n, first:last]
        total, times, part = level[group[n], first:last], along[group[n], first:last], share[group[n]]
        for c in range(len(pull)):
            total[c] += part * pull[c]
            times[c] += part * (pull[c] * row[c])


@compiled
def pull_groups(grad, out, group, level, along, scale, to, first, last):
    """`(g - level - y along) scale` of the rows `first` to `last`, with what their groups have."""
    for n in range(first, last):
        pull, row, inward = grad[n], out[n], to[n]
        total, times, factor = level[group[n]], along[group[n]], scale[group[n]]
        for c in range(len(pull)):
            inward[c] = (pull[c] - total[c] - row[c] * times[c]) * factor[c]
