"""Tables that are in memory: pandas and polars frames, pyarrow tables, Hugging Face data sets, lists of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shiftproof.data.readers.tables import Table, as_text, cell_text, checked_table
from shiftproof.errors import ShiftproofError

_FRAMES = {
    "pandas": ("DataFrame", "Series"),
    "polars": ("DataFrame", "LazyFrame", "Series"),
    "pyarrow": ("Table", "RecordBatch"),
    "datasets": ("Dataset",),
}


def is_frame(source: Any) -> bool:
    """Whether this is a table with named columns, or one column of such a table; no package is imported to find out."""
    for kind in type(source).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ in _FRAMES.get(package, ()):
            return True
    return False


def is_records(source: Any) -> bool:
    """Whether this is a list of dicts, a row each, whose entries are plain."""
    return (
        isinstance(source, Sequence)
        and len(source) > 0
        and all(isinstance(row, Mapping) for row in source)
        and all(isinstance(value, str | int | float | bool | None) for value in source[0].values())
    )


def is_texts(source: Any) -> bool:
    """Whether this is a list (or array) of texts, some of which may be missing: None or NaN."""
    if isinstance(source, np.ndarray):
        if source.dtype.kind in "US":
            return source.ndim == 1 and len(source) > 0
        source = source.tolist() if source.dtype == object and source.ndim == 1 else ()
    if isinstance(source, str) or not isinstance(source, Sequence) or not len(source):
        return False
    return any(isinstance(each, str) for each in source) and all(
        isinstance(each, str) or each is None or each != each for each in source
    )


def as_pandas(source: Any) -> Any:
    """The pandas DataFrame of anything that `is_frame` or `is_records`."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return source
    if isinstance(source, pd.Series):
        return source.to_frame(name=source.name if source.name is not None else "value")
    if is_records(source):
        return pd.DataFrame(list(source))
    if type(source).__name__ == "LazyFrame":
        source = source.collect()
    if type(source).__module__.partition(".")[0] == "polars":  # its own to_pandas needs pyarrow
        if type(source).__name__ == "Series":
            source = source.to_frame()
        return pd.DataFrame({name: source[name].to_list() for name in source.columns}, dtype=object)
    frame = source.to_pandas()
    return frame if isinstance(frame, pd.DataFrame) else frame.to_frame()


def frame_table(source: Any, wanted: Sequence[str] = (), where: str | None = None) -> Table:
    """A frame as a table of text cells, which is what a file of the same rows would be read as."""
    import pandas as pd

    frame = as_pandas(source)
    where = where or f"the {type(source).__name__}"
    if isinstance(frame.columns, pd.MultiIndex):
        raise ShiftproofError(f"{where} has columns of several levels; give every column one name")
    if not len(frame.columns):
        raise ShiftproofError(f"{where} has no columns")
    return checked_table(as_text(frame, where), where, wanted, frame.index)


def text_table(texts: Any, name: str, where: str = "the list") -> Table:
    """A list of texts as a table of one column."""
    import pandas as pd

    cells = [cell_text(text) for text in (texts.tolist() if isinstance(texts, np.ndarray) else texts)]
    return checked_table(pd.DataFrame({name: cells}, dtype=str), where, (), pd.RangeIndex(len(cells)))
