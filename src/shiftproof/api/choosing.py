"""Choosing a method where none is named: candidates on a budget of time, judged as the data move."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from shiftproof.api.candidates import Candidate, accepts, are_rows, candidates_of_rows
from shiftproof.api.fitting import Plan, fit
from shiftproof.api.held_out import held_out
from shiftproof.api.judging import decide, judge
from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.molecule_vectors import add_blocks
from shiftproof.data.splitting import SHIFTED
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.objectives import env_risks, sample_losses
from shiftproof.pareto.selection import RunHistory, select
from shiftproof.ranges import Positive, fitting
from shiftproof.runtime.progress import Style
from shiftproof.runtime.progress import progress as display
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.statistics.names import metric_name
from shiftproof.training.evaluation import predict
from shiftproof.training.run import Run

EPOCHS = 10
SAMPLES = 4000
MINUTES = 5.0  # for all that `auto` does; trying ends where TO_TRY of them are over
TO_TRY = 0.7
_OF_RUN = ("out", "resume", "progress", "compile", "deterministic", "callbacks")  # trials tell no callback
CHILD_SETTINGS = {"patience": None, "warmup": 0}


@dataclass(frozen=True)
class Choice:
    """The method that was chosen with its settings, and why.

    `candidates` holds what each scored and how long it took, or why it could not be judged.
    """

    method: str
    reason: str
    budget: str
    candidates: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

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


def to_be_tried(dataset: Dataset, settings: Mapping[str, Any], minutes: float = MINUTES) -> str:
    """What `choose` would try, in words."""
    if judged_by_held_out_rows(dataset):
        names = ", ".join(one.name for one in candidates_of_rows(dataset))
        return f"{names}: training rows held out as the test rows are, at most {minutes:g} minutes in all"
    return f"{', '.join(candidates_for(dataset))}: {budget_of(settings)} each"


def _epochs_of_a_trial(settings: Mapping[str, Any], most: int) -> int:
    """Who wants few epochs wants no more for a trial."""
    asked = str(settings.get("epochs", most))
    return min(most, int(asked)) if asked.isdigit() else most


def choose(
    dataset: Dataset,
    *,
    seed: int = 0,
    device: str = "auto",
    minutes: float = MINUTES,
    epochs: int = EPOCHS,
    samples: int = SAMPLES,
    progress: Style = "none",
    settings: Mapping[str, Any] | None = None,
) -> Choice:
    """Try the candidates and take the one that holds best where the data move.

    Molecules and the rows of tables are judged on training rows held out again and again in the way the test rows are
    (`shiftproof.api.held_out`), at most `minutes` long; the mean of those that cannot be told from the best is taken,
    or the simplest of them. Other data get one short trial of each candidate (`epochs`), judged
    by the validation split.
    """
    minutes = fitting(minutes, Positive, "'minutes'")
    if judged_by_held_out_rows(dataset):
        return _choose_by_held_out_rows(dataset, seed, device, minutes, samples, progress, dict(settings or {}))
    return _choose_by_validation(dataset, seed, device, epochs, samples, progress, dict(settings or {}))


def judged_by_held_out_rows(dataset: Dataset) -> bool:
    """Whether training rows can be held out as the test rows are; of two environments each alone is too little."""
    if not are_rows(dataset):
        return False
    return not 0 < dataset.train.num_envs < 3 or dataset.options.get("split") in SHIFTED


def _choose_by_held_out_rows(
    dataset: Dataset,
    seed: int,
    device: str,
    minutes: float,
    samples: int,
    progress: Style,
    settings: dict[str, Any],
) -> Choice:
    begun = time.monotonic()
    candidates = candidates_of_rows(dataset)
    pool = _pool(dataset, candidates, samples, seed)
    held = held_out(pool, seed=seed)
    until = begun + TO_TRY * 60 * minutes
    with display(f"auto on {dataset.name}", len(candidates), progress) as shown:
        done = iter(range(len(candidates)))
        found = judge(
            candidates,
            pool,
            held,
            until=until,
            seed=seed,
            device=device,
            settings=settings,
            tell=lambda name: shown.advance(next(done), name),
        )
    spent = time.monotonic() - begun
    rows = f"{len(pool.train)} of {len(dataset.train)} training rows" if len(pool.train) < len(dataset.train) else ""
    budget = f"{held.how}{f' ({rows})' if rows else ''}, {spent:.0f} of at most {60 * minutes:.0f} seconds"
    told = {one.name: one.to_json() for one in found}
    verdict = decide(found, pool, held)
    if verdict is None:
        first = candidates[0]
        why = f"{first.name}: no candidate could be judged ({found[0].why_not})"
        return Choice(first.method, why, budget, told, dict(first.settings))
    sign = -1 if dataset.metric in LOWER_IS_BETTER else 1
    scores = ", ".join(f"{name} {sign * value:.3f}" for name, value in verdict.scores.items())
    name = " + ".join(one.name for one in verdict.chosen)
    blind = "" if held.like_the_shift else "; rows held out at random cannot show a shift"
    reason = f"{name}: {verdict.why} (held-out {metric_name(dataset.metric, dataset.task)}: {scores}; {budget}{blind})"
    first, *others = verdict.chosen
    if others:
        return Choice("blend", reason, budget, told, {"members": [one.as_member for one in verdict.chosen]})
    return Choice(first.method, reason, budget, told, dict(first.settings))


def _pool(dataset: Dataset, candidates: Sequence[Candidate], samples: int, seed: int) -> Dataset:
    """The training rows that candidates are judged on, with the vectors of molecules that any of them looks at."""
    pool = replace(dataset, splits={"train": _smaller(dataset, samples, seed).train})
    blocks = tuple(dict.fromkeys(block for one in candidates for block in one.vectors))
    return add_blocks(pool, blocks) if blocks else pool


def _choose_by_validation(
    dataset: Dataset, seed: int, device: str, epochs: int, samples: int, progress: Style, settings: dict[str, Any]
) -> Choice:
    """One short trial of each candidate.

    Where the validation split is of another kind than the training split (scaffolds, sizes, later years, environments
    that are not trained on), its score decides. Where it is of the same kind but environments are known, PAIR-s
    decides: among those that validate well enough, the one with the lowest risk and the least spread of it over the
    environments. Without either, plain validation decides, and the reason says that it cannot see a shift.
    """
    epochs = _epochs_of_a_trial(settings, epochs)
    budget = budget_of(settings, epochs, samples)
    if "val" not in dataset.splits:
        return Choice("erm", f"erm: '{dataset.name}' has no validation split to choose by", budget)
    small = _smaller(dataset, samples, seed)
    found: dict[str, dict[str, Any]] = {}
    for name in candidates_for(dataset):
        begun = time.perf_counter()
        try:
            run = _tried(name, small, seed, device, epochs, progress, settings)
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


def fit_auto(dataset: Dataset, *, seed: int = 0, device: str = "auto", minutes: float = MINUTES, **options: Any) -> Run:
    """Choose a method and train it; the choice stands in `run.timing["chosen"]`."""
    settings = {k: v for k, v in options.items() if k not in _OF_RUN}
    require_known(settings, dataset)
    choice = choose(dataset, seed=seed, device=device, minutes=minutes, settings=settings)
    own = {key: value for key, value in options.items() if key not in settings or accepts(choice.method, key)}
    run = fit(choice.method, dataset, seed=seed, device=device, **{**own, **choice.settings})
    run.timing["chosen"] = choice.to_json()
    if run.folder is not None:
        run.save(run.folder)
    return run


def require_known(settings: Mapping[str, Any], dataset: Dataset) -> None:
    """Refuse settings that none of the candidates has."""
    names = [one.method for one in candidates_of_rows(dataset)] if judged_by_held_out_rows(dataset) else []
    names = names or candidates_for(dataset)
    for key in settings:
        if not any(accepts(name, key) for name in names):
            raise ShiftproofError(f"none of the methods that 'auto' tries has a setting '{key}' ({', '.join(names)})")


def validation_is_shifted(dataset: Dataset) -> bool:
    """Whether the validation split was made to differ from the training split."""
    if dataset.options.get("split") in SHIFTED:
        return True
    train, val = dataset.train.env, dataset.val.env
    return train is not None and val is not None and not set(train.unique().tolist()) & set(val.unique().tolist())


def _tried(
    name: str, dataset: Dataset, seed: int, device: str, epochs: int, progress: Style, settings: Mapping[str, Any]
) -> Run:
    own = {k: v for k, v in {**settings, **CHILD_SETTINGS}.items() if accepts(name, k)}
    Plan.make(name, dataset, own)
    return fit(name, dataset, seed=seed, device=device, progress=progress, **{**own, "epochs": epochs})


def _smaller(dataset: Dataset, samples: int, seed: int) -> Dataset:
    """The data set with at most so many training samples, drawn at random."""
    train = dataset.train
    kept = {name: split for name, split in dataset.splits.items() if name in ("train", "val")}
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
