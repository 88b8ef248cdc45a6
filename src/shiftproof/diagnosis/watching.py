"""`watch`: each new batch of rows held against what was normal, with false alarms under control over all of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.expected import FEWEST_ROWS
from shiftproof.confidence.features import features_of
from shiftproof.confidence.outputs import probabilities_of
from shiftproof.data.dataset import Split
from shiftproof.diagnosis.comparing import FEWEST, compare_vectors
from shiftproof.diagnosis.evidence import Evidence, spent, together
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.journal import append_line
from shiftproof.training.predicting import given_to
from shiftproof.training.run import Run

ALPHA = 0.05  # the chance of any false alarm, over all batches; half of it for either kind of test
COORDINATES = 6  # of the model's features, the first principal directions of training
FEWEST_REFERENCE = 100  # rows that say what is normal
DIGITS = 9
NAMES = ("distance", "kernel mean", "confidence", *(f"direction {number + 1}" for number in range(COORDINATES)))


@dataclass(frozen=True)
class Batch:
    """What was found of one batch: `evidence` is the capital of the bets, `p` that of a classifier that tells it apart.

    `alarm` is raised where the capital exceeds 40 or `p` falls below `level`; each happens by chance in one of 40
    streams, however long they are. `most` names the statistic that moved most.
    """

    batch: int
    file: str
    rows: int
    evidence: float
    p: float
    level: float
    effect: float
    alarm: bool
    most: str
    expected: dict[str, Any] | None = None

    @property
    def sentence(self) -> str:
        what = f"batch {self.batch}, {self.rows} rows: evidence {self.evidence:.3g} (alarm at {2 / ALPHA:.0f})"
        told = f"{what}, a classifier tells them apart with p {self.p:.2g} (alarm below {self.level:.2g})"
        return f"{told}: ALARM, most in the {self.most}" if self.alarm else f"{told}: no alarm"


class Watch:
    """Batches of statistics, one row a sample, held against a reference; `take` says what it finds of each."""

    def __init__(self, reference: np.ndarray, names: tuple[str, ...] = NAMES, seed: int = 0) -> None:
        self.reference, self.names = reference, names
        self.bets = [Evidence(column, seed=number + 1000 * seed) for number, column in enumerate(reference.T)]
        self.batches = 0

    def remember(self, rows: np.ndarray) -> list[float]:
        """Bet on a batch that was judged before, or is about to be; the capital of each statistic's bets."""
        self.batches += 1
        return [bet.take(column) for bet, column in zip(self.bets, rows.T, strict=True)]

    def take(self, rows: np.ndarray, file: str = "", expected: dict[str, Any] | None = None) -> Batch:
        """Hold the next batch against the reference and all batches before it."""
        capitals = self.remember(rows)
        told = None
        if len(rows) >= FEWEST:
            told = compare_vectors(self.reference, rows, seed=self.batches)
        level = spent(ALPHA / 2, self.batches)
        p, effect = (1.0, 0.0) if told is None else (float(told.p), float(told.effect))
        evidence = float(np.exp(min(together(capitals), 700.0)))
        alarm = evidence >= 2 / ALPHA or p < level
        most = self.names[int(np.argmax(capitals))]
        return Batch(self.batches, file, len(rows), evidence, p, level, effect, alarm, most, expected)


def statistics_of(run: Run, made: Calibration, samples: Split) -> np.ndarray:
    """One row a sample: how far from training, how sure, and where in the first directions of the features."""
    seen = made.familiarity.directions(features_of(run, samples))
    return _statistics(made, seen, probabilities_of(run.logits(samples), made.task))


def _statistics(made: Calibration, seen: np.ndarray, p: np.ndarray) -> np.ndarray:
    if made.task == "regression":
        sure = p
    else:
        sure = np.maximum(p, 1 - p).mean(1) if made.task == "multilabel" else p.max(1)
    known = made.familiarity.rows[:: max(len(made.familiarity.rows) // 500, 1)].astype(float)
    squared = (seen.astype(float) ** 2).sum(1)[:, None] + (known**2).sum(1)[None] - 2 * seen.astype(float) @ known.T
    kernel = np.exp(-np.maximum(squared, 0) / (2 * max(seen.shape[1], 1))).mean(1)
    directions = np.zeros((len(seen), COORDINATES))
    width = min(COORDINATES, seen.shape[1])
    directions[:, :width] = seen[:, :width]
    return np.column_stack([made.familiarity.distance_of(seen), kernel, sure, directions]).round(DIGITS)


def watch(
    run: Run | str | Path, data: Any, log: str | Path, *, reference: Any = None, smiles: str | None = None
) -> Batch:
    """Hold a new batch of rows against what was normal, write what was found at the end of `log`, and return it.

    Normal are the rows of `reference`, which the first call takes; left out, the rows that calibrate the run, where
    those were not trained on. The chance of any false alarm over all batches of a log is at most 5 % while rows are
    drawn like the reference. No label is needed.
    """
    run = run if isinstance(run, Run) else Run.load(run)
    made = run.says_more
    if not isinstance(made, Calibration):
        raise ShiftproofError("watch needs a calibrated run: `shiftproof calibrate RUN` makes it one")
    log = Path(log)
    samples = _samples(run, data, smiles)
    lines = read_log(log)
    if not lines:
        normal, source = _reference(run, made, reference, smiles)
        lines = [{"reference": source, "names": list(NAMES), "statistics": normal.tolist()}]
        append_line(log, lines[0])
    elif reference is not None:
        raise ShiftproofError(
            f"{log} has its reference already ({lines[0]['reference']}); begin another log for another"
        )
    watching = Watch(np.array(lines[0]["statistics"], dtype=float))
    for line in lines[1:]:
        watching.remember(np.array(line["statistics"], dtype=float))
    rows = statistics_of(run, made, samples)
    expected = made.expect(run, samples).to_json() if len(samples) >= FEWEST_ROWS else None
    found = watching.take(rows, str(data) if isinstance(data, str | Path) else "", expected)
    append_line(log, {**asdict(found), "statistics": rows.tolist()})
    return found


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log: the reference, then the batches; nothing where there is no log yet."""
    if not path.exists():
        return []
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            whole = isinstance(line, dict) and np.array(line["statistics"], dtype=float).shape[1] == len(NAMES)
        except (ValueError, KeyError, TypeError, IndexError):
            whole = False
        if not whole or ("reference" in line) != (number == 1):
            raise ShiftproofError(f"{path}, line {number} was not written by watch: begin another log")
        lines.append(line)
    return lines


def _samples(run: Run, data: Any, smiles: str | None) -> Split:
    given = given_to(run, data, smiles=smiles)
    if given.samples is None:
        raise ShiftproofError(f"none of the {given.count} rows can be used, so there is nothing to watch")
    return given.samples


def _reference(run: Run, made: Calibration, reference: Any, smiles: str | None) -> tuple[np.ndarray, str]:
    """The statistics of what is normal, and where they are from."""
    if reference is not None:
        samples = _samples(run, reference, smiles)
        found = statistics_of(run, made, samples)
        source = str(reference) if isinstance(reference, str | Path) else f"{len(samples)} given rows"
    elif made.held_out:
        raise ShiftproofError(
            "this run was calibrated on rows of its own training, which look nearer than any new ones: say what is "
            "normal with rows it has not seen, reference=... (--reference FILE)"
        )
    else:
        found, source = _statistics(made, made.seen, made.raw), made.source
    if len(found) < FEWEST_REFERENCE:
        raise ShiftproofError(f"the reference has {len(found)} usable rows; {FEWEST_REFERENCE} are needed")
    return found, source
