"""Sums of weighted messages as loops for a CPU; `cpu_sums` is what calls them.

A loop makes the messages of a node as it goes, so that none is stored. Rows are `[N, t, p]` or, the same in all
samples, `[N, 1, p]`, weights `[E, t]`; `t` is 1 without samples. Edge rows are `[E, p]`, or `[E, d]` with a matrix
`[d, p]`.
"""

from __future__ import annotations

import numpy as np

from shiftproof.nn.kernels.cpu.loops import add_into, compiled, edge_row


@compiled
def sum_neighbours(own, x, weight, edge, matrix, source, order, start, stop, relu, out, first, last):
    """Each node's own row plus `Σ_{e=(u,v)} w_{e,i} ReLU(x_{u,i} + e_e)`; a weight of zero is no message."""
    zero, w, samples = x.dtype.type(0), x.dtype.type(1), out.shape[1]
    made = np.empty(x.shape[2], x.dtype)
    for v in range(first, last):
        for i in range(samples):
            if own is None:
                out[v, i] = zero
            else:
                out[v, i] = own[v, 0 if own.shape[1] == 1 else i]
        for place in range(start[v], stop[v]):
            e = order[place]
            u = source[e]
            if u < 0 or u >= len(x):
                raise IndexError("an edge names a node that is not there")
            if edge is not None:
                more = edge_row(edge, matrix, e, made)
            for i in range(samples):
                if weight is not None:
                    w = weight[e, i]
                    if w == 0:
                        continue
                row, to = x[u, 0 if x.shape[1] == 1 else i], out[v, i]
                if edge is not None:
                    for c in range(len(row)):
                        one = row[c] + more[c]
                        to[c] += w * (zero if relu and one <= 0 else one)
                else:
                    for c in range(len(row)):
                        one = row[c]
                        to[c] += w * (zero if relu and one <= 0 else one)


@compiled
def pull_neighbours(
    x, weight, edge, matrix, target, order, start, stop, relu, itself, grad, to_x, to_weight, to_edge, to_matrix,
    piece, first, last,
):  # fmt: skip
    """The gradients of `sum_neighbours`, from the edges that leave each node; with that of its own row if `itself`.

    Rows that all samples share get the sum over them. What factors of edge rows get is added to `piece`.
    """
    zero, w = x.dtype.type(0), x.dtype.type(1)
    made, summed = np.empty(x.shape[2], x.dtype), np.empty(x.shape[2], x.dtype)
    for u in range(first, last):
        to_x[u] = zero
        if itself:
            for i in range(grad.shape[1]):
                to_x[u, 0 if x.shape[1] == 1 else i] += grad[u, i]
        for place in range(start[u], stop[u]):
            e = order[place]
            v = target[e]
            if edge is not None:
                more = edge_row(edge, matrix, e, made)
                summed[:] = zero
            for i in range(grad.shape[1]):
                if weight is not None:
                    w = weight[e, i]
                    if to_weight is None and w == 0:
                        continue
                sample = 0 if x.shape[1] == 1 else i
                row, pull, to, along = x[u, sample], grad[v, i], to_x[u, sample], zero
                if edge is not None:
                    for c in range(len(row)):
                        one, slope = row[c] + more[c], pull[c]
                        slope = zero if relu and one <= 0 else slope
                        along += slope * one
                        slope *= w
                        to[c] += slope
                        summed[c] += slope
                else:
                    for c in range(len(row)):
                        one, slope = row[c], pull[c]
                        slope = zero if relu and one <= 0 else slope
                        along += slope * one
                        to[c] += w * slope
                if to_weight is not None:
                    to_weight[e, i] = along
            if edge is not None:
                _pull_edge_row(edge, matrix, e, summed, to_edge, to_matrix, piece)


@compiled
def _pull_edge_row(edge, matrix, e, pull, to_edge, to_matrix, piece):
    """Store the gradient of an edge's row, or add what its map gets of it; nobody asks for that of the features."""
    if matrix is None:
        if to_edge is not None:
            to_edge[e] = pull
    elif to_matrix is not None:
        for d in range(len(matrix)):
            add_into(edge[e, d], pull, to_matrix[piece, d])


@compiled
def sum_messages(own, messages, weight, order, start, stop, out, first, last):
    """`own_v + Σ_{e→v} w_{e,i} m_e` in each sample; rows and messages are the same in all of them."""
    for v in range(first, last):
        for i in range(weight.shape[1]):
            out[v, i] = own[v]
        for place in range(start[v], stop[v]):
            e = order[place]
            one = messages[e]
            for i in range(weight.shape[1]):
                w, to = weight[e, i], out[v, i]
                if w != 0:
                    add_into(w, one, to)


@compiled
def pull_messages(messages, weight, target, grad, to_messages, to_weight, first, last):
    """The gradients of `sum_messages`, edge by edge."""
    zero = messages.dtype.type(0)
    for e in range(first, last):
        one, to = messages[e], to_messages[e]
        to[:] = zero
        for i in range(weight.shape[1]):
            pull, w, along = grad[target[e], i], weight[e, i], zero
            for c in range(len(one)):
                to[c] += w * pull[c]
                along += pull[c] * one[c]
            to_weight[e, i] = along
