"""Support vector machines on counts of structures: what the graph kernels have in common."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import DataShape, Method, Trains
from shiftproof.methods.counting import Counts
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.kernel_machine import fit_machine
from shiftproof.nn import segment_sum
from shiftproof.objectives import sample_losses

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Normalise = Literal["cosine", "share", "none"]
COSTS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
MOST_IN_A_KERNEL = 5000  # above, the kernel matrix is too large and the machine is fitted to the counts themselves
MOST_STEPS = 1_000_000  # of the solver; it needs more only where the largest costs do not separate the classes


class KernelSVM(Method):
    """A support vector machine on the counts `φ(G)` of structures in each graph.

    .. math:: k(G, G') = \\langle φ(G), φ(G') \\rangle, \\quad f(G) = \\langle w, φ(G) \\rangle + b

    `normalise`: "cosine" divides the kernel by :math:`\\sqrt{k(G, G) k(G', G')}`, "share" divides the counts of each
    graph by their sum, "none" leaves them. The cost `C` (and, where there is a choice, which structures are counted) is
    the one with the best metric on the validation split; without one it is 1. Two classes have the logits `(0, f)`,
    more have one machine each against the rest. Nothing is trained by gradients: all is done before the first epoch,
    and what is kept is the list of structures seen in training with one weight each.
    """

    vocabulary: Tensor
    weight: Tensor
    setting: Tensor
    cost: Tensor

    def __init__(self, shape: DataShape, *, settings: tuple[int, ...], normalise: Normalise) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError(f"{type(self).__name__} works on graphs, not on plain tensors")
        if shape.task == "regression":
            raise ShiftproofError(f"{type(self).__name__} tells classes apart; it cannot do regression")
        if normalise not in ("cosine", "share", "none"):
            raise unknown("normalisation", normalise, ("cosine", "share", "none"))
        self.settings, self.normalise = settings, normalise
        self.two_classes = shape.task == "multiclass" and shape.num_outputs == 2
        machines = 1 if self.two_classes else shape.num_outputs
        self.register_buffer("vocabulary", torch.zeros(0, dtype=torch.long))
        self.register_buffer("weight", torch.zeros(machines, 0, dtype=torch.double))
        self.register_buffer("setting", torch.tensor(settings[0]))
        self.register_buffer("cost", torch.tensor(1.0, dtype=torch.double))
        self.bias = nn.Parameter(torch.zeros(machines, dtype=torch.double), requires_grad=False)

    def count(self, batch: GraphBatch, setting: int) -> Counts:
        """The structures of each graph."""
        raise NotImplementedError(f"{type(self).__name__} must define count(batch, setting)")

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        """Fit a machine for every setting and cost and keep the best on the validation split."""
        train, val = dataset.train, dataset.splits.get("val")
        assert isinstance(train, GraphSet)
        assert isinstance(val, GraphSet | None)
        targets = self._targets(train.y.cpu())
        best = -math.inf
        for setting in self.settings[:1] if val is None else self.settings:
            counts = self.count(train.whole(), setting)
            vocabulary = counts.key.unique()
            rows = self._rows(counts, vocabulary)
            held = None if val is None else self._rows(self.count(val.whole(), setting), vocabulary)
            kernel = (rows @ rows.T).toarray() if len(train) <= MOST_IN_A_KERNEL else None
            for cost in (1.0,) if val is None else COSTS:
                machines = [_machine(rows, kernel, target, cost) for target in targets]
                weight, bias = np.stack([w for w, _ in machines]), np.array([b for _, b in machines])
                score = 0.0
                if held is not None:
                    score = trainer.score(self._logits(torch.from_numpy(held @ weight.T + bias)), dataset, "val")
                if score > best or not len(self.vocabulary):
                    best = max(score, best)
                    self._keep(vocabulary, weight, bias, setting, cost)

    def _keep(self, vocabulary: Tensor, weight: np.ndarray, bias: np.ndarray, setting: int, cost: float) -> None:
        used = torch.from_numpy((weight != 0).any(0))
        used[:1] = True  # a constant machine, too, has been fitted to something
        device = self.bias.device
        self.vocabulary = vocabulary[used.to(vocabulary.device)]
        self.weight = torch.from_numpy(weight)[:, used].to(device)
        self.bias.copy_(torch.from_numpy(bias))
        self.setting.fill_(setting)
        self.cost.fill_(cost)

    def _targets(self, y: Tensor) -> list[np.ndarray]:
        """One column for each machine: 1 and 0, NaN where unknown."""
        if self.shape.task == "multilabel":
            return list(y.double().numpy().T)
        if self.shape.task == "binary" or self.two_classes:
            return [y.double().numpy()]
        return [(y == number).double().numpy() for number in range(self.shape.num_outputs)]

    def _scaled(self, counts: Counts) -> Tensor:
        """The counts divided by the length of each graph's vector, structures unknown to the machine included."""
        values = counts.count.double()
        if self.normalise == "none":
            return values
        cosine = self.normalise == "cosine"
        size = segment_sum(values.square() if cosine else values, counts.graph, counts.num_graphs)
        return values / (size.sqrt() if cosine else size)[counts.graph]

    def _rows(self, counts: Counts, vocabulary: Tensor) -> csr_array:
        from scipy.sparse import csr_array

        column, known = counts.columns(vocabulary)
        places = (t[known].int().cpu().numpy() for t in (counts.graph, column))  # scikit-learn takes no wider ones
        values = self._scaled(counts)[known].cpu().numpy()
        return csr_array((values, tuple(places)), shape=(counts.num_graphs, len(vocabulary)))

    def _logits(self, margins: Tensor) -> Tensor:
        if self.two_classes:
            return torch.cat([torch.zeros_like(margins), margins], 1)
        return margins.squeeze(1) if self.shape.task == "binary" else margins

    def forward(self, batch: GraphBatch) -> Tensor:
        counts = self.count(batch, int(self.setting))
        column, known = counts.columns(self.vocabulary)
        parts = self.weight[:, column[known]].t() * self._scaled(counts)[known].unsqueeze(1)
        return self._logits(segment_sum(parts, counts.graph[known], batch.num_graphs) + self.bias).float()

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, sized_by_data=("vocabulary", "weight"))


def _machine(rows: csr_array, kernel: np.ndarray | None, target: np.ndarray, cost: float) -> tuple[np.ndarray, float]:
    """Weights and bias of one C-SVM: from the kernel matrix, or from the rows where that is not given."""
    known = np.flatnonzero(~np.isnan(target))
    target = target[known]
    if len(np.unique(target)) < 2:
        return np.zeros(rows.shape[1]), 2.0 * target.mean() - 1.0 if len(target) else 0.0  # pyright: ignore[reportOptionalSubscript]
    if kernel is None:
        return _linear_machine(rows[known], target, cost)
    matrix = kernel if len(known) == len(kernel) else kernel[np.ix_(known, known)]
    weight, bias = fit_machine(matrix, target, cost, most_steps=MOST_STEPS)
    used = weight.nonzero()[0]
    return rows[known[used]].T @ weight[used], bias


def _linear_machine(rows: csr_array, target: np.ndarray, cost: float) -> tuple[np.ndarray, float]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a cost that cannot be fitted loses on validation
        linear = LinearSVC(C=cost, loss="hinge").fit(rows, target)
    return np.ravel(linear.coef_), float(np.ravel(linear.intercept_)[0])
