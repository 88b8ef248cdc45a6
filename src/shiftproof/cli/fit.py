"""`shiftproof fit`: methods trained on a data set."""

from __future__ import annotations

import json
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import (
    By,
    Compile,
    Data,
    Device,
    DryRun,
    Env,
    Fuse,
    How,
    Json,
    Label,
    Seeds,
    Sets,
    Smiles,
    Stack,
    Workers,
    app,
    command_line,
    seeds_named,
)
from shiftproof.cli.printing import print_rows
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import MOST_SEED

MANY = 10  # so many runs are said to take how long before they begin


@app.command()
def fit(
    data: Data,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="A method (vrex, vrex:penalty=10) or FILE.py:CLASS; may be repeated. Left out: one is chosen.",
        ),
    ] = None,
    smiles: Smiles = None,
    label: Label = None,
    env: Env = None,
    split: How = None,
    by: By = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    seeds: Seeds = "1",
    first_seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="The first seed.")] = 0,
    settings: Sets = None,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=A,B,C", help="Values to try; may be repeated.")
    ] = None,
    balance: Annotated[
        str | None, typer.Option(help="How loss terms become one gradient: weighted (the default) or pair.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="The column that is the environment.")] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="How long choosing and training may take where no method is named.")
    ] = 5.0,
    workers: Workers = 1,
    stack: Stack = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep finished runs, go on with killed ones.")] = False,
    compile_: Compile = False,
    fuse: Fuse = False,
    device: Device = "auto",
    metric: Annotated[
        str | None, typer.Option(help="What to report instead of the data set's metric (accuracy, mcc, ...).")
    ] = None,
    dry_run: DryRun = False,
    table: Annotated[Path | None, typer.Option(help="Also write the results table to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Train methods on a data set and report how they do where the data moved."""
    from shiftproof.presets import preset_for
    from shiftproof.registry import parse_options, split_outside
    from shiftproof.runtime.files import write_json
    from shiftproof.sweeps import Job, expand_grid, results_table, rows_of, run_jobs
    from shiftproof.sweeps.cost import estimate
    from shiftproof.sweeps.side_by_side import named_method

    common: dict[str, Any] = {} if balance is None else {"balance": balance}
    common |= parse_options(settings or [], where="--set")
    said = {"smiles": smiles, "label": label or None, "env": env, "split": split, "by": by}
    columns = {key: value for key, value in said.items() if value is not None}
    numbers = seeds_named(seeds, first_seed)
    entrants = [named_method(name) for name in dict.fromkeys(method or ["auto"])]
    dataset = _look_at(data, columns, group, out, as_json)
    if dataset.reading and not as_json and "protocol" not in common:
        print(f"settings: {preset_for(dataset).described(common)}", file=sys.stderr)
    of_auto: dict[str, Any] = {}
    _how_far(dataset, out, as_json)
    if any(one.method == "auto" for one in entrants) and not dry_run:
        chosen, of_auto = _choose(dataset, numbers[0], device, common, out, as_json, minutes)
        entrants = [replace(one, method=chosen) if one.method == "auto" else one for one in entrants]
        of_auto = {chosen: of_auto}
    variants = expand_grid({k: split_outside(v) for k, v in parse_options(grid or [], where="--grid").items()})
    grouping = {} if group is None else {"group": group}
    compiled = "fused" if fuse else compile_
    jobs = [
        Job(
            data=data,
            method=one.method,
            seed=seed,
            out=out / _folder(one.method, {**one.settings, **variant}) / f"seed-{seed}",
            settings={**_taken(one.method, {**common, **one.settings}, of_auto), **variant, **grouping},
            variant={**common, **one.settings, **variant, **grouping, **({"compile": compiled} if compiled else {})},
            resume=resume,
            device=device,
            compile=compiled,
            columns=columns,
            outside=one.outside,
        )
        for one in entrants
        for variant in variants
        for seed in numbers
    ]
    _check_before_training([job for job in jobs if job.method != "auto"], dataset, metric)
    if dry_run or (len(jobs) >= MANY and not as_json):
        print(estimate(jobs, workers=workers).sentence, file=sys.stdout if dry_run else sys.stderr)
    if dry_run:
        return
    deque(run_jobs(jobs, workers=workers, stack=stack, style="none" if as_json else "auto"), maxlen=0)
    _draw_numbers(jobs, dataset)
    rows = rows_of(jobs, metric)
    if table is not None:
        write_json(table, results_table(table.stem, command_line(), rows))
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    from shiftproof.report.answer import answers

    for line in answers(out, {dataset.spec}):
        print(line)
    print_rows(rows)
    if any(row["mean"] is None for row in rows):
        print("undefined: the measure has no value, as where all test samples are of one class; --metric names another")
    print(f"runs in {out}; a page of them: shiftproof report {out}")


def _look_at(data: str, columns: dict[str, Any], group: str | None, out: Path, quiet: bool) -> Any:
    """The data set, read with a progress bar; what was left out of a table of the user's own is said and written."""
    from shiftproof.api.predicting import write_rejected
    from shiftproof.runtime.files import require_folder
    from shiftproof.runtime.progress import progress
    from shiftproof.runtime.progress_hook import shown_by
    from shiftproof.sweeps.jobs import DataKey, load_by

    require_folder(out)
    with shown_by(lambda title, total: progress(title, total, "none" if quiet else "auto")):
        dataset = load_by(DataKey.of(data, group=group, columns=columns))
    if dataset.rejected:
        write_rejected(out / "rejected.csv", dataset.rejected)
    for note in dataset.notes:
        more = f"; see {out / 'rejected.csv'}" if dataset.rejected and "left out" in note else ""
        print(f"note: {note}{more}", file=sys.stderr)
    return dataset


MOST_COMPARED = 2000  # test molecules, each with every training molecule


def _how_far(dataset: Any, out: Path, quiet: bool) -> None:
    """How far the test molecules lie from training, said and drawn; nothing where these are no molecules."""
    from shiftproof.data.graphs import GraphSet
    from shiftproof.data.readers.chemistry import is_molecule

    train, test = dataset.train, dataset.splits.get("test")
    if quiet or not isinstance(train, GraphSet) or test is None or not is_molecule(train) or not dataset.reading:
        return
    from shiftproof.data.readers.molecule_clusters import nearest, said_of
    from shiftproof.drawing.molecule_figures import draw_likeness

    near = nearest(test, train, MOST_COMPARED)
    picture = draw_likeness(
        near, out / "similarity.png", title=f"split: {dataset.options.get('split', 'given')}; the line is the median"
    )
    print(f"{said_of(near)}; see {picture}", file=sys.stderr)


def _draw_numbers(jobs: list[Any], dataset: Any) -> None:
    """Beside every run that predicts numbers of a table, predicted against measured on the test rows."""
    if dataset.task != "regression" or not dataset.reading or "test" not in dataset.splits:
        return
    from shiftproof.drawing.molecule_figures import draw_scatter
    from shiftproof.training import Run

    name = str(dataset.reading["label"][0])
    for job in jobs:
        run = Run.load(job.out)
        rmse = run.metrics["test"]["rmse"]
        said = run.logits(dataset.test).double().numpy()
        title = f"{job.label}: RMSE {rmse:.3f} on {len(said)} test rows"
        draw_scatter(said, dataset.test.y.double().numpy(), job.out / "scatter.png", label=name, title=title)


def _choose(
    dataset: Any, seed: int, device: str, settings: dict[str, Any], out: Path, quiet: bool, minutes: float = 5.0
) -> tuple[str, dict[str, Any]]:
    """The method that `auto` takes and its settings, said and written to auto.json."""
    from shiftproof.api.choosing import choose, require_known, to_be_tried
    from shiftproof.runtime.files import write_json

    asked = {"data": dataset.spec, "seed": seed, "settings": settings}
    if (out / "auto.json").exists():
        kept = json.loads((out / "auto.json").read_text())
        if isinstance(kept, dict) and "method" in kept and kept.get("asked") == asked:
            print(f"auto chose {kept.get('reason')}", file=sys.stderr)
            return str(kept["method"]), dict(kept.get("settings") or {})
    require_known(settings, dataset)
    if not quiet:
        print(f"auto tries {to_be_tried(dataset, settings, minutes)}", file=sys.stderr)
    style = "none" if quiet else "auto"
    found = choose(dataset, seed=seed, device=device, minutes=minutes, progress=style, settings=settings)
    write_json(out / "auto.json", {**found.to_json(), "asked": asked})
    print(f"auto chose {found.reason}", file=sys.stderr)
    return found.method, found.settings


def _taken(method: str, settings: dict[str, Any], of_auto: dict[str, Any]) -> dict[str, Any]:
    """The settings of a method; where `auto` chose it, its own and those given that it knows."""
    from shiftproof.api.candidates import accepts

    if method not in of_auto:
        return settings
    return {**{key: value for key, value in settings.items() if accepts(method, key)}, **of_auto[method]}


def _folder(method: str, variant: dict[str, Any]) -> str:
    return "_".join([method, *(f"{key}-{value}" for key, value in variant.items())])


def _check_before_training(jobs: list[Any], dataset: Any, metric: str | None) -> None:
    """Find a misspelt setting or metric or a taken folder before the first run, not after an hour of training."""
    from shiftproof.api.fitting import Plan
    from shiftproof.statistics.metrics import require_measure
    from shiftproof.training.run import CONFIG

    if metric not in (None, "edge_auc", "edge_precision"):  # these two come from explanations, not predictions
        require_measure(metric, dataset.task)
    for job in {job.out.parent: job for job in jobs}.values():  # seeds differ in nothing that could be wrong
        Plan.make(job.method, dataset, {k: v for k, v in job.settings.items() if k != "group"})
    for job in jobs:
        if not job.resume and (job.out / CONFIG).exists():
            raise ShiftproofError(f"{job.out} already holds a run; give --resume to keep it or another --out")
