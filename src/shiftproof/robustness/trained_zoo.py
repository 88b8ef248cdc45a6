"""Train a zoo of defences once and keep them: every model in a folder, reused while nothing that made it changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from shiftproof.data.nodes import NodeGraph
from shiftproof.robustness.training import build_defence, fingerprint, train_defence
from shiftproof.robustness.zoo import DefenceSpec, ZooPreset, preset_for
from shiftproof.runtime.files import read_json, read_tensors, write_json, write_tensors
from shiftproof.runtime.progress import Style
from shiftproof.runtime.progress import progress as show
from shiftproof.training.weights import restore

FORMAT = "shiftproof-defence-1"


@dataclass(frozen=True, eq=False)
class Member:
    """One trained model of a zoo."""

    spec: DefenceSpec
    seed: int
    model: nn.Module
    accuracies: dict[str, float]
    seconds: float = field(compare=False)


@dataclass(frozen=True, eq=False)
class Zoo:
    """Trained defences, one for each spec and seed."""

    members: tuple[Member, ...]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, name: str) -> list[Member]:
        """The members of one name, by seed."""
        return [member for member in self.members if member.spec.name == name]


def train_zoo(
    graph: NodeGraph,
    specs: Sequence[DefenceSpec] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    preset: ZooPreset | None = None,
    folder: str | Path | None = None,
    progress: Style = "auto",
) -> Zoo:
    """Train every spec with every seed on the clean graph, by the inductive protocol.

    `preset` is the one of the graph's name and `specs` its whole zoo unless given. With `folder`, each model is written
    there when it is done and read from there when one with the same settings, data and seed is found: a run that was
    stopped goes on where it was.
    """
    preset = preset or preset_for(graph.name)
    specs = preset.specs() if specs is None else tuple(specs)
    data = fingerprint(graph)
    work = [(spec, int(seed)) for seed in seeds for spec in specs]
    members = []
    with show("defences", len(work), progress) as shown:
        for done, (spec, seed) in enumerate(work):
            shown.advance(done, f"{spec.name}, seed {seed}")
            members.append(_member(graph, spec, seed, preset, data, folder))
            shown.advance(done + 1)
    return Zoo(tuple(members))


def read_zoo(
    graph: NodeGraph,
    specs: Sequence[DefenceSpec] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    preset: ZooPreset | None = None,
    folder: str | Path,
) -> Zoo:
    """Those models that `train_zoo` with the same arguments has finished; nothing is trained."""
    preset = preset or preset_for(graph.name)
    specs = preset.specs() if specs is None else tuple(specs)
    data = fingerprint(graph)
    work = [(spec, int(seed)) for seed in seeds for spec in specs]
    found = [
        _read(graph, spec, seed, _place(folder, spec, seed, _config(spec, seed, preset, data))) for spec, seed in work
    ]
    return Zoo(tuple(member for member in found if member is not None))


def _member(
    graph: NodeGraph, spec: DefenceSpec, seed: int, preset: ZooPreset, data: str, folder: str | Path | None
) -> Member:
    config = _config(spec, seed, preset, data)
    place = None if folder is None else _place(folder, spec, seed, config)
    found = None if place is None else _read(graph, spec, seed, place)
    if found is not None:
        return found
    model = build_defence(spec.backbone, graph, seed=seed, **spec.constructor)
    flag = preset.flag if spec.flag else None
    early = {} if preset.patience is None else {"patience": preset.patience, "evaluate_from": 0.0}
    trained = train_defence(model, graph, epochs=preset.epochs, lr=preset.lr, flag=flag, seed=seed, **early)
    accuracies = {part: value for part, value in trained.accuracies.items() if value == value}
    if place is not None:
        write_tensors(place.with_suffix(".safetensors"), model.state_dict(), {"config": config})
        # written last: a model without it does not exist yet
        write_json(
            place.with_suffix(".json"),
            {"format": FORMAT, "config": config, "accuracies": accuracies, "seconds": round(trained.seconds, 3)},
        )
    return Member(spec, seed, trained.model, accuracies, trained.seconds)


def _place(folder: str | Path, spec: DefenceSpec, seed: int, config: dict[str, Any]) -> Path:
    """The path of a model without the ending of its two files."""
    return Path(folder) / f"{spec.name}-seed{seed}-{_short(config)}"


def _read(graph: NodeGraph, spec: DefenceSpec, seed: int, place: Path) -> Member | None:
    if not place.with_suffix(".json").is_file():
        return None
    note = read_json(place.with_suffix(".json"), "the zoo")
    tensors, _ = read_tensors(place.with_suffix(".safetensors"), "the zoo")
    model = build_defence(spec.backbone, graph, seed=seed, **spec.constructor)
    restore(model, tensors, str(place.with_suffix(".safetensors")))
    return Member(spec, seed, model.eval(), note["accuracies"], note["seconds"])


def _config(spec: DefenceSpec, seed: int, preset: ZooPreset, data: str) -> dict[str, Any]:
    training = {"epochs": preset.epochs, "patience": preset.patience, "lr": preset.lr}
    training["flag"] = asdict(preset.flag) if spec.flag else None
    return {"defence": spec.name, "options": spec.constructor, "seed": seed, "data": data, "training": training}


def _short(config: dict[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
