"""The trainer, its runs, and how they are measured.

>>> from shiftproof.training import Trainer, Weighted
>>> Trainer(epochs=50, balance=Weighted({"irm": 100.0}, anneal_steps=500)).epochs
50

`Trainer.fit(method, dataset)` returns a `Run`; `Weighted` adds a method's loss terms up; a `Callback` is told of each
epoch and may stop a run; `stack` trains several seeds as one (`shiftproof.fit_seeds`), or says why not (`CannotStack`).
"""

from shiftproof.errors import TrainingDiverged
from shiftproof.training.balance import Balance, Pair, Weighted
from shiftproof.training.callbacks import Callback, Training
from shiftproof.training.run import Run
from shiftproof.training.stack import CannotStack
from shiftproof.training.trackers import Log, MLflow, TensorBoard, WeightsAndBiases
from shiftproof.training.trainer import Trainer

__all__ = [
    "Balance",
    "Callback",
    "CannotStack",
    "Log",
    "MLflow",
    "Pair",
    "Run",
    "TensorBoard",
    "Trainer",
    "Training",
    "TrainingDiverged",
    "Weighted",
    "WeightsAndBiases",
]
