"""Fit and predict, each in one call: names, presets and settings put together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from shiftproof.api.bringing import brought, require_method, seeds_of
from shiftproof.data.dataset import Dataset
from shiftproof.data.predictions import Predictions
from shiftproof.errors import ShiftproofError, TrainingDiverged, kind_of, unknown
from shiftproof.methods.base import DataShape, Method, Network, input_of
from shiftproof.nn.networks.network import SAID, USUAL, does_not_belong, options_of_all, require_kind, take_name
from shiftproof.presets import preset_for
from shiftproof.ranges import Count, Seed, checked, fitting
from shiftproof.registry import Entry, fitting_options, methods, networks, options_of, require_choices
from shiftproof.runtime.progress import Style
from shiftproof.training.balance import BALANCES, Balance, balance_named, described
from shiftproof.training.callbacks import Callback, Training
from shiftproof.training.loop import Loop
from shiftproof.training.run import Run
from shiftproof.training.seed_stack import fit_together
from shiftproof.training.several_devices import join_devices
from shiftproof.training.steps import Compile
from shiftproof.training.trainer import Trainer

_OF_RUN = ("out", "resume", "device", "devices", "compile", "deterministic", "progress", "callbacks")
_GIVEN_TO_FIT = ("seed", "balance", "network", *_OF_RUN)
_NOT_SETTINGS = {"balance", "seed", "network", *_OF_RUN}


@checked
def fit(
    method: str | type[Method] | Method,
    data: Any,
    *,
    seed: Seed = 0,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    devices: Count | Literal["all"] = 1,
    compile: Compile = False,
    deterministic: bool = False,
    balance: Balance | str | None = None,
    network: Network | str | nn.Module | None = None,
    progress: Style = "none",
    callbacks: Sequence[Callback | Callable[[Training], Any]] = (),
    refit: bool = False,
    **settings: Any,
) -> Run:
    """Train a method on a data set and return its `Run`.

    `method` is a registered name, a `Method` class, a built `Method`, or "auto", which tries several within `minutes=5`
    (see `shiftproof.api.choosing`; why it took the one it did stands in `run.timing["chosen"]`); `data` is whatever
    `load` takes, with its options too (`label="active"`, `y=labels`, `task="regression"`). `settings` are options of
    the method (`penalty=100`), of the network (`hidden=64`) and of training (`epochs=50`, `lr=1e-2`); the data set's
    preset fills in the rest and an unknown name is an error. `protocol` ("ciga", "gala", ...) takes the preset of that
    paper where several train on the same data. `network` is the name of one ("gat"; `shiftproof list networks` shows
    them), a `Network`, or a module of your own: a PyG module called with `(x, edge_index, edge_attr, batch)`, a module
    of the whole batch, or a torch module of `x`.
    `devices` GPUs (or processes on a CPU) train the one model together, started here or by `torchrun`.
    `balance` says how the loss terms become one gradient: "weighted" (the default) or "pair", whose options are
    settings too, or a `Balance` of your own. `callbacks` are told when the run starts, after each epoch and when it
    ends, and may stop it: objects of `shiftproof.Callback`, or functions that are called after each epoch.
    With `refit` the method (the one that "auto" chose) is trained once more on all rows, those of val and test too, for
    use: the metrics stay those of the run that had not seen them, which lies in `out/judged`.
    """
    dataset, settings = brought(method, data, network, settings)
    if refit:
        run = _fit_twice(
            method,
            dataset,
            None if out is None else Path(out),
            seed=seed,
            resume=resume,
            device=device,
            devices=devices,
            compile=compile,
            deterministic=deterministic,
            balance=balance,
            network=network,
            progress=progress,
            callbacks=callbacks,
            **settings,
        )
        return _with_data(run, data, dataset)
    if isinstance(method, str) and method == "auto":
        from shiftproof.api.choosing import fit_auto

        if isinstance(network, str):
            settings, network = {**settings, "network": network}, None
        if network is not None or balance is not None:
            raise ShiftproofError("'auto' chooses among the library's methods; name one to bring a network or balance")
        more = {"compile": compile, "deterministic": deterministic, "progress": progress, "callbacks": callbacks}
        run = fit_auto(dataset, seed=seed, device=device, out=out, resume=resume, **more, **settings)
        return _with_data(run, data, dataset)
    more = {"out": out, "resume": resume, "device": device, "compile": compile, "deterministic": deterministic}
    more |= {"progress": progress, "callbacks": callbacks, "devices": devices}
    loop = loop_for(method, dataset, seed=seed, balance=balance, network=network, **more, **settings)
    return _with_data(loop.whole(), data, dataset)


def _with_data(run: Run, given: Any, dataset: Dataset) -> Run:
    """The run with the data it was trained on, where these were in memory and cannot be read again by their name."""
    if not isinstance(given, str | Path):
        run.dataset = dataset
    return run


def _fit_twice(method: Any, dataset: Dataset, out: Path | None, **settings: Any) -> Run:
    """The method judged on rows held out, then trained on all of them."""
    from shiftproof.api.refitting import JUDGED, refitted

    if isinstance(method, Method) or isinstance(settings.get("network"), nn.Module):
        raise ShiftproofError("a method or network that is built already cannot be trained twice; name it for refit")
    judged = fit(method, dataset, out=None if out is None else out / JUDGED, **settings)
    chosen = judged.timing.get("chosen") if method == "auto" else None
    if chosen is not None:
        from shiftproof.api.candidates import accepts

        method = chosen["method"]
        own = {key: value for key, value in settings.items() if key in _GIVEN_TO_FIT or accepts(method, key)}
        settings = {**own, **chosen["settings"]}
    return refitted(judged, dataset, lambda rows, more: fit(method, rows, out=out, **more), settings, out)


def fit_seeds(
    method: str | type[Method],
    data: Any,
    *,
    seeds: int | Sequence[int],
    out: str | Path | None = None,
    **settings: Any,
) -> list[Run]:
    """Train a method once for each seed, all of them in the same steps, and return their runs.

    On a GPU (give `compile=True`) small networks are trained several times faster than one after another; the random
    numbers of a run are others than `fit` would draw, so the results are those of other draws. `settings` are those of
    `fit`; run `s` lies in `out/seed-s`. A method that cannot be trained so (see `CannotStack`) is an error;
    `fit` trains it.
    """
    seeds = seeds_of(seeds)
    require_method(method)
    if isinstance(method, Method) or isinstance(settings.get("network"), nn.Module):
        raise ShiftproofError("a method or network that is built already would be the same for all seeds; name it")
    if method == "auto":
        raise ShiftproofError("'auto' chooses for a single run; name a method to train several seeds of")
    dataset, settings = brought(method, data, settings.get("network"), settings)
    places = {seed: None if out is None else Path(out) / f"seed-{seed}" for seed in seeds}
    loops = [loop_for(method, dataset, seed=seed, out=places[seed], **settings) for seed in seeds]
    runs = fit_together(loops)
    for run in runs:
        if isinstance(run, TrainingDiverged):
            raise run
    return runs  # type: ignore[return-value] - none of them diverged


def loop_for(
    method: str | type[Method] | Method,
    dataset: Dataset,
    *,
    seed: int,
    balance: Balance | str | None = None,
    network: Network | str | nn.Module | None = None,
    **settings: Any,
) -> Loop:
    """The run that `fit` would train with all these, before its first step."""
    seed = fitting(seed, Seed, "'seed'")
    if dataset.kind == "nodes" and settings.get("compile"):
        raise ShiftproofError("steps on nodes of a graph are not compiled; leave 'compile' out")
    if balance is not None and not isinstance(balance, str | Balance):
        raise ShiftproofError(f"'balance' is a name (weighted, pair) or a Balance, not {kind_of(balance)}")
    of_run = {key: settings.pop(key) for key in _OF_RUN if key in settings}
    if of_run.get("out") is not None:
        of_run["out"] = Path(of_run["out"])
    if of_run.get("devices", 1) != 1:
        join_devices(of_run["devices"], of_run.get("device", "auto"))
    own_balance = None if isinstance(balance, str) else balance
    named = {"balance": balance} if isinstance(balance, str) else {}
    if isinstance(method, Method) and network is not None:
        raise ShiftproofError("a method that is built already has its network; leave 'network' out")
    if isinstance(network, str):
        named, network = {**named, "network": network}, None
    plan = Plan.make(method, dataset, {**settings, **named}, own_network=network is not None)
    torch.manual_seed(seed)
    built = method if isinstance(method, Method) else plan.build(network)
    trainer = Trainer(
        **plan.training,
        balance=own_balance if own_balance is not None else plan.balance(),
        seed=seed,
        **of_run,
    )
    return Loop(trainer, built, dataset, plan.config(own_balance))


def predict(run: Run | str | Path, data: Any, *, split: str | None = None, smiles: str | None = None) -> Predictions:
    """What a run (or its folder) says of new data: one row for each row given, in that order; see `Run.predict`."""
    run = run if isinstance(run, Run) else Run.load(run)
    return run.predict(data, split=split, smiles=smiles)


class Plan:
    """The settings of one run, sorted by whom they concern."""

    def __init__(self, name: str, dataset: Dataset, registered: bool) -> None:
        self.name, self.dataset, self.registered = name, dataset, registered
        self.options: dict[str, Any] = {}
        self.network: dict[str, Any] | None = None
        self.training: dict[str, Any] = {}
        self.weighting: dict[str, Any] = {}
        self.balance_name = "weighted"
        self.make_method: Any = None

    @classmethod
    def make(
        cls,
        method: str | type[Method] | Method,
        dataset: Dataset,
        settings: Mapping[str, Any],
        *,
        own_network: bool = False,
    ) -> Plan:
        """Sort the preset's settings and the user's; a name nobody knows is an error with the nearest one suggested."""
        settings = dict(settings)
        protocol = settings.pop("protocol", None)
        built = isinstance(method, Method)
        if isinstance(method, str):
            entry, registered = methods[method], True
        else:
            maker = type(method) if isinstance(method, Method) else method
            entry = next((entry for entry in methods if entry.make is maker), None)
            registered = entry is not None
            entry = entry or Entry(maker.__name__, maker)
        name, maker = entry.name, entry.make
        if entry.tags and dataset.kind not in entry.tags:
            works = [SAID[tag] for tag in entry.tags if tag in SAID]
            raise ShiftproofError(
                f"method '{name}' works on {' and '.join(works)}, and '{dataset.name}' holds {SAID[dataset.kind]}"
            )
        plan = cls(name, dataset, registered and not built)
        plan.make_method = maker
        plan.balance_name = str(settings.pop("balance", plan.balance_name))
        preset = preset_for(dataset, protocol).settings(name, plan.balance_name)
        groups = accepted_settings(maker, plan.balance_name)
        if built:
            groups["method"] = {}
        if built or own_network:
            groups["network"] = {}
        known = {key: parameter for group in groups.values() for key, parameter in group.items()}
        for key in settings:
            if key not in known:
                raise unknown("setting", key, known, f"'{name}' on '{dataset.name}'")
        network = None
        if groups["network"]:
            kind = input_of(dataset.train)[0]
            asked, usual = take_name(settings), take_name(preset)
            network = asked or usual or USUAL[kind]
            require_kind(network, kind, f"'{dataset.name}'")
            groups = {**groups, "network": accepted_settings(maker, plan.balance_name, network)["network"]}
        everything = {key: parameter for group in groups.values() for key, parameter in group.items()}
        for key in settings:
            if key not in everything:
                raise does_not_belong(key, network)
        for key in preset:
            if key not in known and key not in _known_anywhere():
                raise unknown("setting", key, known, f"the preset of '{dataset.name}'")
        preset = {k: v for k, v in preset.items() if k in everything}
        chosen = fitting_options({**preset, **settings}, everything, f"'{name}'")
        require_choices(chosen, everything, f"'{name}'")
        pick = {group: {k: v for k, v in chosen.items() if k in keys} for group, keys in groups.items()}
        plan.options, plan.training, plan.weighting = pick["method"], pick["training"], pick["weighting"]
        plan.network = None if own_network or built else {}
        if network is not None:
            plan.network = {"network": network, **pick["network"]}
        return plan

    def build(self, network: Network | nn.Module | None = None) -> Method:
        """The untrained method."""
        options = dict(self.options)
        if "network" in inspect.signature(self.make_method).parameters:
            shape = DataShape.of(self.dataset)
            given = network if network is not None else Network(**(self.network or {}))
            if isinstance(given, Network):
                given = given.of(shape.kind)
                self.network = given.described()
            options["network"] = given
        return self.make_method(DataShape.of(self.dataset), **options)

    @property
    def network_name(self) -> str | None:
        """The registered name of the network, where the method stands on one."""
        return (self.network or {}).get("network")

    def balance(self) -> Balance:
        """The named balance with its settings."""
        return balance_named(self.balance_name)(**self.weighting)

    def config(self, balance: Balance | None) -> dict[str, Any]:
        """What is written beside the run, enough to build the method again; a balance of one's own with its options."""
        name = {} if self.balance_name == "weighted" else {"balance": self.balance_name}
        weighting = {**name, **_lists(self.weighting)} if balance is None else described(balance)
        return {
            "data": self.dataset.spec,
            "method": self.name,
            "own_method": not self.registered,
            "own_network": self.network is None,
            "options": _lists(self.options),
            "network": None if self.network is None else _lists(self.network),
            "training": dict(weighting),
            **({"reading": dict(self.dataset.reading)} if self.dataset.reading else {}),
        }


@lru_cache(maxsize=1)
def _known_anywhere() -> frozenset[str]:
    """Every setting that some method, network, balance or the trainer takes; a preset is of many of them."""
    makers = [*(entry.make for entry in methods), *BALANCES.values(), Trainer]
    return frozenset(key for maker in makers for key in options_of(maker)) | frozenset(options_of_all())


def accepted_settings(
    maker: Any, balance: str = "weighted", network: str | None = None
) -> dict[str, dict[str, inspect.Parameter]]:
    """Every setting a user may give for a method and a balance, by whom it concerns; of all networks or one.

    A name that the method and a network share, as `alpha` of CIGA and of APPNP, is the method's: `Network(...)` says
    the network's.
    """
    method = options_of(maker)
    own = {n: p for n, p in method.items() if n not in _NOT_SETTINGS}
    of_network = options_of_all() if network is None else networks[network].options
    return {
        "method": own,
        "network": {n: p for n, p in of_network.items() if n not in own} if "network" in method else {},
        "training": {n: p for n, p in options_of(Trainer).items() if n not in _NOT_SETTINGS},
        "weighting": options_of(balance_named(balance)),
    }


def _lists(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
