"""One figure of a diagnosis: effects of the shifts, strengths of the parts, drops."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.diagnosis.advice import Advice
from shiftproof.diagnosis.diagnosis import Diagnosis
from shiftproof.diagnosis.findings import NEGLIGIBLE
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.files import write_atomic

# Okabe and Ito's colours, told apart with every common kind of colour blindness
ALARM, QUIET, CAUSE, SHORTCUTS = "#d55e00", "#8c8c8c", "#0072b2", ("#d55e00", "#e69f00", "#cc79a7")


def draw(diagnosis: Diagnosis, path: str | Path) -> Path:
    """Write the figure; the format follows the suffix: .svg, .png or .pdf."""
    path = Path(path)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ShiftproofError(f"'{path}' must end in .png, .svg or .pdf")
    write_atomic(path, picture(diagnosis, path.suffix[1:]))
    return path


def picture(diagnosis: Diagnosis, kind: str) -> bytes:
    """The figure as the bytes of a file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in (_shifts, _strengths, _drops) if panel(diagnosis, None)]
    rows = max(len(diagnosis.findings), 6)
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "shiftproof"}):
        figure, axes = pyplot.subplots(
            1, max(len(panels), 1), figsize=(4.8 * max(len(panels), 1) + 1, 0.24 * rows + 1.6), squeeze=False
        )
        for panel, axis in zip(panels, axes[0], strict=False):
            axis.spines[["top", "right"]].set_visible(False)
            panel(diagnosis, axis)
        if not panels:
            axes[0, 0].set_axis_off()
            axes[0, 0].text(0.5, 0.5, "nothing could be compared", ha="center")
        figure.suptitle(_headline(diagnosis), fontsize=11, x=0.01, ha="left")
        if diagnosis.advice is not None:
            figure.text(0.01, 0.005, _methods(diagnosis.advice), fontsize=9, va="bottom")
        figure.tight_layout(rect=(0, 0.05 if diagnosis.advice is not None else 0, 1, 1))
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)
        pyplot.close(figure)
    return content.getvalue()


def _headline(diagnosis: Diagnosis) -> str:
    found = diagnosis.shortcuts
    verdict = {
        "shortcut": "; the shortcut dominates",
        "cause": "; the cause dominates",
        "neither": "; neither dominates",
    }
    alarms = len(diagnosis.alarms)
    count = "no shift found" if alarms == 0 else f"{alarms} shift{'s' if alarms > 1 else ''} found"
    return f"{diagnosis.data}: {count}{verdict[found.dominates] if found is not None else ''}"


def _methods(advice: Advice) -> str:
    groups = {"can cope": advice.can, "may": advice.perhaps, "cannot": advice.cannot}
    return "   ".join(f"{word}: {', '.join(names)}" for word, names in groups.items() if names)


def _shifts(diagnosis: Diagnosis, axis: Any) -> bool:
    """A dot and its interval for every test; orange where there is an alarm."""
    if axis is None:
        return bool(diagnosis.findings)
    for row, finding in enumerate(diagnosis.findings):
        colour = ALARM if finding.alarm else QUIET
        axis.plot([finding.low, finding.high], [row, row], color=colour, linewidth=2)
        axis.plot(finding.effect, row, "o", color=colour, markersize=6)
    axis.axvline(NEGLIGIBLE, color=QUIET, linewidth=0.8, linestyle=":")
    names = [f"{f.kind}, {f.between[-1]}" for f in diagnosis.findings]
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(-0.02, 1.02)
    axis.set_xlabel("effect, 95 % interval (0: the same, 1: told apart)")
    axis.set_title("Shifts from train (orange: alarm)", loc="left", fontsize=10)
    return True


def _strengths(diagnosis: Diagnosis, axis: Any) -> bool:
    """How often each part goes with the label: in every split, and where the assistant is right and wrong."""
    found, tracking = diagnosis.shortcuts, diagnosis.tracking
    if found is None or axis is None:
        return found is not None
    shortcuts = iter(SHORTCUTS)
    groups = list(found.cause.strength)
    told = tracking.proxies["label"] if tracking is not None and tracking.follows is not None else None
    places = np.arange(len(groups) + (2 if told else 0))
    width = 0.8 / len(found.pieces)
    for number, piece in enumerate(found.pieces):
        heights = list(piece.strength.values())
        if told is not None:
            entry = (
                told.get("cause" if piece.role == "cause" else "shortcut", {})
                if piece in (found.cause, found.strongest)
                else {}
            )
            heights += [entry.get("strength_correct", np.nan), entry.get("strength_incorrect", np.nan)]
        colour = CAUSE if piece.role == "cause" else next(shortcuts, SHORTCUTS[-1])
        axis.bar(
            places + (number - (len(found.pieces) - 1) / 2) * width,
            heights,
            width * 0.92,
            color=colour,
            label=f"{piece.name} ({piece.role})",
        )
    axis.set_xticks(places, [*groups, *(["assistant\nright", "assistant\nwrong"] if told else [])])
    axis.set_ylim(0, 1.02)
    axis.set_ylabel("goes with the label")
    axis.set_title("How strong the parts are", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return True


def _drops(diagnosis: Diagnosis, axis: Any) -> bool:
    """The fall of the metric with its interval."""
    from shiftproof.statistics.names import metric_name

    if axis is None:
        return bool(diagnosis.drops)
    for row, drop in enumerate(diagnosis.drops):
        colour = ALARM if drop.low > 0 else QUIET
        axis.plot([max(drop.low, -1.5), min(drop.high, 1.5)], [row, row], color=colour, linewidth=2)
        axis.plot(drop.drop, row, "o", color=colour, markersize=6)
    names = [f"{d.where.split(' like ')[0]}\n{'linear' if 'linear' in d.model else d.model}" for d in diagnosis.drops]
    axis.axvline(0, color=QUIET, linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlabel(f"drop of {metric_name(diagnosis.drops[0].metric)}, 95 % interval")
    axis.set_title("Expected drop", loc="left", fontsize=10)
    return True
