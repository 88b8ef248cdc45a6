"""What a trained run is asked about: anything that `load` takes, as samples in the order given, labels or none.

Nothing is split, and nothing is lost: a row that cannot be used keeps its place with the reason. A run that learned
from a table keeps how its columns were read (`Dataset.reading`); tables, lists of SMILES and rows of numbers are read
so again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.node_sets import NodeSet
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.frames import as_pandas, frame_table, is_frame, is_records, is_texts, text_table
from shiftproof.data.readers.given_columns import as_labels, entries_of, require_length
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.new_rows import Given, Rejected, read_like
from shiftproof.data.readers.node_sources import is_node_source, read_nodes
from shiftproof.data.readers.objects import as_split, collected, is_graph, is_molecules, is_torch_dataset, smiles_of
from shiftproof.data.readers.table_files import is_table
from shiftproof.data.readers.tables import Table, read_table
from shiftproof.data.readers.whole_numbers import encoded
from shiftproof.errors import ShiftproofError, require_text
from shiftproof.registry import datasets

_TABLES = ("molecules", "tabular")  # kinds of reading that new tables are read by


def given_samples(
    data: Any, reading: Mapping[str, Any] | None, *, split: str | None = None, smiles: str | None = None
) -> Given:
    """The rows of `data` in their order; `reading` says how the run's own table was read.

    Of a data set with splits one is taken: `split`, or "test" where it is not said. A table, a list or an array is
    taken whole. `smiles` names the column of SMILES where it is another than in training.
    """
    for name, text in (("split", split), ("smiles", smiles)):
        if text is not None:
            require_text(text, f"'{name}'")
    if isinstance(data, Split):
        return whole_split(encoded(data, reading))
    if isinstance(data, NodeGraph):
        return whole_graph(data)
    if is_node_source(data):
        return whole_graph(read_nodes(data))
    if isinstance(data, Dataset):
        require_same_code(data, reading)
        return whole_split(encoded(data[split or "test"], reading), data.rejected)
    if split is None and (reading or {}).get("kind") in _TABLES:
        table = _table(data, reading or {})
        if table is not None:
            return read_like(reading or {}, table, smiles)
    if smiles is not None:
        raise ShiftproofError("'smiles' names a column of a table, for a run that learned from a table of molecules")
    if isinstance(data, str | Path) or (isinstance(data, Mapping) and not is_frame(data)):
        dataset = load_samples(data, integers="keep")
        return whole_split(encoded(dataset[split or "test"], reading), dataset.rejected)
    if split is not None:
        raise ShiftproofError(f"a {type(data).__name__} has no split '{split}': every row of it is predicted")
    try:
        return whole_split(encoded(samples_of(data, (reading or {}).get("classes") or ()), reading))
    except ShiftproofError as problem:
        given = _one_by_one(data, reading)
        if given is None:
            raise problem from None
        return given


def _one_by_one(data: Any, reading: Mapping[str, Any] | None) -> Given | None:
    """The usable ones of a list of graphs or an array of rows, the others in their place with the reason."""
    problems: dict[int, str] = {}
    if isinstance(data, np.ndarray | torch.Tensor) and data.ndim >= 2 and data.dtype != object:
        plain = torch.as_tensor(data)
        finite = plain.reshape(len(plain), -1).isfinite().all(1) if plain.is_floating_point() else torch.ones(0)
        problems = dict.fromkeys((~finite.bool()).nonzero().flatten().tolist(), "features hold NaN or infinity")
        items: Any = data
    elif isinstance(data, list | tuple) and data and all(is_graph(item) for item in data):
        items = list(data)
        for place, item in enumerate(items):
            try:
                as_split([item], "the graph")
            except ShiftproofError as problem:
                problems[place] = str(problem).removeprefix("the graph: ").replace("(graph 0, ", "(")
    else:
        return None
    rows = np.array([row for row in range(len(items)) if row not in problems], dtype=np.int64)
    if not problems or not len(rows):
        return None
    usable = [items[row] for row in rows] if isinstance(items, list) else items[rows]
    return Given(encoded(as_split(usable), reading), rows, np.arange(len(items)), problems)


def samples_of(data: Any, classes: Sequence[str] = ()) -> Split:
    """Graphs, arrays, frames of numbers, torch data sets or (x, y) as one set of samples, every one in its place."""
    if is_frame(data) or is_records(data):
        return as_split(as_pandas(data).to_numpy(), "the frame")
    if isinstance(data, tuple) and len(data) in (2, 3) and getattr(data[0], "ndim", 1) >= 2:
        found: Any = dict(zip(("x", "y", "env"), data, strict=False))
    elif is_torch_dataset(data):
        found = collected(data, "the data set")
    else:
        return as_split(data)
    if not isinstance(found, Mapping):
        return found
    samples = as_split(found["x"])
    if found.get("y") is not None:
        require_length(found["y"], len(samples), "y")
        samples.y = _labels(found["y"], classes)
    return samples


def require_same_code(data: Dataset, reading: Mapping[str, Any] | None) -> None:
    """Refuse graphs whose whole-number features were coded by other values than those of the run's training graphs."""
    for name in ("node_categories", "edge_categories"):
        own, learned = data.reading.get(name), (reading or {}).get(name)
        if own is not None and own != learned:
            raise ShiftproofError(
                f"the whole-number features of '{data.name}' were coded by its own values, not by those that the run "
                "was trained on: give the graphs themselves, or load them with integers='keep'"
            )


def _labels(y: Any, classes: Sequence[str]) -> Any:
    """Labels as the run numbers them; nothing where one is none of its classes."""
    if not classes:
        return as_labels(y)[0]
    place = {name: number for number, name in enumerate(classes)}
    numbers = [place.get(str(entry)) for entry in entries_of(y, "y").tolist()]
    return None if None in numbers else torch.tensor(numbers)


def whole_graph(graph: NodeGraph) -> Given:
    """Every node of a graph is a row, labelled or not."""
    samples = NodeSet.of(graph, torch.arange(graph.num_nodes), labelled=False)
    labels = torch.where(graph.y >= 0, graph.y.double(), float("nan"))
    return Given(samples, np.arange(len(samples)), samples.index.cpu().numpy(), labels=labels)


def whole_split(samples: Split, rejected: Rejected = ()) -> Given:
    """A split that is there already: every sample is a row."""
    labels = None if samples.y is None else samples.y.detach().cpu().double()
    index = samples.index.detach().cpu().numpy()
    return Given(samples, np.arange(len(samples)), index, labels=labels, rejected=rejected)


def _table(data: Any, reading: Mapping[str, Any]) -> Table | None:
    """The table that was given, whatever it came in; None where it is something else."""
    of_molecules = reading.get("kind") == "molecules"
    if is_table(data):
        return read_table(data)
    if of_molecules and type(data).__name__ == "Series":
        return frame_table(data.to_frame(reading["smiles"]))
    if is_frame(data) or is_records(data):
        return frame_table(data)
    if of_molecules:
        if isinstance(data, str) and not Path(data).exists() and data.partition(":")[0] not in datasets:
            data = [data]
        if is_texts(data):
            return text_table(data, reading["smiles"])
        if is_molecules(data):
            return text_table(smiles_of(data), reading["smiles"], "the molecules")
    elif reading.get("kind") == "tabular" and getattr(data, "ndim", 0) == 2:
        names = [part["name"] for part in reading["columns"]]
        if data.shape[1] == len(names):
            import pandas as pd

            return frame_table(pd.DataFrame(np.asarray(data), columns=names), where="the array")
    return None
