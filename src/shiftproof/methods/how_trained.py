"""What training must know of an unusual method: most methods never mention it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from shiftproof.data.dataset import Dataset

if TYPE_CHECKING:
    from shiftproof.methods.base import Method


@dataclass(frozen=True, eq=False)
class FirstStage:
    """A helper model, the name of its run, and how long it is trained (None: as long as the method)."""

    method: Method
    name: str
    epochs: int | None = None


@dataclass(frozen=True, eq=False)
class HowTrained:
    """What the training loop, captured steps and stacks of seeds take into account of a method.

    A method that needs none of it has `Method.how_trained` as it is; one that does overrides the property with
    `replace(super().how_trained, ...)`. It is asked anew after every `start_epoch`, so that values may follow from the
    epoch; all of them follow from the epoch and the method's buffers alone, so that a resumed run sees the same.

    Steps: `capturable` says whether a step understands padded batches (if not, `compile` leaves it as it is on a GPU);
    `built_in` is what a captured step has built in beside the weights of its terms, and a change has it captured anew.

    Samples: `samples` are the positions in the training split that make up this epoch, repeats allowed (None: each
    once); `environments` are those of all training samples where batches are drawn from each of them (None: the data
    set's own). With `after_domains` every batch is of one environment, they take turns, and it is called with their
    number when each had one. `arrange` makes the data that the method is trained and judged on from those given and
    the seed.

    Selection: whether this epoch is `selectable` as the one that is kept, whether its metric must exceed a
    `selection_floor`, and whether of epochs with the same metric the one with the lowest loss is kept, not the first.

    Around it: `first_stage` makes the model that `prepare` has the trainer fit, so that several runs may fit theirs as
    one; tensors that are `sized_by_data` take on the sizes of those that are loaded; `searches_explanations` says that
    `explain` is an optimisation for every graph, so that it is asked sparingly.
    """

    capturable: bool = True
    built_in: tuple[Any, ...] = ()
    samples: Tensor | None = None
    environments: Tensor | None = None
    after_domains: Callable[[int], None] | None = None
    arrange: Callable[[Dataset, int], Dataset] | None = None
    selectable: bool = True
    selection_floor: float | None = None
    ties_by_loss: bool = False
    first_stage: Callable[[], FirstStage | None] | None = None
    sized_by_data: tuple[str, ...] = ()
    searches_explanations: bool = False


USUAL = HowTrained()
