"""What is wrong with a data set: its shifts, its shortcuts, and what they are likely to cost.

>>> import shiftproof as sp
>>> found = sp.diagnose("two-piece:inv=0.7,spu=0.9")     # doctest: +SKIP
>>> print(found.summary())                               # doctest: +SKIP
>>> found.draw("diagnosis.svg")                          # doctest: +SKIP

`comparing` holds the tests, `shifts` what is compared, `shortcuts` the strengths where the ground truth is known,
`watching` holds new rows against what was normal (its false alarms are kept rare by `evidence`), `tracking` the
assistant, `drops` the expected drop; `diagnose` puts them together into a `Diagnosis`.
"""

from shiftproof.diagnosis.diagnosing import diagnose, write_diagnosis
from shiftproof.diagnosis.diagnosis import Diagnosis
from shiftproof.diagnosis.drops import Drop, Foretold
from shiftproof.diagnosis.findings import Finding
from shiftproof.diagnosis.shortcuts import Piece, Shortcuts
from shiftproof.diagnosis.tracking import Tracking
from shiftproof.diagnosis.watching import Batch, watch

__all__ = [
    "Batch",
    "Diagnosis",
    "Drop",
    "Finding",
    "Foretold",
    "Piece",
    "Shortcuts",
    "Tracking",
    "diagnose",
    "watch",
    "write_diagnosis",
]
