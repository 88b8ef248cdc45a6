"""Runs that differ in nothing but the seed, put together as the rows of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.nn.networks.network import USUAL, network_of_run, take_name
from shiftproof.presets import PRESETS
from shiftproof.registry import datasets, fitting_options, methods, networks, parse_name
from shiftproof.report.records import Record
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.sweeps.published import published
from shiftproof.sweeps.table import summarise

_NO_DEFAULT = object()
_DECIDES_NOTHING = ("track",)  # what is watched during training does not move its result


@dataclass(frozen=True)
class Row:
    """One method on one data set with one choice of settings, over its seeds."""

    data: str
    method: str
    variant: Mapping[str, Any]
    settings: Mapping[str, Any]
    runs: tuple[Record, ...]
    data_seeds: tuple[str, ...]
    published: Mapping[str, float] | None

    @property
    def label(self) -> str:
        extra = ", ".join(f"{key}={shown(value)}" for key, value in self.variant.items())
        return f"{self.method} ({extra})" if extra else self.method

    @property
    def metric(self) -> str:
        return str(self.runs[0].config["metric"])

    @property
    def selection(self) -> str:
        return self.runs[0].selection

    @property
    def is_oracle(self) -> bool:
        return self.runs[0].config.get("selection") == "oracle" or self.selection.startswith("oracle")

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def lower_is_better(self) -> bool:
        return self.metric in LOWER_IS_BETTER

    @property
    def chance(self) -> float | None:
        """What guessing scores, where that is known for the metric and the task."""
        config = self.runs[0].config
        if config["task"] not in ("binary", "multiclass"):
            return 0.5 if self.metric == "roc_auc" else None
        by_metric = {"roc_auc": 0.5, "mcc": 0.0, "loss": None, "macro_f1": None}
        return by_metric.get(self.metric, 1 / max(int(config.get("num_classes") or 2), 2))

    @property
    def reference(self) -> str | None:
        """The split that looks like the training data: val, else train."""
        return next((name for name in ("val", "train") if name in self.runs[0].metrics), None)

    def scores(self, split: str) -> dict[str, Any] | None:
        """Mean and sample deviation of the metric on a split, over the seeds; None where the split is not there."""
        if not any(split in run.metrics for run in self.runs):
            return None
        return summarise([run.value(split) for run in self.runs])  # type: ignore[misc]

    def drop(self) -> dict[str, Any] | None:
        """How much worse the test split is than the reference split, seed by seed; negative where it is better."""
        if self.reference is None or "test" not in self.runs[0].metrics:
            return None
        sign = -1 if self.lower_is_better else 1
        values = []
        for run in self.runs:
            before, after = run.value(self.reference), run.value("test")
            values.append(None if before is None or after is None else sign * (before - after))
        return summarise(values)


def shown(value: Any) -> str:
    """A setting as a reader would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(shown(item) for item in value) + ")" if value else "none"
    return str(value)


def make_rows(records: Sequence[Record]) -> list[Row]:
    """The rows of a page: by data set, then as the runs' folders are ordered, seeds rising within a row."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    everything = {record.folder: all_settings(record.config) for record in records}
    data, data_seeds = _data_labels(records)
    for record in records:
        settings = {k: v for k, v in everything[record.folder].items() if k not in _DECIDES_NOTHING}
        key = (data[record.folder], str(record.config["method"]), json.dumps(settings, sort_keys=True, default=str))
        groups.setdefault(key, []).append(record)
    families: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for (where, method, _), runs in groups.items():
        families.setdefault((where, method), []).append(everything[runs[0].folder])
    rows = []
    for (where, method, _), runs in groups.items():
        runs.sort(key=lambda run: (run.seed, run.folder))
        settings = everything[runs[0].folder]
        variant = {key: settings.get(key) for key in differing(families[where, method])}
        seeds = tuple(dict.fromkeys(data_seeds[run.folder] for run in runs))
        rows.append(Row(where, method, variant, settings, tuple(runs), seeds, _figure(runs[0])))
    order = {where: number for number, where in enumerate(dict.fromkeys(row.data for row in rows))}
    return sorted(rows, key=lambda row: order[row.data])


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that are not the same everywhere."""
    names = dict.fromkeys(name for some in settings for name in some if name not in _DECIDES_NOTHING)
    return [name for name in names if len({json.dumps(some.get(name), default=str) for some in settings}) > 1]


def worth_showing(rows: Sequence[Row]) -> list[str]:
    """The settings that tell rows apart; a method's own option is one of them only where somebody set it."""
    names = []
    for name in differing([row.settings for row in rows]):
        holders = [row for row in rows if name in row.settings]
        defaults = [_defaults(row.method).get(name, _NO_DEFAULT) for row in holders]
        unset = all(row.settings[name] == default for row, default in zip(holders, defaults, strict=True))
        if not unset or len({json.dumps(row.settings[name], default=str) for row in holders}) > 1:
            names.append(name)
    return names


def all_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a run by name, defaults included."""
    found = dict(_defaults(str(config["method"]))) if not config.get("own_method") else {}
    for part in ("options", "training"):
        found |= config.get(part) or {}
    found |= named_network(config)
    found["epoch chosen by"] = config.get("selection")
    found.pop("selection", None)
    found["metric"] = config.get("metric")
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def named_network(config: Mapping[str, Any]) -> dict[str, Any]:
    """The network of a run and its options; of older runs too."""
    kept, kind = config.get("network") or {}, (config.get("shape") or {}).get("kind", "tensors")
    try:
        return network_of_run(kept, kind)
    except ShiftproofError:  # a network of a package that is not there any more
        return dict(kept)


@lru_cache
def _defaults(method: str) -> dict[str, Any]:
    from shiftproof.api.fitting import accepted_settings

    if method not in methods:
        return {}
    accepted = accepted_settings(methods[method].make)
    wanted = {**accepted["method"], **accepted["weighting"]}
    return {name: parameter.default for name, parameter in wanted.items() if name != "weights"}


def _figure(run: Record) -> Mapping[str, float] | None:
    """The printed figure that may stand beside a run."""
    if not _as_published(run.config):
        return None
    data, _ = _without_seed(str(run.config["data"]))
    return _published(data, str(run.config["method"]), str(run.config["metric"]))


def _as_published(config: Mapping[str, Any]) -> bool:
    """Whether a run has the settings of its data set's preset, so that a printed figure may stand beside it."""
    name = parse_name(str(config["data"]))[0]
    method = str(config["method"])
    if name not in PRESETS or method not in methods:
        return False
    from shiftproof.api.fitting import Trainer, accepted_settings

    accepted = accepted_settings(methods[method].make)
    network, preset = named_network(config), PRESETS[name].settings(method)
    kind = (config.get("shape") or {}).get("kind", "tensors")
    usual = take_name(preset) or USUAL[kind]
    options = networks[usual].options if usual in networks else {}
    expected = {
        key: p.default for group in accepted.values() for key, p in group.items() if group is not accepted["network"]
    }
    expected |= {"network": usual, **{key: p.default for key, p in options.items()}, **preset}
    selection = expected.pop("selection", Trainer.selection)
    if selection != "auto" and config.get("selection") != selection:
        return False
    now = {**(config.get("options") or {}), **network, **(config.get("training") or {})}
    same = {key: list(value) if isinstance(value, tuple) else value for key, value in expected.items()}
    return all(now[key] == same.get(key, now[key]) for key in now if key not in _DECIDES_NOTHING)


def _data_labels(records: Sequence[Record]) -> tuple[dict[str, str], dict[str, str]]:
    """For each run the data it stands under, less the seed, and the seed its data were drawn with.

    Data drawn with different seeds belong together where every run draws its own, and are different data otherwise.
    """
    split = {record.folder: _without_seed(str(record.config["data"])) for record in records}
    labels, seeds = {}, {}
    for record in records:
        where, seed = split[record.folder]
        mates = [(split[other.folder][1], other.seed) for other in records if split[other.folder][0] == where]
        follows = all(drawn == str(own) for drawn, own in mates)
        fixed = len({drawn for drawn, _ in mates}) == 1
        groupings = {_grouping(other) for other in records if split[other.folder][0] == where}
        label = where if follows or fixed or not seed else f"{where}, data seed {seed}"
        labels[record.folder] = label if len(groupings) == 1 else f"{label}, {_grouping(record)}"
        seeds[record.folder] = seed
    return labels, seeds


def _grouping(record: Record) -> str:
    column = record.metrics.get("test", {}).get("environment")
    return f"environments by {column}" if column else "environments as they come"


def _without_seed(spec: str) -> tuple[str, str]:
    """`"colored-digits:seed=3,copies=20"` as `"colored-digits:copies=20"` and `"3"`."""
    try:
        name, options = parse_name(spec)
    except ShiftproofError:
        return spec, ""
    if name not in datasets:
        return spec, ""
    seed = options.pop("seed", "")
    return _spec(name, options), seed


def _published(data: str, method: str, metric: str) -> Mapping[str, float] | None:
    """The printed figure for the data as they are named, or without the options that have their default."""
    name, options = parse_name(data) if data.partition(":")[0] in datasets else (data, {})
    if name not in datasets:
        return None
    accepted = datasets[name].options
    chosen = fitting_options(options, accepted, name)
    unusual = {key: text for key, text in options.items() if chosen[key] != accepted[key].default}
    return published(data, method, metric) or published(_spec(name, unusual), method, metric)


def _spec(name: str, options: Mapping[str, str]) -> str:
    listed = ",".join(f"{key}={text}" for key, text in options.items())
    return f"{name}:{listed}" if listed else name
