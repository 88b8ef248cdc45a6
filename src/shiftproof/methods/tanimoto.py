"""The Tanimoto kernel of counts, and what methods on it have in common: what they keep and how they are asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.data.seeds import stream
from shiftproof.methods.base import DataShape
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.vector_method import VectorMethod
from shiftproof.ranges import Count


def tanimoto(first: Tensor, second: Tensor) -> Tensor:
    """How alike rows of counts are, [n, m]: 1 where they are equal, 0 where they share nothing.

    .. math:: k(a, b) = \\frac{\\sum_i \\min(a_i, b_i)}{\\sum_i \\max(a_i, b_i)}

    The sum of the smaller counts is a product of yes-or-no rows: one column says "at least 1 of the first", one "at
    least 2 of it", and so on.
    """
    first, second = first.float(), second.float()
    most = torch.minimum(first.amax(0), second.amax(0)).long() if len(first) and len(second) else None
    if most is None:
        return first.new_zeros(len(first), len(second))
    column = torch.repeat_interleave(most)
    level = torch.arange(len(column), device=column.device) - (most.cumsum(0) - most)[column] + 1
    shared = (first[:, column] >= level).float() @ (second[:, column] >= level).float().t()
    either = first.sum(1, keepdim=True) + second.sum(1) - shared
    return torch.where(either > 0, shared / either.clamp(min=1e-12), 1.0)


class TanimotoMethod(VectorMethod):
    """A weighted sum of how alike a sample is to each of the training samples.

    .. math:: f(x) = b + \\sum_j α_j k(x, x_j)

    Of more than `most` training samples so many are drawn at random, because the kernel matrix has a number for every
    pair of them.
    """

    points: Tensor
    column: Tensor

    def __init__(self, shape: DataShape, *, most: Count, vectors: str | None) -> None:
        super().__init__(shape, vectors=vectors)
        self.most = most
        self.register_buffer("points", torch.zeros(0, 0, dtype=torch.uint8))
        self.register_buffer("column", torch.zeros(0, dtype=torch.long))
        self.weight = nn.Parameter(torch.zeros(self.machines, 0, dtype=torch.double), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(self.machines, dtype=torch.double), requires_grad=False)

    def fit_kernel(self, kernel: np.ndarray, target: np.ndarray, machine: int) -> tuple[np.ndarray, float]:
        """Weights of the samples and the bias of one machine."""
        raise NotImplementedError(f"{type(self).__name__} must define fit_kernel(kernel, target, machine)")

    def fit(self, x: np.ndarray, y: Tensor, seed: int) -> None:
        columns = self.columns(y)
        if len(x) > self.most:
            drawn = np.sort(stream(seed).permutation(len(x))[: self.most])
            x, columns = x[drawn], columns[drawn]
        points = torch.from_numpy(x)
        kernel = tanimoto(points, points).double().numpy()
        weight, bias = np.zeros((self.machines, len(x))), np.zeros(self.machines)
        for number, target in enumerate(columns.T):
            known = np.flatnonzero(~np.isnan(target))
            own = kernel if len(known) == len(kernel) else kernel[np.ix_(known, known)]
            weight[number, known], bias[number] = self._fitted(own, target[known], number)
        used = (weight != 0).any(0)
        used[:1] = True
        device = self.bias.device
        held = points[torch.from_numpy(used)].to(torch.uint8)
        self.column = held.any(0).nonzero().squeeze(1).to(device)
        self.points = held.to(device)[:, self.column]
        self.weight.data = torch.from_numpy(weight[:, used]).to(device)
        self.bias.data = torch.from_numpy(bias).to(device)

    def _fitted(self, kernel: np.ndarray, target: np.ndarray, machine: int) -> tuple[np.ndarray, float]:
        if len(np.unique(target)) >= 2:
            return self.fit_kernel(kernel, target, machine)
        if self.shape.task == "regression":
            return np.zeros(len(target)), float(target[0]) if len(target) else 0.0
        return np.zeros(len(target)), float(np.log((target.sum() + 1) / (len(target) - target.sum() + 1)))

    def scores(self, x: Tensor) -> Tensor:
        absent = x.sum(1) - x[:, self.column].sum(1)  # counts that no training sample has are in the larger sum alone
        own = torch.cat([x[:, self.column], absent.unsqueeze(1)], 1)
        points = torch.cat([self.points, self.points.new_zeros(len(self.points), 1)], 1)
        return tanimoto(own, points).double() @ self.weight.t() + self.bias

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, sized_by_data=("points", "column", "weight"))
