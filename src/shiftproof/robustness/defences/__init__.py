"""Node classifiers to attack and to defend with; each takes `(x, adjacency)` and gives logits.

`gcn`, `sage`, `gat`, `sgc` and `mlp` are the plain ones; `robustgcn`, `gcnguard`, `eguard`, `rgat` and `gcn-jaccard`
defend. All but `robustgcn` take `layer_norm_first`, and those with hidden convolutions `layer_norm_inner`; FLAG is a
way to train any of them (`train_defence(..., flag=FLAG(steps=100))`).

>>> import shiftproof as sp
>>> from shiftproof.robustness import train_defence
>>> train_defence("eguard", sp.load("cora"), seed=0).accuracies["test"]      # doctest: +SKIP
"""

from shiftproof.robustness.defences.base import Defence
from shiftproof.robustness.defences.gat import GAT
from shiftproof.robustness.defences.gcn import GCN, SGC
from shiftproof.robustness.defences.guards import EGuard, GCNGuard
from shiftproof.robustness.defences.jaccard import GCNJaccard
from shiftproof.robustness.defences.mlp import MLP
from shiftproof.robustness.defences.rgat import RGAT
from shiftproof.robustness.defences.robust_gcn import RobustGCN
from shiftproof.robustness.defences.sage import GraphSAGE

__all__ = ["GAT", "GCN", "MLP", "RGAT", "SGC", "Defence", "EGuard", "GCNGuard", "GCNJaccard", "GraphSAGE", "RobustGCN"]
