"""Operations on the pieces of a flat tensor: per-graph sums, softmax, ranks and samples without a loop over graphs.

Throughout, `group[i]` names the piece (graph, node) that row `i` belongs to, in any order, and `num_groups` is given
explicitly so that empty pieces, also the last one, keep their row and nothing waits for the device.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.stacking import members_first, numbered_apart, stacked

ROUNDINGS = ("ceil", "floor")


def segment_count(group: Tensor, num_groups: int, dtype: torch.dtype = torch.long) -> Tensor:
    """The number of entries of each group, shape `[num_groups]`."""
    ones = torch.ones(group.shape, dtype=dtype, device=group.device)
    none = torch.zeros(num_groups, dtype=dtype, device=group.device)
    return none.scatter_add(0, group, ones) if stacked() else none.index_add_(0, group, ones)


def segment_sum(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The sum of the rows of each group, `out[g] = Σ_{i: group[i]=g} values[i]`; an empty group gives zeros."""
    if stacked():
        return _Sum.apply(values, group, num_groups)  # type: ignore[return-value]
    return values.new_zeros((num_groups, *values.shape[1:])).index_add(0, group, values)


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """The rows that an index names, `values[index]`."""
    return _Rows.apply(values, index) if stacked() else values.index_select(0, index)  # type: ignore[return-value]


def segment_mean(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The mean of the rows of each group; an empty group gives zeros."""
    count = segment_count(group, num_groups, values.dtype).clamp(min=1)
    return segment_sum(values, group, num_groups) / _column(count, values)


def segment_max(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The entry-wise maximum over the rows of each group; an empty group gives zeros."""
    return _Extreme.apply(values, group, num_groups, "amax")  # type: ignore[return-value]


def segment_min(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The entry-wise minimum over the rows of each group; an empty group gives zeros."""
    return _Extreme.apply(values, group, num_groups, "amin")  # type: ignore[return-value]


def segment_softmax(scores: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Scores turned into shares that add up to one in each group, `exp(s_i) / Σ_{j: group[j]=group[i]} exp(s_j)`."""
    top = segment_max(scores.detach(), group, num_groups)
    raised = (scores - top.index_select(0, group)).exp()
    return raised / segment_sum(raised, group, num_groups).index_select(0, group)


def segment_normalise(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Values stretched to [0, 1] within each group, `(v - min) / (max - min)`; a constant group gives zeros."""
    low = segment_min(values, group, num_groups)
    span = segment_max(values, group, num_groups) - low
    span = torch.where(span > 0, span, torch.ones_like(span))
    return (values - low.index_select(0, group)) / span.index_select(0, group)


def segment_rank(scores: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The place of each entry in its group, 0 for the largest score; of equal scores the lower index comes first."""
    order = torch.sort(scores.detach(), descending=True, stable=True).indices
    grouped, by_group = torch.sort(group.index_select(0, order), stable=True)
    order = order.index_select(0, by_group)
    count = segment_count(group, num_groups)
    start = count.cumsum(0) - count
    place = torch.arange(len(order), device=group.device) - start.index_select(0, grouped)
    return torch.empty_like(place).scatter(0, order, place)


def share_of(count: Tensor, ratio: float, rounding: str = "ceil") -> Tensor:
    """`ratio * count` rounded up or down exactly: the ratio is read as the decimal it was written as.

    In floating point `floor(0.7 * 90)` is 62 (docs/papers/ciga.md#f1); here it is 63, and `ceil(1/3 * 3)` is 1.
    """
    if rounding not in ROUNDINGS:
        raise unknown("rounding", rounding, ROUNDINGS)
    share = Fraction(str(float(ratio))).limit_denominator(10**9)
    whole = count * share.numerator
    if rounding == "ceil":
        whole = whole + (share.denominator - 1)
    return torch.div(whole, share.denominator, rounding_mode="floor")


def top_edges(scores: Tensor, edge_batch: Tensor, num_graphs: int, ratio: float, rounding: str = "ceil") -> Tensor:
    """A mask that keeps in each graph the share `ratio` of its edges with the largest scores.

    Graph `i` with `m_i` edges keeps `⌈ratio · m_i⌉` of them (`rounding="floor"`: `⌊ratio · m_i⌋`); of equal scores
    the lower index is kept. A negative ratio means "no selection" and keeps all. Edges of a padded batch's padding
    (graph number `num_graphs`) are never kept by a selection.
    """
    if rounding not in ROUNDINGS:
        raise unknown("rounding", rounding, ROUNDINGS)
    if not ratio <= 1:
        raise ShiftproofError(f"the share of edges to keep is at most 1 (negative: keep all), not {ratio}")
    if ratio < 0:
        return torch.ones_like(edge_batch, dtype=torch.bool)
    kept = share_of(segment_count(edge_batch, num_graphs + 1), ratio, rounding)
    kept[num_graphs:].zero_()
    return segment_rank(scores, edge_batch, num_graphs + 1) < kept.index_select(0, edge_batch)


def sample_bernoulli(prob: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Zeros and ones drawn independently, one with the given probability; no gradient passes.

    A probability that is not a number gives zeros: torch would end the process on a GPU.
    """
    return torch.bernoulli(prob.detach().nan_to_num(0.0), generator=generator)


def sample_concrete(
    logits: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None, uniform: Tensor | None = None
) -> Tensor:
    """Relaxed Bernoulli draws in (0, 1) through which gradients flow; `uniform` are random numbers of your own.

    .. math:: σ((ℓ + \\log U - \\log(1 - U)) / τ), \\quad U \\sim Uniform(0, 1)
    """
    if temperature <= 0:
        raise ShiftproofError(f"the temperature of a concrete sample is positive, not {temperature}")
    u = (uniform_like(logits, generator) if uniform is None else uniform).clamp(min=1e-10)
    return torch.sigmoid((logits + u.log() - torch.log1p(-u)) / temperature)


def uniform_like(values: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Random numbers in [0, 1), one for each value."""
    if generator is None:
        return torch.rand_like(values)  # with open sizes torch.compile takes no rand that names a generator
    return torch.rand(values.shape, generator=generator, dtype=values.dtype, device=values.device)


def _column(per_group: Tensor, values: Tensor) -> Tensor:
    """A vector shaped to scale the rows of `values`."""
    return per_group.view(-1, *[1] * (values.dim() - 1))


class _Sum(torch.autograd.Function):
    """`segment_sum` in a stack of networks."""

    @staticmethod
    def forward(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
        return values.new_zeros((num_groups, *values.shape[1:])).index_add_(0, group, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (group,) = ctx.saved_tensors
        return grad.index_select(0, group), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, values: Tensor, group: Tensor, num_groups: int) -> tuple:
        values, group = members_first(info.batch_size, in_dims, values, group)
        found = _Sum.apply(values.flatten(0, 1), numbered_apart(group, num_groups), len(values) * num_groups)
        return found.unflatten(0, (len(values), num_groups)), 0  # type: ignore[union-attr]


class _Rows(torch.autograd.Function):
    """`take_rows` in a stack of networks."""

    @staticmethod
    def forward(values: Tensor, index: Tensor) -> Tensor:
        return values.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        values, index = inputs
        ctx.rows = len(values)
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros((ctx.rows, *grad.shape[1:])).index_add_(0, index, grad), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, values: Tensor, index: Tensor) -> tuple:
        values, index = members_first(info.batch_size, in_dims, values, index)
        found = _Rows.apply(values.flatten(0, 1), numbered_apart(index, values.shape[1]))
        return found.unflatten(0, (len(values), -1)), 0  # type: ignore[union-attr]


class _Extreme(torch.autograd.Function):
    """Maximum or minimum of each group; rows that tie share the gradient evenly.

    Gathering whole rows in the backward, where torch's own `scatter_reduce` goes entry by entry, makes a step of a PNA
    encoder a third faster.
    """

    @staticmethod
    def forward(values: Tensor, group: Tensor, num_groups: int, reduce: str) -> Tensor:
        index = _column(group, values).expand_as(values)
        empty = values.new_zeros((num_groups, *values.shape[1:]))
        return empty.scatter_reduce(0, index, values, reduce, include_self=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        values, group, _, _ = inputs
        ctx.save_for_backward(values, group, output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, values: Tensor, group: Tensor, num_groups: int, reduce: str) -> tuple:
        values, group = members_first(info.batch_size, in_dims, values, group)
        found = _Extreme.apply(
            values.flatten(0, 1), numbered_apart(group, num_groups), len(values) * num_groups, reduce
        )
        return found.unflatten(0, (len(values), num_groups)), 0  # type: ignore[union-attr]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        values, group, out = ctx.saved_tensors
        reached = (values == out.index_select(0, group)).to(grad.dtype)
        share = grad / segment_sum(reached, group, out.shape[0]).clamp_(min=1)
        return reached * share.index_select(0, group), None, None, None
