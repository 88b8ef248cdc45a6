"""One tested difference, and how it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shiftproof.diagnosis.comparing import Comparison, holm

LEVEL = 0.01  # the chance of any false alarm in a whole diagnosis
NEGLIGIBLE, SMALL, MEDIUM = 0.05, 0.2, 0.5  # effects below these are called so, whatever their p-value
Strength = Literal["none", "negligible", "small", "medium", "large"]


@dataclass(frozen=True)
class Finding:
    """Is one property the same in two splits, or in all environments?

    `effect` runs from 0 (the same) to 1 (told apart without an error), `low` and `high` are its 95 % interval;
    `p_adjusted` is after Holm over everything that was tested. `alarm`: adjusted below 0.01 and not negligible.
    """

    kind: str
    between: tuple[str, ...]
    effect: float
    low: float
    high: float
    measure: str
    p: float
    p_adjusted: float = 1.0
    note: str = ""

    @classmethod
    def of(cls, kind: str, between: tuple[str, ...], found: Comparison, note: str = "") -> Finding:
        return cls(kind, between, found.effect, found.low, found.high, found.measure, found.p, note=note)

    @property
    def strength(self) -> Strength:
        """How large a real difference is: "none" where there is no evidence of one."""
        if self.p_adjusted >= LEVEL:
            return "none"
        if self.effect < NEGLIGIBLE:
            return "negligible"
        return "small" if self.effect < SMALL else "medium" if self.effect < MEDIUM else "large"

    @property
    def alarm(self) -> bool:
        return self.strength not in ("none", "negligible")

    @property
    def where(self) -> str:
        return " and ".join(self.between)

    @property
    def sentence(self) -> str:
        """The finding in words."""
        size = f"{self.effect:.2f} ({self.low:.2f} to {self.high:.2f})"
        if self.strength == "none":
            return f"no {self.kind} shift between {self.where}: {size}, p {_p(self.p_adjusted)}"
        note = f"; {self.note}" if self.note else ""
        return f"{self.strength} {self.kind} shift between {self.where}: {size}, p {_p(self.p_adjusted)}{note}"


def adjusted(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with their p-values after Holm over all of them."""
    return [replace(f, p_adjusted=p) for f, p in zip(findings, holm([f.p for f in findings]), strict=True)]


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"
