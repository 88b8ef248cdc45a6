"""Steps of one training on several processes: each takes a part of every batch, all take the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Split
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, Method
from shiftproof.nn import NodeBatchNorm, ranks
from shiftproof.pareto.balance import Balance
from shiftproof.training.steps import EagerStepper

FEWEST = 2  # samples of a rank: batch norm needs two rows


class SpreadBatch:
    """What losses may ask of a batch that is spread over ranks: labels, environments and numbers of all its samples.

    Whatever else they ask for would be that of a part of the batch, and is refused with a sentence.
    """

    def __init__(self, batch: Batch, counts: Sequence[int], owner: str) -> None:
        self._part = batch
        self._owner = owner
        self._count = sum(counts)
        for name in ("y", "env", "index"):
            value = getattr(batch, name)
            setattr(self, name, None if value is None else _in_order(value, counts))

    def __len__(self) -> int:
        return self._count

    @property
    def num_graphs(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        raise ShiftproofError(
            f"{self.__dict__.get('_owner')} cannot be trained on several devices: its losses look at '{name}' of a "
            "batch and not only at what its featurizer makes of the samples; train it on one device"
        )


class RankStepper(EagerStepper):
    """Every step as the method writes it, its batch spread over the ranks.

    The vectors that the method's featurizer makes of its part, and labels, environments and numbers of the samples, are
    gathered before the losses are computed from them; batch norm takes its statistics over all parts. So losses and
    gradients are those of one process with the whole batch. A batch of fewer than two samples a rank is taken whole by
    each. Random numbers of a step follow from the seed and the step, inside the featurizer also from the rank.
    """

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        balance: Balance,
        renewed: Callable[[int], torch.optim.Optimizer] | None = None,
        augment: Callable[[Batch], Batch] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(method, optimizer, balance, renewed, augment)
        if augment is not None:
            raise ShiftproofError("data that change their batches ('augment') are trained on one device")
        require_spreadable(method)
        self.seed = seed

    def epoch(self, train: Split, size: int | None, order: torch.Generator | None, step: int) -> Iterator[Tensor]:
        shuffle = size is not None and order is not None
        size = max(min(size or len(train), len(train)), 1)
        positions = torch.randperm(len(train), generator=order) if shuffle else torch.arange(len(train))
        for chosen in positions.split(size):
            self._refresh(step)
            yield self.move_part(train, chosen, step)
            step += 1

    def move_part(self, train: Split, chosen: Tensor, step: int) -> Tensor:
        """One step of the optimiser on the samples at these positions, of which each rank takes a part."""
        if len(chosen) < FEWEST * ranks.count():
            _draw_from(self.seed, step)
            return self.move(train.batch(chosen), step)
        parts = [chosen[rank :: ranks.count()] for rank in range(ranks.count())]
        batch = train.batch(parts[ranks.number()])
        with spread_over_ranks(self.method, batch, [len(part) for part in parts], (self.seed, step)) as whole:
            self.balance.before(self.method, step)
            terms = self.method.losses(cast(Batch, whole))
            self.names = list(terms)
            self.optimizer.zero_grad(set_to_none=True)
            self.balance.backward(terms, self.method, step)
            ranks.averaged_(p.grad for p in self.method.parameters() if p.grad is not None)
        self.optimizer.step()
        return torch.stack([term.detach() for term in terms.values()])


@contextmanager
def spread_over_ranks(
    method: Method, batch: Batch, counts: Sequence[int], draws: tuple[int, ...] = (0,)
) -> Iterator[SpreadBatch]:
    """Inside, a method's featurizer takes the part of this rank and gives the vectors of the samples of all ranks."""
    featurizer = method.featurizer
    assert isinstance(featurizer, nn.Module)

    def take_part(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        _draw_from(*draws, ranks.number())
        return tuple(batch if isinstance(value, SpreadBatch) else value for value in given)

    def gather(_: nn.Module, given: Any, vectors: Tensor) -> Tensor:
        _draw_from(*draws)
        return _in_order(vectors, counts)

    with ranks.together():
        hooks = [featurizer.register_forward_pre_hook(take_part), featurizer.register_forward_hook(gather)]
        try:
            _draw_from(*draws)
            yield SpreadBatch(batch, counts, type(method).__name__)
        finally:
            for hook in hooks:
                hook.remove()


def require_spreadable(method: Method) -> None:
    """Refuse a method that has no featurizer, or whose network takes statistics of a part of a batch."""
    name = type(method).__name__
    if not isinstance(getattr(method, "featurizer", None), nn.Module):
        raise ShiftproofError(
            f"{name} cannot be trained on several devices: it has no 'featurizer' whose vectors could be brought "
            "together before its losses; train it on one device"
        )
    for part in method.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training and not isinstance(part, NodeBatchNorm):
            raise ShiftproofError(
                f"the network of {name} has a {type(part).__name__}, whose statistics would be of a part of each "
                "batch; use shiftproof.nn.NodeBatchNorm in its place, or train on one device"
            )


def _in_order(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks in the order of the batch, of which each rank has every n-th sample."""
    first = [sum(counts[:rank]) for rank in range(len(counts))]
    places = [first[place % len(counts)] + place // len(counts) for place in range(sum(counts))]
    return ranks.gathered(rows, counts).index_select(0, torch.tensor(places, device=rows.device))


def _draw_from(*numbers: int) -> None:
    """Random numbers that follow from these."""
    torch.manual_seed(hash(numbers) % 2**63)
