"""Methods that look at one vector a sample: fingerprints of molecules, counts of neighbourhoods, rows of a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.readers.chemistry import is_molecule
from shiftproof.data.readers.molecule_vectors import add_blocks, parse_features
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Batch, DataShape, Method, Trains
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.wl_kernel import wl_counts
from shiftproof.objectives import sample_losses

NEIGHBOURHOODS = "neighbourhoods"  # what stands for the vectors of graphs that are no molecules
RADIUS, COLUMNS = 2, 2048  # of those: as in ECFP4
MOST_OF_A_COUNT = 255


class VectorMethod(Method):
    """A model of one vector a sample, fitted before the first epoch: nothing is trained by gradients.

    Rows of plain tensors are the vectors themselves. Molecules have the blocks that `vectors` names ("ecfp",
    "ecfp+descriptors"; left out: those the data were loaded with, else the method's own), which are computed from the
    atoms and bonds where the data do not have them yet. Other graphs are counted: how often each neighbourhood of
    radius 0 to 2 occurs, hashed to 2,048 columns.
    """

    usual_vectors = "ecfp"
    of_molecules: Tensor

    def __init__(self, shape: DataShape, *, vectors: str | None) -> None:
        super().__init__(shape)
        loaded = tuple(name for name, _ in shape.vectors)
        self.blocks: tuple[str, ...] = ()
        if shape.kind == "graphs":
            if vectors is None:
                self.blocks = loaded or parse_features(self.usual_vectors)[1]
            else:
                known = set(str(vectors).split("+")) <= set(loaded)
                self.blocks = tuple(str(vectors).split("+")) if known else parse_features(vectors)[1]
            if not self.blocks:
                raise ShiftproofError(f"vectors '{vectors}' name no block of a molecule's vector, such as ecfp")
        elif vectors is not None:
            raise ShiftproofError("'vectors' are of molecules; the rows of plain tensors are vectors already")
        self.two_classes = shape.task == "multiclass" and shape.num_outputs == 2
        self.machines = 1 if self.two_classes else shape.num_outputs
        self.register_buffer("of_molecules", torch.tensor(False))

    def fit(self, x: np.ndarray, y: Tensor, seed: int) -> None:
        """Fit to the vectors [samples, width] of the training samples and their labels."""
        raise NotImplementedError(f"{type(self).__name__} must define fit(x, y, seed)")

    def scores(self, x: Tensor) -> Tensor:
        """[samples, machines] for vectors [samples, width]."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(x)")

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        train = dataset.train
        if isinstance(train, GraphSet):
            self.of_molecules.fill_(all(name in train.vectors for name in self.blocks))
        x = torch.cat([self.vectors(batch) for batch in train.batches(4096)])
        with torch.no_grad():
            self.fit(x.cpu().numpy(), train.y.cpu(), trainer.seed)

    def vectors(self, batch: Batch) -> Tensor:
        """[samples, width]: what is looked at."""
        if not isinstance(batch, GraphBatch):
            return batch.x.flatten(1).float()
        if bool(self.of_molecules):
            absent = [name for name in self.blocks if name not in batch.vectors]
            if absent:
                raise unknown("block of vectors", absent[0], batch.vectors, "these graphs")
            return torch.cat([batch.vectors[name].float() for name in self.blocks], 1)
        counts = wl_counts(batch, RADIUS)
        found = torch.zeros(batch.num_graphs * COLUMNS, device=batch.x.device)
        place = counts.graph * COLUMNS + counts.key.remainder(COLUMNS)
        return found.index_add_(0, place, counts.count.float()).view(-1, COLUMNS).clamp_(max=MOST_OF_A_COUNT)

    def columns(self, y: Tensor) -> np.ndarray:
        """One column for each machine; of classes 1 and 0; NaN where the label is unknown."""
        if self.shape.task == "multiclass" and not self.two_classes:
            return torch.nn.functional.one_hot(y.long(), self.shape.num_outputs).double().numpy()
        return y.double().reshape(len(y), -1).numpy()

    def forward(self, batch: Batch) -> Tensor:
        scores = self.scores(self.vectors(batch)).float()
        if self.two_classes:
            return torch.cat([torch.zeros_like(scores), scores], 1)
        flat = self.shape.task == "binary" or (self.shape.task == "regression" and self.shape.num_outputs == 1)
        return scores.squeeze(1) if flat else scores

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    def _with_blocks(self, dataset: Dataset, seed: int) -> Dataset:
        """The data with the vectors of molecules that this method looks at; other data as they are."""
        splits = dataset.splits.values()
        there = all(isinstance(s, GraphSet) and set(self.blocks) <= set(s.vectors) for s in splits)
        if self.shape.kind != "graphs" or there or not all(is_molecule(split) for split in splits):
            return dataset
        return add_blocks(dataset, self.blocks)

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, arrange=self._with_blocks)
