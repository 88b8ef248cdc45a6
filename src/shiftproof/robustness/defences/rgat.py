"""RGAT: attention by similarity, with dissimilar neighbours all but ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Range
from shiftproof.registry import register, with_options_of
from shiftproof.robustness.adjacency import Adjacency, product, row_sums
from shiftproof.robustness.defences.base import Defence, Weights
from shiftproof.robustness.defences.guards import cosines
from shiftproof.robustness.features import Features, dense, linear

FAINT = 1e-6  # what is left of a neighbour below the threshold
# docs/papers/hao.md#defences: wider inputs are compared after the linear map, at this threshold
WIDE, WIDE_THRESHOLD = 500, 0.5


@register("rgat", "defences")
class RGAT(Defence):
    r"""Attention proportional to the cosine of the layer's inputs, layer norm inside, one head.

    .. math:: \alpha_{ij} = s_{ij} / \sum_{k \in N(i) \cup i} s_{ik}, \quad s_{ij} = \cos(h_i, h_j)
        \text{ or } 10^{-6} \text{ where that is below the threshold}, \quad s_{ii} = 1

    `weighting="uniform"` counts every kept neighbour alike and drops the others. `wide_input_rule` compares inputs
    wider than 500 after the linear map, at 0.5; `last_threshold` is that of the output layer where it differs (0.1 in
    the released code).
    """

    @with_options_of(Defence, layer_norm_inner=True)
    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        threshold: Annotated[float, Range(-1, 1)] = 0.1,
        weighting: Literal["similarity", "uniform"] = "similarity",
        wide_input_rule: bool = True,
        last_threshold: Annotated[float, Range(-1, 1)] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, classes, **options)
        if weighting not in ("similarity", "uniform"):
            raise ShiftproofError(f"weighting of RGAT is 'similarity' or 'uniform', not '{weighting}'")
        self.threshold, self.weighting, self.wide_input_rule = threshold, weighting, wide_input_rule
        self.last_threshold = threshold if last_threshold is None else last_threshold

    def convolve(self, layer: int, h: Tensor | Features, state: Adjacency) -> tuple[Tensor, Adjacency]:
        conv: Weights = self.convs[layer]  # type: ignore[assignment]
        values = linear(h, conv.weight)
        threshold = self.last_threshold if layer == self.depth - 1 else self.threshold
        if self.wide_input_rule and h.shape[1] > WIDE:
            attention = self.attention(values, state, WIDE_THRESHOLD)
        elif isinstance(h, Features) and not state.differentiable:
            key = (RGAT, threshold, self.weighting, state)
            attention = h.once(key, lambda: self.attention(dense(h), state, threshold))
        else:
            attention = self.attention(dense(h), state, threshold)
        looped, _ = state.pattern.looped
        return product(looped, attention, values) + conv.bias, state

    def attention(self, h: Tensor, adjacency: Adjacency, threshold: float) -> Tensor:
        """The attention of every entry of `adjacency.pattern.looped`; that of a row adds up to 1."""
        pattern = adjacency.pattern
        near = cosines(pattern, h if self.weighting == "similarity" else h.detach())
        kept = near >= threshold
        if self.weighting == "similarity":
            near = torch.where(kept, near.clamp(min=FAINT), FAINT)
        else:
            near = kept.to(near.dtype)
        if adjacency.weighted:
            near = near * adjacency.weight(near.dtype)
        share = 1 / (row_sums(pattern, near) + 1)
        _, source = pattern.looped
        return torch.cat([near * share.index_select(0, pattern.row), share]).index_select(0, source)
