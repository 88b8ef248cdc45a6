"""Counterfactual fidelity while methods train: does a prediction come to react to its explanation, or cease to?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from shiftproof.api.fitting import Plan
from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import load_samples
from shiftproof.drawing.figures import Line, draw_curves
from shiftproof.errors import unknown
from shiftproof.methods.base import Method
from shiftproof.papers.gmt.measures import DRAWS, REACTING, SMOKE_GRAPHS, SPLITS, TIMES_GSAT
from shiftproof.registry import methods, register
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, write_json
from shiftproof.runtime.fingerprints import commit
from shiftproof.sweeps.jobs import seeded
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise
from shiftproof.training.trainer import Trainer

# docs/papers/gmt.md#experiments: the simulated extension with 10 and with 100 subgraphs, and what happens without the
# warm-up
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "gsat": ("gsat", {}),
    "gmt-lin": ("gmt-lin", {}),
    "gmt-sam": ("gmt-sam", {}),
    "simulated, 10 samples": ("gmt-simulated", {"samples": 10, "sample_warmup": "single"}),
    "simulated, 100 samples": ("gmt-simulated", {"samples": 100, "sample_warmup": "single"}),
    "100 samples, no warm-up": ("gmt-simulated", {"samples": 100, "sample_warmup": "none"}),
}
EVERY = 5  # epochs between two looks
LOOKED_AT = 500  # graphs of a split
SMOKE = {"epochs": 2, "samples": 2, "reference_epochs": 1}
Look = dict[str, dict[str, float]]  # measures by split


@register("gmt-counterfactual-curves", "recipes")
def gmt_counterfactual_curves() -> Recipe:
    """Counterfactual fidelity of GSAT and GMT epoch by epoch, with and without warm-up.

    Source: docs/papers/gmt.md#experiments.
    """
    note = (
        f"Every {EVERY} epochs, before the epoch, and before the last one: the mean distance between predictions when "
        f"logits of attention are drawn anew {DRAWS} times, on the first {LOOKED_AT} graphs of each split; edge_auc of "
        "the same graphs where the truth is known. mean, std and values are those of the last look, epochs and curves "
        "hold all. gmt-sam is looked at in its second stage; its first is gmt-simulated. times_gsat is the ratio of "
        "means. Settings are the published ones but for the samples and the warm-up that a line names."
    )
    return Recipe(
        "gmt-counterfactual-curves",
        (),
        3,
        0,
        note,
        run=curve_rows,
        draw=draw_reactions_by_epoch,
        data=REACTING,
        ratio=TIMES_GSAT,
    )


def curve_rows(work: Work) -> list[Row]:
    """A row for each data set, line, split and measure; a finished run is not trained again."""
    rows: list[Row] = []
    known = {*REACTING, *(method for method, _ in LINES.values())}
    for name in work.only:
        if name not in known:
            raise unknown("data set or method of this recipe", name, sorted(known))
    chosen = _asked([method for method, _ in LINES.values()], work)
    for data in _asked(REACTING, work):
        for line, (method, settings) in LINES.items():
            if method not in chosen:
                continue
            places = [work.folder / _file(data) / _file(line) / f"seed-{seed}.json" for seed in work.seeds]
            for seed, place in zip(work.seeds, places, strict=True):
                if not place.exists() and not work.collect:
                    write_json(place, train_and_look(seeded(data, seed), method, settings, seed, work))
            found = [read_json(place, "a table") for place in places if place.exists()]
            if found:
                rows += _rows_of(data, line, method, settings, found)
    TIMES_GSAT.write(rows)
    return rows


def train_and_look(data: str, method: str, settings: Mapping[str, Any], seed: int, work: Work) -> dict[str, Any]:
    """Train a method and measure it on the way: the epochs looked at, and what was seen in each."""
    dataset = load_samples(data)
    if work.smoke:
        dataset = dataset.with_splits(**{name: split[:SMOKE_GRAPHS] for name, split in dataset.splits.items()})
        known = {"epochs", *methods[method].options}
        settings = {**settings, **{name: value for name, value in SMOKE.items() if name in known}}
    plan = Plan.make(method, dataset, settings)
    device, epochs = pick_device(work.device), plan.training["epochs"]
    seen: dict[int, Look] = {}

    def look(model: Method, epoch: int) -> None:
        if epoch % (1 if work.smoke else EVERY) == 0 or epoch == epochs - 1:
            seen[epoch] = measures(model, dataset, seed)

    plan.make_method = watched(plan.make_method, look)
    torch.manual_seed(seed)
    trainer = Trainer(**plan.training, seed=seed, device=work.device, progress=work.style)
    trainer.fit(plan.build(None), dataset, config=plan.config(None))
    return {
        "epochs": list(seen),
        "looks": list(seen.values()),
        "seed": seed,
        "device": device_name(device),
        "commit": commit(),
    }


def watched(kind: type[Method], look: Callable[[Method, int], None]) -> type[Method]:
    """The same method, looked at before each of its epochs; it trains as if nobody looked."""

    class Watched(kind):
        def start_epoch(self, epoch: int) -> None:
            super().start_epoch(epoch)
            with torch.random.fork_rng([]):
                look(self, epoch)

    return Watched


def measures(model: Method, dataset: Dataset, seed: int) -> Look:
    """Counterfactual fidelity by its three distances, and the AUC over edges, of each split."""
    from shiftproof.explanations import counterfactual_fidelity, explain, explanation_auc

    seen: Look = {}
    for name in SPLITS:
        graphs = dataset[name]
        assert isinstance(graphs, GraphSet)
        found = counterfactual_fidelity(model, graphs[:LOOKED_AT], draws=DRAWS, seed=seed, resamples=1)
        seen[name] = {f"counterfactual_{distance}": estimate.value for distance, estimate in found.items()}
        if graphs.edge_truth is not None:
            seen[name]["edge_auc"] = explanation_auc(explain(model, graphs[:LOOKED_AT]), resamples=1).value
    return seen


def _rows_of(
    data: str, line: str, method: str, settings: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> list[Row]:
    rows = []
    for split, taken in found[0]["looks"][0].items():
        for metric in taken:
            curves = [[look[split][metric] for look in one["looks"]] for one in found]
            rows.append(
                {
                    "dataset": data,
                    "method": method,
                    "variant": dict(settings),
                    "line": line,
                    "metric": metric,
                    "split": split,
                    "selection": "last",
                    **summarise([curve[-1] for curve in curves]),
                    "of_seeds": [one["seed"] for one in found],
                    "epochs": found[0]["epochs"],
                    "curves": curves,
                    "device": found[0]["device"],
                    "commit": found[0]["commit"],
                    "published": None,
                }
            )
    return rows


def draw_reactions_by_epoch(rows: list[Row], path: Path) -> Path:
    """Total variation against epochs: a row of panels a data set, a column a split."""
    panels: dict[str, dict[str, Line]] = {}
    for row in rows:
        if row["metric"] == "counterfactual_tv":
            points = zip(row["epochs"], zip(*row["curves"], strict=True), strict=True)
            title = f"{row['dataset'].partition(':')[0]}, {row['split']}"
            panels.setdefault(title, {})[row["line"]] = [(epoch, {**row, **summarise(at)}) for epoch, at in points]
    return draw_curves(panels, path, across="epoch", columns=len(SPLITS))


def _asked(names: Sequence[str], work: Work) -> list[str]:
    """Those of the names that are asked for; all where none of them is."""
    return [name for name in names if name in work.only] or list(names)


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)
