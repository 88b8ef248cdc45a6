"""What is wrong with a data set: its shifts, its shortcuts, and what they are likely to cost.

>>> import shiftproof as sp
>>> found = sp.diagnose("two-piece:inv=0.7,spu=0.9")     # doctest: +SKIP
>>> print(found.summary())                               # doctest: +SKIP
>>> found.draw("diagnosis.svg")                          # doctest: +SKIP

`comparing` holds the tests, `shifts` what is compared, `shortcuts` the strengths where the ground truth is known,
`tracking` the assistant, `drops` the expected drop; `diagnose` puts them together into a `Diagnosis`.
"""

import sys
from types import ModuleType
from typing import Any

from shiftproof.diagnose.asking import diagnose, write_diagnosis
from shiftproof.diagnose.diagnosis import Diagnosis
from shiftproof.diagnose.drops import Drop
from shiftproof.diagnose.findings import Finding
from shiftproof.diagnose.shortcuts import Piece, Shortcuts
from shiftproof.diagnose.tracking import Tracking

__all__ = ["Diagnosis", "Drop", "Finding", "Piece", "Shortcuts", "Tracking", "diagnose", "write_diagnosis"]


class _Room(ModuleType):
    """`shiftproof.diagnose` names this room and the function: importing the room must not hide the function."""

    def __call__(self, *args: Any, **options: Any) -> Diagnosis:
        return diagnose(*args, **options)


sys.modules[__name__].__class__ = _Room
