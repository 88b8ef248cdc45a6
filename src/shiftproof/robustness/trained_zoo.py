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
from shiftproof.robustness.training import build_defence, train_defence
from shiftproof.robustness.zoo import DefenceSpec, ZooPreset, preset_for
from shiftproof.training.checkpoint import read_json, read_tensors, restore, write_json, write_tensors
from shiftproof.training.progress import Style
from shiftproof.training.progress import progress as show

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


def fingerprint(graph: NodeGraph) -> str:
    """A short digest of everything training sees, so that a model is never taken for one of other data."""
    total = hashlib.blake2b(digest_size=8)
    for part in (graph.x, graph.edge_index, graph.y, graph.train, graph.val):
        total.update(part.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def _member(
    graph: NodeGraph, spec: DefenceSpec, seed: int, preset: ZooPreset, data: str, folder: str | Path | None
) -> Member:
    config = _config(spec, seed, preset, data)
    model = build_defence(spec.backbone, graph, seed=seed, **spec.constructor)
    place = None if folder is None else Path(folder) / f"{spec.name}-seed{seed}-{_short(config)}"
    if place is not None and place.with_suffix(".json").is_file():
        note = read_json(place.with_suffix(".json"), "the zoo")
        tensors, _ = read_tensors(place.with_suffix(".safetensors"), "the zoo")
        restore(model, tensors, str(place.with_suffix(".safetensors")))
        return Member(spec, seed, model.eval(), note["accuracies"], note["seconds"])
    flag = preset.flag if spec.flag else None
    trained = train_defence(model, graph, epochs=preset.epochs, lr=preset.lr, flag=flag, seed=seed)
    accuracies = {part: value for part, value in trained.accuracies.items() if value == value}
    if place is not None:
        write_tensors(place.with_suffix(".safetensors"), model.state_dict(), {"config": config})
        # written last: a model without it does not exist yet
        write_json(
            place.with_suffix(".json"),
            {"format": FORMAT, "config": config, "accuracies": accuracies, "seconds": round(trained.seconds, 3)},
        )
    return Member(spec, seed, trained.model, accuracies, trained.seconds)


def _config(spec: DefenceSpec, seed: int, preset: ZooPreset, data: str) -> dict[str, Any]:
    training = {"epochs": preset.epochs, "lr": preset.lr, "flag": asdict(preset.flag) if spec.flag else None}
    return {"defence": spec.name, "options": spec.constructor, "seed": seed, "data": data, "training": training}


def _short(config: dict[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
