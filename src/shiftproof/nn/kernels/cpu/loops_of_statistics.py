"""Statistics of arriving messages as loops for a CPU; `cpu_statistics` is what calls them.

Rows are `[N, t, p]` or, the same in all samples, `[N, 1, p]`, weights `[E, t]`, edge rows `[E, p]`, or `[E, d]` with a
matrix `[d, p]`. The parts of a message are the node's own row, its neighbour's and the edge's.
"""

from __future__ import annotations

import numpy as np

from shiftproof.nn.kernels.cpu.loops import add_into, compiled, edge_row, inner, scale_into

MEAN, MIN, MAX, STD, SUM = range(5)  # entries of `places`: where a statistic stands in the table, -1 for nowhere


@compiled
def _arriving(x, weight, edge, matrix, source, order, start, stop, delete, v, i, first, last, made, messages):
    """Write the messages that arrive at a node, columns `first` to `last` of each part, and say how many they are."""
    count, width, shared = 0, last - first, x.shape[1] == 1
    own = x[v, 0 if shared else i]
    for place in range(start[v], stop[v]):
        e = order[place]
        w = x.dtype.type(1) if weight is None else weight[e, i]
        if delete and w == 0:
            continue
        if source[e] < 0 or source[e] >= len(x):
            raise IndexError("an edge names a node that is not there")
        row, to = x[source[e], 0 if shared else i], messages[count]
        scale_into(w, own[first:last], to[:width])
        scale_into(w, row[first:last], to[width : 2 * width])
        if edge is not None:
            scale_into(w, edge_row(edge, matrix, e, made)[first:last], to[2 * width :])
        count += 1
    return count


@compiled
def _summarise(messages, count, total, mean, variance, low, high):
    """Sum, mean, variance and extremes of so many messages, column by column; those of none are zeros."""
    zero = messages.dtype.type(0)
    width = messages.shape[1]
    if count == 0:
        total[:], mean[:], variance[:], low[:], high[:] = zero, zero, zero, zero, zero
        return
    one = messages[0]
    for c in range(width):
        total[c], low[c], high[c], variance[c] = one[c], one[c], one[c], zero
    for k in range(1, count):
        one = messages[k]
        for c in range(width):
            total[c] += one[c]
            # a message that is not a number shows, as in torch's own extremes
            m, least, most = one[c], low[c], high[c]
            low[c] = m if m < least or m != m else least
            high[c] = m if m > most or m != m else most
    share = messages.dtype.type(1) / messages.dtype.type(count)
    for c in range(width):
        mean[c] = total[c] * share
    if count == 1:  # exactly none, however sums are rounded
        return
    for k in range(count):
        one = messages[k]
        for c in range(width):
            off = one[c] - mean[c]
            variance[c] += off * off
    for c in range(width):
        variance[c] *= share


@compiled
def _store(table, places, least, columns, width, total, mean, variance, low, high):
    """Put the statistics of one node in one sample where they belong; `columns` are where its parts begin."""
    for part in range(len(columns)):
        at, to = part * width, columns[part]
        if places[MEAN] >= 0:
            table[places[MEAN], to : to + width] = mean[at : at + width]
        if places[MIN] >= 0:
            table[places[MIN], to : to + width] = low[at : at + width]
        if places[MAX] >= 0:
            table[places[MAX], to : to + width] = high[at : at + width]
        if places[SUM] >= 0:
            table[places[SUM], to : to + width] = total[at : at + width]
        if places[STD] >= 0:
            row, spread = table[places[STD], to : to + width], variance[at : at + width]
            for c in range(len(row)):
                row[c] = np.sqrt(spread[c] + least)


@compiled
def _most(start, stop, nodes):
    most = 1
    for v in nodes:
        most = max(most, stop[v] - start[v])
    return most


@compiled
def statistics(x, weight, edge, matrix, source, order, start, stop, delete, nodes, places, least, table, first, last):
    """Mean, extremes, deviation and sum of the messages of some nodes, `[nodes, t, statistics, parts * p]`."""
    p, parts = x.shape[2], 2 if edge is None else 3
    messages = np.empty((_most(start, stop, nodes[first:last]), parts * p), x.dtype)
    rows = np.empty((5, parts * p), x.dtype)
    total, mean, variance, low, high = rows[0], rows[1], rows[2], rows[3], rows[4]
    columns, made = np.arange(parts) * p, np.empty(p, x.dtype)
    for n in range(first, last):
        for i in range(table.shape[1]):
            count = _arriving(
                x, weight, edge, matrix, source, order, start, stop, delete, nodes[n], i, 0, p, made, messages
            )
            _summarise(messages, count, total, mean, variance, low, high)
            _store(table[n, i], places, least, columns, p, total, mean, variance, low, high)


@compiled
def pull_statistics(
    x, weight, edge, matrix, source, order, start, stop, delete, nodes, places, least, slopes, table, to_x, to_weight,
    to_edge, to_matrix, piece, first, last,
):  # fmt: skip
    """The gradients of `statistics` from those of its table, which is filled on the way, in some columns of each part.

    Messages that tie for an extreme share its gradient. What weights get from these columns is added to `piece`.
    """
    zero = x.dtype.type(0)
    p, parts, width = x.shape[2], 2 if edge is None else 3, last - first
    messages = np.empty((_most(start, stop, nodes), parts * width), x.dtype)
    rows = np.empty((8, parts * width), x.dtype)
    total, mean, variance, low, high = rows[0], rows[1], rows[2], rows[3], rows[4]
    alike, steep, ties = rows[5], rows[6], rows[7]
    of_low, of_high = np.empty_like(low), np.empty_like(high)
    columns, made = np.arange(parts) * p + first, np.empty(p, x.dtype)
    for n in range(len(nodes)):
        v = nodes[n]
        for i in range(table.shape[1]):
            count = _arriving(
                x, weight, edge, matrix, source, order, start, stop, delete, v, i, first, last, made, messages
            )
            _summarise(messages, count, total, mean, variance, low, high)
            _store(table[n, i], places, least, columns, width, total, mean, variance, low, high)
            share = x.dtype.type(1) / x.dtype.type(max(count, 1))
            slope = slopes[n, i]
            alike[:], steep[:], of_low[:], of_high[:] = zero, zero, zero, zero
            for part in range(parts):
                at, to = slice(part * width, (part + 1) * width), slice(columns[part], columns[part] + width)
                # what every message gets, and what in proportion to how far it is from the mean
                if places[MEAN] >= 0:
                    add_into(share, slope[places[MEAN], to], alike[at])
                if places[SUM] >= 0:
                    add_into(x.dtype.type(1), slope[places[SUM], to], alike[at])
                if places[STD] >= 0:
                    down, spread, of_std = steep[at], variance[at], slope[places[STD], to]
                    for c in range(len(down)):
                        one = share * of_std[c] / np.sqrt(spread[c] + least)
                        down[c] = one if spread[c] > 0 else zero
                if places[MIN] >= 0:
                    of_low[at] = slope[places[MIN], to]
                if places[MAX] >= 0:
                    of_high[at] = slope[places[MAX], to]
            _share_ties(messages, count, low, of_low, ties)
            _share_ties(messages, count, high, of_high, ties)
            for k in range(count):
                one = messages[k]
                for c in range(len(one)):
                    m, lowest, highest = one[c], of_low[c], of_high[c]
                    pull = alike[c] + steep[c] * (m - mean[c])
                    pull += lowest if m == low[c] else zero
                    pull += highest if m == high[c] else zero
                    one[c] = pull
            if delete:  # an edge that is left out has a slope all the same: that of a message of zero
                for c in range(len(alike)):
                    alike[c] -= steep[c] * mean[c]
            _spread(
                x, weight, edge, matrix, source, order, start, stop, delete, v, i, first, last, made, messages, alike,
                to_x, to_weight, to_edge, to_matrix, piece,
            )  # fmt: skip


@compiled
def _share_ties(messages, count, extreme, of_extreme, ties):
    """Divide the gradient of an extreme by the number of messages that have it."""
    one, zero = messages.dtype.type(1), messages.dtype.type(0)
    ties[:] = zero
    for k in range(count):
        message = messages[k]
        for c in range(len(ties)):
            ties[c] += one if message[c] == extreme[c] else zero
    for c in range(len(ties)):
        of_extreme[c] /= max(ties[c], one)


@compiled
def _spread(
    x, weight, edge, matrix, source, order, start, stop, delete, v, i, first, last, made, pulls, of_none, to_x,
    to_weight, to_edge, to_matrix, piece,
):  # fmt: skip
    """Carry the gradients of the messages of a node in a sample on to rows, weights and edge rows."""
    count, width = 0, last - first
    sample = 0 if x.shape[1] == 1 else i
    own, to_own = x[v, sample], to_x[v, sample]
    for place in range(start[v], stop[v]):
        e = order[place]
        w = x.dtype.type(1) if weight is None else weight[e, i]
        left_out = delete and w == 0
        pull = of_none if left_out else pulls[count]
        row, to_row = x[source[e], sample], to_x[source[e], sample]
        to_self, to_neighbour = pull[:width], pull[width : 2 * width]
        along = inner(to_self, own[first:last]) + inner(to_neighbour, row[first:last])
        add_into(w, to_self, to_own[first:last])
        add_into(w, to_neighbour, to_row[first:last])
        if edge is not None:
            to_more = pull[2 * width :]
            along += inner(to_more, edge_row(edge, matrix, e, made)[first:last])
            if to_edge is not None:
                add_into(w, to_more, to_edge[e, first:last])
            elif to_matrix is not None:
                for d in range(len(matrix)):
                    add_into(w * edge[e, d], to_more, to_matrix[d, first:last])
        if to_weight is not None:
            to_weight[piece, e, i] = along
        count += not left_out
