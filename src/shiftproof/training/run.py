"""What training leaves behind: settings, history, metrics and weights, in memory and as a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.graphs import GraphSet
from shiftproof.data.predictions import Predictions
from shiftproof.data.readers.molecule_vectors import add_vectors
from shiftproof.errors import ShiftproofError, kind_of
from shiftproof.methods.base import DataShape, Method, Network
from shiftproof.nn.networks.network import network_of_run
from shiftproof.registry import carried, methods
from shiftproof.runtime.files import read_json, read_tensors
from shiftproof.training.evaluation import predict
from shiftproof.training.exporting import export
from shiftproof.training.predicting import SaysMore, given_to, predictions_of
from shiftproof.training.run_files import (
    CALIBRATION,
    CHECKPOINT,
    CONFIG,
    HISTORY,
    METRICS,
    STACK,
    TIMING,
    WEIGHTS,
    require_finite_weights,
    require_own_files,
    write_run,
)
from shiftproof.training.weights import restore

__all__ = ["CHECKPOINT", "CONFIG", "HISTORY", "METRICS", "STACK", "TIMING", "WEIGHTS", "Run", "build_method"]


@dataclass(eq=False)
class Run:
    """A trained method with all that is known about its training.

    `metrics[split][measure]` are those of the selected epoch (`selected_epoch`, chosen as `selection` says); `history`
    has one record an epoch; `doubts` says why the metrics are no result, where they are none. `says_more` is what a
    calibrated run adds to its predictions. `save` writes a folder of JSON and safetensors, `Run.load` reads it back.
    `dataset` is what it was trained on, where that was in memory; it is not saved.
    """

    method: Method
    config: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    selected_epoch: int
    selection: str
    timing: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    says_more: SaysMore | None = None
    doubts: list[str] = field(default_factory=list)
    dataset: Dataset | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        metric = self.config.get("metric", "accuracy")
        scores = ", ".join(f"{s} {v[metric]:.4f}" for s, v in self.metrics.items() if v.get(metric) is not None)
        return f"Run({self.name} on {self.config.get('data')}, seed {self.config.get('seed')}: {metric} {scores})"

    @property
    def name(self) -> str:
        return str(self.config.get("method"))

    def predict(self, data: Any, *, split: str | None = None, smiles: str | None = None) -> Predictions:
        """One row for each row given, in that order, with probabilities or values and the reason where a row is bad.

        `data` is anything that `load` takes. Of a data set with splits, `split` is predicted, "test" where it is not
        said; tables, frames, lists and arrays are predicted whole, read as the run's own data were (no label needed).
        `smiles` names the column of SMILES where it is another than in training.
        """
        return predictions_of(self, given_to(self, data, split=split, smiles=smiles))

    def logits(self, split: Split) -> Tensor:
        """The raw outputs for every sample of a split; molecules get the vectors that the run wants."""
        split = self.with_vectors(split)
        return predict(self.method, split.to(next(self.method.parameters()).device)).logits

    def with_vectors(self, split: Split) -> Split:
        """The split with the vectors of whole molecules that the run was trained with, where it lacks them."""
        described = self.config.get("vectors")
        if not described or not isinstance(split, GraphSet) or set(described["blocks"]) <= set(split.vectors):
            return split
        return add_vectors(split, described)

    def export(self, path: str | Path, *, example: GraphSet | None = None) -> Path:
        """Write the model as `.onnx` or `.pt2` (torch's exported program), checked against the run itself.

        A run on graphs is exported for the shape of `example`; see `shiftproof.training.exporting`.
        """
        return export(self, path, example=example)

    def save(self, folder: str | Path) -> Path:
        """Write the run as a folder; `metrics.json` comes last, so that a folder with it is whole.

        It holds the digests of the other files: `load` refuses weights of another run.
        """
        folder = Path(folder)
        write_run(
            folder,
            config=self.config,
            weights=self.method.state_dict(),
            history=self.history,
            timing=self.timing,
            summary=self.summary(),
        )
        if self.says_more is not None:
            self.says_more.save(folder)
        self.folder = folder
        return folder

    def summary(self) -> dict[str, Any]:
        """What `metrics.json` holds: nothing in it depends on the clock."""
        return {
            "metrics": self.metrics,
            "selected_epoch": self.selected_epoch,
            "selection": self.selection,
            "epochs": len(self.history),
            **({"doubts": self.doubts} if self.doubts else {}),
        }

    @classmethod
    def load(cls, folder: str | Path, method: Method | None = None, *, network: nn.Module | None = None) -> Run:
        """Read a run back. A method that is not registered must be handed in, freshly built.

        So must a network of one's own: `Run.load(folder, network=Net())`.
        """
        if not isinstance(folder, str | Path) or not str(folder).strip():
            raise ShiftproofError(f"a run is loaded from its folder, not from {kind_of(folder)}")
        folder = Path(folder)
        if not folder.is_dir():
            raise ShiftproofError(f"{folder} is not a folder; a run is a folder with {CONFIG} and {WEIGHTS}")
        config = read_json(folder / CONFIG, "loading a run")
        if not isinstance(config, dict) or "shape" not in config or "method" not in config:
            raise ShiftproofError(f"{folder / CONFIG} does not describe a run of shiftproof")
        summary = read_json(folder / METRICS, "loading a run (an unfinished one is finished with --resume)")
        tensors, _ = read_tensors(folder / WEIGHTS, "loading a run")
        history = read_json(folder / HISTORY, "loading a run")
        timing = read_json(folder / TIMING, "loading a run")
        try:
            metrics, epoch, selection = (summary[key] for key in ("metrics", "selected_epoch", "selection"))
        except (KeyError, TypeError):
            raise ShiftproofError(f"{folder / METRICS} does not hold the metrics of a run") from None
        require_own_files(folder, config, history, summary)  # before anything is built of what was changed
        require_finite_weights(tensors, folder / WEIGHTS)
        method = method if method is not None else build_method(config, network)
        restore(method, tensors, str(folder / WEIGHTS))
        method.eval()
        more = carried["calibration"].make(folder) if (folder / CALIBRATION).exists() else None
        return cls(
            method, config, metrics, history, epoch, selection, timing, folder, more, list(summary.get("doubts", []))
        )


def build_method(config: Mapping[str, Any], own_network: nn.Module | None = None) -> Method:
    """The untrained method a config describes, on a network of one's own where it had one."""
    if config.get("own_method"):
        raise ShiftproofError(f"method '{config['method']}' is not registered; hand it to Run.load(folder, method=...)")
    if not isinstance(config["method"], str):
        raise ShiftproofError(f"{CONFIG} does not describe a run: its method is {config['method']!r}, not a name")
    entry = methods[config["method"]]
    network = config.get("network")
    options = dict(config.get("options", {}))
    if own_network is not None and not config.get("own_network"):
        raise ShiftproofError("this run has no network of your own; leave 'network' out")
    if network is None and config.get("own_network") and own_network is None:
        raise ShiftproofError(
            "this run used a network of your own; hand one to Run.load(folder, network=...), built as it was"
        )
    try:
        shape = DataShape.from_json(config["shape"])
        if own_network is not None:
            options["network"] = own_network
        elif network:  # {} where the method takes none
            options["network"] = Network(**network_of_run(network, shape.kind))
        return entry.make(shape, **options)
    except (KeyError, TypeError, AttributeError) as error:
        raise ShiftproofError(f"{CONFIG} does not describe a run of this release ({error})") from None
