"""Witnesses: runs of tenths of a second whose metrics and weights say whether a change of the code changed results.

A witness goes through every phase of a method (helper models, warm-up, annealing, rounds, second stages, explaining)
on a few generated samples with networks of width eight, under the settings of the preset it stands for.

    python -m shiftproof.papers.witness --check tests/witnesses.json   # are they as before?
    python -m shiftproof.papers.witness --write tests/witnesses.json   # make them anew, where a change is meant
    python -m shiftproof.papers.witness --only 'preset/gala*'          # what these give
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.papers.witness_runs import (
    NETWORKS,
    TRANSDUCTIVE,
    ZOO_GRAPHS,
    Measured,
    Source,
    adversarial,
    attacked,
    chosen_weight,
    counterfactual,
    defended,
    ended,
    fitted,
    looked_at,
    map_of_settings,
    selected,
    settings_of_graphs,
    stack_of_pair,
    theory,
    transductive,
)
from shiftproof.registry import attacks, defences, methods, parse_name, recipes
from shiftproof.robustness.zoo import ZooPreset
from shiftproof.runtime.files import write_atomic
from shiftproof.sweeps.recipes import _NUMBER

TOLERANCE = 1e-6
COMMAND = "python -m shiftproof.papers.witness --write tests/witnesses.json"
# tables with rows in results/ whose cells are fitted methods
TABLES = (
    "ciga-drugood-ec50", "ciga-search", "ciga-table1", "ciga-table3", "feat-cmnist", "feat-graphs", "feat-pacs64",
    "feat-termination", "gala-ablations", "gala-cmnist", "gala-cmnist-search", "gala-drugood-ec50", "gala-search",
    "gala-table1", "gmt-attribution", "gmt-counterfactual", "gmt-search", "gmt-table1", "gmt-table2", "own-molecules",
    "pair-cmnist", "pair-selection", "pair-selection-pacs64",
)  # fmt: skip
PAIR: dict[str, dict[str, Any]] = {
    "all": {"parameters": "all"},
    "featurizer": {"parameters": "featurizer"},
    "head": {"parameters": "head"},
    "clipped": {"parameters": "head", "balance_clip": 0.1},
    "reference": {"parameters": "head", "solver_compat": "reference"},
    "min-norm": {"balance_solver": "min-norm"},
    "preference": {"preference": "1,1e4,1e12"},
}
OBJECTIVES = ("erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr", "groupdro")
ROUNDS: dict[str, dict[str, Any]] = {
    **{f"objective-{name}": {"objective": name} for name in OBJECTIVES},
    **{name: {"features": name, "head": "merged", "rounds": 3} for name in ("feat", "ifeat", "bonsai", "erm", "none")},
    **{f"merge-{name}": {"merge": name, "head": "merged", "rounds": 3} for name in ("sum", "uniform", "halving")},
    **{f"termination-{name}": {"termination": name} for name in ("sum130", "honest_sum", "novelty")},
    "fine-tuned": {"freeze": False, "head": "merged", "dro_includes_retention": True},
}
# the cheapest of every family: a minute on one core
CHOICE = (
    "method/erm", "method/ciga-v2", "method/gala", "method/gsat", "method/gmt-sam", "method/gmt-lin", "method/dir",
    "method/feat@two-bit", "method/feat-heads@two-bit", "method/irmx@two-bit", "method/vrex@two-bit", "method/eiil",
    "method/wl-kernel", "method/gc-kernel", "method/gnnexplainer", "method/pgexplainer", "method/lri-bernoulli",
    "method/k-gnn", "method/gamma-gin", "method/disc", "method/cal", "method/moleood", "balance/pair-all",
    "balance/pair-head", "features/bonsai", "features/feat", "network/*", "attack/*", "defence/gcn", "defence/eguard",
    "defence/gcnguard", "defence/rgat", "defence/robustgcn", "defence/gcn+flag", "transductive/gcn-jaccard",
    "preset/ciga-v2@spmotif-struc", "preset/gala@two-piece", "preset/gmt-sam@mutag", "preset/gsat@spmotif-gsat*",
    "preset/irmx@cmnist*", "selection/*", "theory/pair-failure", "settings/*", "adversarial/*",
)  # fmt: skip


@lru_cache(maxsize=1)
def witnesses() -> dict[str, Source]:
    """Every witness by name, with what it stands for."""
    found: dict[str, Source] = {}
    for entry in methods:
        kinds = [kind for kind in ("graphs", "tensors") if kind in entry.tags or not entry.tags]
        if "points" in entry.tags:
            kinds = ["points"]
        if entry.tags == ("nodes",):
            kinds = ["nodes"]
        for kind in kinds:
            data = {"graphs": "spmotif-struc", "tensors": "two-bit", "points": "toy-tracks", "nodes": "cora-like"}[kind]
            found[f"method/{entry.name}{'@two-bit' if kind == 'tensors' else ''}"] = Source(fitted, entry.name, data)
    for table in TABLES:
        for cell in recipes[table].make().cells:
            name, data = _of_cell(cell.method, cell.data, cell.variant), cell.data
            found.setdefault(name, Source(fitted, cell.method, data, dict(cell.variant)))
    for method in ("erm", "irm", "vrex", "irmx"):
        found[f"preset/{method}@extrapolation"] = Source(fitted, method, "extrapolation")
    for name, chosen in PAIR.items():
        found[f"balance/pair-{name}"] = Source(fitted, "irmx", "two-bit", {"balance": "pair", **chosen})
    found["preset/irmx@extrapolation,balance=pair"] = Source(fitted, "irmx", "extrapolation", {"balance": "pair"})
    found["balance/pair-ciga"] = Source(fitted, "ciga-v2", "spmotif-struc", {"balance": "pair", "anneal_steps": 3})
    found["balance/conflicts"] = Source(fitted, "composite", "two-bit", {"terms": "irm+sd", "watch_conflicts": True})
    found["balance/pair-stack"] = Source(stack_of_pair, "irmx", "extrapolation")
    for name, chosen in ROUNDS.items():
        found[f"features/{name}"] = Source(fitted, "feat", "two-bit", chosen)
    for name, (data, chosen) in NETWORKS.items():
        found[f"network/{name}"] = Source(fitted, "erm", data, chosen)
    for entry in attacks:
        found[f"attack/{entry.name}"] = Source(attacked, entry.name, "cora-like")
        if "injection" in entry.tags:
            found[f"attack/{entry.name}+hao"] = Source(attacked, entry.name, "cora-like", {"hao": 1.0})
    for data, names in ZOO_GRAPHS.items():
        for name in names:
            found[f"attack/{name}@{data}"] = Source(attacked, name, data)
            found[f"attack/{name}+hao@{data}"] = Source(attacked, name, data, {"hao": "published"})
        found[f"choice-of-hao/{data}"] = Source(chosen_weight, names[0], data)
        found[f"settings/{data}"] = Source(settings_of_graphs, "", data)
    found["ended/hao"] = Source(ended, "pgd", "cora-like", {"hao": 2.0})
    for spec in ZooPreset().specs():
        found[f"defence/{spec.name}"] = Source(defended, spec.name, "cora")
    for entry in defences:
        found.setdefault(f"defence/{entry.name}", Source(defended, entry.name, "cora"))
    for name in TRANSDUCTIVE:
        found[f"transductive/{name}"] = Source(transductive, name, "prognn-cora")
    for kind in ("auto", "stopped", "oracle"):
        found[f"selection/{kind}"] = Source(fitted, "ciga-v2", "spmotif-struc", {"selection": kind, "patience": 1})
    for hao in (0.0, 5.0):
        found[f"adversarial/hao-{hao:g}"] = Source(adversarial, "gcn", "cora-like", {"hao": hao})
    found["selection/pair-s"] = Source(selected, "composite", "cmnist")
    found["explain/counterfactual"] = Source(counterfactual, "gmt-sam", "ba-2motifs")
    found["explain/maps"] = Source(looked_at, "feat", "cmnist-corner")
    for name in ("feat-theory", "pair-failure"):
        found[f"theory/{name}"] = Source(theory, name, "two-patch" if name == "feat-theory" else "two-bit")
    for entry in recipes:
        if entry.make().cells:
            found[f"settings/{entry.name}"] = Source(map_of_settings, entry.name, "")
    return dict(sorted(found.items()))


def _of_cell(method: str, data: str, variant: Mapping[str, Any]) -> str:
    """The name of a cell's witness: cells whose settings differ in numbers alone share one."""
    told = sorted(f"{key}={_NUMBER.sub('#', str(value))}" for key, value in variant.items())
    return "preset/" + ",".join((f"{method}@{parse_name(data)[0]}", *told)).replace(" ", "")


def concerning(row: Mapping[str, Any]) -> list[str]:
    """The witnesses that a row of a table rests on; those of its own preset where there are any."""
    known, method, data = witnesses(), str(row["method"]), parse_name(str(row["dataset"]))[0]
    exact = _of_cell(method, data, row["variant"])
    reacts = ["explain/counterfactual"] if str(row.get("metric")).startswith("counterfactual") else []
    if exact in known and data != "extrapolation":
        return [exact, *reacts]
    if "hao" in row["variant"] or data.startswith("prognn-"):
        return _of_attacked(row, method, data)
    if data == "cmnist-corner":
        return ["explain/maps"]
    if data == "two-patch":
        return ["theory/feat-theory"]
    if data == "two-bit" and method not in methods:
        return ["theory/pair-failure"]
    own = [
        n for n, s in known.items() if n.startswith("preset/") and (s.method, parse_name(s.data)[0]) == (method, data)
    ]
    protocol = f"protocol={row['variant'].get('protocol')}"
    own = [n for n in own if (protocol in n) == ("protocol" in row["variant"])] or own
    if "rule" in row["variant"]:
        own.append("selection/pair-s")
    own += reacts
    if row["variant"].get("balance") == "pair" or data == "extrapolation":
        own += [name for name in known if name.startswith("balance/pair")]
    if method in ("feat", "feat-heads"):
        learned = f"features={row['variant'].get('features')},"
        own = [name for name in own if learned in f"{name},"] or own
        own += [name for name in known if name.startswith("features/")]
    return own or [name for name in known if name.startswith("method/") and known[name].method == method]


def _of_attacked(row: Mapping[str, Any], method: str, data: str) -> list[str]:
    """Of a table of attacked graphs: the graph's settings, the attack and every defence it was held against."""
    known, data = witnesses(), data.removesuffix("-targeted")
    if data.startswith("prognn-"):
        return [name for name in known if name == f"transductive/{method}"]
    if method == "mlp":
        return ["defence/mlp", *(name for name in known if name == f"settings/{data}")]
    hao = "+hao" if row["variant"].get("hao") else ""
    own = [name for name in known if name in (f"attack/{method}{hao}@{data}", f"settings/{data}")]
    own += ["ended/hao"] if hao else []
    if row["variant"].get("hao") == "chosen":
        own.append(f"choice-of-hao/{data}")
    return own + [f"defence/{spec.name}" for spec in ZooPreset().specs()]


def measure(name: str) -> dict[str, Any]:
    """Run a witness: its metrics, four numbers that stand for the weights, and what it stands for."""
    known = witnesses()
    if name not in known:
        raise unknown("witness", name, known)
    source = known[name]
    torch.manual_seed(0)
    found: Measured = source.run(source)
    about: dict[str, Any] = {"method": source.method, "data": source.data}
    if source.settings:
        about["settings"] = {key: list(v) if isinstance(v, tuple) else v for key, v in source.settings.items()}
    return {"sources": about, "metrics": _plain(found.metrics), "weights": _plain(found.weights)}


def _plain(values: Mapping[str, Any]) -> dict[str, float | str | None]:
    """Numbers by dotted name; NaN, which JSON does not have, is None, and infinity a word."""
    flat: dict[str, float | str | None] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in _plain(value).items()}
        elif isinstance(value, list | tuple):
            flat |= _plain({f"{key}.{place}": inner for place, inner in enumerate(value)})
        elif isinstance(value, bool) or value is None or isinstance(value, str):
            flat[key] = value if value is None else str(value)
        else:
            number = float(value)
            flat[key] = (
                None if math.isnan(number) else float(f"{number:.12g}") if math.isfinite(number) else str(number)
            )
    return flat


def compare(stored: Mapping[str, Any], measured: Mapping[str, Any], tolerance: float = TOLERANCE) -> list[str]:
    """A sentence for every number that is another; none where all agree to the tolerance.

    A measure that was not there before says nothing of whether the results are as they were; a weight does.
    """
    wrong = []
    for part in ("metrics", "weights"):
        before, now = stored[part], measured[part]
        wrong += [f"{part}: '{name}' is gone" for name in before if name not in now]
        wrong += [f"{part}: '{name}' is new" for name in now if name not in before and part == "weights"]
        for name in before:
            if name in now and not _same(before[name], now[name], tolerance):
                wrong.append(f"{part}: '{name}' was {before[name]} and is {now[name]}")
    return wrong


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return one == other
    return abs(one - other) <= tolerance * (1 + max(abs(one), abs(other)))


def chosen(only: str | None = None, choice: bool = False) -> list[str]:
    """The names that fit a pattern with wildcards; of the choice alone where asked for."""
    names = [n for n in witnesses() if not choice or any(fnmatch.fnmatchcase(n, fit) for fit in CHOICE)]
    return [name for name in names if only is None or fnmatch.fnmatchcase(name, only)]


def read(path: Path) -> dict[str, Any]:
    """The stored witnesses by name, and the versions they were made with."""
    return json.loads(path.read_text())


def write(path: Path, found: Mapping[str, Any]) -> Path:
    """Write witnesses; those of a file that are not made anew stay, and so do those that say the same once more."""
    kept = read(path)["witnesses"] if path.exists() else {}
    kept = {name: one for name, one in kept.items() if name in witnesses()}
    kept |= {name: one for name, one in found.items() if name not in kept or compare(kept[name], one)}
    content = {"versions": {"torch": torch.__version__}, "witnesses": kept}
    write_atomic(path, (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
    return path


def main(words: Sequence[str] | None = None) -> int:
    """The command; its status is 1 where a witness says something else than before."""
    asked = _parser().parse_args(words)
    if asked.bits:
        from shiftproof.papers.witness_runs import bits

        print(json.dumps(bits(), indent=1))
        return 0
    names = chosen(asked.only, asked.choice)
    if asked.list:
        print("\n".join(names))
        return 0
    stored = read(asked.check)["witnesses"] if asked.check else {}
    found, wrong, clocks = {}, 0, {}
    for number, name in enumerate(names, start=1):
        began = time.perf_counter()
        try:
            found[name] = measure(name)
        except ShiftproofError as error:
            print(f"{name}: cannot be run: {error}")
            wrong += 1
            continue
        clocks[name] = time.perf_counter() - began
        said = f"[{number}/{len(names)}] {name} {clocks[name]:.2f} s"
        print(f"\r{said:<100}" if sys.stderr.isatty() else said, file=sys.stderr, end="", flush=True)
        print("" if not sys.stderr.isatty() else "\r", file=sys.stderr, end="" if sys.stderr.isatty() else "\n")
        if asked.check:
            told = compare(stored[name], found[name]) if name in stored else [f"not stored yet: {COMMAND}"]
            wrong += bool(told)
            for sentence in told:
                print(f"{name}: {sentence}")
    if asked.times:
        print("\n".join(f"{clocks[name]:7.2f} s  {name}" for name in sorted(clocks, key=lambda n: -clocks[n])))
    if asked.write:
        write(asked.write, found)
    elif not asked.check and not asked.times:
        print(json.dumps(found, indent=1, sort_keys=True))
    print(f"{len(found)} witnesses, {wrong} differ, {sum(clocks.values()):.0f} s", file=sys.stderr)
    return int(wrong > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m shiftproof.papers.witness", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="measure and write them")
    parser.add_argument("--check", type=Path, metavar="FILE", help="measure and compare them with a file")
    parser.add_argument("--only", metavar="PATTERN", help="names with wildcards, as preset/gala*")
    parser.add_argument("--choice", action="store_true", help="the cheapest of every family alone")
    parser.add_argument("--times", action="store_true", help="seconds of each, longest first")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--bits", action="store_true", help="digests of the bytes of four models' weights")
    return parser


if __name__ == "__main__":
    sys.exit(main())
