"""One training epoch, three ways: step by step as written, compiled, or replayed from a captured CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.data.domains import DomainBatch
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.padding import pad_batches, room_for
from shiftproof.methods.base import Batch, Method
from shiftproof.runtime.torch_internals import recomputing_more
from shiftproof.training.balance import Balance
from shiftproof.training.capture import CannotCapture, Captured, capture

Compile = bool | Literal["fused"]


class Stepper(Protocol):
    """Trains through an epoch and yields the values of the loss terms of each step, still on the device.

    `names` are those of the terms, in the order of the values, from the first step on. Without an `order` the samples
    stay in the one they are in.
    """

    names: list[str]
    optimizer: torch.optim.Optimizer

    def epoch(self, train: Split, size: int | None, order: torch.Generator | None, step: int) -> Iterator[Tensor]: ...


class EagerStepper:
    """Every step as the method writes it.

    `renewed(step)` makes the optimiser that the balance asks for from a step on; without it, a fresh start only
    forgets the state. `augment` changes a batch before its step.
    """

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        balance: Balance,
        renewed: Callable[[int], torch.optim.Optimizer] | None = None,
        augment: Callable[[Batch], Batch] | None = None,
    ) -> None:
        self.augment = augment
        self.method = method
        self.optimizer = optimizer
        self.balance = balance
        self.renewed = renewed
        self.losses = method.losses
        self.names: list[str] = []

    def epoch(self, train: Split, size: int | None, order: torch.Generator | None, step: int) -> Iterator[Tensor]:
        for batch in train.batches(size, shuffle=size is not None and order is not None, generator=order):
            self._refresh(step)
            yield self.move(batch if self.augment is None else self.augment(batch), step)
            step += 1

    def move(self, batch: Batch, step: int) -> Tensor:
        """One step of the optimiser on one batch."""
        self.balance.before(self.method, step)
        terms = self.losses(batch) if self.balance.is_sum(step) else self.method.losses(batch)
        self.names = list(terms)
        self.optimizer.zero_grad(set_to_none=True)
        self.balance.backward(terms, self.method, step)
        self.optimizer.step()
        return torch.stack([term.detach() for term in terms.values()])

    def _refresh(self, step: int) -> None:
        if not self.balance.refreshes(step):
            return
        if self.renewed is not None and self.balance.optimizer(step):
            self.optimizer = self.renewed(step)
        else:
            self.optimizer.state.clear()


class CompiledStepper(EagerStepper):
    """Losses through `torch.compile` with sizes left open; the first call takes tens of seconds on a cold cache."""

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        balance: Balance,
        renewed: Callable[[int], torch.optim.Optimizer] | None = None,
        augment: Callable[[Batch], Batch] | None = None,
    ) -> None:
        super().__init__(method, optimizer, balance, renewed, augment)
        compiled = torch.compile(_losses_of_fields, dynamic=True)

        def losses(batch: Batch) -> dict[str, Tensor]:
            # recomputing a ReLU's mask is cheaper than storing it: written mask by mask, a forward pass is three times
            # as slow on a CPU. The setting matters whenever this call compiles, also for a later batch of another kind.
            with recomputing_more():
                return compiled(method, *_fields(batch))

        self.losses = losses


def _fields(batch: Batch) -> tuple[Tensor | int | None, ...]:
    if isinstance(batch, GraphBatch):
        known = (batch.y, batch.edge_attr, batch.env, batch.index, batch.node_mask)
        return (batch.x, batch.edge_index, batch.batch, batch.ptr, batch.num_graphs, *known)
    return (batch.x, batch.y, batch.env, batch.index)


def _losses_of_fields(method: Method, *fields: Tensor | int | None) -> dict[str, Tensor]:
    if len(fields) == 4:
        return method.losses(DomainBatch(*fields))  # pyright: ignore[reportArgumentType] - in the order of _fields
    *known, node_mask = fields
    return method.losses(GraphBatch(*known, node_mask=node_mask))  # pyright: ignore[reportArgumentType]


class ReplayedStepper(EagerStepper):
    """Forward, backward and optimiser step captured once as a CUDA graph and replayed.

    Graphs are padded: the whole epoch is laid out in slots of fixed size, a step copies its slot into the buffers that
    the captured graph reads, and `node_mask` keeps the padding out of every statistic, so losses are those of the
    eager step. A batch that finds no room, or the last and smaller one, runs eagerly with the same parameters and
    optimiser state. A method that cannot be captured (it waits for the device, or its sizes depend on the data) is
    trained eagerly after one warning. `room` are the nodes and edges of a slot, where an earlier run has chosen them.
    """

    GRAIN = 64  # slots are rounded up to so many nodes and edges

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        balance: Balance,
        renewed: Callable[[int], torch.optim.Optimizer] | None = None,
        *,
        room: tuple[int, int] | None = None,
        usable: bool = True,
    ) -> None:
        super().__init__(method, optimizer, balance, renewed)
        self.captured: Captured | None = None
        self.phase: tuple | None = None
        self.usable = usable
        self.buffer: Batch | None = None
        self.targets: list[Tensor] = []
        self.room: tuple[int, int] | None = room

    def epoch(self, train: Split, size: int | None, order: torch.Generator | None, step: int) -> Iterator[Tensor]:
        if not self.usable:
            yield from super().epoch(train, size, order, step)
        elif isinstance(train, GraphSet):
            size, shuffle = min(size or len(train), len(train)), size is not None and order is not None
            for part in train.parts(size, shuffle=shuffle, generator=order):
                yield from self._graphs(part, size, step)
                step += -(-len(part) // size)
        elif size is None:
            self._refresh(step)
            self.buffer = train.whole()  # the same memory in every epoch: nothing to copy
            yield self._replay(step) if self._ready(step) else self.move(self.buffer, step)
        else:
            yield from self._rows(train.batches(size, shuffle=order is not None, generator=order), size, step)

    def _graphs(self, ordered: GraphSet, size: int, step: int) -> Iterator[Tensor]:
        if self.room is None:
            self.room = tuple(self._rounded(count) for count in room_for(ordered, size))  # type: ignore[assignment]
        padded = pad_batches(ordered, size, *self.room)  # type: ignore[misc]
        for number, fits in enumerate(padded.fits):
            self._refresh(step)
            if fits and self.usable:
                if self.buffer is None:
                    self.buffer = padded.buffer()
                    self.targets = [getattr(self.buffer, name) for name in padded.names]
                torch._foreach_copy_(self.targets, padded.slot(number))
            if fits and self._ready(step):
                yield self._replay(step)
            else:
                yield self.move(padded.plain(number), step)
            step += 1

    def _rounded(self, count: int) -> int:
        """The length of a slot for batches of so many nodes or edges."""
        return -(-(count + 1) // self.GRAIN) * self.GRAIN

    def _rows(self, batches: Iterator[Batch], size: int, step: int) -> Iterator[Tensor]:
        for batch in batches:
            self._refresh(step)
            fields = [value for value in (batch.x, batch.y, batch.env, batch.index) if value is not None]
            if len(batch) == size and self.usable:
                if self.buffer is None:
                    copies = iter([value.clone() for value in fields])
                    known: dict[str, Any] = {
                        n: next(copies) for n in ("x", "y", "env", "index") if getattr(batch, n) is not None
                    }
                    self.buffer = DomainBatch(**known)
                    self.targets = list(known.values())
                torch._foreach_copy_(self.targets, fields)
            yield self._replay(step) if len(batch) == size and self._ready(step) else self.move(batch, step)
            step += 1

    def _ready(self, step: int) -> bool:
        """Whether the step can be replayed; captures it first where that has not been done for this phase."""
        if not self.balance.is_sum(step):
            return False  # the host has to look at every step
        if self.usable and (self.captured is None or self.phase != self._phase(step)):
            self._capture(step)
        return self.usable

    def _phase(self, step: int) -> tuple:
        """What a captured step has built in: it is captured anew when the balance or the method changes it."""
        return self.balance.phase(step), *self.method.weights.items(), *self.method.how_trained.built_in

    def _replay(self, step: int) -> Tensor:
        assert self.captured is not None, step
        return self.captured().clone()

    def _capture(self, step: int) -> None:
        """Warm up, capture, and put everything the warm-up moved back."""
        self.captured, self.phase = None, self._phase(step)
        problem = self._capture_once(step, self.losses)
        if problem is not None:
            self.usable = False
            warnings.warn(f"this method cannot be captured ({problem}); training goes on eagerly", stacklevel=2)

    def _capture_once(self, step: int, losses: Callable[[Batch], dict[str, Tensor]]) -> str | None:
        """Capture the step with these losses; if that cannot be done, the reason."""
        assert self.buffer is not None
        buffer, plain, self.losses = self.buffer, self.losses, losses
        moved = list(self.method.state_dict().values())
        try:
            self.captured = capture(lambda: self.move(buffer, step), tensors=moved, optimizer=self.optimizer)
        except CannotCapture as reason:
            return str(reason)
        finally:
            self.losses = plain
        return None


class FusedStepper(ReplayedStepper):
    """As `ReplayedStepper`, with the kernels of the losses fused by `torch.compile` before they are captured.

    A replayed step of a small model spends its time on starting hundreds of small kernels; fused it has a fraction of
    them. Compiling takes tens of seconds on a cold cache, so this is for long runs and for many runs alike. Slots are
    rounded further up, so that all seeds of a data set share one compiled step.
    """

    GRAIN = 1024
    compiled: Callable[[Batch], dict[str, Tensor]] | None = None
    fusible = True

    def _capture(self, step: int) -> None:
        if self.fusible:
            if self.compiled is None:
                torch.compiler.reset()  # a process that trains many runs would come to the limit of recompilations
                self.compiled = fused_losses(self.method)
            self.captured, self.phase = None, self._phase(step)
            problem = self._capture_once(step, self.compiled)
            if problem is None:
                return
            self.fusible = False
            warnings.warn(f"the kernels of this method cannot be fused ({problem})", stacklevel=2)
        super()._capture(step)


def fused_losses(method: Method) -> Callable[[Batch], dict[str, Tensor]]:
    """The losses of a method compiled for batches of one fixed size."""
    compiled = torch.compile(_losses_of_fields, dynamic=False)

    def losses(batch: Batch) -> dict[str, Tensor]:
        return compiled(method, *_fields(batch))

    return losses
