"""Why a graph was classified as it was: scores of its edges, held against the truth and drawn.

>>> import shiftproof as sp
>>> why = sp.explain("runs/ciga-v2/seed-0", sp.load("spmotif-struc").test[:8])   # doctest: +SKIP
>>> why.draw("why.png")                                                          # doctest: +SKIP

- `explain` asks a trained run, a method or a model of your own; `draw` makes the picture; `write_explanations` is what
  the command does
- against known truth: `explanation_auc`, `precision_at_k`, `rank_correlation`; of the scores alone: `sparsity`,
  `stability` over seeds
- against the model: `fidelity_plus`, `fidelity_minus`, `unfaithfulness`, `counterfactual_fidelity`. Every measure is an
  `Estimate`: a value with its interval (of one graph alone, without)
- random subgraphs: `expected_prediction` is the mean prediction over them, `extension_gap` how far soft weights are off
  and `edge_influence` what each edge does to it, with intervals
- PyG: `to_pyg` and `from_pyg` convert, `pyg_explainer` lets PyG's explainers look at any model
"""

import sys
from types import ModuleType
from typing import Any

from shiftproof.explain.asking import explain
from shiftproof.explain.converting import from_pyg, pyg_explainer, to_pyg
from shiftproof.explain.counterfactual import counterfactual_fidelity
from shiftproof.explain.drawings import draw
from shiftproof.explain.estimates import Estimate
from shiftproof.explain.fidelity import fidelity_minus, fidelity_plus, unfaithfulness
from shiftproof.explain.influence import Influence, edge_influence
from shiftproof.explain.multilinear import expected_prediction, extension_gap
from shiftproof.explain.scores import explanation_auc, precision_at_k, rank_correlation, sparsity
from shiftproof.explain.stability import Stability, stability
from shiftproof.explain.writing import write_explanations
from shiftproof.methods.explanation import Explanation

__all__ = [
    "Estimate",
    "Explanation",
    "Influence",
    "Stability",
    "counterfactual_fidelity",
    "draw",
    "edge_influence",
    "expected_prediction",
    "explain",
    "explanation_auc",
    "extension_gap",
    "fidelity_minus",
    "fidelity_plus",
    "from_pyg",
    "precision_at_k",
    "pyg_explainer",
    "rank_correlation",
    "sparsity",
    "stability",
    "to_pyg",
    "unfaithfulness",
    "write_explanations",
]


class _Room(ModuleType):
    """`shiftproof.explain` names this room and the function: importing the room must not hide the function."""

    def __call__(self, *args: Any, **options: Any) -> Explanation:
        return explain(*args, **options)


sys.modules[__name__].__class__ = _Room
