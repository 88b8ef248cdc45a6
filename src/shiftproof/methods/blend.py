"""Several methods as one: each is fitted by itself, and the mean of what they say is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Task
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, DataShape, Method, Network, Trains
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.vector_method import VectorMethod
from shiftproof.objectives import sample_losses
from shiftproof.ranges import AtLeast
from shiftproof.registry import fitting_options, methods, options_of, parse_name, register

SURE = 1e-6  # a mean probability is kept so far from 0 and 1, where its logit would be infinite


def mean_prediction(logits: Sequence[Tensor], task: Task) -> Tensor:
    """The mean of several models' predictions, as logits: of probabilities for classes, of values for numbers."""
    stacked = torch.stack([one.double() for one in logits])
    if task == "regression":
        return stacked.mean(0)
    if task == "multiclass":
        return stacked.softmax(-1).mean(0).clamp(min=SURE).log()
    return stacked.sigmoid().mean(0).clamp(SURE, 1 - SURE).logit()


@register("blend", tags=("graphs", "tensors"))
class Blend(Method):
    """Several methods, each fitted by itself, and the mean of their predictions.

    .. math:: \\hat p(x) = \\frac1M \\sum_m p_m(x)

    `members` names them, each with options of its own ("forest:trees=200"). Those on vectors look at their usual ones
    (`vectors=...` says others). Networks are trained with the settings of the run, in folders inside the run's. The
    mean is of probabilities, of numbers their values.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        members: tuple[str, ...] = ("forest", "boosting", "linear"),
        network: Network | nn.Module | None = None,
    ) -> None:
        super().__init__(shape)
        if isinstance(members, str):
            members = (members,)
        if not members:
            raise ShiftproofError("a blend needs at least one member, as in members=('forest', 'linear')")
        if isinstance(network, nn.Module) and len(members) > 1:
            raise ShiftproofError("a network that is built already would be the same for all members; name it")
        self.members = nn.ModuleList(_member(text, shape, network) for text in members)
        self.requires_grad_(False)  # the members train themselves, one after another, in `prepare`

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        for number, member in enumerate(self._each):
            if isinstance(member, VectorMethod):
                member.prepare(dataset, trainer)
                continue
            member.requires_grad_(True)
            trainer.fit_reference(member, dataset, f"member-{number}")
            member.requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        return mean_prediction([member(batch) for member in self._each], self.shape.task).float()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    @property
    def _each(self) -> list[Method]:
        return [member for member in self.members if isinstance(member, Method)]

    def _arranged(self, dataset: Dataset, seed: int) -> Dataset:
        """The data with the vectors that any of the members looks at."""
        for member in self._each:
            arrange = member.how_trained.arrange
            dataset = dataset if arrange is None else arrange(dataset, seed)
        return dataset

    @property
    def how_trained(self) -> HowTrained:
        own = [(number, member.how_trained) for number, member in enumerate(self._each)]
        sized = tuple(f"members.{number}.{name}" for number, how in own for name in how.sized_by_data)
        return replace(super().how_trained, arrange=self._arranged, sized_by_data=sized)


@register("ensemble", tags=("graphs", "tensors"))
class Ensemble(Blend):
    """The same method trained several times from other weights, and the mean of their predictions.

    Deep ensembles (Lakshminarayanan et al. 2017): `size` networks of the method `of`, trained with the settings of the
    run one after another.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        of: str = "erm",
        size: Annotated[int, AtLeast(2)] = 5,
        network: Network | nn.Module | None = None,
    ) -> None:
        super().__init__(shape, members=(of,) * size, network=network)


def _member(text: str, shape: DataShape, network: Network | nn.Module | None) -> Method:
    """One member, built."""
    name, options = parse_name(text)
    entry = methods[name]
    make: Any = entry.make  # a class; the registry knows it as what can be called
    if entry.tags and shape.kind not in entry.tags:
        raise ShiftproofError(f"a member of the blend, '{name}', works on {entry.tags[0]}, and these are {shape.kind}")
    if issubclass(make, Blend):
        raise ShiftproofError(f"'{name}' is a blend itself and no member of one; name its members")
    own: dict[str, Any] = fitting_options(options, options_of(make), f"'{text}', a member of the blend")
    if issubclass(make, VectorMethod) and shape.kind == "graphs":
        own.setdefault("vectors", make.usual_vectors)
    if network is not None and "network" in options_of(make):
        own["network"] = network
    made = make(shape, **own)
    if made.how_trained.after_domains is not None or made.how_trained.samples is not None:
        raise ShiftproofError(f"'{name}' takes batches of its own and is no member of a blend")
    return made
