"""What would be reached if the data did not move."""

from __future__ import annotations

from dataclasses import replace

import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.spmotif import CLASSES
from shiftproof.data.joining import join
from shiftproof.methods.base import Method
from shiftproof.methods.ciga import XGNN
from shiftproof.methods.erm import ERM
from shiftproof.methods.how_trained import HowTrained
from shiftproof.registry import datasets, register


class _Unmoved(Method):
    """A method on data whose splits are alike."""

    mixes_environments = True  # presets ask this of the class: no batches are drawn from each environment then

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, arrange=self.arrange)

    @classmethod
    def arrange(cls, dataset: Dataset, seed: int) -> Dataset:
        """The same samples in splits that are alike."""
        if dataset.name == "two-piece":
            return _without_shortcut(dataset)
        names = [name for name in ("train", "val", "test") if name in dataset.splits]
        parts = [dataset[name] for name in names]
        whole = join(parts)
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        pieces = order.split([len(part) for part in parts])
        mixed = {name: whole[piece] for name, piece in zip(names, pieces, strict=True)}
        return replace(dataset, splits=mixed, environment=None, provenance=f"{dataset.provenance}; splits reshuffled")


@register("oracle", tags=("graphs", "tensors"))
class Oracle(_Unmoved, ERM):
    """ERM where the data do not move: all splits are joined, shuffled and cut again into the same sizes.

    Its figures say what the data allow, not how a method copes with the shift; the split is the seed's own. Two-piece
    graphs are drawn anew instead, with a base that says nothing of the class (docs/papers/gala.md#oracle).
    """


@register("oracle-xgnn", tags=("graphs",))
class OracleXGNN(_Unmoved, XGNN):
    """XGNN where the data do not move, as `oracle` is ERM there: what CIGA's networks could reach."""


def _without_shortcut(dataset: Dataset) -> Dataset:
    """As many two-piece graphs to train and validate on, whose base goes with the class in a third of them."""
    names = [name for name in ("train", "val", "test") if name in dataset.splits]
    sizes = {f"{name}_per_class": -(-len(dataset[name]) // CLASSES) for name in names}
    drawn = datasets["two-piece"].make(**{**dataset.options, **sizes, "b": 1 / CLASSES})
    equal = {name: drawn[name][: len(dataset[name])] for name in names if name != "test"}
    return replace(dataset.with_splits(**equal), environment=None, provenance=f"{dataset.provenance}; no shortcut")
