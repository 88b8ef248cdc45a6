"""Objects in memory as packed graphs or rows of a tensor: PyG, NetworkX, RDKit, arrays, tensors, torch data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.joining import join
from shiftproof.errors import ShiftproofError, optional


def as_split(source: Any, where: str = "the samples") -> Split:
    """What was given as packed graphs or rows of a tensor, every sample in its place; nothing given is changed."""
    if isinstance(source, GraphSet | DomainSet):
        source.check(where)
        return replace(source)
    if is_graph(source):
        source = [source]
    if isinstance(source, np.ndarray) and source.dtype == object and source.ndim == 1:
        source = source.tolist()
    if isinstance(source, Tensor | np.ndarray):
        return _rows(source, where)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        items = source if isinstance(source, Sequence) or hasattr(source, "__getitem__") else list(source)
        return _from_items(items, where)
    raise ShiftproofError(f"{where}: a {type(source).__name__} is no samples; graphs, SMILES, arrays and tables are")


def _from_items(items: Any, where: str) -> Split:
    from shiftproof.data.readers.networkx_graphs import from_networkx, is_networkx

    if not len(items):
        raise ShiftproofError(f"{where}: there is nothing in it")
    first = items[0]
    if isinstance(first, GraphSet | DomainSet):
        return join(list(items))
    graphs: GraphSet | None = None
    if is_networkx(first):
        graphs = from_networkx(items, where=where)
    elif is_graph(first):
        graphs = GraphSet.from_pyg(items, where=where)
    elif isinstance(first, str):
        from shiftproof.data.readers.molecules import molecule_graphs

        graphs = molecule_graphs(list(items), single_atoms=True, where=where)
    elif is_molecules(items):
        return _from_items(smiles_of(items), where)
    if graphs is not None:
        graphs.check(where)
        return graphs
    return _rows(items, where)


def _rows(values: Any, where: str) -> DomainSet:
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        rows = torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))
    except (TypeError, ValueError):
        raise ShiftproofError(f"{where} are no numbers: one row of numbers a sample is needed") from None
    if rows.ndim < 2:
        raise ShiftproofError(f"{where} need one row a sample; their shape is {tuple(rows.shape)}")
    samples = DomainSet(rows / 255 if array.dtype == np.uint8 else rows)
    samples.check(where)
    return samples


def is_graph(source: Any) -> bool:
    """Whether this is one graph: of PyG or NetworkX."""
    from shiftproof.data.readers.networkx_graphs import is_networkx

    return is_networkx(source) or (hasattr(source, "edge_index") and hasattr(source, "to_dict"))


def is_molecules(source: Any) -> bool:
    """Whether these are molecules of RDKit; None stands for one that could not be read."""
    if not isinstance(source, Sequence) or isinstance(source, str):
        return False
    kinds = {type(each).__module__.partition(".")[0] for each in source if each is not None}
    return kinds == {"rdkit"}


def smiles_of(molecules: Sequence[Any]) -> list[str | None]:
    """The SMILES of RDKit's molecules; None stays None."""
    chem = optional("rdkit.Chem", "molecules", "reading molecules")
    return [None if each is None else chem.MolToSmiles(each) for each in molecules]
