"""PAIR as a weighting and an aggregator of TorchJD, for loops that are written with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, optional
from shiftproof.pareto.solver import PreferenceSolver


def pair_weighting(preference: Sequence[float], **options: Any) -> Any:
    """A `torchjd.aggregation.Weighting` that takes its weights from a preference over the losses.

    The Gram matrix alone does not tell how large the losses are: set `weighting.losses` to them (a sequence or tensor)
    before every call. `options` are those of `PreferenceSolver`; `weighting.last` is what it found.
    """
    aggregation = optional("torchjd.aggregation", "torchjd", "PAIR as a TorchJD aggregator")

    class PairWeighting(aggregation.Weighting):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.solver = PreferenceSolver(preference, **options)
            self.losses: Sequence[float] | Tensor | None = None
            self.last: Any = None

        def forward(self, gramian: Tensor, /) -> Tensor:
            if self.losses is None:
                raise ShiftproofError("set the weighting's 'losses' before it is called; a preference is about them")
            losses = torch.as_tensor(self.losses).detach().double().cpu().numpy()
            self.last = self.solver.weights(losses, gramian.detach().double().cpu().numpy())
            return torch.as_tensor(self.last.weights, dtype=gramian.dtype, device=gramian.device)

    return PairWeighting()


def pair_aggregator(preference: Sequence[float], **options: Any) -> Any:
    """The `torchjd.aggregation.Aggregator` of `pair_weighting`; set `aggregator.gramian_weighting.losses`.

    For `torchjd.autojac.backward(losses)` followed by `jac_to_grad(parameters, aggregator)`.
    """
    aggregation = optional("torchjd.aggregation", "torchjd", "PAIR as a TorchJD aggregator")
    return aggregation.GramianWeightedAggregator(pair_weighting(preference, **options))
