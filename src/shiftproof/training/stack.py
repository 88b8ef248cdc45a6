"""Several runs of one shape trained as one: every step moves all of them.

A small network fills a few percent of a GPU, and a step of it is hundreds of kernels that each wait to be started. Runs
that differ in their seed alone start the same kernels, so their weights are put one behind another into single tensors
and `torch.func.vmap` makes every kernel work on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.padding import PaddedBatches, pad_batches, room_for
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import HowTrained, Method
from shiftproof.nn.stacked_linear import WholeLinear
from shiftproof.nn.stacking import stacking
from shiftproof.training.steps import ReplayedStepper

AT_ONCE = 64  # batches that are laid out for all members at a time


class CannotStack(ShiftproofError):
    """These runs cannot be trained as one; each by itself they can."""


@dataclass(frozen=True, eq=False)
class BatchStack:
    """One padded batch for each member: their fields one behind another, `[members, ...]`."""

    num_graphs: int
    fields: Mapping[str, Tensor]

    @classmethod
    def of(cls, batches: Sequence[PaddedBatches], number: int) -> BatchStack:
        columns = zip(*[padded.slot(number) for padded in batches], strict=True)
        fields = {name: torch.stack(c) for name, c in zip(batches[0].names, columns, strict=True)}
        count = batches[0].count(number)
        return cls(count, batches[0].cut(fields, count))

    @classmethod
    def padded(cls, sets: Sequence[GraphSet]) -> BatchStack:
        """Sets of as many graphs each, every one of them a batch, padded to the largest."""
        nodes, edges = 1 + max(graphs.num_nodes for graphs in sets), max(graphs.num_edges for graphs in sets)
        return cls.of([pad_batches(graphs, len(graphs), nodes, edges) for graphs in sets], 0)

    def copy_(self, fields: Sequence[Tensor]) -> None:
        """Write the fields of another batch of the same size over these."""
        torch._foreach_copy_(list(self.fields.values()), list(fields))


class _Calls(nn.Module):
    """What is asked of a method as a call, which `functional_call` needs."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: GraphBatch, what: str) -> Any:
        return self.method.losses(batch) if what == "losses" else self.method(batch)


class Stack(Method):
    """Methods of one shape whose weights lie in the same tensors: `[members, ...]` instead of `[...]`.

    The members stay usable: their own weights and statistics are views of the stack's.
    """

    def __init__(self, members: Sequence[Method]) -> None:
        super().__init__(members[0].shape)
        self.members = tuple(members)
        self.whole: dict[str, Tensor] = {}
        for name, parameter in members[0].named_parameters():
            own = [member.get_parameter(name) for member in members]
            whole = nn.Parameter(torch.stack([p.detach() for p in own]), requires_grad=parameter.requires_grad)
            for number, p in enumerate(own):
                p.data = whole.data[number]
            self.register_parameter(name.replace(".", "|"), whole)
            self.whole[f"method.{name}"] = whole
        for name, _ in members[0].named_buffers():
            whole = torch.stack([member.get_buffer(name) for member in members])
            for number, member in enumerate(members):
                path, _, last = name.rpartition(".")
                setattr(member.get_submodule(path), last, whole[number])
            self.register_buffer(name.replace(".", "|"), whole)
            self.whole[f"method.{name}"] = whole
        self._calls = (_Calls(members[0]),)  # in a tuple, because the weights are given with every call

    @property
    def how_trained(self) -> HowTrained:
        return self.members[0].how_trained

    def start_epoch(self, epoch: int) -> None:
        for member in self.members:
            member.train()
            member.start_epoch(epoch)
        self.weights = dict(self.members[0].weights)

    def losses(self, batch: BatchStack) -> dict[str, Tensor]:  # type: ignore[override]
        """The named terms of every member, `[members]` each."""
        return self._ask(batch, "losses")

    def forward(self, batch: BatchStack) -> Tensor:  # type: ignore[override]
        """The logits of every member, `[members, ...]`."""
        return self._ask(batch, "logits")

    def _ask(self, batch: BatchStack, what: str) -> Any:
        (calls,) = self._calls

        def one(tensors: dict[str, Tensor], fields: dict[str, Any]) -> Any:
            given = GraphBatch(num_graphs=batch.num_graphs, **fields)
            # a module that stands in two places is given its weights once: torch would not find back to its own
            return torch.func.functional_call(calls, tensors, (given, what), tie_weights=False)

        with stacking(len(self.members)), WholeLinear():
            return torch.func.vmap(one, randomness="different")(self.whole, dict(batch.fields))

    def column(self, optimizer: torch.optim.Optimizer, number: int, into: torch.optim.Optimizer) -> None:
        """Put one member's part of the stack's optimiser state into that of its own optimiser."""
        own = [p for group in into.param_groups for p in group["params"]]
        for whole, parameter in zip(optimizer.param_groups[0]["params"], own, strict=True):
            if slots := optimizer.state.get(whole):
                into.state[parameter] = {
                    key: value[number] if isinstance(value, Tensor) and value.dim() else value
                    for key, value in slots.items()
                }

    def columns(self, optimizer: torch.optim.Optimizer, own: Sequence[torch.optim.Optimizer]) -> None:
        """Put the states of the members' optimisers together into that of the stack's."""
        lists = [[p for group in one.param_groups for p in group["params"]] for one in own]
        for whole, *parameters in zip(optimizer.param_groups[0]["params"], *lists, strict=True):
            states = [one.state.get(p, {}) for one, p in zip(own, parameters, strict=True)]
            optimizer.state[whole] = {  # the count of steps is the same for all; a weight may be a single number too
                key: value.clone() if key == "step" else torch.stack([state[key] for state in states])
                for key, value in states[0].items()
            }


class StackedStepper(ReplayedStepper):
    """Moves all members by one step; on a GPU with `compile` the step is captured once and replayed.

    The last batch of an epoch, where it is smaller, has a captured step of its own: outside of one, `vmap` hands out
    kernels so slowly that the device waits for most of them.
    """

    method: Stack
    last: StackedStepper | None = None  # of the smaller batch

    def move(self, batch: BatchStack, step: int) -> Tensor:  # type: ignore[override]
        self.balance.before(self.method, step)
        terms = self.method.losses(batch)
        self.names = list(terms)
        self.optimizer.zero_grad(set_to_none=True)
        self.balance.backward({name: term.sum() for name, term in terms.items()}, self.method, step)
        self.optimizer.step()
        return torch.stack([term.detach() for term in terms.values()])

    def lay_out(
        self, trains: Sequence[GraphSet], size: int | None, orders: Sequence[torch.Generator]
    ) -> list[PaddedBatches]:
        """The batches of an epoch: every member's own data in its own order."""
        count = len(trains[0])
        if size is not None:
            trains = [train.shuffled(order) for train, order in zip(trains, orders, strict=True)]
        size = min(size or count, count)
        if self.room is None:
            most = zip(*[room_for(train, size) for train in trains], strict=True)
            self.room = tuple(self._rounded(max(counts)) for counts in most)  # type: ignore[assignment]
        return [pad_batches(train, size, *self.room, rest=True) for train in trains]  # type: ignore[misc]

    def epoch_of_all(self, padded: Sequence[PaddedBatches], step: int) -> Iterator[Tensor]:
        """Train through an epoch of every member; yields terms `[terms, members]`."""
        size, count = padded[0].size, len(padded[0].graphs)
        for number in range(len(padded[0])):
            self._refresh(step)
            if number % AT_ONCE == 0:
                part = slice(number, number + AT_ONCE)
                columns = zip(*[[field[part] for field in one.slots] for one in padded], strict=True)
                laid = [torch.stack(column, 1) for column in columns]
            if padded[0].count(number) < size and all(one.fits[number] for one in padded):
                yield self._move_last(BatchStack.of(padded, number), step)
            elif all(one.fits[number] for one in padded):
                if self.buffer is None:
                    self.buffer = BatchStack.of(padded, number)  # type: ignore[assignment]
                else:
                    self.buffer.copy_([field[number % AT_ONCE] for field in laid])  # type: ignore[union-attr]
                yield self._replay(step) if self._ready(step) else self.move(self.buffer, step)  # type: ignore[arg-type]
            else:
                part = torch.arange(number * size, min((number + 1) * size, count))
                yield self.move(BatchStack.padded([one.graphs[part] for one in padded]), step)
            step += 1

    def _move_last(self, batch: BatchStack, step: int) -> Tensor:
        if not self.usable:
            return self.move(batch, step)
        last = self.last = self.last or StackedStepper(self.method, self.optimizer, self.balance)
        terms = last.one(batch, self.optimizer, step)
        self.names = last.names
        return terms

    def one(self, batch: BatchStack, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        """A step on a batch whose size is always the same, with the optimiser of all others."""
        self.optimizer = optimizer
        if self.buffer is None:
            self.buffer = batch  # type: ignore[assignment]
        else:
            self.buffer.copy_(list(batch.fields.values()))  # type: ignore[union-attr]
        return self._replay(step) if self._ready(step) else self.move(self.buffer, step)  # type: ignore[arg-type]
