"""Models that keep working when the data moves.

>>> import shiftproof as sp
>>> data = sp.load("spmotif-struc", bias=0.9)          # doctest: +SKIP
>>> run = sp.fit("erm", data, seed=0)                  # doctest: +SKIP
>>> run.metrics["test"]["accuracy"]                    # doctest: +SKIP

Everything here is imported on first use, so that `import shiftproof` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load": "data.readers.loading",
    "fit": "api.fitting",
    "fit_seeds": "api.fitting",
    "predict": "api.fitting",
    "register": "registry",
    "Callback": "training",
    "Dataset": "data",
    "DomainSet": "data",
    "GraphBatch": "data",
    "GraphSet": "data",
    "Method": "methods",
    "Network": "methods",
    "NodeGraph": "data",
    "Predictions": "data.predictions",
    "Run": "training",
    "ShiftproofClassifier": "api.estimators",
    "ShiftproofRegressor": "api.estimators",
    "ShiftproofError": "errors",
    "Trainer": "training",
    "Weighted": "training",
    "adapt": "api.adapting",
    "attack": "robustness.attacks",
    "audit": "robustness.audit",
    "calibrate": "confidence",
    "compare": "sweeps.side_by_side",
    "diagnose": "diagnosis",
    "explain": "explanations",
    "leave_one_domain_out": "api.leaving_out",
    "suggest": "confidence",
    "watch": "diagnosis",
}
_ROOMS = (
    "api",
    "confidence",
    "data",
    "diagnosis",
    "drawing",
    "explanations",
    "features",
    "methods",
    "nn",
    "objectives",
    "papers",
    "pareto",
    "presets",
    "report",
    "robustness",
    "runtime",
    "serving",
    "statistics",
    "sweeps",
    "training",
)
__all__ = [
    "Callback",
    "Dataset",
    "DomainSet",
    "GraphBatch",
    "GraphSet",
    "Method",
    "Network",
    "NodeGraph",
    "Predictions",
    "Run",
    "ShiftproofClassifier",
    "ShiftproofError",
    "ShiftproofRegressor",
    "Trainer",
    "Weighted",
    "__version__",
    "adapt",
    "attack",
    "audit",
    "calibrate",
    "compare",
    "diagnose",
    "explain",
    "fit",
    "fit_seeds",
    "leave_one_domain_out",
    "load",
    "predict",
    "register",
    "suggest",
    "watch",
]

if TYPE_CHECKING:
    from shiftproof.api import fit as fit
    from shiftproof.api import fit_seeds as fit_seeds
    from shiftproof.api import leave_one_domain_out as leave_one_domain_out
    from shiftproof.api import predict as predict
    from shiftproof.api.adapting import adapt as adapt
    from shiftproof.api.estimators import ShiftproofClassifier as ShiftproofClassifier
    from shiftproof.api.estimators import ShiftproofRegressor as ShiftproofRegressor
    from shiftproof.confidence import calibrate as calibrate
    from shiftproof.confidence import suggest as suggest
    from shiftproof.data import Dataset as Dataset
    from shiftproof.data import DomainSet as DomainSet
    from shiftproof.data import GraphBatch as GraphBatch
    from shiftproof.data import GraphSet as GraphSet
    from shiftproof.data import NodeGraph as NodeGraph
    from shiftproof.data import Predictions as Predictions
    from shiftproof.data.readers.loading import load as load
    from shiftproof.diagnosis import diagnose as diagnose
    from shiftproof.diagnosis import watch as watch
    from shiftproof.errors import ShiftproofError as ShiftproofError
    from shiftproof.explanations import explain as explain
    from shiftproof.methods import Method as Method
    from shiftproof.methods import Network as Network
    from shiftproof.registry import register as register
    from shiftproof.robustness.attacks import attack as attack
    from shiftproof.robustness.audit import audit as audit
    from shiftproof.sweeps.side_by_side import compare as compare
    from shiftproof.training import Callback as Callback
    from shiftproof.training import Run as Run
    from shiftproof.training import Trainer as Trainer
    from shiftproof.training import Weighted as Weighted


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"shiftproof.{_HOMES[name]}"), name)
    if name in _ROOMS:
        return import_module(f"shiftproof.{name}")
    raise AttributeError(f"module 'shiftproof' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
