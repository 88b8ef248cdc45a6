"""What a trained run is asked about: anything that `load` takes, as samples in the order given, labels or none.

Nothing is split, and nothing is lost: a row that cannot be used keeps its place with the reason. A run that learned
from a table keeps how its columns were read (`Dataset.reading`); tables, lists of SMILES and rows of numbers are read
so again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.node_sets import NodeSet
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.frames import frame_table, is_frame, is_records, is_texts, text_table
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.new_rows import Given, Rejected, read_like
from shiftproof.data.readers.node_sources import is_node_source, read_nodes
from shiftproof.data.readers.objects import as_split, is_molecules, smiles_of
from shiftproof.data.readers.table_files import is_table
from shiftproof.data.readers.tables import Table, read_table
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets


def given_samples(
    data: Any, reading: Mapping[str, Any] | None, *, split: str | None = None, smiles: str | None = None
) -> Given:
    """The rows of `data` in their order; `reading` says how the run's own table was read.

    Of a data set with splits one is taken: `split`, or "test" where it is not said. A table, a list or an array is
    taken whole. `smiles` names the column of SMILES where it is another than in training.
    """
    if isinstance(data, Split):
        return whole_split(data)
    if isinstance(data, NodeGraph):
        return whole_graph(data)
    if is_node_source(data):
        return whole_graph(read_nodes(data))
    if isinstance(data, Dataset):
        return whole_split(data[split or "test"], data.rejected)
    if split is None and reading is not None and (table := _table(data, reading)) is not None:
        return read_like(reading, table, smiles)
    if smiles is not None:
        raise ShiftproofError("'smiles' names a column of a table, for a run that learned from a table of molecules")
    if isinstance(data, str | Path) or (isinstance(data, Mapping) and not is_frame(data)):
        dataset = load_samples(data)
        return whole_split(dataset[split or "test"], dataset.rejected)
    if split is not None:
        raise ShiftproofError(f"a {type(data).__name__} has no split '{split}': every row of it is predicted")
    return whole_split(as_split(data))


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
