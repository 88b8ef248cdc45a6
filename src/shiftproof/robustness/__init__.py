"""Attack, defend and audit a graph whose nodes are classified.

- `train_defence`, a classifier trained on the clean graph (`shiftproof list defences`); `predict` and `accuracy` of one
- `Budget`, what an attack may do; `Perturbation`, what it did; `verify`, whether the second is within the first

Importing this package registers every attack and every defence under its name.
"""

from shiftproof.robustness import defences as _defences  # noqa: F401 - registers them
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.flag import FLAG
from shiftproof.robustness.training import Trained, accuracy, build_defence, predict, train_defence
from shiftproof.robustness.verify import OverBudget, verify

__all__ = [
    "FLAG",
    "Adjacency",
    "Budget",
    "OverBudget",
    "Perturbation",
    "Trained",
    "accuracy",
    "build_defence",
    "predict",
    "train_defence",
    "verify",
]
