"""The whole of a diagnosis: numbers for machines, words for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shiftproof.diagnosis.advice import Advice
from shiftproof.diagnosis.drops import Drop, Foretold
from shiftproof.diagnosis.findings import Finding
from shiftproof.diagnosis.shortcuts import Shortcuts
from shiftproof.diagnosis.tracking import Tracking


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a data set, as far as it can be known.

    `expected` is what the assistant would be expected to score without labels. `findings` are the tested shifts,
    `alarms` those that are real and not negligible (the chance of any false one is 1 %); `shortcuts` and `advice` are
    there where the ground truth is, `tracking` where an assistant was trained.
    """

    data: str
    samples: Mapping[str, int]
    findings: tuple[Finding, ...]
    shortcuts: Shortcuts | None
    advice: Advice | None
    tracking: Tracking | None
    drops: tuple[Drop, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()
    seed: int = 0
    expected: tuple[Foretold, ...] = ()

    @property
    def alarms(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.alarm)

    def sections(self) -> dict[str, list[str]]:
        """The diagnosis in words, by topic."""
        from shiftproof.diagnosis.sentences import sections

        return sections(self)

    def summary(self) -> str:
        """The diagnosis in plain words."""
        parts = [f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in self.sections().items()]
        return "\n\n".join([f"Diagnosis of {self.data}", *parts]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; NaN is null."""
        page = asdict(self)
        for record, finding in zip(page["findings"], self.findings, strict=True):
            record |= {"strength": finding.strength, "alarm": finding.alarm, "sentence": finding.sentence}
        page["alarms"] = len(self.alarms)
        page["summary"] = self.sections()
        return _plain(page)

    def draw(self, path: str | Path) -> Path:
        """One figure of it; the format follows the suffix: .svg, .png or .pdf."""
        from shiftproof.diagnosis.drawing import draw

        return draw(self, path)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
