"""PAIR: losses that conflict, brought onto a preferred ray.

`PAIR` wraps any optimiser and takes named losses in `step`; `Pair` does the same inside the `Trainer`. Both ask a
balancer for weights: `MinimaxSolver` (what `PAIR` uses), `PreferenceSolver` (the programme of the paper, what `Pair`
uses), `SmoothedSolver`, `MinNorm` (MGDA) or `FixedWeights`, which see the losses and the Gram matrix of their gradients
and nothing else. `dominates`, `front` and
`nonuniformity` say where a vector of losses stands; `select` chooses among finished runs by their losses (PAIR-s).

>>> from shiftproof.pareto import PreferenceSolver
>>> solver = PreferenceSolver((1, 1e10, 1e12))
>>> found = solver.weights(losses=(0.5, 1e-3, 1e-4), gramian=[[1, 0, 0], [0, 1e-4, 0], [0, 0, 1e-6]])
>>> found.mode, [round(w, 4) for w in found.weights.tolist()]
('balance', [0.0, 0.0, 1.0])
"""

from shiftproof.pareto.balance import Balance
from shiftproof.pareto.balancer import Balanced, Balancer, FixedWeights
from shiftproof.pareto.conflicts import gradient_cosines
from shiftproof.pareto.fronts import adjustment, balanced_set, dominates, front, nonuniformity, sample_complexity
from shiftproof.pareto.mgda import MinNorm
from shiftproof.pareto.minimax import MinimaxSolver
from shiftproof.pareto.optimizer import PAIR
from shiftproof.pareto.pair import Pair
from shiftproof.pareto.programme import maximise_on_simplex
from shiftproof.pareto.selection import (
    RunHistory,
    Selection,
    default_preference,
    leave_one_out,
    select,
    select_by_validation,
    select_step,
)
from shiftproof.pareto.solver import PreferenceSolver, SmoothedSolver
from shiftproof.pareto.torchjd import pair_aggregator, pair_weighting

__all__ = [
    "PAIR",
    "Balance",
    "Balanced",
    "Balancer",
    "FixedWeights",
    "MinNorm",
    "MinimaxSolver",
    "Pair",
    "PreferenceSolver",
    "RunHistory",
    "Selection",
    "SmoothedSolver",
    "adjustment",
    "balanced_set",
    "default_preference",
    "dominates",
    "front",
    "gradient_cosines",
    "leave_one_out",
    "maximise_on_simplex",
    "nonuniformity",
    "pair_aggregator",
    "pair_weighting",
    "sample_complexity",
    "select",
    "select_by_validation",
    "select_step",
]
