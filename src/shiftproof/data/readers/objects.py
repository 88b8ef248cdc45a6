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
    if hasattr(source, "to_data_list"):  # a batch of PyG's
        source = source.to_data_list()
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


def collected(source: Any, where: str) -> Any:
    """The samples of a torch data set, a loader or a list of pairs: `{"x", "y", "env"}`, or graphs packed.

    An item is a sample with its label and perhaps its environment (`(x, y)`, `(x, y, env)`), a sample
    alone, or a graph.
    """
    items = _items(source, where)
    if not items:
        raise ShiftproofError(f"{where}: there is nothing in it")
    if not isinstance(items[0], tuple | list) or not _is_sample(items[0]):
        return as_split(items, where)
    width = len(items[0])
    if any(not isinstance(item, tuple | list) or len(item) != width for item in items):
        raise ShiftproofError(f"{where}: some items have another number of parts than the first, which has {width}")
    if width > 3:
        raise ShiftproofError(f"{where}: an item has {width} parts; (x, y) or (x, y, env) are understood")
    columns = list(zip(*items, strict=True))
    first = columns[0][0]
    x: Any = list(columns[0])
    if not isinstance(first, str) and not is_graph(first) and not is_molecules([first]):
        try:
            x = np.stack([_array(each) for each in columns[0]])
        except (TypeError, ValueError):
            raise ShiftproofError(f"{where}: the samples are not numbers of one shape") from None
    found = {"x": x, "y": _stacked(columns[1], f"{where}: labels")}
    if width == 3:
        env = _stacked(columns[2], f"{where}: environments")
        found["env"] = env[:, 0] if env.ndim == 2 else env  # of WILDS' metadata the first field is the domain
    return found


def _items(source: Any, where: str) -> list[Any]:
    """Everything a data set gives, item by item; one that has no end is told by its length."""
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        try:
            return [source[number] for number in range(len(source))]
        except (KeyError, TypeError, IndexError) as problem:
            raise ShiftproofError(f"{where}: its items cannot be read by number ({problem!r})") from None
    try:
        return list(source)
    except TypeError:
        raise ShiftproofError(f"{where}: a {type(source).__name__} has no items") from None


def _is_sample(item: Any) -> bool:
    """Whether a tuple is a sample with its label, not a row of numbers."""
    return 2 <= len(item) <= 4 and (
        isinstance(item, tuple) or hasattr(item[0], "shape") or isinstance(item[0], str) or is_graph(item[0])
    )


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _stacked(values: Sequence[Any], where: str) -> np.ndarray:
    try:
        return np.stack([_array(value).reshape(np.shape(value)) for value in values])
    except (TypeError, ValueError):
        raise ShiftproofError(f"{where} are not of one shape") from None


def is_graph(source: Any) -> bool:
    """Whether this is one graph: of PyG or NetworkX."""
    from shiftproof.data.readers.networkx_graphs import is_networkx

    pyg = hasattr(source, "edge_index") or hasattr(source, "edge_index_dict")
    return is_networkx(source) or (pyg and hasattr(source, "to_dict"))


def is_torch_dataset(source: Any) -> bool:
    """Whether this is a data set or loader of torch that is none of PyG's."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(source).__mro__}
    torchs = {"torch.utils.data.dataset.Dataset", "torch.utils.data.dataloader.DataLoader"}
    return bool(names & torchs) and not any(name.startswith("torch_geometric.") for name in names)


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
