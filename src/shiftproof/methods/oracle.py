"""What would be reached if the data did not move."""

from __future__ import annotations

from dataclasses import replace

import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.joining import join
from shiftproof.methods.erm import ERM
from shiftproof.registry import register


@register("oracle", tags=("graphs", "tensors"))
class Oracle(ERM):
    """ERM where the data do not move: all splits are joined, shuffled and cut again into the same sizes.

    Its figures say what the data allow, not how a method copes with the shift; the split is the seed's own.
    """

    @classmethod
    def arrange(cls, dataset: Dataset, seed: int) -> Dataset:
        names = [name for name in ("train", "val", "test") if name in dataset.splits]
        parts: list[GraphSet | DomainSet] = [dataset[name] for name in names]
        whole = join(parts)
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        pieces = order.split([len(part) for part in parts])
        mixed = {name: whole[piece] for name, piece in zip(names, pieces, strict=True)}
        return replace(dataset, splits=mixed, environment=None, provenance=f"{dataset.provenance}; splits reshuffled")
