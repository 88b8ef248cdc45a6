"""`calibrate`: a run that says how sure it is, by rows that it was not trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from shiftproof.confidence.calibration import Calibration, Promise, plain_metric
from shiftproof.confidence.calibrator import Over, calibrator
from shiftproof.confidence.conformal import GUARANTEES
from shiftproof.confidence.covered import confidence_of, coverage_on, losses_of
from shiftproof.confidence.expected import FEWEST_ROWS
from shiftproof.confidence.familiarity import Distances, Familiarity, Structure, likeness, nearest, structure_of
from shiftproof.confidence.features import features_of
from shiftproof.confidence.held_out import held_out_outputs
from shiftproof.confidence.outputs import labels_for, probabilities_of
from shiftproof.confidence.quantiles import require_coverage
from shiftproof.confidence.recalibration import Kind
from shiftproof.confidence.regions import PARTS, Environments, environments_of, parts_of
from shiftproof.confidence.score_estimates import measured
from shiftproof.confidence.trust import rule_for
from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.joining import all_rows
from shiftproof.data.readers.loading import load_samples
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Chance, Seed, checked
from shiftproof.statistics.metrics import Predictions, measure
from shiftproof.training.predicting import given_to
from shiftproof.training.run import Run

# rows below which the split "val" is too few: a shift leaves a tenth of them or so after weighting, and 50 are needed
# for the coverage of 90 % sets to deviate by .04 (the law of it is a beta distribution, Vovk 2012)
FEWEST_TO_CALIBRATE = 500
FEW = 100  # rows with which coverage deviates by .03 even where nothing moved
From = Literal["auto", "val", "held-out"]


@checked
def calibrate(
    run: Run | str | Path,
    data: Any = None,
    *,
    coverage: Chance = 0.9,
    guarantee: Promise = "auto",
    rows: From = "auto",
    probabilities: Kind | Literal["auto"] = "auto",
    over: Over = "average",
    risk: Chance | None = None,
    seed: Seed = 0,
) -> Run:
    """A new run whose predictions have sets or intervals, calibrated probabilities, and whether to trust each row.

    `data` are labelled rows that the run was not trained on, anything that `load` and `run.predict` take; of a
    `Dataset` its split "val". Left out, the run's own data are read again and `rows` says which calibrate: "val", or
    "held-out", where the run is trained again without each of five parts of the training rows (whole environments)
    and every part is predicted by the model that did not see it; "auto" holds out where "val" has fewer than 100
    rows.

    `coverage` is the share of labels that sets and intervals hold, `guarantee` for whom that is promised (see
    `conformal`; "auto" decides by where new rows lie, see `Calibration.choose`). `probabilities` and `over` are the
    `kind` and the `over` of `calibrator`. With `risk`, say .1, rows are trusted only where at most a tenth of the
    trusted ones is wrong. What was measured on the splits of the run's data is in `run.says_more.facts`.
    """
    coverage = require_coverage(coverage)
    if guarantee not in ("auto", *GUARANTEES):
        raise unknown("guarantee", str(guarantee), ("auto", *GUARANTEES))
    if guarantee == "environments":
        raise ShiftproofError(
            "guarantee 'environments' needs the environment of every new row, which predictions do not have; "
            "use sp.confidence.conformal, or guarantee='new-environment'"
        )
    if rows not in ("auto", "val", "held-out"):
        raise unknown("choice of rows", rows, ("auto", "val", "held-out"))
    run = run if isinstance(run, Run) else Run.load(run)
    task = run.method.shape.task
    if task == "regression" and guarantee in ("classes", "label-shift"):
        raise ShiftproofError(f"guarantee '{guarantee}' is about classes, and a regression has none")
    if risk is not None and task in ("regression", "multilabel"):
        raise ShiftproofError(f"'risk' is a share of wrong answers of a classifier, and this run is of a {task} task")
    dataset = data if isinstance(data, Dataset) else None if data is not None else own_data(run)
    if dataset is not None and run.config.get("refit"):  # it has seen every row: none but those held out can calibrate
        if rows == "val":
            raise ShiftproofError("this run was trained on all rows (refit), those of 'val' too; leave rows='val' out")
        dataset = all_rows(dataset)
    split, logits, labels, source, name = _rows(run, dataset, data, rows)
    notes: list[str] = []
    if len(labels) < FEW:
        notes.append(f"only {len(labels)} rows calibrate: coverage may be off by several points")
    train = split if dataset is None else dataset.train
    features = features_of(run, split)
    structure = structure_of(run.with_vectors(split))
    known = features if train is split else features_of(run, train)
    familiarity = Familiarity.of(
        known, structure if train is split else structure_of(run.with_vectors(train)), seed=seed
    )
    if dataset is None:
        notes.append("the training rows are not at hand, so familiarity is with the rows that calibrate")
    seen = familiarity.directions(features)
    env = environments_of(split, seen, dataset, name, seed=seed)
    y = labels_for(labels, len(logits), task, classes=logits.shape[1] if logits.ndim == 2 else 2)
    raw = probabilities_of(logits, task)
    by_env = over == "worst"
    fitted = calibrator(
        raw, y, task=task, kind=probabilities, env=env.numbers if by_env else None, over=over, seed=seed
    )
    made = Calibration(
        task=task,
        coverage=coverage,
        guarantee=guarantee,
        source=source,
        logits=logits,
        labels=y,
        env=env.numbers,
        env_names=env.names,
        env_what=env.what,
        seen=seen,
        distances=_distances(familiarity, features, structure, split is train),
        calibrator=fitted,
        familiarity=familiarity,
        notes=tuple(notes),
    )
    if risk is not None:
        right = losses_of(made.scores, y, task) == 0
        made = replace(made, rule=rule_for(confidence_of(made, made.scores, seen), right, risk))
    if dataset is not None:
        made = made.with_facts(facts_of(run, made, dataset, seed=seed))
    return replace(run, says_more=made, folder=None)


def own_data(run: Run) -> Dataset:
    """The data that a run was trained on: as they are in memory, or read again."""
    if run.dataset is not None:
        return arranged(run, run.dataset)
    described = str(run.config.get("data"))
    try:
        dataset = load_samples(described)
    except ShiftproofError as problem:
        raise ShiftproofError(
            f"the data of this run cannot be read again ({problem}); give labelled rows that it was not trained on: "
            "calibrate(run, data)"
        ) from None
    dataset = arranged(run, dataset)
    _require_same_data(run, dataset)
    return dataset


def _require_same_data(run: Run, dataset: Dataset) -> None:
    """Refuse data of the same name that are not those of the run, by the number of samples and the score on one split.

    What was loaded with options in Python may not carry them in its name.
    """
    judged = run.config.get("refit")
    for name, split in dataset.splits.items():
        told = run.metrics.get(name) or {}
        if told.get("samples") not in (None, len(split)):
            raise _other_data(run, f"'{name}' has {len(split)} samples there, and had {told['samples']}")
    small = min((n for n in dataset.splits if n in run.metrics), key=lambda n: len(dataset[n]), default=None)
    metric = str(run.config["metric"])
    if small is None or judged or run.metrics[small].get(metric) is None:
        return
    split = dataset[small]
    env = None if split.env is None else split.env.cpu()
    score = measure(metric, Predictions(run.logits(split), split.y.cpu(), env, dataset.task))
    if not np.isclose(score, run.metrics[small][metric], rtol=0.01, atol=0.01):
        raise _other_data(
            run, f"the {metric} on '{small}' is {score:.4f} there, and was {run.metrics[small][metric]:.4f}"
        )


def _other_data(run: Run, why: str) -> ShiftproofError:
    return ShiftproofError(
        f"'{run.config.get('data')}' is not what this run was trained on ({why}); give its data: calibrate(run, data)"
    )


def arranged(run: Run, dataset: Dataset) -> Dataset:
    """The data with the vectors that the run's method looks at."""
    arrange = run.method.how_trained.arrange
    return dataset if arrange is None else arrange(dataset, int(run.config.get("seed", 0)))


def facts_of(run: Run, made: Calibration, dataset: Dataset, *, seed: int = 0) -> dict[str, Any]:
    """What the calibration does on every other split of the data: coverage, sizes, errors, by environment."""
    found = {}
    for name, split in dataset.splits.items():
        if name == "train" or split.y is None:
            continue
        seen = made.familiarity.directions(features_of(run, split))
        env = environments_of(split, seen, dataset, name, seed=seed)
        logits = run.logits(split)
        found[name] = coverage_on(made, logits, split.y, seen, env)
        if name != "val" and min(len(split), len(made.labels)) >= FEWEST_ROWS:
            metric = plain_metric(str(run.config["metric"]), made.task)
            told = made.expect_of(logits, seen, metric).to_json()
            y = labels_for(split.y, len(logits), made.task, classes=logits.shape[1] if logits.ndim == 2 else 2)
            score = measured(metric, made.task, probabilities_of(logits, made.task), y)
            found[name]["expected"] = {**told, "measured": score if np.isfinite(score) else None}
    return found


def _rows(run: Run, dataset: Dataset | None, data: Any, rows: From) -> tuple[Split, Tensor, Tensor, str, str]:
    """The samples that calibrate, the model's outputs of them, their labels, where they are from, and which split."""
    if dataset is None:
        split = labelled(run, data)
        return split, run.logits(split), split.y, f"{len(split)} given rows", ""
    val = dataset.splits.get("val")
    enough = val is not None and len(val) >= FEWEST_TO_CALIBRATE
    if rows == "val" and val is None:
        raise ShiftproofError(f"'{dataset.name}' has no split 'val' to calibrate on; rows='held-out' trains again")
    if val is not None and (rows == "val" or (rows == "auto" and (enough or run.config.get("own_method")))):
        return val, run.logits(val), val.y, f"{len(val)} rows of val", "val"
    dataset = arranged(run, dataset)
    train = dataset.train
    seen = Familiarity.of(features_of(run, train)).directions(features_of(run, train))
    part = parts_of(_parted(train, seen, dataset).numbers)
    logits = held_out_outputs(run, dataset, part)
    source = f"{len(train)} rows of training, each predicted by a model that did not see its part of {part.max() + 1}"
    return train, logits, train.y, source, "train"


def _parted(train: Split, seen: np.ndarray, dataset: Dataset) -> Environments:
    """Environments of training to hold out; rows in turn where there is one environment alone."""
    env = environments_of(train, seen, dataset, "train")
    if len(env) >= 2:
        return env
    return Environments(np.arange(len(train)) % PARTS, tuple(map(str, range(PARTS))), "part", made=True)


def labelled(run: Run, data: Any) -> Split:
    """Anything that `run.predict` takes as samples with labels; rows without one are an error."""
    if isinstance(data, GraphSet | DomainSet):
        samples = data
    else:
        given = given_to(run, data, split="val" if isinstance(data, str) and not Path(data).exists() else None)
        samples = given.samples
        if given.problems:
            row, why = next(iter(given.problems.items()))
            raise ShiftproofError(f"row {row + 1} cannot be used: {why}")
        if samples is not None and samples.y is None and given.labels is not None:
            unknown_row = int(given.labels.reshape(len(given.labels), -1).isnan().any(1).nonzero()[0]) + 1
            raise ShiftproofError(f"row {unknown_row} has no label")
    if samples is None or samples.y is None or len(samples) == 0:
        raise ShiftproofError("rows with labels are needed, and these have none")
    return samples


def _distances(familiarity: Familiarity, features: np.ndarray, structure: Structure | None, own: bool) -> Distances:
    """How far the rows that calibrate are from training; where they are training rows, from the other ones."""
    if not own:
        return familiarity.distances(features, structure)
    half = np.random.default_rng(0).random(len(features)) < 0.5
    found = np.empty(len(features))
    seen = familiarity.directions(features)
    similarity = None if structure is None else np.empty(len(features), np.float32)
    for side in (half, ~half):
        if not side.any() or side.all():
            return familiarity.distances(features, structure)
        found[side] = nearest(seen[side], seen[~side])
        if similarity is not None and structure is not None:
            similarity[side] = likeness(structure.bits[side], structure.bits[~side])
    scaffold = None if structure is None else np.ones(len(features), bool)
    return Distances(found, similarity, scaffold)
