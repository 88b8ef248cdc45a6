"""The command `shiftproof`.

Exit status: 0 done, 2 a mistake in what was given (one sentence on stderr), 1 anything else. Commands import what they
need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.errors import ShiftproofError, TrainingDiverged

app = typer.Typer(
    name="shiftproof",
    help="Models that keep working when the data moves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[str, typer.Argument(metavar="DATA", help="A name with options (spmotif-struc:bias=0.9) or a path.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile (CPU) or replay (GPU) the step.")]
Workers = Annotated[int, typer.Option(help="Processes that train side by side.")]
Smiles = Annotated[str | None, typer.Option(help="Your table: the column of SMILES.")]
Label = Annotated[list[str] | None, typer.Option(help="Your table: the column of labels; may be repeated; '*' is all.")]
Env = Annotated[str | None, typer.Option(help="Your table: the column of environments, or scaffold or size.")]
How = Annotated[str | None, typer.Option("--split", help="Your table: scaffold, size, random, column or time.")]
By = Annotated[str | None, typer.Option(help="Your table: the column for --split column or time.")]


def main() -> None:
    """Run the command; what a user got wrong ends as one sentence and status 2."""
    try:
        app()
    except ShiftproofError as error:
        print(f"shiftproof: {error}", file=sys.stderr)
        sys.exit(2)
    except (TrainingDiverged, OSError) as error:
        print(f"shiftproof: {error}", file=sys.stderr)
        sys.exit(1)


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="methods, datasets, recipes, attacks or defences")] = None,
    as_json: Json = False,
) -> None:
    """Show what is there: methods, data sets and their options."""
    from shiftproof.errors import unknown
    from shiftproof.registry import KINDS

    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    chosen = {name: registry for name, registry in KINDS.items() if kind in (None, name)}
    found = {name: [_described(name, entry) for entry in registry] for name, registry in chosen.items()}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for name, entries in found.items():
        if entries or kind is not None:
            columns = ["name", "options", "what it is"]
            rows = [[entry["name"], _short_options(entry["options"]), entry["summary"]] for entry in entries]
            _print_table(name, columns, rows) if rows else print(f"{name}: none yet")


def _described(kind: str, entry: Any) -> dict[str, Any]:
    from shiftproof.api import accepted_settings

    options = entry.options if kind != "methods" else accepted_settings(entry.make)["method"]
    shown = {name: _plain_default(parameter.default) for name, parameter in options.items()}
    return {"name": entry.name, "summary": entry.summary, "options": shown, "works on": list(entry.tags)}


def _plain_default(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _short_options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


@app.command()
def fit(
    data: Data,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method; may be repeated. Left out: a few are tried and one is chosen."),
    ] = None,
    smiles: Smiles = None,
    label: Label = None,
    env: Env = None,
    split: How = None,
    by: By = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train.")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    settings: Sets = None,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=A,B,C", help="Values to try; may be repeated.")
    ] = None,
    balance: Annotated[
        str | None, typer.Option(help="How loss terms become one gradient: weighted (the default) or pair.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="The column that is the environment.")] = None,
    workers: Workers = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep finished runs, go on with killed ones.")] = False,
    compile_: Compile = False,
    device: Device = "auto",
    metric: Annotated[str | None, typer.Option(help="What to report instead of the data set's metric.")] = None,
    table: Annotated[Path | None, typer.Option(help="Also write the results table to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Train methods on a data set and report how they do where the data moved."""
    from shiftproof.bench import Job, expand_grid, results_table, rows_of, run_jobs
    from shiftproof.presets import preset_for
    from shiftproof.registry import methods, parse_options, split_outside
    from shiftproof.training.checkpoint import write_json

    common: dict[str, Any] = {} if balance is None else {"balance": balance}
    common |= parse_options(settings or [], where="--set")
    data = _own_table(data, smiles, label, env, split, by)
    for name in method or []:
        if name != "auto":
            methods[name]
    dataset = _look_at(data, group, out, as_json)
    if dataset.reading and not as_json and "protocol" not in common:
        print(f"settings: {preset_for(dataset).described(common)}", file=sys.stderr)
    if not method or "auto" in method:
        chosen = _choose(dataset, first_seed, device, common, out, as_json)
        method = [chosen if name == "auto" else name for name in method or ["auto"]]
    variants = expand_grid({k: split_outside(v) for k, v in parse_options(grid or [], where="--grid").items()})
    grouping = {} if group is None else {"group": group}
    jobs = [
        Job(
            data=data,
            method=name,
            seed=seed,
            out=out / _folder(name, variant) / f"seed-{seed}",
            settings={**common, **variant, **grouping},
            variant={**common, **variant, **grouping, **({"compile": True} if compile_ else {})},
            resume=resume,
            device=device,
            compile=compile_,
        )
        for name in dict.fromkeys(method)
        for variant in variants
        for seed in range(first_seed, first_seed + seeds)
    ]
    _check_before_training(jobs, metric)
    deque(run_jobs(jobs, workers=workers, style="none" if as_json else "auto"), maxlen=0)
    rows = rows_of(jobs, metric)
    if table is not None:
        write_json(table, results_table(table.stem, _command_line(), rows))
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    _print_rows(rows)
    print(f"runs in {out}; a page of them: shiftproof report {out}")


def _own_table(data: str, smiles: str | None, label: list[str] | None, env: Any, split: Any, by: Any) -> str:
    """The data with what was said of its columns, as one text."""
    from shiftproof.data.tables import with_options

    return with_options(data, {"smiles": smiles, "label": label or None, "env": env, "split": split, "by": by})


def _look_at(data: str, group: str | None, out: Path, quiet: bool) -> Any:
    """The data set, read with a progress bar; what was left out of a table of the user's own is said and written."""
    from shiftproof.bench import Job
    from shiftproof.bench.jobs import load_for
    from shiftproof.data.watching import shown_by
    from shiftproof.predictions import write_rejected
    from shiftproof.training.progress import progress

    grouping = {} if group is None else {"group": group}
    if out.exists() and not out.is_dir():
        raise ShiftproofError(f"{out} is a file; --out names a folder")
    with shown_by(lambda title, total: progress(title, total, "none" if quiet else "auto")):
        dataset = load_for(Job(data=data, method="erm", seed=0, out=out, settings=grouping))
    if dataset.rejected:
        write_rejected(out / "rejected.csv", dataset.rejected)
    for note in dataset.notes:
        more = f"; see {out / 'rejected.csv'}" if dataset.rejected and "left out" in note else ""
        print(f"note: {note}{more}", file=sys.stderr)
    return dataset


def _choose(dataset: Any, seed: int, device: str, settings: dict[str, Any], out: Path, quiet: bool) -> str:
    """The method that `auto` takes, said and written to auto.json."""
    from shiftproof.auto import choose
    from shiftproof.training.checkpoint import write_json

    if (out / "auto.json").exists():
        kept = json.loads((out / "auto.json").read_text())
        if isinstance(kept, dict) and "method" in kept:
            print(f"auto chose {kept.get('reason')}", file=sys.stderr)
            return str(kept["method"])
    found = choose(dataset, seed=seed, device=device, progress="none" if quiet else "auto", settings=settings)
    write_json(out / "auto.json", found.to_json())
    print(f"auto chose {found.reason}", file=sys.stderr)
    return found.method


def _folder(method: str, variant: dict[str, Any]) -> str:
    return "_".join([method, *(f"{key}-{value}" for key, value in variant.items())])


def _check_before_training(jobs: list[Any], metric: str | None) -> None:
    """Find a misspelt setting or metric or a taken folder before the first run, not after an hour of training."""
    from shiftproof.api import Plan
    from shiftproof.bench.jobs import load_for
    from shiftproof.training.metrics import require_measure
    from shiftproof.training.run import CONFIG

    dataset = load_for(jobs[0])
    if metric not in (None, "edge_auc", "edge_precision"):  # these two come from explanations, not predictions
        require_measure(metric, dataset.task)
    for job in jobs:
        Plan.make(job.method, dataset, {k: v for k, v in job.settings.items() if k != "group"})
        if not job.resume and (job.out / CONFIG).exists():
            raise ShiftproofError(f"{job.out} already holds a run; give --resume to keep it or another --out")


def _command_line() -> str:
    return shlex.join(["shiftproof", *sys.argv[1:]])


@app.command()
def bench(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A table or analysis; --list shows them all.")
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="Show every recipe: data, methods, seeds, selection, sources, missing files."),
    ] = False,
    report_: Annotated[
        bool,
        typer.Option("--report", help="Train nothing; a page and verdicts of the measured table, or of all tables."),
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds a cell; the recipe's own number by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs; finished ones are kept.")] = Path("runs/bench"),
    results: Annotated[Path, typer.Option(help="Folder for the table and its figure.")] = Path("results"),
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only cells whose data or method contains this; may be repeated.")
    ] = None,
    workers: Workers = 1,
    engine: Annotated[str, typer.Option(help="Where runs are trained: local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="The Ray cluster; left out: one is started here.")] = None,
    gpu_share: Annotated[float, typer.Option(help="Ray: the share of a GPU that a run takes.")] = 0.25,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="FILE.py:NAME", help="A method or data set of your own joins; may be repeated."),
    ] = None,
    search: Annotated[
        int | None, typer.Option(min=1, help="Settings to try for every method and data set, chosen on validation.")
    ] = None,
    search_seeds: Annotated[int, typer.Option(min=1, help="Seeds that each setting is tried with.")] = 1,
    sampler: Annotated[str, typer.Option(help="Who proposes settings: random or optuna.")] = "random",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="One short epoch on few samples a run; nothing counts.")
    ] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Train nothing; make the table from the runs finished so far.")
    ] = False,
    device: Device = "auto",
    compile_: Compile = False,
    as_json: Json = False,
) -> None:
    """Train a published table or analysis, write it with the printed figures beside ours, and draw what it draws."""
    from shiftproof.bench.command import Asked, engine_named, jobs_of, measure
    from shiftproof.bench.search import Search
    from shiftproof.registry import recipes

    if list_all:
        _list_recipes(as_json)
        return
    if recipe is None:
        if not report_:
            raise ShiftproofError("name a recipe; `shiftproof bench --list` shows them all")
        _report_tables(results, out, as_json)
        return
    entry = recipes[recipe]
    if report_ and not collect and not smoke:
        _report_table(recipe, results, out, as_json)
        return
    asked = Asked(
        recipe=recipe,
        out=out,
        results=results,
        seeds=seeds,
        only=tuple(only or ()),
        smoke=smoke,
        collect=collect,
        device=device,
        compile=compile_,
        style="none" if as_json else "auto",
        engine=engine_named(engine, workers=workers, address=address, gpu_share=gpu_share),
        outside=tuple(with_ or ()),
        search=None if search is None else Search(search, search_seeds, sampler),  # type: ignore[arg-type]
    )
    if asked.search is not None and not as_json:
        jobs, joined = jobs_of(asked, entry.make())
        print(asked.search.describe([*jobs, *joined]))
    command = _command_line().replace(" --collect", "").replace(" --report", "")  # which trains what is missing
    rows, written = measure(asked, command)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    _print_rows(rows)
    for file in written:
        print(f"written: {file}")
    if report_ and written:
        _report_table(asked.name, written[0].parent, out, as_json)


def _list_recipes(as_json: bool) -> None:
    """Every recipe with what it needs."""
    from shiftproof.bench.listing import describe
    from shiftproof.registry import recipes

    found = [describe(entry) for entry in recipes]
    if as_json:
        print(json.dumps([one.to_json() for one in found], indent=1))
        return
    sections = {}
    for one in found:
        counts = f"{one.runs} runs, {one.seeds} seeds" if one.runs else f"{one.seeds} seeds, computed in one go"
        lines = [one.summary, f"data: {', '.join(one.data) or 'none'}"]
        lines += [f"methods: {', '.join(one.methods)}"] if one.methods else []
        lines += [f"{counts}; epoch chosen by: {', '.join(one.selection)}"] if one.selection else [counts]
        lines.append(f"published figures: {one.published}; claims: {one.claims}")
        sections[one.name] = [*lines, *(f"MISSING: {sentence}" for sentence in one.missing)]
    _print_sections(f"{len(found)} recipes", sections)


def _report_table(name: str, results: Path, out: Path, as_json: bool) -> None:
    """A measured table beside the printed one: on the terminal and as a page."""
    from shiftproof.bench.command import measured_table
    from shiftproof.bench.measured import held_against
    from shiftproof.report import write_comparison
    from shiftproof.report.bench import in_words

    table = measured_table(name, results)
    found = held_against(name, table["rows"])
    page = write_comparison(
        name, table["rows"], out / name / "report.html", note=table.get("note", ""), command=table["command"]
    )
    if as_json:
        print(json.dumps({"page": str(page), **found.to_json()}, indent=1))
        return
    _print_rows(table["rows"])
    _print_sections("", in_words(found))
    print(f"page: {page}")


def _report_tables(results: Path, out: Path, as_json: bool) -> None:
    """All measured tables on one page."""
    from shiftproof.bench.measured import by_chapter, read_results
    from shiftproof.report import write_leaderboard

    page = write_leaderboard(results, out / "leaderboard.html")
    chapters = {chapter.title: chapter.counts for chapter in by_chapter(read_results(results))}
    if as_json:
        print(json.dumps({"page": str(page), "chapters": chapters}, indent=1))
        return
    columns = ["chapter", "rows", "with a printed deviation", "within it", "claims hold", "do not hold", "not tested"]
    _print_table("", columns, [[title, *map(str, counts.values())] for title, counts in chapters.items()])
    print(f"page: {page}")


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="The CSV (or .json) file to write.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; left out: test, and all rows of a table of your own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what a trained run predicts for every sample of a data set."""
    from shiftproof.predictions import write_predictions

    written = write_predictions(run, data, out, split=split)
    if not as_json and "rejected" in written:
        print(f"note: {written['rejected']} rows are left out; see {written['rejected_file']}", file=sys.stderr)
    print(json.dumps(written) if as_json else f"{written['samples']} predictions in {out}")


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of the data; left out: test, and all rows of a table of your own.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, help="How many graphs to draw.")] = 12,
    by: Annotated[
        str | None,
        typer.Option(help="own, gnnexplainer, pgexplainer, graphmask, gradient or occlusion; own where there are any."),
    ] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Write which edges and nodes decided, how good that explanation is, and a picture."""
    from shiftproof.explain import write_explanations
    from shiftproof.predictions import samples_for
    from shiftproof.registry import parse_options
    from shiftproof.training.run import Run

    options: dict[str, Any] = parse_options(settings or [], where="--set")
    trained = Run.load(run)
    asked = samples_for(trained, data, split)[0]
    written = write_explanations(trained, asked, out, graphs=graphs, by=by, options=options)
    if as_json:
        print(json.dumps(written, indent=1))
        return
    for name, found in written["measures"].items():
        if found["value"] is not None:
            print(f"{name} {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]")
    print(f"scores of {written['graphs']} graphs in {written['table']}, picture in {written['picture']}")


@app.command()
def diagnose(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Folder for diagnosis.json, .svg and .html.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which samples are drawn and how the assistant starts.")] = 0,
    assistant: Annotated[
        bool, typer.Option("--assistant/--no-assistant", help="Train a small network and see what it follows.")
    ] = True,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the assistant.")] = 10,
    group: Annotated[str | None, typer.Option(help="The column that is the environment.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say which shifts the data hold, how strong the shortcuts are, what it may cost and what cannot be known."""
    from shiftproof.data import load
    from shiftproof.diagnose import diagnose as ask
    from shiftproof.diagnose import write_diagnosis

    if out is not None and out.exists() and not out.is_dir():
        raise ShiftproofError(f"{out} is a file; --out names a folder")
    style = "none" if as_json else "auto"
    found = ask(load(data, group=group), seed=seed, assistant=assistant, epochs=epochs, device=device, progress=style)
    written = [] if out is None else write_diagnosis(found, out)
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
        return
    _print_sections(f"Diagnosis of {found.data}", found.sections())
    for file in written:
        print(f"written: {file}")


@app.command()
def attack(
    data: Data,
    name: Annotated[str, typer.Option("--attack", "-a", help="A name with options (tdgia:step=0.1).")] = "pgd",
    hao: Annotated[float, typer.Option(min=0.0, help="How much injected nodes must be like their neighbours.")] = 0.0,
    defences: Annotated[str, typer.Option(help="all, vanilla, robust, combo, or names with commas.")] = "all",
    out: Annotated[Path | None, typer.Option(help="Folder for perturbation.npz, attack.json and defences.")] = None,
    budget_nodes: Annotated[int | None, typer.Option(help="Injected nodes; as published, or 2 %.")] = None,
    budget_edges: Annotated[int | None, typer.Option(help="Edges of each injected node.")] = None,
    flips: Annotated[int | None, typer.Option(help="Flipped edges; 5 % of the edges by default.")] = None,
    add_only: Annotated[bool, typer.Option("--add-only", help="Flips only add edges.")] = False,
    inner: Annotated[bool, typer.Option("--inner", help="Injected nodes may be joined to each other.")] = False,
    low: Annotated[float | None, typer.Option(help="The least feature of an injected node.")] = None,
    high: Annotated[float | None, typer.Option(help="The largest feature of an injected node.")] = None,
    compat: Annotated[str | None, typer.Option(help="'reference' for the released behaviour.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the surrogate and the attack.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each defence.")] = 1,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of every training; as published.")] = None,
    settings: Sets = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Attack a node graph and say how every defence does before and after."""
    from shiftproof.data.loading import load_nodes
    from shiftproof.registry import parse_options
    from shiftproof.robustness.command import attack_and_defend, budget_for
    from shiftproof.training.trainer import pick_device

    graph = load_nodes(data).to(pick_device(device))
    limits: Any = {"nodes": budget_nodes, "edges_per_node": budget_edges, "edges": flips, "low": low, "high": high}
    found = attack_and_defend(
        graph,
        name,
        budget=budget_for(graph, name, **limits, add_only=add_only, inner=inner),
        hao=hao,
        defences=defences.split(","),
        out=out,
        compat=compat,  # type: ignore[arg-type]
        seed=seed,
        seeds=seeds,
        epochs=epochs,
        options=parse_options(settings or [], where="--set"),
        progress="none" if as_json else "auto",
    )
    if as_json:
        print(json.dumps(found, indent=1))
        return
    body = [
        [row["defence"], row["category"] or "", f"{100 * row['clean']:.1f}", f"{100 * row['attacked']:.1f}"]
        for row in found["defences"]
    ]
    _print_table(f"{name} on {graph.name}, accuracy in %", ["defence", "kind", "clean", "attacked"], body)
    alike = found["homophily"]
    injected = "" if alike["injected"] is None else f", of injected nodes {alike['injected']:.3f}"
    print(f"homophily {alike['clean']:.3f}, attacked {alike['attacked']:.3f}{injected}")
    spent = ", ".join(f"{key} {value}" for key, value in found["spent"].items() if value)
    print(f"spent: {spent}" + ("" if out is None else f"; written: {out / 'perturbation.npz'}, {out / 'attack.json'}"))


@app.command()
def audit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for audit.html, audit.json and the perturbations.")],
    model: Annotated[str | None, typer.Option(help="Your PyG model, file.py:Class; the file is run.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights, a .safetensors file.")] = None,
    attacks: Annotated[str | None, typer.Option(help="Injection attacks, with commas.")] = None,
    hao: Annotated[float | None, typer.Option(min=0.0, help="Weight of homophily; by default the graph's own.")] = None,
    defences: Annotated[str | None, typer.Option(help="all, vanilla, robust, combo, or names with commas.")] = None,
    budget_nodes: Annotated[int | None, typer.Option(help="Injected nodes; as published, or 2 %.")] = None,
    budget_edges: Annotated[int | None, typer.Option(help="Edges of each injected node.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of every attack; as published.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of every training; as published.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    settings: Sets = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Attack a node graph in every way, against your model and the defences, and make a page of it."""
    from shiftproof.data.loading import load_nodes
    from shiftproof.registry import parse_options
    from shiftproof.report import write_audit
    from shiftproof.robustness.audit import ATTACKS, DEFENCES, summary
    from shiftproof.robustness.audit import audit as ask
    from shiftproof.robustness.command import budget_for, your_model
    from shiftproof.training.trainer import pick_device

    if out.exists() and not out.is_dir():
        raise ShiftproofError(f"{out} is a file; --out names a folder")
    graph = load_nodes(data).to(pick_device(device))
    given = your_model(model, weights, graph, parse_options(settings or [], where="--set"))
    numbers, found = ask(
        graph,
        model=given,
        model_name=model,
        attacks=attacks.split(",") if attacks else ATTACKS,
        hao=hao,
        defences=defences.split(",") if defences else DEFENCES,
        budget=budget_for(graph, "pgd", nodes=budget_nodes, edges_per_node=budget_edges),
        steps=steps,
        epochs=epochs,
        seed=seed,
        folder=out / "defences",
        progress="none" if as_json else "auto",
    )
    page = write_audit(numbers, out, found)
    if as_json:
        print(json.dumps({"page": str(page), **numbers.to_json()}, indent=1))
        return
    _print_sections(f"Audit of {graph.name}", {"In short": summary(numbers)})
    print(f"page: {page}")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with runs in it, at any depth.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; DIR/report.html by default.")] = None,
    as_json: Json = False,
) -> None:
    """Make a page of all the runs in a folder: table, environments, training curves."""
    from shiftproof.report import write_report

    page = write_report(folder, out or folder / "report.html")
    print(json.dumps({"page": str(page)}) if as_json else f"page: {page}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    workers: Workers = 2,
    as_json: Json = False,
) -> None:
    """Train five methods on embedded data whose shortcut turns around at test time, and make a page of it."""
    from shiftproof.demo import run_demo

    rows, page = run_demo(out, seeds=seeds, workers=workers, quiet=as_json)
    if as_json:
        print(json.dumps({"rows": rows, "page": str(page)}, indent=1))
        return
    _print_rows(rows)
    print(f"page: {page}")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """Mean and deviation of each row, in the unit the papers print."""
    body = []
    for row in rows:
        variant = ", ".join(f"{key}={value}" for key, value in row["variant"].items())
        figure = row["published"]
        body.append(
            [
                row["dataset"],
                row["method"],
                variant,
                _figure(row["mean"], row["std"]),
                str(row["seeds"]),
                _figure(figure["mean"], figure["std"]) if figure else "-",
                row["selection"],
                f"{row['ratio']:.2f}" if row.get("ratio") is not None else "",
            ]
        )
    what = "/".join(dict.fromkeys(f"{row['split']} {row['metric']}" for row in rows)) or "result"
    columns = ["data", "method", "settings", what, "seeds", "published", "epoch chosen by", "times erm"]
    optional = ("settings", "times erm")
    keep = [i for i, name in enumerate(columns) if name not in optional or any(row[i] for row in body)]
    _print_table("", [columns[i] for i in keep], [[row[i] for i in keep] for row in body])


def _figure(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "undefined"
    return f"{mean:.4f}" if std is None else f"{mean:.4f} ± {std:.4f}"


def _print_sections(title: str, sections: dict[str, list[str]]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(Text(title, style="bold"))
    for topic, lines in sections.items():
        console.print(Text(f"\n{topic}", style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


if __name__ == "__main__":
    main()
