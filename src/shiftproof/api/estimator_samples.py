"""What scikit-learn calls X, as packed graphs or rows of a tensor; rows that are no molecules are named or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.frames import as_pandas, is_frame, is_texts
from shiftproof.data.readers.objects import as_split, is_graph, is_molecules, smiles_of
from shiftproof.errors import ShiftproofError


def as_samples(X: Any, *, skip: bool = False) -> tuple[Split, np.ndarray, dict[int, str]]:
    """The samples, the row of X that each is, and what is wrong with every other row (none, unless `skip`)."""
    X = _plain(X)
    if isinstance(X, list) and X and all(isinstance(text, str) for text in X):
        return _molecules(X, skip)
    samples = _samples(X)
    return samples, np.arange(len(samples)), {}


def is_table_of_numbers(X: Any) -> bool:
    """Whether X has columns, whose number and names are to be the same in `fit` and `predict`."""
    return not isinstance(_plain(X), list | GraphSet | DomainSet) and getattr(X, "ndim", 2) == 2


def _plain(X: Any) -> Any:
    """Molecules and SMILES, whatever holds them, as a list of texts; everything else as it is."""
    if is_frame(X):
        frame = as_pandas(X)
        cells = frame.iloc[:, 0].tolist() if frame.shape[1] == 1 else []
        return [_text(cell) for cell in cells] if cells and any(isinstance(cell, str) for cell in cells) else X
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OUS" and is_texts(X[:, 0]):
        X = X[:, 0]
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OUS" and len(X):
        X = X.tolist()
    if isinstance(X, Sequence) and not isinstance(X, str) and len(X):
        if is_texts(X):
            return [_text(cell) for cell in X]
        if is_molecules(X):
            return [_text(cell) for cell in smiles_of(X)]
        if is_graph(X[0]) or isinstance(X[0], GraphSet | DomainSet):
            return list(X)
    return X


def _text(cell: Any) -> str:
    return cell if isinstance(cell, str) else ""


def _samples(X: Any) -> Split:
    if isinstance(X, GraphSet | DomainSet):
        X.check("X")
        return replace(X)
    if isinstance(X, list) and X and (is_graph(X[0]) or isinstance(X[0], GraphSet | DomainSet)):
        return as_split(X, "X")
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if getattr(X, "ndim", 2) > 2:
        rows = np.asarray(X, np.float32)
        if not np.isfinite(rows).all():
            raise ShiftproofError("X contains NaN or infinity")
    else:
        from sklearn.utils.validation import check_array

        rows = check_array(X, dtype=np.float32)  # pyright: ignore[reportArgumentType]
    return DomainSet(torch.from_numpy(np.ascontiguousarray(rows)))


def _molecules(smiles: list[str], skip: bool) -> tuple[Split, np.ndarray, dict[int, str]]:
    from shiftproof.data.readers.molecules import molecule_graphs, reason_of

    graphs = molecule_graphs(smiles, single_atoms=True, skip_bad=True, where="X")
    kept = graphs.index.numpy()
    bad = np.setdiff1d(np.arange(len(smiles)), kept).tolist()
    problems = {row: f"SMILES {reason_of(smiles[row])}" for row in bad}
    if problems and (not skip or not len(kept)):
        row = bad[0]
        more = "" if skip else "; on_error='skip' leaves such rows out"
        raise ShiftproofError(f"X: row {row} ('{smiles[row][:60]}'): {problems[row]}{more}")
    graphs.index = torch.arange(len(kept))
    return graphs, kept, problems
