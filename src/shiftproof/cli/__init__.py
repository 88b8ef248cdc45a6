"""The command `shiftproof`.

Exit status: 0 done, 2 a mistake in what was given (one sentence on stderr), 1 anything else. Commands import what they
need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

# importing a part adds its commands, in the order of the help page
# isort: off
from shiftproof.cli import list, fit, compare, bench, predict, calibrate, explain, report, demo, diagnose, attack, audit  # noqa: F401

# isort: on
from shiftproof.cli.options import app
from shiftproof.errors import ShiftproofError, TrainingDiverged

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; what a user got wrong ends as one sentence and status 2."""
    warnings.formatwarning = _as_sentence
    try:
        app()
    except ShiftproofError as error:
        print(f"shiftproof: {error}", file=sys.stderr)
        sys.exit(2)
    except (TrainingDiverged, OSError) as error:
        print(f"shiftproof: {error}", file=sys.stderr)
        sys.exit(1)


_usual = warnings.formatwarning
_HERE = str(Path(__file__).parents[1])


def _as_sentence(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> str:
    """A warning of the library as one sentence, without the line of its source; those of others as ever."""
    if filename.startswith(_HERE):
        return f"shiftproof: {message}\n"
    return _usual(message, category, filename, *rest)
