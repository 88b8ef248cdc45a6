"""Stages that several runs have in common are trained once: a run takes over what a finished one beside it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftproof.api.fitting import Plan
from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError
from shiftproof.registry import methods
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, read_tensors
from shiftproof.training.loop import Loop
from shiftproof.training.run_files import CHECKPOINT, CONFIG, HISTORY, METRICS, TIMING, WEIGHTS, write_run
from shiftproof.training.trainer import Trainer

if TYPE_CHECKING:
    from shiftproof.sweeps.jobs import Job


@dataclass(frozen=True)
class Stage:
    """What a method trains first: the folder it lies in, and the method whose run is the very same training.

    `also` are options of the longer method that decide the stage, beside all those that the shorter one has.
    """

    folder: str
    method: str
    also: tuple[str, ...] = ()


_EXPLAINED = Stage("model", "erm")
STAGES: dict[str, Stage] = {
    "gsat-min0": Stage("extractor", "gsat", also=("extractor",)),
    "gmt-sam": Stage("extractor", "gmt-simulated", also=("extractor",)),
    "gnnexplainer": _EXPLAINED,
    "pgexplainer": _EXPLAINED,
    "graphmask": _EXPLAINED,
}
_OF_METHOD = ("method", "own_method", "own_network", "options", "network", "reading")  # not in the config of a stage


def take_stage(job: Job, dataset: Dataset) -> Path | None:
    """Put the same stage of a finished run in the place of one that has not begun; whose it was, None for nobody's.

    Looked at are the runs of the same seed that lie beside the job's: ROOT/data/METHOD/seed. A stage is the same if
    its settings, network, data, seed, device and way of compiling are. It is copied, so that the run stands alone;
    its metrics come last, as without them a folder is not finished.
    """
    stage = STAGES.get(job.method)
    if stage is None or job.finished or any((job.out / stage.folder / name).exists() for name in (METRICS, CHECKPOINT)):
        return None
    wanted = None
    for run in sorted(job.out.parents[1].glob(f"*/{job.out.name}")):
        found = _finished_stage(run, stage)
        if found is None:
            continue
        wanted = wanted or _identity(_config_of(job, dataset), stage)
        if _identity(found.config, stage) == wanted and _trained_alike(found.timing, job):
            found.write(job.out / stage.folder)
            return found.folder
    return None


def suppliers_first(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, those of each seed together: who can take a stage over comes after all of the seed who cannot."""
    ordered: list[Job] = []
    for _, group in groupby(jobs, key=lambda job: job.seed):
        of_seed = list(group)
        supplied = {_training_of(job) for job in of_seed if job.method not in STAGES}
        later = []
        for job in of_seed:
            if job.share_stages and job.method in STAGES and _training_of(job) in supplied:
                later.append(job)
                continue
            supplied.add(_training_of(job))
            ordered.append(job)
        ordered += later
    return ordered


def _training_of(job: Job) -> tuple[str, str, Any]:
    """What the first stage of a job trains, as far as an order needs it."""
    stage = STAGES.get(job.method)
    return job.data, job.method if stage is None else stage.method, job.settings.get("protocol")


@dataclass(frozen=True)
class _Finished:
    """A finished stage: its folder, the config of the run it belongs to (or is), and what it left behind."""

    folder: Path
    config: Mapping[str, Any]
    own_config: Mapping[str, Any]
    weights: Mapping[str, Any]
    rest: Mapping[str, Any]

    @property
    def timing(self) -> Mapping[str, Any]:
        return self.rest[TIMING]

    def write(self, place: Path) -> None:
        config = {key: value for key, value in self.own_config.items() if key not in _OF_METHOD}
        config |= {"method": place.name, "own_method": True}
        history, timing, summary = (self.rest[name] for name in (HISTORY, TIMING, METRICS))
        write_run(place, config=config, weights=self.weights, history=history, timing=timing, summary=summary)


def _finished_stage(run: Path, stage: Stage) -> _Finished | None:
    """The stage of a run that has it first or is nothing else; None where it is not there or not whole."""
    try:
        config = read_json(run / CONFIG, "sharing a stage")
        folder = run if config["method"] == stage.method else run / stage.folder
        if (folder != run and STAGES.get(config["method"]) != stage) or not (folder / METRICS).exists():
            return None
        own = read_json(folder / CONFIG, "sharing a stage")
        weights, _ = read_tensors(folder / WEIGHTS, "sharing a stage")
        rest = {name: read_json(folder / name, "sharing a stage") for name in (HISTORY, TIMING, METRICS)}
    except (ShiftproofError, KeyError, TypeError):  # not a run, or being written at this moment
        return None
    return _Finished(folder, config, own, weights, rest)


def _identity(config: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    """All that decides how a stage ends, from the config of a run that has it."""
    of_stage = {*methods[stage.method].options, *stage.also}
    options, training = dict(config["options"]), dict(config["training"])
    training["epochs"] = options.get("reference_epochs") or training["epochs"]
    return {
        "options": {key: value for key, value in options.items() if key in of_stage},
        "training": training,
        **{key: config[key] for key in ("network", "data", "data_digest", "seed", "selection", "metric")},
    }


def _config_of(job: Job, dataset: Dataset) -> dict[str, Any]:
    """The config that the run of a job will have."""
    plan = Plan.make(job.method, dataset, {key: value for key, value in job.settings.items() if key != "group"})
    built = plan.build(None)
    trainer = Trainer(**plan.training, balance=plan.balance(), seed=job.seed, out=job.out, device="cpu")
    return Loop(trainer, built, dataset, plan.config(None)).config


def _trained_alike(timing: Mapping[str, Any], job: Job) -> bool:
    """Whether a stage was computed the way the job would: another device, or a compiled step, rounds differently."""
    return timing.get("device") == device_name(pick_device(job.device)) and timing.get("compiled") == job.compile
