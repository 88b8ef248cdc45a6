"""What `auto` tries: the methods an expert would, the simplest first, each with the settings it is tried with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import is_molecule
from shiftproof.methods.tanimoto_gp import MOST_OF_A_PROCESS
from shiftproof.registry import methods

FEWER_TREES = {"trees": 150}  # whose mean is within .002 of that of 500 and takes a third of the time
FEW_FOR_A_NETWORK = 200  # training rows; on fewer a network has never been worth its time


@dataclass(frozen=True)
class Candidate:
    """A method, the settings it is tried with, and the name people read.

    `vectors` are the blocks of molecules' vectors that it looks at; `stops_early` says that it is trained by gradients
    and wants rows to choose its epoch by. `to_try` are settings that make a trial cheaper and hardly another.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    vectors: tuple[str, ...] = ()
    stops_early: bool = False
    to_try: Mapping[str, Any] = field(default_factory=dict)

    @property
    def as_member(self) -> str:
        """What names it in a blend."""
        own = ",".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.method}:{own}" if own else self.method


def candidates_of_rows(dataset: Dataset) -> list[Candidate]:
    """Candidates for molecules and for the rows of a table, the simplest first.

    The forest comes before all: it has nothing to set, and where nothing is better beyond chance it is the one to have.
    """
    count, environments = len(dataset.train), dataset.train.num_envs
    if isinstance(dataset.train, GraphSet):
        found = _of_molecules(dataset)
    else:
        found = [Candidate("forest", "forest", to_try=FEWER_TREES), *(Candidate(n, n) for n in ("linear", "boosting"))]
    if count >= FEW_FOR_A_NETWORK:
        found.append(Candidate("erm", "erm", stops_early=True))
        if environments >= 2:
            found.append(Candidate("vrex", "vrex", stops_early=True))
    return found


def _of_molecules(dataset: Dataset) -> list[Candidate]:
    counts, both = ("ecfp",), ("ecfp", "descriptors")
    joined = "+".join(both)
    found = [
        Candidate("forest", "forest", {"vectors": "ecfp"}, counts, to_try=FEWER_TREES),
        Candidate("linear", "linear", {"vectors": "ecfp"}, counts),
        Candidate("forest with descriptors", "forest", {"vectors": joined}, both, to_try=FEWER_TREES),
        Candidate("boosting", "boosting", {"vectors": joined}, both),
    ]
    if len(dataset.train) <= MOST_OF_A_PROCESS:
        found.append(Candidate("tanimoto-gp", "tanimoto-gp", {"vectors": "ecfp"}, counts))
    return found


def are_rows(dataset: Dataset) -> bool:
    """Whether these are molecules, or rows of a plain table, for which there are methods on vectors."""
    train = dataset.train
    if isinstance(train, GraphSet):
        return is_molecule(train)
    return train.x.ndim == 2


def accepts(method: str, setting: str) -> bool:
    """Whether a method has a setting of that name."""
    from shiftproof.api.fitting import accepted_settings

    return any(setting in group for group in accepted_settings(methods[method].make).values())
