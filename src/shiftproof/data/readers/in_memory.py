"""Objects in memory as a data set: frames, SMILES, molecules, graphs, arrays, tensors, data sets of other packages.

Nothing is imported to find out what an object is; packages are known by the names of their classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.arrays import from_arrays, split_arrays
from shiftproof.data.readers.frames import as_pandas, frame_table, is_frame, is_records, is_texts
from shiftproof.data.readers.given_columns import entries_of, require_length
from shiftproof.data.readers.graph_lists import from_graphs, from_splits
from shiftproof.data.readers.molecule_objects import SMILES, molecule_frame
from shiftproof.data.readers.objects import collected, is_graph, is_molecules
from shiftproof.data.readers.other_packages import benchmark_splits
from shiftproof.data.readers.table_files import read_samples
from shiftproof.errors import ShiftproofError
from shiftproof.registry import fitting_options, options_of

TAKEN = (
    "a name, a path, a DataFrame (pandas, polars, pyarrow, Hugging Face), a list of SMILES or of RDKit molecules, PyG "
    "or NetworkX graphs, arrays or tensors with y=, a torch data set, or a dict of splits"
)
_LABEL, _ENV, _PART = "label", "env", "split"  # what columns are called that were given beside the samples


def from_memory(source: Any, options: Mapping[str, Any]) -> Dataset:
    """The data set of anything but a name or a path."""
    if isinstance(source, Mapping) and not is_frame(source):
        return _of_mapping(source, options)
    if is_frame(source) or is_records(source):
        return _of_frame(as_pandas(source), f"the {type(source).__name__}", options)
    if is_texts(source):
        return _of_frame(_frame({SMILES: list(source)}), "the SMILES", {"smiles": SMILES, **options})
    if is_molecules(source):
        return _of_frame(molecule_frame(list(source)), "the molecules", {"smiles": SMILES, **options})
    if (splits := benchmark_splits(source)) is not None:
        return from_memory(splits, options)
    if callable(listed := getattr(source, "to_data_list", None)):  # a batch of PyG's
        return from_memory(listed(), options)
    if is_graph(source):
        _refuse_one_graph(source)
    if isinstance(source, GraphSet) or _first_is_graph(source):
        return _call(from_graphs, source, options, "a list of graphs")
    if isinstance(source, tuple) and len(source) in (2, 3) and all(_is_array(part) for part in source):
        named = dict(zip(("y", "env"), source[1:], strict=False))
        return from_memory(source[0], {**named, **options})
    if isinstance(source, DomainSet | np.ndarray | Tensor):
        return _call(from_arrays, source, options, "an array")
    if isinstance(source, Iterable | Sequence) or hasattr(source, "__getitem__"):
        if isinstance(source, str | bytes):
            raise ShiftproofError(f"load takes {TAKEN}; not {type(source).__name__}")
        given = collected(source, "the data")
        if isinstance(given, Mapping):
            beside = {name: values for name, values in given.items() if name != "x"}
            return from_memory(given["x"], {**beside, **options})
        return _call(from_graphs if isinstance(given, GraphSet) else from_arrays, given, options, "the samples")
    raise ShiftproofError(f"load takes {TAKEN}; not {type(source).__name__}")


def _refuse_one_graph(graph: Any) -> None:
    """Say why one graph alone is no data to learn from (one whose nodes are classified is read before)."""
    if hasattr(graph, "edge_index_dict"):
        raise ShiftproofError(
            "one heterogeneous graph is not taken: give its to_homogeneous(), or a list of such graphs that are samples"
        )
    raise ShiftproofError(
        "one graph is taken where its nodes are classified, and this one has no label 'y' for each node; "
        "graphs that are samples come as a list, and one of them can only be predicted and explained"
    )


def _of_mapping(source: Mapping[Any, Any], options: Mapping[str, Any]) -> Dataset:
    """A dict of splits, or of the columns of a table, or of arrays named x, y and env."""
    if not source:
        raise ShiftproofError("the dict is empty; it holds splits (train, val, test) or columns")
    if any(not isinstance(key, str) for key in source):
        key = next(key for key in source if not isinstance(key, str))
        raise ShiftproofError(f"the keys of a dict are names of splits or columns, not {key!r}")
    if "train" in source:
        return _of_splits(source, options)
    if "x" in source and "y" in source and getattr(source["x"], "ndim", 1) > 1:
        strange = [name for name in source if name not in ("x", "y", "env")]
        if strange:
            raise ShiftproofError(f"a dict of arrays has x, y and env, not '{strange[0]}'")
        return from_memory(source["x"], {**{k: v for k, v in source.items() if k != "x"}, **options})
    lengths = {len(column) if _is_array(column) else -1 for column in source.values()}
    if len(lengths) == 1 and -1 not in lengths:
        return _of_frame(_frame(source), "the dict", options)
    raise ShiftproofError(
        f"a dict holds splits, one of them named train, or columns of one length; this one has "
        f"{', '.join(list(source)[:6])}"
    )


def _of_splits(source: Mapping[str, Any], options: Mapping[str, Any]) -> Dataset:
    parts = list(source.values())
    if all(is_frame(part) or is_records(part) for part in parts):
        return _of_split_frames({name: as_pandas(part) for name, part in source.items()}, options)
    if all(is_texts(part) or is_molecules(part) for part in parts):
        raise ShiftproofError("molecules in splits need labels: give a DataFrame with SMILES and labels for each split")
    if all(isinstance(part, GraphSet) or _first_is_graph(part) for part in parts):
        return _call(from_splits, source, options, "a dict of graphs")
    return _call(split_arrays, source, options, "a dict of arrays")


def _of_split_frames(frames: Mapping[str, Any], options: Mapping[str, Any]) -> Dataset:
    """Frames of train, val and test under one another, split by a column that says which."""
    import pandas as pd

    if any(name in options for name in ("split", "by", "y")):
        raise ShiftproofError("frames that come as splits take no 'split', 'by' or 'y'")
    column = _PART
    while any(column in frame.columns for frame in frames.values()):
        column += "_"
    marked = [frame.assign(**{column: name}) for name, frame in frames.items()]
    whole = pd.concat(marked, ignore_index=True)
    return _of_frame(whole, "the frames", {**options, "split": "column", "by": column})


def _of_frame(frame: Any, where: str, options: Mapping[str, Any]) -> Dataset:
    """A frame, with labels and environments that were given beside it as columns."""
    chosen = dict(options)
    label = chosen.pop("y", None)
    if label is None and _is_beside(chosen.get("label"), frame):
        label = chosen.pop("label")
    if label is not None:
        if chosen.get("label") is not None:
            raise ShiftproofError("labels are given as y= or as a column named in label=, not as both")
        frame, chosen["label"] = _with_column(frame, label, "y", _LABEL)
    if _is_beside(chosen.get("env"), frame):
        frame, chosen["env"] = _with_column(frame, chosen["env"], "env", _ENV)
    return _call(read_samples, frame_table(frame, where=where), chosen, where)


def _is_beside(value: Any, frame: Any) -> bool:
    """Whether an option holds entries of rows, not the names of columns."""
    if value is None or isinstance(value, str):
        return False
    if hasattr(value, "__len__") and getattr(value, "ndim", 1):
        named = all(isinstance(each, str) and each in frame.columns for each in list(value)[:50])
        return not named or len(value) == 0
    return False


def _with_column(frame: Any, values: Any, name: str, column: str) -> tuple[Any, str]:
    require_length(values, len(frame), name)
    found = entries_of(values, name)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ShiftproofError(f"'{name}' needs one value a sample, its shape is {found.shape}")
    column = str(getattr(values, "name", None) or column)
    while column in frame.columns:
        column += "_"
    return frame.assign(**{column: found}), column


def _frame(columns: Mapping[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame({str(name): pd.Series(list(values), dtype=object) for name, values in columns.items()})


def _is_array(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _first_is_graph(source: Any) -> bool:
    """Whether these are several graphs: a list of them, or a data set of PyG's."""
    if isinstance(source, Split | np.ndarray | Tensor | str) or not hasattr(source, "__getitem__"):
        return False
    try:
        return len(source) > 0 and is_graph(source[0])
    except (TypeError, KeyError, IndexError):
        return False


def _call(make: Callable[..., Any], source: Any, options: Mapping[str, Any], owner: str) -> Any:
    return make(source, **fitting_options(options, options_of(make), owner))
