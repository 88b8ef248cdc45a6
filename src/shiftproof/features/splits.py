"""Which training samples a model has right, and mini-batches drawn from several such groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.errors import ShiftproofError


@dataclass(frozen=True, eq=False)
class GroupSplit:
    """The training samples a round left right and wrong.

    `right` has one entry a sample, `index` that sample's own number in the data set it came from, so that the split
    can be found again in data of another order (`in_order_of`).
    """

    right: Tensor
    index: Tensor

    @property
    def retention(self) -> Tensor:
        """Positions of the samples that are right: what was learned already."""
        return self.right.nonzero().flatten()

    @property
    def augmentation(self) -> Tensor:
        """Positions of the samples that are wrong: where something else is to be learned."""
        return (~self.right).nonzero().flatten()

    @property
    def share_right(self) -> float:
        return float(self.right.double().mean())

    def in_order_of(self, data: Split) -> GroupSplit:
        """The same split for the same samples in another order."""
        order = self.index.argsort()
        place = order[torch.searchsorted(self.index[order], data.index).clamp(max=len(order) - 1)]
        if not torch.equal(self.index[place], data.index):
            raise ShiftproofError("the data hold samples that this split does not know; give the data it was made on")
        return GroupSplit(self.right[place], data.index)


class GroupBatches:
    """A mini-batch from each of several groups of samples in every step, as on WILDS.

    Source: docs/papers/feat.md#training-of-rounds.

    Each group is gone through in random order without repeats; as soon as one is used up, all are shuffled anew, so
    the smallest sets the length of an epoch. The last batch of a group may be smaller. With one group this is plain
    shuffled training.
    """

    def __init__(self, groups: Sequence[Tensor], size: int, seed: int) -> None:
        if size < 1:
            raise ShiftproofError(f"a batch holds at least one sample, not {size}")
        if any(len(group) == 0 for group in groups):
            raise ShiftproofError("a group without samples gives no batches; leave it out")
        self.groups, self.size = list(groups), size
        self.generator = torch.Generator().manual_seed(seed)
        self._shuffle()

    def draw(self) -> list[Tensor]:
        """The positions of the next mini-batch of every group."""
        if any(self.cursor >= len(group) for group in self.groups):
            self._shuffle()
        cut = slice(self.cursor, self.cursor + self.size)
        self.cursor += self.size
        return [order[cut] for order in self.orders]

    def _shuffle(self) -> None:
        self.before = self.generator.get_state()
        self.orders = [
            group[torch.randperm(len(group), generator=self.generator).to(group.device)] for group in self.groups
        ]
        self.cursor = 0

    def state(self) -> tuple[Tensor, int]:
        """What brings the drawing back to this place: the generator's state before the last shuffle, and the place."""
        return self.before, self.cursor

    def restore(self, before: Tensor, cursor: int) -> None:
        self.generator.set_state(before)
        self._shuffle()
        self.cursor = cursor
