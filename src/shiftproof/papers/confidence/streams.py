"""Does `watch` keep its promise? Streams in which nothing moves, and streams in which a change costs .1 of the AUC."""

from __future__ import annotations

import numpy as np

from shiftproof.diagnosis.watching import Watch
from shiftproof.registry import register
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, write_json
from shiftproof.runtime.fingerprints import commit
from shiftproof.runtime.progress import progress
from shiftproof.statistics.metrics import column_auc
from shiftproof.sweeps.claims import Claim, Finding
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

BATCHES, ROWS, REFERENCE, STREAMS = 200, 200, 500, 100
TRIES, WITHIN, QUIET = 50, 5, 20  # changes come after so many quiet batches
COST = 0.1  # of the AUC
FEATURES = 6


@register("confidence-watch", "recipes")
def confidence_watch() -> Recipe:
    """False alarms of `watch` over 200 batches where nothing moves, and how soon a change of the inputs is found."""
    note = (
        f"Rows of {FEATURES} features with a model that is unsure where the first one is large. {STREAMS} streams of "
        f"{BATCHES} batches of {ROWS} rows in which nothing moves; {TRIES} in which after {QUIET} such batches the "
        f"first feature moves so far that the AUC falls by {COST}. {REFERENCE} rows are the reference."
    )
    return Recipe("confidence-watch", (), seeds=1, first_seed=0, note=note, run=stream_rows, claims=CLAIMS)


def stream_rows(work: Work) -> list[Row]:
    """Count false alarms and found changes; finished streams lie in the folder."""
    quiet, tries, batches = (4, 3, 10) if work.smoke else (STREAMS, TRIES, BATCHES)
    shift = _shift_that_costs(COST)
    pieces = [("quiet", number) for number in range(quiet)] + [("moved", number) for number in range(tries)]
    if not work.collect:
        with progress("streams", len(pieces), work.style) as display:
            for done, (kind, number) in enumerate(pieces, start=1):
                place = work.folder / kind / f"{number}.json"
                if not place.exists():
                    found = _quiet(number, batches) if kind == "quiet" else _moved(number, shift)
                    write_json(place, {"batch": found, "commit": commit()})
                display.advance(done)
    rows = []
    for kind, count in (("quiet", quiet), ("moved", tries)):
        there = [place for number in range(count) if (place := work.folder / kind / f"{number}.json").exists()]
        told = [read_json(place, "a table") for place in there]
        if not told:
            continue
        alarms = [one["batch"] is not None and (kind == "quiet" or one["batch"] <= WITHIN) for one in told]
        values = summarise([float(alarm) for alarm in alarms])
        rows.append(
            {
                "dataset": f"streams in which {'nothing moves' if kind == 'quiet' else 'the inputs move'}",
                "method": "watch",
                "variant": {} if kind == "quiet" else {"auc_lost": COST, "shift": round(shift, 3)},
                "metric": "alarms" if kind == "quiet" else f"found within {WITHIN} batches",
                "split": "test",
                "selection": "none",
                "published": None,
                "device": device_name(pick_device("cpu")),
                "commit": " and ".join(sorted({str(one["commit"]) for one in told})),
                **values,
                "batches": [one["batch"] for one in told],
            }
        )
    return rows


def _rows(rng: np.random.Generator, count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, the model's score, and labels; the larger the first feature the less the second decides."""
    x = rng.normal(size=(count, FEATURES))
    x[:, 0] += shift
    sure = 3.0 * x[:, 1] * np.exp(-np.clip(x[:, 0], -2, 4) / 1.5)
    y = (rng.random(count) < 1 / (1 + np.exp(-sure))).astype(float)
    return x, 1 / (1 + np.exp(-3.0 * x[:, 1])), y


def _statistics(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.column_stack([np.linalg.norm(x, axis=1), np.maximum(p, 1 - p), x])


def _shift_that_costs(cost: float) -> float:
    """How far the first feature has to move for the AUC to fall by so much, by bisection on 200,000 rows."""

    def auc(shift: float) -> float:
        _, p, y = _rows(np.random.default_rng(123), 200_000, shift)
        return column_auc(p, y)

    before, low, high = auc(0.0), 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if before - auc(middle) < cost else (low, middle)
    return (low + high) / 2


def _watch(rng: np.random.Generator, number: int) -> Watch:
    names = ("distance", "confidence", *(f"feature {k + 1}" for k in range(FEATURES)))
    return Watch(_statistics(*_rows(rng, REFERENCE)[:2]), names, seed=number)


def _quiet(number: int, batches: int) -> int | None:
    """The batch of the first false alarm."""
    rng = np.random.default_rng([1, number])
    held = _watch(rng, number)
    return next((n for n in range(1, batches + 1) if held.take(_statistics(*_rows(rng, ROWS)[:2])).alarm), None)


def _moved(number: int, shift: float) -> int | None:
    """How many batches after the change the first alarm came; none where it came before, which is a false one."""
    rng = np.random.default_rng([2, number])
    held = _watch(rng, number)
    if any(held.take(_statistics(*_rows(rng, ROWS)[:2])).alarm for _ in range(QUIET)):
        return None
    most = 4 * WITHIN
    return next((n for n in range(1, most + 1) if held.take(_statistics(*_rows(rng, ROWS, shift)[:2])).alarm), None)


def _few_false(rows: object) -> Finding:
    own = [row for row in rows if row["metric"] == "alarms"]  # type: ignore[attr-defined]
    if not own or own[0]["seeds"] < STREAMS:
        return Finding("not tested", "not all streams are finished")
    count = int(sum(own[0]["values"]))
    return Finding("holds" if count <= 5 else "does not hold", f"{count} of {own[0]['seeds']} streams")


def _found_soon(rows: object) -> Finding:
    own = [row for row in rows if row["metric"] != "alarms"]  # type: ignore[attr-defined]
    if not own:
        return Finding("not tested", "no stream is finished")
    return Finding("holds" if own[0]["mean"] >= 0.9 else "does not hold", f"{own[0]['mean']:.0%} of {own[0]['seeds']}")


CLAIMS = (
    Claim("At most 5 of 100 streams of 200 batches in which nothing moves raise any alarm", _few_false),
    Claim(
        "A change of the inputs that costs .1 of the AUC is found within 5 batches of 200 rows, 9 of 10 times",
        _found_soon,
    ),
)
