"""Batches in which every sampled domain has the same number of samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError

EveryDomain = Literal["all"]


class DomainBatchSampler:
    """Positions of an epoch of batches: `size` samples of each of some domains, never the same domain twice in a batch.

    `groups` names the domain of every sample. `domains` is how many of them a batch has, "all" by default; `size=None`
    is as many samples as the smallest domain has. With `steps` an epoch is that many batches, every domain is as likely
    as any other and starts again in a new order once it is used up (DomainBed). Without, the epoch ends when fewer than
    `domains` of them have more than one whole batch left; a domain that is used up before may be drawn again until then
    (WILDS, docs/papers/pair.md#small-print).

    As a `batch_sampler` of torch's `DataLoader` it yields one flat list of positions a batch.
    """

    def __init__(
        self,
        groups: Tensor,
        domains: int | EveryDomain = "all",
        size: int | None = 32,
        *,
        steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        groups = torch.as_tensor(groups).cpu().long()
        present = groups.unique().tolist()
        self.members = [(groups == number).nonzero().squeeze(1) for number in present]
        if not self.members:
            raise ShiftproofError("there is no sample to draw batches from")
        self.domains = len(self.members) if domains == "all" else domains
        if not isinstance(self.domains, int) or self.domains < 1:
            raise ShiftproofError(f"'domains_per_batch' is 'all' or a number from 1, not {domains!r}")
        if self.domains > len(self.members):
            raise ShiftproofError(
                f"'domains_per_batch' is {self.domains}, and there are {len(self.members)} environments to draw from"
            )
        self.size = min(len(rows) for rows in self.members) if size is None else size
        for name, value in (("batch_size", self.size), ("steps_per_epoch", steps)):
            if value is not None and value < 1:
                raise ShiftproofError(f"'{name}' is a whole number from 1, not {value}")
        self.steps = steps
        self.generator = generator

    def epoch(self, generator: torch.Generator | None = None) -> Tensor:
        """Positions [batches, domains, size] of one epoch."""
        drawn = self._even(generator) if self.steps is not None else self._until_used_up(generator)
        positions = torch.empty((*drawn.shape, self.size), dtype=torch.long)
        for number, rows in enumerate(self.members):
            turns = (drawn == number).nonzero()
            if len(turns):
                positions[turns[:, 0], turns[:, 1]] = self._rows(rows, len(turns), generator)
        return positions

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.epoch(self.generator).flatten(1).tolist())

    def _even(self, generator: torch.Generator | None) -> Tensor:
        """Which domains each batch of a fixed number of batches has."""
        assert self.steps is not None
        order = torch.rand(self.steps, len(self.members), generator=generator).argsort(1)
        return order[:, : self.domains]

    def _until_used_up(self, generator: torch.Generator | None) -> Tensor:
        """Which domains each batch has when every domain counts down its own batches."""
        left = torch.tensor([max(len(rows) // self.size, 1) for rows in self.members])
        drawn: list[Tensor] = []
        while not drawn or int((left > 1).sum()) >= self.domains:
            chosen = torch.rand(len(left), generator=generator).argsort()[: self.domains]
            left[chosen] = (left[chosen] - 1).clamp(min=1)
            drawn.append(chosen)
        return torch.stack(drawn)

    def _rows(self, rows: Tensor, turns: int, generator: torch.Generator | None) -> Tensor:
        """Samples of one domain for that many batches: all of them in random order, then all again in another."""
        wanted = turns * self.size
        rounds = -(-wanted // len(rows))
        order = torch.rand(rounds, len(rows), generator=generator).argsort(1).flatten()[:wanted]
        return rows[order].view(turns, self.size)
