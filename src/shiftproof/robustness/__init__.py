"""Attack, defend and audit a graph whose nodes are classified.

- `Budget`, what an attack may do; `Perturbation`, what it did; `verify`, whether the second is within the first

Importing this package registers every attack and every defence under its name.
"""

from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.verify import OverBudget, verify

__all__ = ["Budget", "OverBudget", "Perturbation", "verify"]
