"""Plain tensors with environments: the same contract as packed graphs, for samples that are rows of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.checks import require_environments, require_finite, require_range
from shiftproof.data.columns import Index, as_positions, at, take, to_device
from shiftproof.data.parts import bytes_of, in_parts, pinned
from shiftproof.errors import ShiftproofError, unknown


@dataclass(slots=True, eq=False)
class DomainBatch:
    """Some samples of a `DomainSet`; `index` holds each one's number in the set it came from."""

    x: Tensor
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - numbered from 0 where it is not given
    columns: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.x.shape[0]

    def replace(self, **changes: Any) -> DomainBatch:
        """The same batch with some fields exchanged."""
        return replace(self, **changes)

    def to(self, device: torch.device | str) -> DomainBatch:
        return replace(self, **to_device(self, device))


@dataclass(slots=True, eq=False)
class DomainSet:
    """Samples `x`, labels `y` and environments `env`; `columns` holds further values of each sample by name.

    Where `batches_on` names a device, the tensors stay in files that are mapped into memory (`shiftproof.data.stored`):
    only the samples of the next batches are read and put there, and the set may be larger than memory.
    """

    x: Tensor
    y: Tensor = None  # type: ignore[assignment] - only data to predict on may lack labels
    env: Tensor | None = None
    index: Tensor = None  # type: ignore[assignment] - numbered from 0 where it is not given
    columns: dict[str, Tensor] = field(default_factory=dict)
    batches_on: torch.device | None = None

    def __post_init__(self) -> None:
        if self.index is None:
            self.index = torch.arange(len(self), device=self.x.device)
        for name, tensor in {"y": self.y, "env": self.env, **self.columns}.items():
            if tensor is not None and len(tensor) != len(self):
                raise ShiftproofError(f"'{name}' has {len(tensor)} rows, 'x' has {len(self)}; they must be equal")

    def __len__(self) -> int:
        return self.x.shape[0]

    def __repr__(self) -> str:
        envs = "" if self.env is None else f", environments={self.num_envs}"
        where = ", on disk" if self.on_disk else ""
        return f"DomainSet({len(self)} samples of shape {tuple(self.x.shape[1:])}{envs}{where})"

    @property
    def num_features(self) -> int:
        return self.x[0].numel() if len(self) else int(torch.tensor(self.x.shape[1:]).prod())

    @property
    def num_envs(self) -> int:
        return 0 if self.env is None or len(self) == 0 else int(self.env.max()) + 1

    @property
    def device(self) -> torch.device:
        """Where the batches are."""
        return self.x.device if self.batches_on is None else self.batches_on

    @property
    def on_disk(self) -> bool:
        """Whether the tensors stay in files and batches are read from them."""
        return self.batches_on is not None

    @property
    def bytes_each(self) -> float:
        """Bytes that one sample takes."""
        return bytes_of(self) / max(len(self), 1)

    def __getitem__(self, index: Index) -> DomainSet:
        """The chosen samples, in the order given: a number, a slice, a list, positions or a mask."""
        return self._gather(as_positions(index, len(self)))

    def batch(self, index: Index) -> DomainBatch:
        """The chosen samples as one batch."""
        return self[index].whole()

    def whole(self) -> DomainBatch:
        """All samples as one batch; nothing is copied of a set in memory."""
        if self.on_disk:
            return self[:].whole()
        return DomainBatch(self.x, self.y, self.env, self.index, self.columns)

    def batches(
        self, size: int | None, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> Iterator[DomainBatch]:
        """One epoch of batches of `size` samples (`None`: all in one, in their order); the last may be smaller."""
        if size is None:
            return iter((self.whole(),))
        if size < 1:
            raise ShiftproofError(f"a batch holds at least one sample, not {size}")
        return chain.from_iterable(part._cut(size) for part in self.parts(size, shuffle=shuffle, generator=generator))

    def parts(
        self, size: int, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> Iterator[DomainSet]:
        """The samples of an epoch in sets of whole batches: all at once in memory, part by part from a disk."""
        order = torch.randperm(len(self), generator=generator) if shuffle else None
        if self.on_disk:
            return in_parts(self, size, order)
        return iter((self if order is None else self._gather(order),))

    def shuffled(self, generator: torch.Generator | None = None) -> DomainSet:
        """The same samples in random order."""
        return self._gather(torch.randperm(len(self), generator=generator))

    def to(self, device: torch.device | str) -> DomainSet:
        """The same samples with their tensors, or the batches of a set on disk, on that device."""
        if torch.device(device) == self.device:
            return self
        if self.on_disk:
            return replace(self, batches_on=torch.device(device))
        moved = to_device(self, device)
        return DomainSet(**{f.name: moved.get(f.name, getattr(self, f.name)) for f in fields(self)})

    def save(self, folder: str | Path) -> Path:
        """Write the set into a folder, from which `open` uses it without reading it into memory."""
        from shiftproof.data.stored import save_set

        return save_set(self, folder)

    @classmethod
    def open(cls, folder: str | Path, *, in_memory: bool = False) -> DomainSet:
        """The set that `save` or a `SetWriter` wrote into a folder; it stays there unless `in_memory` is said."""
        from shiftproof.data.stored import open_set

        opened = open_set(folder, in_memory=in_memory)
        if not isinstance(opened, cls):
            raise ShiftproofError(f"{folder} holds a {type(opened).__name__}, not a {cls.__name__}")
        return opened

    def group_by(self, column: str) -> DomainSet:
        """The same samples with the named column as the environment."""
        if column not in self.columns:
            raise unknown("environment column", column, self.columns)
        return replace(self, env=self.columns[column].long())

    def check(self, where: str, *, num_classes: int | None = None) -> None:
        """Raise one clear sentence if a feature is not finite or a label is wrong."""
        require_finite(self.x, f"{where}: features")
        require_environments(self.env, f"{where}: environments")
        if num_classes is not None and self.y is not None:
            require_range(self.y, num_classes, f"{where}: labels")

    def _cut(self, size: int) -> Iterator[DomainBatch]:
        parts = {n: t for n in ("x", "y", "env", "index") if (t := getattr(self, n)) is not None}
        for start in range(0, max(len(self), 1), size):
            cut = slice(start, start + size)
            columns = {name: tensor[cut] for name, tensor in self.columns.items()}
            yield DomainBatch(**{name: tensor[cut] for name, tensor in parts.items()}, columns=columns)

    def _gather(self, positions: Tensor) -> DomainSet:
        rows = positions.to(self.x.device)
        parts: dict[str, Any] = {n: at(getattr(self, n), rows) for n in ("x", "y", "env", "index")}
        chosen = DomainSet(**parts, columns=take(self.columns, rows))
        return chosen if self.batches_on is None else pinned(chosen, self.batches_on).to(self.batches_on)
