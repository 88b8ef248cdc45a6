"""Is `suggest` better than chance? Rows of a shifted pool are measured, the model is trained again, and judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shiftproof.api.fitting import fit
from shiftproof.confidence.calibrating import calibrate
from shiftproof.confidence.suggesting import suggest
from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.joining import join
from shiftproof.data.readers.loading import load_samples
from shiftproof.papers.confidence.tables import FOREST, Part
from shiftproof.registry import register
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, write_json
from shiftproof.runtime.fingerprints import commit
from shiftproof.runtime.progress import progress
from shiftproof.statistics.metrics import LOWER_IS_BETTER, Predictions, measure
from shiftproof.sweeps.claims import Claim, Finding
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise

MEASURED = 50
WAYS = ("suggest", "random")
PARTS = (
    Part("moleculenet:name=bace,split=scaffold", "forest", FOREST),
    Part("moleculenet:name=bbbp,split=scaffold", "forest", FOREST),
    Part("moleculeace:target=CHEMBL219_Ki,split=scaffold", "forest", FOREST),
    Part("moleculeace:target=CHEMBL4792_Ki,split=scaffold", "forest", FOREST),
    Part("office-caltech10:test=amazon", "linear"),
)


@register("confidence-suggest", "recipes")
def confidence_suggest() -> Recipe:
    """50 rows of the shifted test split are measured, by `suggest` or by chance, and the model is trained again."""
    note = (
        "Half of the test split is the pool, the other half judges. 'gain' is what the score there rises by when the "
        "measured rows join the training ones; 'score_error' how far the accuracy (squared error) on the measured "
        "rows, of 'suggest' those drawn for it, is from that of the other half. The calibration is on 'val'; forests "
        "have 100 trees."
    )
    sets = tuple(part.data for part in PARTS)
    return Recipe("confidence-suggest", (), seeds=5, first_seed=0, note=note, run=rows_of, data=sets, claims=CLAIMS)


def rows_of(work: Work) -> list[Row]:
    """Measure what is not in the folder yet, and make rows of all that is."""
    pieces = [(part, seed) for seed in work.seeds for part in PARTS]
    if not work.collect:
        with progress("suggestions", len(pieces), work.style) as display:
            for done, (part, seed) in enumerate(pieces, start=1):
                place = work.folder / f"{_safe(part.name)}-{seed}.json"
                if not place.exists():
                    write_json(place, {**_piece(part, seed, work), "commit": commit()})
                display.advance(done, part.name)
    return [row for part in PARTS for row in _rows(part, work)]


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in text)


def _piece(part: Part, seed: int, work: Work) -> dict[str, Any]:
    data = load_samples(part.data)
    settings: dict[str, Any] = dict(part.settings)
    if work.smoke:
        data = data.with_splits(**{name: split[: min(len(split), 200)] for name, split in data.splits.items()})
        settings |= {"trees": 5} if part.method == "forest" else {}
    run = fit(part.method, data, seed=seed, device=work.device, **settings)
    arrange = run.method.how_trained.arrange
    data = data if arrange is None else arrange(data, seed)
    known = replace(data, splits={name: data[name] for name in ("train", "val")})
    made = calibrate(run, known, rows="val", seed=seed)
    order = np.random.default_rng([7, seed]).permutation(len(data["test"]))
    half = len(order) // 2
    pool, judge = (data["test"][torch.from_numpy(np.sort(rows))] for rows in (order[:half], order[half:]))
    metric = data.metric if data.metric in ("mse", "roc_auc") else "accuracy"
    before = _score(run, judge, metric)
    count = min(MEASURED, half // 2)
    told = suggest(made, pool, n=count, seed=seed)
    drawn = np.random.default_rng([8, seed]).permutation(len(pool))[:count]
    chosen = {"suggest": told.rows, "random": drawn}
    unbiased = {"suggest": told.rows[: sum(r.startswith("for the score") for r in told.reasons)], "random": drawn}
    found: dict[str, Any] = {"metric": metric, "before": before, "device": device_name(pick_device(work.device))}
    plain = "mse" if data.task == "regression" else "accuracy"
    for way, rows in chosen.items():
        more = _with(data, pool[torch.from_numpy(np.sort(rows))])
        again = fit(part.method, more, seed=seed, device=work.device, **settings)
        found[way] = {
            "after": _score(again, judge, metric),
            "score_error": abs(
                _score(run, pool[torch.from_numpy(np.sort(unbiased[way]))], plain) - _score(run, judge, plain)
            ),
        }
    return found


def _with(data: Dataset, measured: Split) -> Dataset:
    """The data with the measured rows among the training ones, as an environment of their own."""
    train = data.train
    number = None
    if train.env is not None:
        number = torch.full((len(measured),), train.num_envs, dtype=train.env.dtype)
    return data.with_splits(train=join([train, replace(measured, env=number)]))


def _score(run: Any, split: Split, metric: str) -> float:
    task = run.method.shape.task
    return float(measure(metric, Predictions(run.logits(split), split.y, None, task)))


def _rows(part: Part, work: Work) -> Iterator[Row]:
    places = {seed: work.folder / f"{_safe(part.name)}-{seed}.json" for seed in work.seeds}
    told = {seed: read_json(place, "a table") for seed, place in places.items() if place.exists()}
    if not told:
        return
    metric = next(iter(told.values()))["metric"]
    sign = -1 if metric in LOWER_IS_BETTER else 1
    for way in WAYS:
        gains = [sign * (one[way]["after"] - one["before"]) for one in told.values()]
        errors = [one[way]["score_error"] for one in told.values()]
        yield {
            "dataset": part.data,
            "method": part.method,
            "variant": {"measured": way},
            "metric": f"gain of {metric}",
            "split": "half of test",
            "selection": "val",
            "of_seeds": list(told),
            "published": None,
            "device": next(iter(told.values()))["device"],
            "commit": " and ".join(sorted({str(one["commit"]) for one in told.values()})),
            **summarise(gains),
            "score_error": errors,
        }


def _better(rows: Any) -> Finding:
    """The mean gain of suggested rows against that of random ones, data set by data set."""
    pairs = {}
    for row in rows:
        pairs.setdefault(row["dataset"], {})[row["variant"]["measured"]] = row["mean"]
    whole = {name: pair for name, pair in pairs.items() if len(pair) == 2 and None not in pair.values()}
    if not whole:
        return Finding("not tested", "no data set is finished")
    won = [name for name, pair in whole.items() if pair["suggest"] > pair["random"]]
    told = f"{len(won)} of {len(whole)} data sets"
    return Finding("holds" if 2 * len(won) > len(whole) else "does not hold", told)


CLAIMS = (Claim("Suggested rows improve the score on the shifted half more than rows drawn by chance", _better),)
