"""The steps of a round: which samples each sees, and how it is done, as written or replayed from a captured one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Split
from shiftproof.data.graphs import GraphSet
from shiftproof.data.padding import PaddedBatches, pad_batches, room_for
from shiftproof.features.splits import GroupBatches
from shiftproof.training.capture import Captured, capture_if_possible

RoundLoss = Callable[[Tensor, Tensor | None, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Drawn:
    """The samples of one step: batches to send through the featurizer, the positions `rows` of their samples (None:
    all in order), and for each group a row of weights whose product with per-sample values is the group's mean.
    """

    batches: tuple[Any, ...]
    rows: Tensor | None
    weights: Tensor


class Draws:
    """The samples of one step after another: all of them, or a mini-batch of `size` from each group (None: all)."""

    def __init__(
        self, data: Split, groups: Sequence[Tensor | None], size: int | None, *, joint: bool, seed: int
    ) -> None:
        self.data, self.joint, n, device = data, joint, len(data), data.device
        everything = torch.arange(n, device=device)
        chosen = [everything if group is None else group.to(device) for group in groups]
        self.whole: Drawn | None = None
        self.batches: GroupBatches | None = None
        if size is None and joint:
            weights = torch.zeros(len(chosen), n, device=device)
            for row, group in zip(weights, chosen, strict=True):
                row.index_add_(0, group, torch.full((len(group),), 1 / len(group), device=device))
            self.whole = Drawn((next(iter(data.batches(None))),), None, weights)
        else:
            self.batches = GroupBatches(chosen, size or max(len(group) for group in chosen), seed)

    def draw(self) -> Drawn:
        if self.whole is not None:
            return self.whole
        assert self.batches is not None
        return self.of(self.batches.draw())

    def of(self, groups: Sequence[Tensor]) -> Drawn:
        """The samples at these positions, group by group."""
        rows = torch.cat(list(groups))
        parts = (rows,) if self.joint else groups
        weights = group_means([len(group) for group in groups], self.data.device)
        return Drawn(tuple(self.data.batch(part) for part in parts), rows, weights)


def group_means(lengths: Sequence[int], device: torch.device) -> Tensor:
    """Weights of the means of groups that lie one after another, [groups, samples]."""
    return torch.block_diag(*[torch.full((1, length), 1 / length, device=device) for length in lengths])


class RoundSteps:
    """One step after another, as written."""

    def __init__(
        self,
        draws: Draws,
        features: Callable[[Any], Tensor],
        loss: RoundLoss,
        modules: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        l2: float = 0.0,
    ) -> None:
        self.draws, self.features, self.loss, self.optimizer, self.l2 = draws, features, loss, optimizer, l2
        self.modules = list(modules)
        self.parameters = [parameter for module in modules for parameter in module.parameters()]

    def step(self) -> Tensor:
        """The next step; its loss, still on the device."""
        return self.move(self.draws.draw())

    def move(self, drawn: Drawn) -> Tensor:
        parts = [self.features(batch) for batch in drawn.batches]
        features = parts[0] if len(parts) == 1 else torch.cat(parts)
        value = self.loss(features, drawn.rows, drawn.weights.to(features.dtype))
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        if self.l2:
            with torch.no_grad():
                for parameter in self.parameters:
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter, alpha=2 * self.l2)
        self.optimizer.step()
        return value.detach()


class ReplayedSteps(RoundSteps):
    """The same steps, captured once as a CUDA graph and replayed.

    With all samples in every step there is nothing to copy. A mini-batch of tensors is gathered inside the captured
    step from the positions that were drawn. Mini-batches of graphs are padded: those of a pass are laid out in slots of
    fixed size at once, and `node_mask` keeps the padding out of every statistic. What has another size, or finds no
    room, is done as written, with the same weights and optimiser. Without `captured` the steps go through the same
    buffers one by one, on any device.
    """

    def __init__(self, *given: Any, captured: bool = True, **more: Any) -> None:
        super().__init__(*given, **more)
        self.usable, self.captured = True, captured
        self.graph: Captured | None = None
        self.laid: PaddedBatches | None = None
        self.room: tuple[int, int] | None = None
        self.targets: list[Tensor] = []
        batches, self.buffer = self.draws.batches, self.draws.whole
        if batches is not None:
            lengths = [min(batches.size, len(group)) for group in batches.groups]
            # graphs of a group that is smaller than a batch would be laid out anew in every step
            self.usable = not isinstance(self.draws.data, GraphSet) or min(lengths) == batches.size
            self.lengths = lengths
            self.rows = torch.cat([group[:k] for group, k in zip(batches.groups, lengths, strict=True)])
            self.weights = group_means(lengths, self.rows.device)

    def step(self) -> Tensor:
        batches = self.draws.batches
        if batches is None or not self.usable:
            return self._replay() if self.usable else super().step()
        drawn = batches.draw()
        if [len(group) for group in drawn] != self.lengths:
            return self.move(self.draws.of(drawn))
        torch.cat(drawn, out=self.rows)
        if isinstance(self.draws.data, GraphSet) and not self._fill(self.draws.data, batches):
            return self.move(self.draws.of(drawn))
        return self._replay()

    def _fill(self, data: GraphSet, batches: GroupBatches) -> bool:
        """Copy the padded graphs of this step into the buffer; False where they find no room."""
        number, size = batches.cursor // batches.size - 1, sum(self.lengths)
        if number == 0 or self.laid is None:
            passes = min(len(order) for order in batches.orders) // batches.size
            cut = passes * batches.size
            rows = torch.stack([order[:cut].view(passes, -1) for order in batches.orders], 1).flatten()
            ordered = data[rows]
            if self.room is None:
                nodes, edges = room_for(data, batches.size, batches.groups)
                self.room = nodes + 1, edges + 1
            self.laid = pad_batches(ordered, size, *self.room)
        if self.buffer is None:
            buffer = self.laid.buffer()
            self.targets = [getattr(buffer, name) for name in self.laid.names]
            self.buffer = Drawn((buffer,), self.rows, self.weights)
        if not self.laid.fits[number]:
            return False
        torch._foreach_copy_(self.targets, self.laid.slot(number))
        return True

    def _buffered(self) -> Tensor:
        """One step on what lies in the buffers."""
        if self.buffer is not None:
            return self.move(self.buffer)
        return self.move(Drawn((self.draws.data._gather(self.rows).whole(),), self.rows, self.weights))

    def _replay(self) -> Tensor:
        if not self.captured:
            return self._buffered()
        if self.graph is None:
            moved = [tensor for module in self.modules for tensor in module.state_dict().values()]
            what = "a step of feature learning"
            self.graph = capture_if_possible(self._buffered, what, tensors=moved, optimizer=self.optimizer)
            if self.graph is None:
                self.captured = self.usable = False
                return self._buffered()
        return self.graph().clone()
