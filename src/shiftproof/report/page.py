"""All runs of a folder on one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets
from shiftproof.report import figures
from shiftproof.report import sentences as words
from shiftproof.report.answer import next_step, worst_environment
from shiftproof.report.confidence import confidence_of
from shiftproof.report.records import find_runs
from shiftproof.report.repeat import command_of, pictures, why_chosen
from shiftproof.report.rows import Row, differing, make_rows, shown, worth_showing
from shiftproof.report.significance import interval, significance_note
from shiftproof.runtime.files import write_atomic
from shiftproof.runtime.fingerprints import versions

TEMPLATE = "page.html.j2"
MOST_ENVIRONMENTS = 30  # more would bury the page; the rest is in metrics.json
ENVIRONMENTS_AS_COLUMNS = 8
LONGEST_COLUMN_NAME = 32  # longer names of environments stand as rows
MOST_ROWS_DRAWN = 24


def write_report(folder: str | Path, out: str | Path, *, title: str | None = None, note: str | None = None) -> Path:
    """Write one self-contained HTML page about all runs below a folder and return its path.

    The page has a summary in words, a table of every split, the environments of the test split, figures, and the
    settings, seeds and commands behind them; pictures that `explain` wrote below the folder are shown. It loads
    nothing, its one script sorts tables, and the same runs give the same bytes. `note` is a paragraph of your own,
    printed below the summary.
    """
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise ShiftproofError(f"{folder} is not a folder; a report is made of a folder with runs in it")
    records, unreadable = find_runs(folder)
    if not records:
        detail = f"; {unreadable[0].folder}: {unreadable[0].reason}" if unreadable else ""
        raise ShiftproofError(f"there is no finished run in {folder} or below it{detail}")
    rows = make_rows(records)
    by_data: dict[str, list[Row]] = {}
    for row in rows:
        by_data.setdefault(row.data, []).append(row)
    page = template(TEMPLATE).render(
        title=title or _title(by_data),
        note=note,
        chosen=why_chosen(folder, records),
        warnings=words.warnings(rows),
        unreadable=unreadable,
        overview=_overview(rows),
        sections=[_section(data, some, n, len(by_data) > 1) for n, (data, some) in enumerate(by_data.items())],
        settings=_settings(rows),
        seeds=[_origin(row) for row in rows],
        several=len(by_data) > 1,
        versions=versions(),
        pictures=pictures(folder, records),
        commands=[(row.label, command_of(row)) for row in rows],
        commits=sorted({str(run.timing["commit"]) for row in rows for run in row.runs if run.timing.get("commit")}),
        devices=sorted({str(run.timing["device"]) for row in rows for run in row.runs if run.timing.get("device")}),
        runs=len(records),
    )
    write_atomic(out, page)
    return out


def template(name: str) -> Any:
    """A page's template; it may include the stylesheet and import the cells that all pages share."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(part: str) -> str:
        return files("shiftproof.report").joinpath(part).read_text(encoding="utf-8")

    settings = Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return settings.get_template(name)


def _title(by_data: dict[str, list[Row]]) -> str:
    names = list(by_data)
    return f"Runs on {_heading(names[0])}" if len(names) == 1 else f"Runs on {len(names)} data sets"


def _heading(data: str) -> str:
    """What data are called in a heading: a file of the user's own by its name, without folder and options."""
    source = data.partition(":")[0]
    return data if source in datasets else Path(source).name


def _overview(rows: Sequence[Row]) -> dict[str, Any]:
    """The table of all rows; a split has a column where any run has it."""
    present = dict.fromkeys(split for row in rows for split in row.runs[0].metrics)
    first = [name for name in ("train", "val") if name in present]
    last = [name for name in ("test",) if name in present]
    splits = [*first, *(name for name in present if name not in ("train", "val", "test")), *last]
    best = {id(order[0]) for order in _orders(rows) if len(order) > 1}
    return {
        "splits": splits,
        "mixed": len({(row.data, row.metric) for row in rows}) > len({row.data for row in rows}),
        "same_metric": len({row.metric for row in rows}) == 1,
        "metric": words.metric_name(rows[0].metric, str(rows[0].runs[0].config["task"])),
        "published": any(row.published for row in rows),
        "intervals": any(_interval(row) != "–" for row in rows),
        "rows": [
            {
                "data": row.data,
                "label": row.label,
                "metric": words.metric_name(row.metric, str(row.runs[0].config["task"])),
                "seeds": len(row.runs),
                "scores": [_cell(row, split) for split in splits],
                "interval": _interval(row),
                "drop": words.spread(row.drop()),
                "from": row.reference or "–",
                "published": words.spread(dict(row.published)) if row.published else "–",
                "selection": words.selection_name(row.selection),
                "oracle": row.is_oracle,
                "best": id(row) in best,
            }
            for row in rows
        ],
    }


def _interval(row: Row) -> str:
    """The 95 % interval of the mean on test."""
    found = interval((row.scores("test") or {"values": []})["values"])
    return "–" if found is None else f"{words.figure(found[0])} to {words.figure(found[1])}"


def _orders(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.data, row.metric), []).append(row)
    return [order for group in groups.values() if (order := words.judged(group))]


def _cell(row: Row, split: str) -> dict[str, Any]:
    summary = row.scores(split)
    mean = None if summary is None else summary["mean"]
    return {"text": words.spread(summary), "below": row.chance is not None and mean is not None and mean < row.chance}


def _section(data: str, rows: list[Row], number: int, several: bool) -> dict[str, Any]:
    """What is said about one data set; rows with another metric than the first stand in the table alone."""
    metric = rows[0].metric
    same = [row for row in rows if row.metric == metric]
    task = str(rows[0].runs[0].config["task"])
    name = words.metric_name(metric, task)
    drawn = same[:MOST_ROWS_DRAWN]
    return {
        "data": data,
        "heading": data if several else _heading(data),
        "provenance": str(rows[0].runs[0].config.get("provenance") or "not recorded"),
        "conclusion": words.conclusion(same),
        "worst": worst_environment(same),
        "next": next_step(same, data),
        "significance": significance_note(words.judged(same)),
        "metric": name,
        "chance": None if same[0].chance is None else words.figure(same[0].chance),
        "reference": same[0].reference,
        "published": any(row.published for row in drawn),
        "scores": figures.scores_figure(drawn, name, f"scores-{number}"),
        "losses": figures.loss_figure(drawn, f"losses-{number}"),
        "tracked": figures.tracked_figure(drawn, name, f"tracked-{number}"),
        "left_out": len(rows) - len(drawn),
        "environments": _environments(same, task),
        "confidence": confidence_of(rows),
    }


def _environments(rows: Sequence[Row], task: str) -> dict[str, Any] | None:
    """The test split environment by environment, the mean over the seeds."""
    metric = _inside_environments(rows[0], task)
    values: dict[str, dict[int, list[float | None]]] = {}
    samples: dict[str, int] = {}
    for number, row in enumerate(rows):
        for run in row.runs:
            for env, found in (run.metrics.get("test", {}).get("by_env") or {}).items():
                values.setdefault(env, {}).setdefault(number, []).append(found.get(metric))
                samples.setdefault(env, int(found.get("samples", 0)))
    if len(values) < 2:
        return None
    means = {env: [_mean(by_row.get(number)) for number in range(len(rows))] for env, by_row in values.items()}
    names = list(means)
    if len(names) > MOST_ENVIRONMENTS:
        sign = -1 if rows[0].lower_is_better else 1
        hardest = sorted(names, key=lambda env: sign * (_mean(means[env]) or 0.0))[:MOST_ENVIRONMENTS]
        names = [env for env in names if env in set(hardest)]
    chance = 1 / max(int(rows[0].runs[0].config.get("num_classes") or 2), 2) if metric == "accuracy" else None
    cells = {env: [_shaded(value, chance, metric) for value in means[env]] for env in names}
    labels = [row.label for row in rows]
    column = rows[0].runs[0].metrics["test"].get("environment")
    heads = [{"name": _environment_name(env, column), "samples": samples[env]} for env in names]
    wide = len(names) <= ENVIRONMENTS_AS_COLUMNS and max(len(head["name"]) for head in heads) <= LONGEST_COLUMN_NAME
    return {
        "measure": words.metric_name(metric),
        "column": column,
        "wide": wide,
        "heads": heads,
        "labels": labels,
        "lines": [[cells[env][number] for env in names] for number in range(len(rows))]
        if wide
        else [cells[env] for env in names],
        "left_out": len(means) - len(names),
        "chance": None if chance is None else words.figure(chance),
    }


def _environment_name(env: str, column: str | None) -> str:
    """A number is called after its column; a name says enough, since the column stands above the table."""
    return f"{column} {env}" if column and re.fullmatch(r"-?[\d.]+%?", env) else env


def _inside_environments(row: Row, task: str) -> str:
    """The measure shown inside an environment: the metric itself, or what a metric over environments is made of."""
    found = next(iter((row.runs[0].metrics.get("test", {}).get("by_env") or {"": {}}).values()))
    return row.metric if row.metric in found else ("pearson" if task == "regression" else "accuracy")


def _mean(values: Sequence[float | None] | None) -> float | None:
    known = [value for value in values or () if value is not None]
    return sum(known) / len(known) if known else None


def _shaded(value: float | None, chance: float | None, metric: str) -> dict[str, Any]:
    share = None if value is None or metric not in ("accuracy", "roc_auc", "macro_f1") else round(100 * value, 1)
    below = chance is not None and value is not None and value < chance
    return {"text": words.figure(value), "share": share, "below": below}


def _settings(rows: Sequence[Row]) -> dict[str, Any]:
    """Settings that are not the same in all rows, and those that are."""
    names = worth_showing(rows)
    unequal = {*differing([row.settings for row in rows]), "track"}
    everywhere = {name: value for name, value in rows[0].settings.items() if name not in unequal}
    return {
        "names": names,
        "lines": [[shown(row.settings[n]) if n in row.settings else "–" for n in names] for row in rows],
        "same": {name: shown(value) for name, value in everywhere.items()},
    }


def _origin(row: Row) -> dict[str, Any]:
    """Which seeds made a row and how long they took."""
    seconds = [float(run.timing.get("seconds", 0.0)) for run in row.runs]
    epoch = [float(run.timing.get("training_epoch_seconds", 0.0)) for run in row.runs]
    drawn = [seed for seed in row.data_seeds if seed]
    epochs = sorted(run.selected_epoch + 1 for run in row.runs)
    return {
        "data": row.data,
        "label": row.label,
        "seeds": ", ".join(map(str, row.seeds)),
        "drawn": "not seeded" if not drawn else ("as the run" if len(drawn) > 1 else drawn[0]),
        "epochs": str(epochs[0]) if epochs[0] == epochs[-1] else f"{epochs[0]} to {epochs[-1]}",
        "seconds": f"{sum(seconds) / len(seconds):.1f}",
        "epoch": f"{1000 * sum(epoch) / len(epoch):.1f}",
    }
