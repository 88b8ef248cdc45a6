"""Why a graph was classified as it was: scores of its edges, held against the truth and drawn.

>>> import shiftproof as sp
>>> why = sp.explain("runs/ciga-v2/seed-0", sp.load("spmotif-struc").test[:8])   # doctest: +SKIP
>>> why.draw("why.png")                                                          # doctest: +SKIP

`explain` asks a trained run; `draw` makes the picture; `write_explanations` is what the command does.
"""

import sys
from types import ModuleType
from typing import Any

from shiftproof.explain.asking import explain, write_explanations
from shiftproof.explain.drawings import draw
from shiftproof.methods.explanation import Explanation

__all__ = ["Explanation", "draw", "explain", "write_explanations"]


class _Room(ModuleType):
    """`shiftproof.explain` names this room and the function: importing the room must not hide the function."""

    def __call__(self, *args: Any, **options: Any) -> Explanation:
        return explain(*args, **options)


sys.modules[__name__].__class__ = _Room
