"""The answer before the numbers: what a method scores and loses where the data moved, where it is worst, what next."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path

from shiftproof.report.records import find_runs
from shiftproof.report.rows import Row, make_rows
from shiftproof.report.sentences import conclusion, figure, judged
from shiftproof.statistics.names import metric_name

FEWEST_IN_ENVIRONMENT = 10  # a score of fewer samples says little, and is not called the worst


def answers(folder: str | Path, sources: Collection[str] = ()) -> list[str]:
    """What the runs below a folder say, data set by data set; of these `sources` alone where any are named."""
    records = find_runs(Path(folder))[0]
    rows = make_rows([one for one in records if not sources or one.config.get("data") in sources])
    by_data: dict[str, list[Row]] = {}
    for row in rows:
        by_data.setdefault(row.data, []).append(row)
    return [line for data, some in by_data.items() for line in answer(some, data, folder)]


def answer(rows: Sequence[Row], data: str, base: str | Path = "") -> list[str]:
    """The conclusion about one data set, the environment in which the best method is worst, and what to do next."""
    same = [row for row in rows if row.metric == rows[0].metric]
    lines = [conclusion(same), worst_environment(same), next_step(same, data, base)]
    return [line for line in lines if line]


def worst_environment(rows: Sequence[Row]) -> str:
    """Where the best method does worst: the environment of the test split, its score and how many samples it has."""
    order = judged(rows)
    if not order:
        return ""
    best = order[0]
    scores: dict[str, list[float]] = {}
    samples: dict[str, int] = {}
    measure = ""
    for run in best.runs:
        for env, found in (run.metrics.get("test", {}).get("by_env") or {}).items():
            inside = (
                best.metric if best.metric in found else next((m for m in ("accuracy", "pearson") if m in found), "")
            )
            value = found.get(inside)
            if (
                inside
                and value is not None
                and math.isfinite(value)
                and found.get("samples", 0) >= FEWEST_IN_ENVIRONMENT
            ):
                measure = inside
                scores.setdefault(env, []).append(value)
                samples[env] = int(found["samples"])
    if len(scores) < 2:
        return ""
    means = {env: sum(values) / len(values) for env, values in scores.items()}
    worst = (max if best.lower_is_better and measure == best.metric else min)(means, key=lambda env: means[env])
    column = best.runs[0].metrics["test"].get("environment")
    where = f"{column} '{worst}'" if column else f"environment '{worst}'"
    return (
        f"It is worst in the {where} of {len(means)}: {metric_name(measure)} {figure(means[worst])} "
        f"({samples[worst]} samples)."
    )


def next_step(rows: Sequence[Row], data: str, base: str | Path = "") -> str:
    """One thing to do with what was found, as a command; `base` is where the runs lie."""
    order = judged(rows)
    if not order:
        return ""
    best, names = order[0], {row.method for row in rows}
    fall = (best.drop() or {}).get("mean")
    folder = Path(base) / best.runs[0].folder
    if names <= {"erm"} and fall is not None and fall > 0.005:
        other = "vrex" if int(best.runs[0].config.get("shape", {}).get("num_envs") or 0) >= 2 else "coral"
        return (
            f"Next: see whether another method loses less, shiftproof compare '{data}' -m erm -m {other}, and what "
            f"moved, shiftproof diagnose '{data}'."
        )
    if len(best.runs) == 1 and len(names) > 1:
        words = " ".join(f"-m {name}" for name in sorted(names))
        return f"Next: more seeds, shiftproof compare '{data}' {words} --seeds 5."
    return (
        f"Next: let it say how sure it is, shiftproof calibrate {folder}, and ask it, shiftproof predict {folder} DATA."
    )
