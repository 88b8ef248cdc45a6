"""The tables of the page on GMT, from the measured ones in results/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
NAMES = {"ba-2motifs": "BA-2Motifs", "mutag": "Mutag", "mnist-75sp": "MNIST-75sp", "molhiv": "MolHIV"}
NETWORKS = {"GIN": {}, "PNA": {"protocol": "gmt-pna"}}
ABSENT = "–"


def gmt_tables() -> dict[str, str]:
    """Every table by the name it has on the page."""
    first, second, atoms = (_rows(name) for name in ("gmt-table1", "gmt-table2", "gmt-attribution"))
    found = {f"gmt-table1 {name}": _of_network(first, variant) for name, variant in NETWORKS.items()}
    found["gmt-table2"] = _markdown(
        ["", *map(_code, _methods(second))],
        [
            [f"{name}, {_shown(data)}", *(_cell(second, data, method, variant) for method in _methods(second))]
            for name, variant in NETWORKS.items()
            for data in _data(_with(second, variant))
        ],
    )
    atoms = [row for row in atoms if row["metric"] == "node_auc"]
    methods = sorted(_methods(atoms), key=("gsat", "gmt-lin", "gmt-sam", "gnnexplainer").index)
    rows = [[data, *(_cell(atoms, data, method, {}) for method in methods)] for data in _data(atoms)]
    return {**found, "gmt-attribution": _markdown(["", *map(_code, methods)], rows)}


def _rows(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text())["rows"]


def _with(rows: Sequence[dict[str, Any]], variant: Mapping[str, str]) -> list[dict[str, Any]]:
    return [row for row in rows if row["variant"] == variant]


def _of_network(rows: Sequence[dict[str, Any]], variant: Mapping[str, str]) -> str:
    own = _with(rows, variant)
    methods = [method for method in _methods(rows) if method in _methods(own)]
    cells = ([_shown(data), *(_cell(own, data, method, variant) for method in methods)] for data in _data(own))
    return _markdown(["data set", *map(_code, methods)], list(cells))


def _methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    order = ("erm", "gsat", "gmt-lin", "gmt-sam", "gsat-min0", "gnnexplainer", "pgexplainer", "dir")
    return sorted({row["method"] for row in rows}, key=order.index)


def _data(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows))


def _shown(data: str) -> str:
    name, _, options = data.partition(":")
    bias = dict(one.split("=") for one in options.split(",") if one).get("b")
    return f"Spurious-Motif {bias}" if bias else NAMES.get(name, name)


def _cell(rows: Sequence[dict[str, Any]], data: str, method: str, variant: Mapping[str, str]) -> str:
    """Mean and deviation in per cent, the printed mean, the number of seeds."""
    for row in rows:
        if (row["dataset"], row["method"], row["variant"]) == (data, method, variant) and row["mean"] is not None:
            spread = "" if row["std"] is None else f" ± {_percent(row['std'])}"
            printed = f" ({_percent(row['published']['mean'])})" if row["published"] else ""
            return f"{_percent(row['mean'])}{spread}{printed}, {row['seeds']}"
    return ABSENT


def _percent(value: float) -> str:
    return f"{100 * value + 1e-9:.1f}"  # 0.6735 is a little less in binary


def _code(word: str) -> str:
    return f"`{word}`"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"
