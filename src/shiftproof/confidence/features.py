"""What a model sees of each sample just before it decides: one vector a sample, of any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Split
from shiftproof.methods.base import Batch, Method
from shiftproof.methods.vector_method import VectorMethod
from shiftproof.training.evaluation import EVALUATION_BATCH

if TYPE_CHECKING:
    from shiftproof.training.run import Run

MOST_DIRECTIONS = 16  # a likelihood ratio of a few hundred rows cannot be fitted in more


def features_of(run: Run, split: Split) -> np.ndarray:
    """`[samples, width]`: the vectors that the run's model looks at, or what its last layer is given.

    Where the last layer is not a linear one that is called once a sample, these are the logits.
    """
    method = run.method
    samples = run.with_vectors(split).to(next(method.parameters()).device)
    was_training = method.training
    method.eval()
    try:
        with torch.no_grad():
            parts = [_of_batch(method, batch) for batch in samples.batches(EVALUATION_BATCH)]
    finally:
        method.train(was_training)
    found = torch.cat([part.reshape(len(part), -1).float().cpu() for part in parts]).numpy()
    return np.nan_to_num(found, posinf=0.0, neginf=0.0)


def _of_batch(method: Method, batch: Batch) -> Tensor:
    if isinstance(method, VectorMethod):
        return method.vectors(batch)
    featurizer = getattr(method, "featurizer", None)
    if isinstance(featurizer, nn.Module):
        found = featurizer(batch)
        if isinstance(found, Tensor) and found.ndim == 2 and len(found) == len(batch):
            return found
    return _before_the_last_layer(method, batch)


def _before_the_last_layer(method: Method, batch: Batch) -> Tensor:
    seen: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        if given and given[0].ndim == 2 and len(given[0]) == len(batch):
            seen.append(given[0])

    last = [m for m in method.modules() if isinstance(m, nn.Linear) and m.out_features == method.shape.num_outputs]
    hooks = [layer.register_forward_pre_hook(note) for layer in last]
    try:
        logits = method(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return seen[-1] if seen else logits.reshape(len(batch), -1)


@dataclass(frozen=True, eq=False)
class Directions:
    """The principal directions of the training samples' features, by which all other samples are described."""

    mean: np.ndarray
    axes: np.ndarray  # [width, directions], each scaled so that training samples deviate by 1

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return ((features - self.mean) @ self.axes).astype(np.float32)

    @classmethod
    def of(cls, features: np.ndarray, most: int = MOST_DIRECTIONS) -> Directions:
        """The directions in which training samples differ most, constant features left out."""
        x = features.astype(np.float64)
        mean = x.mean(0)
        centred = x - mean
        spread = centred.std(0)
        scale = np.where(spread > 1e-9 * np.maximum(np.abs(x).max(0), 1.0), 1 / np.maximum(spread, 1e-12), 0.0)
        if x.shape[1] > 1 and scale.any():
            z = centred * scale
            values, vectors = np.linalg.eigh(z.T @ z / len(z))
            kept = min(most, int((values > 1e-9 * values.max()).sum()), max(len(x) - 1, 1))
            axes = scale[:, None] * vectors[:, ::-1][:, :kept] / np.sqrt(values[::-1][:kept])
        else:
            axes = np.diag(scale)[:, :1]
        return cls(mean.astype(np.float32), axes.astype(np.float32))
