"""A model together with the losses it minimises, one file a method.

>>> import shiftproof as sp
>>> run = sp.fit("vrex", sp.load("colored-digits"), penalty=100.0, epochs=50)   # doctest: +SKIP

`erm` is plain training; `irm`, `vrex`, `irmx`, `ib-irm` and `groupdro` use environments (the data set's own, or a
random partition); `eiil` infers them. `Method` is the class to derive your own from.
"""

from shiftproof.methods.base import DataShape, Method, Network
from shiftproof.methods.eiil import EIIL
from shiftproof.methods.erm import ERM
from shiftproof.methods.groupdro import GroupDRO
from shiftproof.methods.irm import IBIRM, IRM, IRMX
from shiftproof.methods.vrex import VREx

__all__ = ["EIIL", "ERM", "IBIRM", "IRM", "IRMX", "DataShape", "GroupDRO", "Method", "Network", "VREx"]
