"""Node classifiers to attack and to defend with; each takes `(x, adjacency)` and gives logits.

>>> from shiftproof.robustness import train_defence
>>> trained = train_defence("eguard", sp.load("cora"), seed=0)      # doctest: +SKIP
>>> trained.accuracies["test"]                                      # doctest: +SKIP
"""

from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.defences.gcn import GCN

__all__ = ["GCN", "Defence"]
