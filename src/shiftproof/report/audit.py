"""An audit of a node graph as one page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shiftproof.report.figures import COLOURS, FAINT, INK, WIDTH, drawing
from shiftproof.report.page import template, versions
from shiftproof.robustness.audit import YOURS, Audit, summary
from shiftproof.robustness.budget import Perturbation
from shiftproof.robustness.parts_of_test import Part
from shiftproof.runtime.files import write_atomic, write_json

TEMPLATE = "audit.html.j2"
MOST_CURVES = 7  # as many as there are colours


def write_audit(audit: Audit, out: str | Path, perturbations: Mapping[str, Perturbation] | None = None) -> Path:
    """Write `audit.html` and `audit.json` into a folder, and each perturbation as an npz file; returns the page.

    The page has a summary in words, the accuracy of every defence under every attack, histograms of homophily and the
    curves over the budget. It loads nothing and runs no script.
    """
    out = Path(out)
    for label, one in (perturbations or {}).items():
        one.save(out / "perturbations" / f"{re.sub(r'[^a-z0-9.]+', '-', label.lower()).strip('-')}.npz")
    write_json(out / "audit.json", audit.to_json())
    labels = ["clean", *(one.label for one in audit.attacks)]
    mlp = audit.table.get("mlp", {}).get("clean")
    page = template(TEMPLATE).render(
        title=f"Audit of {audit.data}" + (f" and {audit.model}" if audit.model else ""),
        graph=audit.graph,
        targets=audit.targets,
        budget=audit.budget,
        model=audit.model,
        summary=summary(audit),
        labels=labels,
        rows=[_row(name, scores, labels, mlp) for name, scores in audit.table.items()],
        mlp=None if mlp is None else f"{100 * mlp:.1f} %",
        histograms=_histograms(audit),
        attacks=[_attack(one) for one in audit.attacks],
        curves=_curves(audit),
        shifts=[_part(part, audit) for part in audit.shifts],
        curve_attack=audit.settings.get("curve", ""),
        settings={**audit.settings, "low": audit.budget.low, "high": audit.budget.high},
        versions=versions(),
    )
    write_atomic(out / "audit.html", page)
    return out / "audit.html"


def _row(name: str, scores: Mapping[str, float], labels: list[str], mlp: float | None) -> dict[str, Any]:
    cells = [
        {
            "text": f"{100 * scores[label]:.1f}",
            "share": round(100 * scores[label], 1),
            "below": mlp is not None and name != "mlp" and scores[label] < mlp,
        }
        for label in labels
    ]
    return {"defence": name, "cells": cells, "worst": f"{100 * min(scores[label] for label in labels[1:]):.1f}"}


def _part(part: Part, audit: Audit) -> dict[str, Any]:
    """The accuracy of every classifier on some of the test nodes, and whether it is below that on all of them."""
    cells = [
        {
            "text": f"{100 * part.accuracy[name]:.1f}",
            "share": round(100 * part.accuracy[name], 1),
            "below": part.accuracy[name] < scores["clean"],
        }
        for name, scores in audit.table.items()
    ]
    return {"label": part.label, "nodes": part.nodes, "cells": cells}


def _attack(one: Any) -> dict[str, str]:
    def figure(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    return {
        "label": one.label,
        "weight": f"{one.hao:g}" if one.hao else "–",
        "mean": figure(one.homophily["attacked"]),
        "injected": figure(one.homophily["injected"]),
        "distance": figure(one.homophily["distance"]),
        "seconds": f"{one.seconds:.1f}",
    }


def _histograms(audit: Audit) -> str:
    with drawing(WIDTH, 2.9, "homophily") as (figure, finish):
        axes = figure.add_subplot()
        for number, one in enumerate(audit.histograms):
            if number == 0:
                axes.stairs(one.density, one.edges, fill=True, color=FAINT, label=one.label)
                continue
            axes.stairs(one.density, one.edges, color=COLOURS[number - 1], linewidth=1.6, label=one.label)
        axes.set(xlabel="homophily", ylabel="density", xlim=(-1, 1))
        axes.legend(frameon=False, fontsize="small", labelcolor=INK)
        told = "; ".join(f"{one.label}: mean {one.mean:.2f}" for one in audit.histograms)
        return finish(f"Histograms of node homophily. {told}.")


def _curves(audit: Audit) -> str | None:
    if not audit.curves:
        return None
    weights = sorted({curve["hao"] for curve in audit.curves})
    names = [name for name in audit.table if name == YOURS or name != "mlp"][:MOST_CURVES]
    with drawing(WIDTH, 2.9, "curves") as (figure, finish):
        panels = figure.subplots(1, len(weights), sharey=True, squeeze=False)[0]
        for axes, weight in zip(panels, weights, strict=True):
            points = sorted((c for c in audit.curves if c["hao"] == weight), key=lambda curve: curve["nodes"])
            for number, name in enumerate(names):
                x = [0, *(point["nodes"] for point in points)]
                y = [audit.table[name]["clean"], *(point["accuracy"][name] for point in points)]
                axes.plot(x, [100 * value for value in y], "o-", color=COLOURS[number], markersize=4, label=name)
            if "mlp" in audit.table:
                axes.axhline(
                    100 * audit.table["mlp"]["clean"], color=INK, linewidth=1, linestyle=(0, (2, 3)), label="mlp"
                )
            axes.set(xlabel="injected nodes", title="without HAO" if not weight else f"HAO {weight:g}")
        panels[0].set_ylabel("accuracy, %")
        panels[-1].legend(frameon=False, fontsize="small", labelcolor=INK, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return finish("Accuracy by number of injected nodes, without and with HAO.")
