"""Small tables that tests write and read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNCC1", "c1ccoc1", "c1ccc2ccccc2c1", "C1CC1", "c1ccsc1"]
TAILS = ["C", "CC", "CCC", "CCCC", "O", "N", "Cl", "CO", "CCO", "CN", "F", "Br"]


def smiles(count: int = 96) -> list[str]:
    """Different molecules with eight scaffolds."""
    return [f"{TAILS[i // len(RINGS) % len(TAILS)]}{RINGS[i % len(RINGS)]}" for i in range(count)]


def table(path: Path, rows: list[list[object]], header: str = "smiles,active") -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def assays(path: Path, count: int = 96) -> Path:
    """Molecules that are active where they hold a nitrogen; the assay is the third column."""
    rows = [[text, int("n" in text.lower()), f"assay{i % 3}", 2000 + i % 20] for i, text in enumerate(smiles(count))]
    return table(path, rows, "smiles,active,assay,year")


def command(*words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "shiftproof.cli", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
