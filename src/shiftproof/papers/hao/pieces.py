"""The pieces of a table of attacked graphs: trained models and attacks, each a file that is made once.

Pieces of one stage do not need each other, so that workers share them. A killed run goes on with the first piece that
is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.attacks import attack
from shiftproof.robustness.attacks.presets import AttackPreset, attack_preset
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.flag import FLAG
from shiftproof.robustness.targets import select_targets
from shiftproof.robustness.trained_zoo import Zoo, fingerprint, read_zoo, train_zoo
from shiftproof.robustness.training import predict
from shiftproof.robustness.zoo import DefenceSpec, ZooPreset, chosen, preset_for
from shiftproof.runtime.cuda_mps import one_gpu_for_many
from shiftproof.runtime.devices import pick_device
from shiftproof.runtime.progress import progress as show
from shiftproof.runtime.workers import process_pool
from shiftproof.sweeps.jobs import one_thread_each
from shiftproof.sweeps.recipes import Work

SOURCES = {name: f"{name}:features=grb-like" for name in ("cora", "citeseer")}
SMALL = 10_000  # nodes
SMOKE = {"steps": 2, "nodes": 4, "edges": 3, "epochs": 2}
SMOKE_DEFENCES = ("gcn", "gcn+ln", "gcnguard", "rgat", "gcnguard+ln", "mlp")
SMOKE_GRAPH = "cora-like:nodes=150,edges=400,features=16"  # recipes are tried where no files are


class Piece(Protocol):
    """Something that is made once: `done` says whether it lies there."""

    @property
    def done(self) -> bool: ...

    @property
    def label(self) -> str: ...

    def make(self) -> Any: ...


@dataclass(frozen=True)
class Setting:
    """The graph of a table and how it is attacked and defended, in a form that travels between processes."""

    data: str
    folder: Path
    smoke: bool = False
    device: str = "auto"
    targeted: bool = False

    @property
    def printed(self) -> str:
        """The name under which its figures are printed and its budget is kept."""
        return f"{self.data}-targeted" if self.targeted else self.data

    def targets(self, seed: int) -> Tensor:
        """The nodes that an attack of this seed aims at, by the margins of its own surrogate; else the test nodes."""
        graph = self.graph
        if not self.targeted or self.smoke:
            return graph.test
        model = Model(self, "surrogates", "gcn", seed).make()
        return select_targets(graph, predict(model, graph).log_softmax(1), strict=False, seed=seed)

    @property
    def graph(self) -> NodeGraph:
        return _graph(self)

    @property
    def zoo(self) -> ZooPreset:
        preset = preset_for(self.data)
        return replace(preset, epochs=SMOKE["epochs"], flag=FLAG(1, preset.flag.step_size)) if self.smoke else preset

    @property
    def attacks(self) -> AttackPreset:
        preset = attack_preset(replace(self.graph, name=self.printed))
        return replace(preset, nodes=SMOKE["nodes"], edges_per_node=SMOKE["edges"]) if self.smoke else preset

    @property
    def defences(self) -> tuple[DefenceSpec, ...]:
        return chosen(SMOKE_DEFENCES, self.zoo) if self.smoke else self.zoo.specs()


@lru_cache(maxsize=4)
def _graph(setting: Setting) -> NodeGraph:
    """The graph, kept beside the pieces: embedding words takes longer than reading them, and every worker needs it."""
    device, kept = pick_device(setting.device), setting.folder / "graph.npz"
    if kept.is_file():
        return NodeGraph.load(kept).to(device)
    graph = load_nodes(SMOKE_GRAPH if setting.smoke else SOURCES.get(setting.data, setting.data))
    graph.save(kept)
    return graph.to(device)


@dataclass(frozen=True)
class Model:
    """A model of the zoo (`room` "defences") or of the attacker ("surrogates"), trained on the clean graph."""

    setting: Setting
    room: str
    name: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return bool(len(read_zoo(self.setting.graph, self._specs, **self._how)))

    def make(self) -> nn.Module:
        return next(iter(train_zoo(self.setting.graph, self._specs, **self._how, progress="none"))).model

    def read(self) -> Zoo:
        """The model as a zoo of one, or of none where it is not there."""
        return read_zoo(self.setting.graph, self._specs, **self._how)

    @property
    def flag(self) -> bool:
        return self._specs[0].flag

    @property
    def _specs(self) -> tuple[DefenceSpec, ...]:
        return chosen([self.name], self.setting.zoo)

    @property
    def _how(self) -> dict[str, Any]:
        return {"seeds": (self.seed,), "preset": self.setting.zoo, "folder": self.setting.folder / self.room}


@dataclass(frozen=True)
class Strike:
    """An attack with a weight of HAO and a seed, which is also that of the attacker's own GCN.

    Small graphs are attacked on a CPU whatever the device: there a sum is the same every time, and the sign of a
    gradient with it, so that equal seeds give equal attacks.
    """

    setting: Setting
    name: str
    weight: float
    seed: int

    def __post_init__(self) -> None:
        if self.setting.device != "cpu" and self.setting.graph.num_nodes < SMALL:
            object.__setattr__(self, "setting", replace(self.setting, device="cpu"))

    @property
    def label(self) -> str:
        return f"{self.name}, HAO {self.weight:g}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return self.place.is_file()

    @property
    def surrogate(self) -> Model:
        return Model(self.setting, "surrogates", "gcn", self.seed)

    def make(self) -> Perturbation:
        """The attack, read from its file where it was made before."""
        if self.done:
            return Perturbation.load(self.place)
        surrogate, graph, budget = self.surrogate.make(), self.setting.graph, self.setting.attacks.budget
        how = {"budget": budget, "surrogate": surrogate, "hao": self.weight, "seed": self.seed}
        how |= {"targets": self.setting.targets(self.seed), "isolated": True}
        found = attack(self.name, graph, **how, **self._options)
        found.save(self.place)
        return found

    @property
    def _options(self) -> dict[str, Any]:
        options = self.setting.attacks.options_of(self.name)
        if not self.setting.smoke:
            return options
        return {**options, "steps": SMOKE["steps"], **({"edge_steps": 2} if self.name == "agia" else {})}

    @property
    def place(self) -> Path:
        """Its file, whose name holds a digest of everything that makes it."""
        setting = self.setting
        said = {"attack": self.name, "hao": self.weight, "seed": self.seed, "options": self._options}
        said |= {"zoo": asdict(setting.zoo), "budget": asdict(setting.attacks.budget), "data": _digest(setting)}
        said |= {"targeted": True} if setting.targeted else {}
        short = hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=4).hexdigest()
        return setting.folder / "attacks" / f"{self.name}-hao{self.weight:g}-seed{self.seed}-{short}.npz"


@lru_cache(maxsize=4)
def _digest(setting: Setting) -> str:
    return fingerprint(setting.graph)


Crew = Callable[[Sequence[Piece], str], None]


@contextmanager
def crew(work: Work) -> Iterator[Crew]:
    """Something that makes pieces: here one after another, or in `work.workers` processes of one thread each."""
    if work.workers < 1:
        raise ShiftproofError(f"at least one worker is needed, not {work.workers}")
    if work.workers == 1:
        yield lambda pieces, title: _one_by_one(pieces, title, work)
        return
    shared = nullcontext() if work.device == "cpu" else one_gpu_for_many()
    with one_thread_each(), shared, process_pool(work.workers, "spawn") as pool:
        yield lambda pieces, title: _side_by_side(pieces, title, work, pool)


def _one_by_one(pieces: Sequence[Piece], title: str, work: Work) -> None:
    left = [piece for piece in pieces if not piece.done]
    before = len(pieces) - len(left)
    with show(title, len(pieces), work.style, start=before) as shown:
        for number, piece in enumerate(left, start=before):
            shown.advance(number, piece.label)
            piece.make()
        shown.advance(len(pieces))


def _side_by_side(pieces: Sequence[Piece], title: str, work: Work, pool: ProcessPoolExecutor) -> None:
    left = [piece for piece in pieces if not piece.done]
    before = len(pieces) - len(left)
    with show(title, len(pieces), work.style, start=before) as shown:
        waiting = {pool.submit(_made, piece): piece for piece in left}
        for number, future in enumerate(as_completed(waiting), start=before + 1):
            try:
                future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            shown.advance(number, waiting[future].label)


def _made(piece: Piece) -> None:
    piece.make()
