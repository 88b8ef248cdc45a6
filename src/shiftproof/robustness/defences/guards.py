"""Homophily defenders that cut edges between dissimilar nodes, layer by layer: GNNGuard and its O(edges) form.

Both are written on edges alone. Similarities carry no gradient; an edge once cut stays cut in later layers. Cut edges
keep their place with weight 0, so that no layer rebuilds the sparse pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Range
from shiftproof.registry import register, with_options_of
from shiftproof.robustness.adjacency import Adjacency, Pattern, dot_products, row_sums
from shiftproof.robustness.defences.base import Defence, Weights
from shiftproof.robustness.features import Features, dense, linear


@dataclass(frozen=True, eq=False)
class Guarded:
    """What a guard has left of a graph: which entries are kept (None: all), and what the layer propagates with."""

    adjacency: Adjacency
    kept: Tensor | None = None
    propagation: Adjacency | None = None


def cosines(pattern: Pattern, h: Tensor) -> Tensor:
    """The cosine of the two end points of every entry."""
    unit = F.normalize(h, dim=1, eps=1e-8)
    return dot_products(pattern, unit, unit)


class _Guard(Defence):
    """The layers of a guard; what it weighs the kept edges by is `_weights`."""

    threshold: float
    tied_output: bool

    def _set(self, threshold: float, tied_output: bool) -> None:
        if tied_output and self.depth < 3:
            raise ShiftproofError(
                f"tied_output reuses a hidden layer, which needs layers of at least 3, not {self.depth}"
            )
        self.threshold, self.tied_output = threshold, tied_output

    def _weights(self, layer: int, pattern: Pattern, near: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must define how kept edges and loops are weighed")

    def prepare(self, adjacency: Adjacency) -> Guarded:
        return Guarded(adjacency)

    def convolve(self, layer: int, h: Tensor | Features, state: Guarded) -> tuple[Tensor, Guarded]:
        # with the output layer tied, the last hidden convolution is used twice and the true output layer never
        tied = self.tied_output and layer == self.depth - 1
        conv: Weights = self.convs[layer - 1 if tied else layer]  # type: ignore[assignment]
        if isinstance(h, Features) and not state.adjacency.differentiable:  # these weights are those of every epoch
            key = (type(self), self._settings(), state.adjacency)
            state = h.once(key, lambda: self._guarded(layer, h.x, state))
        else:
            state = self._guarded(layer, dense(h), state)
        assert state.propagation is not None
        return state.propagation @ linear(h, conv.weight) + conv.bias, state

    def _settings(self) -> tuple:
        return (self.threshold, self.dtype)

    def _guarded(self, layer: int, h: Tensor, state: Guarded) -> Guarded:
        """The graph without the edges this layer finds dissimilar, and the weights of the others."""
        adjacency = state.adjacency
        pattern = adjacency.pattern
        with torch.no_grad():
            near = cosines(pattern, h.detach().to(self.dtype))
            kept = near >= self.threshold
            if state.kept is not None:
                kept &= state.kept
        if adjacency.weighted:  # a weighted edge counts as much of an edge as it weighs
            edges, loops = self._weights(layer, pattern, near, kept * adjacency.weight(self.dtype))
        else:
            edges, loops = self._weights(layer, pattern, near, kept.to(self.dtype))
        looped, source = pattern.looped
        weight = torch.cat([edges, loops]).index_select(0, source)
        return Guarded(adjacency, kept, Adjacency.of(looped, weight, symmetric=self._symmetric(adjacency)))

    def _symmetric(self, adjacency: Adjacency) -> bool:
        return False

    @torch.no_grad()
    def kept_edges(self, x: Tensor, adjacency: Adjacency) -> list[Tensor]:
        """For each layer, which entries of `adjacency.edge_index` the guard keeps when it looks at `x`."""
        was = self.training
        self.eval()
        try:
            h, state, kept = self.normalised_input(x), self.prepare(adjacency), []
            for layer in range(self.depth):
                h, state = self.convolve(layer, h, state)
                kept.append(state.kept)
                if layer < self.depth - 1:
                    h = self.activate(layer, dense(h))
        finally:
            self.train(was)
        return kept


@register("eguard", "defences")
class EGuard(_Guard):
    r"""GNNGuard in O(edges): keep edges with cosine at least `threshold`, weigh the rest by similarity.

    .. math:: s_{uv} = \cos(H_u, H_v), \quad n_{uv} = s_{uv} / \sqrt{D_u D_v}, \quad
        D_u = \sum_{v\ \mathrm{kept}} s_{uv}, \quad z_{uu} = 1 / (|N'(u)| + 1), \quad w = \exp(n), \exp(z)

    and :math:`H' = D_w^{-1/2} W D_w^{-1/2} H \Theta + b`. `norm="row"` is the form printed in the paper (similarities
    normalised by row, then a softmax by row). `compat_selfloop_count` and `tied_output` reproduce the released code:
    from the second layer on the loop counts as a neighbour, and the last hidden layer is also the output layer.
    """

    @with_options_of(Defence)
    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        threshold: Annotated[float, Range(-1, 1)] = 0.1,
        norm: Literal["sym", "row"] = "sym",
        compat_selfloop_count: bool = False,
        tied_output: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_features, classes, **options)
        if norm not in ("sym", "row"):
            raise ShiftproofError(f"norm of EGuard is 'sym' or 'row', not '{norm}'")
        self._set(threshold, tied_output)
        self.norm, self.compat_selfloop_count = norm, compat_selfloop_count

    def _settings(self) -> tuple:
        return (*super()._settings(), self.norm)

    def _symmetric(self, adjacency: Adjacency) -> bool:
        return self.norm == "sym" and adjacency.symmetric

    def _weights(self, layer: int, pattern: Pattern, near: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        near = near * kept
        total, count = row_sums(pattern, near), row_sums(pattern, kept)
        loops = torch.exp(1 / (count + (2 if self.compat_selfloop_count and layer > 0 else 1)))
        if self.norm == "row":
            edges = kept * torch.exp(near * _inverse(total, -1.0).index_select(0, pattern.row))
            share = 1 / (row_sums(pattern, edges) + loops)
            return edges * share.index_select(0, pattern.row), loops * share
        edges = kept * torch.exp(_scaled(pattern, near, _inverse(total, -0.5)))
        scale = (row_sums(pattern, edges) + loops).pow(-0.5)
        return _scaled(pattern, edges, scale), loops * scale * scale


@register("gcnguard", "defences")
class GCNGuard(_Guard):
    r"""GNNGuard as its authors weigh edges: similarities normalised by row, exponentiated, then a GCN on the weights.

    .. math:: n_{uv} = s_{uv} / \sum_{v\ \mathrm{kept}} s_{uv}, \quad w_{uv} = \exp(n_{uv}), \quad
        w_{uu} = \exp(1 / (|N'(u)| + 1)), \quad H' = D_w^{-1/2} W D_w^{-1/2} H \Theta + b

    `tied_output` reproduces the released code, whose last hidden layer is also the output layer.
    """

    @with_options_of(Defence)
    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        threshold: Annotated[float, Range(-1, 1)] = 0.1,
        tied_output: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_features, classes, **options)
        self._set(threshold, tied_output)

    def _weights(self, layer: int, pattern: Pattern, near: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        near = near * kept
        share = _inverse(row_sums(pattern, near.abs()), -1.0)
        edges = kept * torch.exp(near * share.index_select(0, pattern.row))
        loops = torch.exp(1 / (row_sums(pattern, kept) + 1))
        scale = (row_sums(pattern, edges) + loops).pow(-0.5)
        return _scaled(pattern, edges, scale), loops * scale * scale


def _scaled(pattern: Pattern, values: Tensor, scale: Tensor) -> Tensor:
    return values * scale.index_select(0, pattern.row) * scale.index_select(0, pattern.col)


def _inverse(total: Tensor, power: float) -> Tensor:
    """`total ** power`, and 0 for a node all of whose edges are cut."""
    there = total > 0
    return torch.where(there, torch.where(there, total, 1.0).pow(power), 0.0)
