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

from shiftproof.explanations.algorithms.influence import Influence, edge_influence
from shiftproof.explanations.algorithms.multilinear import expected_prediction, extension_gap
from shiftproof.explanations.converting import from_pyg, pyg_explainer, to_pyg
from shiftproof.explanations.explaining import explain
from shiftproof.explanations.measures.counterfactual import counterfactual_fidelity
from shiftproof.explanations.measures.fidelity import fidelity_minus, fidelity_plus, unfaithfulness
from shiftproof.explanations.measures.scores import explanation_auc, precision_at_k, rank_correlation, sparsity
from shiftproof.explanations.measures.stability import Stability, stability
from shiftproof.explanations.pictures.drawings import draw
from shiftproof.explanations.writing import write_explanations
from shiftproof.methods.explanation import Explanation
from shiftproof.statistics.estimates import Estimate

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
