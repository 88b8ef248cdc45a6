"""The command `shiftproof`.

Exit status: 0 done, 2 a mistake in what was given (one sentence on stderr), 1 anything else. Commands import what they
need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

# importing a part adds its commands, in the order of the help page
# isort: off
from shiftproof.cli import list, fit, compare, bench, predict, calibrate, explain, report, demo, diagnose  # noqa: F401
from shiftproof.cli import watch, attack, audit, export, serve  # noqa: F401

# isort: on
from shiftproof.cli.options import app
from shiftproof.cli.stopping import stopped_with_a_sentence
from shiftproof.errors import ShiftproofError, TrainingDiverged, shortened

__all__ = ["app", "main"]

LONGEST_SENTENCE = 1000


def main() -> None:
    """Run the command; what a user got wrong ends as one sentence and status 2."""
    warnings.formatwarning = _as_sentence
    os.environ.setdefault("SHIFTPROOF_REUSE_MEMORY", "1")  # this process is ours (see runtime.memory)
    try:
        with stopped_with_a_sentence():
            app()
    except ShiftproofError as error:
        _end(error, 2)
    except TrainingDiverged as error:
        _end(error, 1)
    except OSError as error:
        place = error.filename
        _end(f"'{shortened(place)}' cannot be used: {error.strerror}" if place else error, 2 if place else 1)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        _end("there is not enough memory for what was asked; make it smaller or give it a larger machine", 2)


def _end(problem: object, status: int) -> NoReturn:
    print(f"shiftproof: {shortened(str(problem), LONGEST_SENTENCE)}", file=sys.stderr)
    sys.exit(status)


def _out_of_memory(error: Exception) -> bool:
    """What NumPy, torch on a CPU and torch on a GPU raise where no memory is left."""
    said = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in said or "out of memory" in said


_usual = warnings.formatwarning
_HERE = str(Path(__file__).parents[1])


def _as_sentence(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> str:
    """A warning of the library as one sentence, without the line of its source; those of others as ever."""
    if filename.startswith(_HERE):
        return f"shiftproof: {message}\n"
    return _usual(message, category, filename, *rest)
