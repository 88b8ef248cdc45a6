"""Callbacks that hand a run's history on: to TensorBoard, Weights & Biases, MLflow, or Python's own logging.

Each package is loaded when its callback is made, and is none of shiftproof's dependencies. Every epoch's losses and the
measured splits arrive under the names `loss/TERM` and `SPLIT/METRIC`, settings once at the start, the metrics of the
selected epoch at the end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftproof.errors import ShiftproofError, optional
from shiftproof.training.callbacks import Callback, Training

if TYPE_CHECKING:
    from shiftproof.training.run import Run


def scalars(record: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The numbers of one line of a history by flat names: `loss/task`, `val/accuracy`."""
    found: dict[str, Any] = {f"loss/{name}": value for name, value in (record.get("losses") or {}).items()}
    for name, value in record.items():
        if name == "losses" or name == "epoch" or isinstance(value, bool):
            continue
        if isinstance(value, Mapping):
            found |= {f"{name}/{key}": number for key, number in value.items()}
        else:
            found[f"{name}/{metric}" if name in ("train", "val", "test") else name] = value
    return {name: float(value) for name, value in found.items() if _is_number(value)}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run by flat names, lists as texts: what trackers take as parameters."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": inner for key, inner in settings(value).items()}
        elif isinstance(value, str | int | float | bool) or value is None:
            flat[name] = value
        else:
            flat[name] = str(value)
    return flat


class Tracker(Callback):
    """What all of them share: write `write(name, value, step)` numbers, and say what starts and ends a run."""

    def begin(self, training: Training) -> None:
        """Before the first number."""

    def write(self, numbers: Mapping[str, float], epoch: int, training: Training) -> None:
        """The numbers of an epoch."""
        raise NotImplementedError

    def conclude(self, numbers: Mapping[str, float], training: Training) -> None:
        """The metrics of the selected epoch; none where the run was broken off."""

    def on_start(self, training: Training) -> None:
        self.begin(training)

    def on_epoch(self, training: Training) -> None:
        self.write(scalars(training.record, training.metric), training.epoch, training)

    def on_end(self, training: Training, run: Run | None) -> None:
        kept: dict[str, Any] = {}
        if run is not None:
            kept = {f"selected/{name}/{training.metric}": v.get(training.metric) for name, v in run.metrics.items()}
        self.conclude({name: float(value) for name, value in kept.items() if _is_number(value)}, training)


class TensorBoard(Tracker):
    """Event files for TensorBoard below `folder`, one sub-folder a run: `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | Path) -> None:
        optional("tensorboard", "tracking", "writing for TensorBoard")
        self.folder = Path(folder)
        self.writers: dict[int, Any] = {}

    def begin(self, training: Training) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = self.folder / "".join(c if c.isalnum() or c in "-_.=" else "_" for c in training.title)[:100]
        writer = self.writers[id(training)] = SummaryWriter(str(place))
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings(training.config).items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def write(self, numbers: Mapping[str, float], epoch: int, training: Training) -> None:
        for name, value in numbers.items():
            self.writers[id(training)].add_scalar(name, value, epoch)

    def conclude(self, numbers: Mapping[str, float], training: Training) -> None:
        self.write(numbers, training.epoch, training)
        self.writers.pop(id(training)).close()


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases in `project` for each run trained; `options` go to `wandb.init`."""

    def __init__(self, project: str, **options: Any) -> None:
        self.wandb: Any = optional("wandb", "tracking", "writing for Weights & Biases")
        self.project, self.options = project, options
        self.runs: dict[int, Any] = {}

    def begin(self, training: Training) -> None:
        given = {"name": training.title, "config": settings(training.config), "reinit": "create_new", **self.options}
        self.runs[id(training)] = self.wandb.init(project=self.project, **given)

    def write(self, numbers: Mapping[str, float], epoch: int, training: Training) -> None:
        self.runs[id(training)].log(dict(numbers), step=epoch)

    def conclude(self, numbers: Mapping[str, float], training: Training) -> None:
        run = self.runs.pop(id(training))
        run.summary.update(dict(numbers))
        run.finish()


class MLflow(Tracker):
    """A run of MLflow for each run trained, in `experiment`, on the server at `uri` or in its own local folder."""

    def __init__(self, experiment: str, uri: str | None = None) -> None:
        mlflow: Any = optional("mlflow", "tracking", "writing for MLflow")
        self.client = mlflow.MlflowClient(tracking_uri=uri)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found is not None else self.client.create_experiment(experiment)
        self.runs: dict[int, str] = {}

    def begin(self, training: Training) -> None:
        run = self.client.create_run(self.experiment, run_name=training.title).info.run_id
        self.runs[id(training)] = run
        for name, value in settings(training.config).items():
            self.client.log_param(run, name, str(value)[:500])  # MLflow takes no longer values

    def write(self, numbers: Mapping[str, float], epoch: int, training: Training) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.runs[id(training)], name, value, step=epoch)

    def conclude(self, numbers: Mapping[str, float], training: Training) -> None:
        self.write(numbers, training.epoch, training)
        self.client.set_terminated(self.runs.pop(id(training)), "FINISHED" if numbers else "FAILED")


class Log(Tracker):
    """A line an epoch to Python's own `logging`, by default to the logger "shiftproof" at the level INFO."""

    def __init__(self, logger: str | logging.Logger = "shiftproof", *, level: int = logging.INFO) -> None:
        if not isinstance(logger, str | logging.Logger):
            raise ShiftproofError("a logger is a name or a logging.Logger")
        self.logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self.level = level

    def begin(self, training: Training) -> None:
        self.logger.log(self.level, "%s: begins", training.title)

    def write(self, numbers: Mapping[str, float], epoch: int, training: Training) -> None:
        said = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.logger.log(self.level, "%s: epoch %d of %d: %s", training.title, epoch, training.epochs, said)

    def conclude(self, numbers: Mapping[str, float], training: Training) -> None:
        said = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()) or "broken off"
        self.logger.log(self.level, "%s: ends: %s", training.title, said)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
