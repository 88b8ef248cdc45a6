"""Choosing a method where none is named: a few candidates on a small budget, judged where the data moved."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from shiftproof.api.fitting import Plan, fit
from shiftproof.data.dataset import Dataset
from shiftproof.data.splitting import SHIFTED
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.objectives import env_risks, sample_losses
from shiftproof.pareto.selection import RunHistory, select
from shiftproof.runtime.progress import Style
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.training.evaluation import predict
from shiftproof.training.run import Run

EPOCHS = 10
SAMPLES = 4000
CHILD_SETTINGS = {"patience": None, "warmup": 0}


@dataclass(frozen=True)
class Choice:
    """The method that was chosen, and why; `candidates` holds what each scored (or why it could not be trained)."""

    method: str
    reason: str
    budget: str
    candidates: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def candidates_for(dataset: Dataset) -> list[str]:
    """ERM, one method that uses environments where there are two or more, and one that needs none."""
    free = "feat"
    if dataset.is_graph:
        free = "gala" if dataset.task in ("binary", "multiclass") else "gsat"
    by_environment = ["vrex"] if dataset.train.num_envs >= 2 else []
    return ["erm", *by_environment, free]


def budget_of(settings: Mapping[str, Any], epochs: int = EPOCHS, samples: int = SAMPLES) -> str:
    """What each candidate is given, in words."""
    return f"one seed, {_epochs_of_a_trial(settings, epochs)} epochs, at most {samples} training samples"


def _epochs_of_a_trial(settings: Mapping[str, Any], most: int) -> int:
    """Who wants few epochs wants no more for a trial."""
    asked = str(settings.get("epochs", most))
    return min(most, int(asked)) if asked.isdigit() else most


def choose(
    dataset: Dataset,
    *,
    seed: int = 0,
    device: str = "auto",
    epochs: int = EPOCHS,
    samples: int = SAMPLES,
    progress: Style = "none",
    settings: Mapping[str, Any] | None = None,
) -> Choice:
    """Train the candidates for a few epochs on a part of the training split and take the one that holds best.

    Where the validation split is of another kind than the training split (scaffolds, sizes, later years, environments
    that are not trained on), its score decides. Where it is of the same kind but environments are known, PAIR-s
    decides: among those that validate well enough, the one with the lowest risk and the least spread of it over the
    environments. Without either, plain validation decides, and the reason says that it cannot see a shift.
    """
    epochs = _epochs_of_a_trial(settings or {}, epochs)
    budget = budget_of(settings or {}, epochs, samples)
    if "val" not in dataset.splits:
        return Choice("erm", f"erm: '{dataset.name}' has no validation split to choose by", budget)
    small = _smaller(dataset, samples, seed)
    found: dict[str, dict[str, Any]] = {}
    for name in candidates_for(dataset):
        begun = time.perf_counter()
        try:
            run = _tried(name, small, seed, device, epochs, progress, settings or {})
        except (ShiftproofError, TrainingDiverged) as problem:
            found[name] = {"failed": str(problem)}
            continue
        found[name] = {**_judged(run, small), "seconds": round(time.perf_counter() - begun, 2)}
    able = {name: values for name, values in found.items() if values.get("val") is not None}
    if not able:
        return Choice("erm", "erm: no candidate could be judged", budget, found)
    method, how = _decide(able, dataset)
    scored = ", ".join(f"{name} {values['val']:.4f}" for name, values in able.items())
    reason = f"{method}: {how} (val {dataset.metric}: {scored}; {budget}, too little to tell small differences)"
    return Choice(method, reason, budget, found)


def fit_auto(dataset: Dataset, *, seed: int = 0, device: str = "auto", **options: Any) -> Run:
    """Choose a method and train it; the choice stands in `run.timing["chosen"]`."""
    of_run = ("out", "resume", "progress", "compile", "deterministic", "callbacks")  # trials tell no callback
    settings = {k: v for k, v in options.items() if k not in of_run}
    choice = choose(dataset, seed=seed, device=device, settings=settings)
    own = {key: value for key, value in options.items() if key not in settings or accepts(choice.method, dataset, key)}
    run = fit(choice.method, dataset, seed=seed, device=device, **own)
    run.timing["chosen"] = choice.to_json()
    if run.folder is not None:
        run.save(run.folder)
    return run


def accepts(method: str, dataset: Dataset, setting: str) -> bool:
    """Whether a method has a setting of that name."""
    from shiftproof.api.fitting import accepted_settings
    from shiftproof.registry import methods

    return any(setting in group for group in accepted_settings(methods[method].make).values())


def validation_is_shifted(dataset: Dataset) -> bool:
    """Whether the validation split was made to differ from the training split."""
    if dataset.options.get("split") in SHIFTED:
        return True
    train, val = dataset.train.env, dataset.val.env
    return train is not None and val is not None and not set(train.unique().tolist()) & set(val.unique().tolist())


def _tried(
    name: str, dataset: Dataset, seed: int, device: str, epochs: int, progress: Style, settings: Mapping[str, Any]
) -> Run:
    own = {k: v for k, v in {**settings, **CHILD_SETTINGS}.items() if accepts(name, dataset, k)}
    Plan.make(name, dataset, own)
    return fit(name, dataset, seed=seed, device=device, progress=progress, **{**own, "epochs": epochs})


def _smaller(dataset: Dataset, samples: int, seed: int) -> Dataset:
    """The data set with at most so many training samples, drawn at random."""
    train = dataset.train
    kept = {"train": train, "val": dataset.val}
    if len(train) > samples:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[:samples]
        kept["train"] = train[order.sort().values]
    return replace(dataset, splits=kept)


def _judged(run: Run, dataset: Dataset) -> dict[str, Any]:
    """The score on val, and on train the risk and how far it varies between environments."""
    device = next(run.method.parameters()).device
    p = predict(run.method, dataset.train.to(device))
    losses = sample_losses(p.logits.double(), p.y if p.task == "multiclass" else p.y.double(), p.task)
    spread = 0.0
    if p.env is not None:
        risks, counts = env_risks(losses, p.env, int(p.env.max()) + 1)
        spread = float(risks[counts > 0].var(unbiased=False))
    return {"val": run.metrics["val"].get(dataset.metric), "risk": float(losses.mean()), "spread": spread}


def _decide(able: Mapping[str, Mapping[str, Any]], dataset: Dataset) -> tuple[str, str]:
    sign = -1 if dataset.metric in LOWER_IS_BETTER else 1
    names = list(able)
    if validation_is_shifted(dataset):
        best = max(names, key=lambda name: sign * able[name]["val"])
        return best, "best on validation samples of another kind than those trained on"
    if dataset.train.num_envs >= 2:
        histories = [
            RunHistory(
                name,
                np.zeros(1),
                np.array([[able[name]["risk"], able[name]["spread"]]]),
                np.array([sign * able[name]["val"]]),
            )
            for name in names
        ]
        chosen = select(histories)
        return chosen.name, "PAIR-s, for its risk and the spread of it over the training environments"
    best = max(names, key=lambda name: sign * _finite(able[name]["val"]))
    return best, "best on validation samples of the same kind as those trained on, which cannot show a shift"


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
