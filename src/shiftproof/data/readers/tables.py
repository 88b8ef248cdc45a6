"""Tables in files: CSV and TSV (plain, .gz, .xz), Parquet, Excel, SDF; one sentence for everything that is none."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from shiftproof.errors import ShiftproofError, nearest, optional
from shiftproof.runtime.archives import require_unfolding

TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".sdf")
MISSING = ("", "nan", "na", "n/a", "null", "none", "?")  # cells, in any case, that say "not known"
MOST_COLUMNS = 100_000  # each is a feature, and a table as wide is an image or a mistake; npz files hold those
_SEPARATORS = ",;\t"
_LONGEST_HEADER = 1 << 20
_NAMES_SHOWN = 12
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class Table:
    """A table of text cells; row `i` is the file's row `i + 1`, the header not counted."""

    frame: Any  # pandas.DataFrame, imported where a file is read
    where: str
    notes: tuple[str, ...] = ()  # what a reader of the file should know
    given_index: Any = None  # of a table that was no file: the index of its frame

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def find(self, name: str, what: str) -> str:
        """The column a user named, as it is called in the file; names from the command line may be percent-encoded."""
        return found_column(self.names, name, what, self.where)

    def text(self, name: str) -> list[str]:
        return [str(cell) for cell in self.frame[name]]

    def numbers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The column as numbers, NaN where it holds none, and which cells are missing."""
        import pandas as pd

        cells = [cell.strip() for cell in self.text(name)]  # a list is ten times as quick as a Series of few rows
        missing = np.array([cell.lower() in MISSING for cell in cells], bool)
        known = np.array(["" if gap else cell for cell, gap in zip(cells, missing, strict=True)], object)
        return np.asarray(pd.to_numeric(known, errors="coerce"), np.float64), missing


def read_table(source: Any, wanted: Sequence[str] = (), where: str | None = None) -> Table:
    """The rows of a file (see `TABLES`), or of a frame, as text; `wanted` columns are looked for first."""
    if isinstance(source, Table):
        for name in wanted:
            source.find(name, "column")
        return source
    if not isinstance(source, str | Path):
        from shiftproof.data.readers.frames import frame_table

        return frame_table(source, wanted, where)
    path = Path(source)
    where = where or str(path)
    if path.is_dir():
        raise ShiftproofError(f"{path} is a folder, a table is a file ending in {', '.join(TABLES)}")
    if not path.exists():
        raise ShiftproofError(f"there is no file '{path}'")
    frame, notes = _read(path, wanted, where)
    table = checked_table(frame, where, wanted)
    return replace(table, notes=(*notes, *table.notes)) if notes else table


def _read(path: Path, wanted: Sequence[str], where: str) -> tuple[Any, tuple[str, ...]]:
    """The cells of a file as text, and what its reader should know."""
    ending = _plain_suffix(path)
    if ending == ".xlsx":
        from shiftproof.data.readers.excel_files import excel_sheet

        sheet, notes = excel_sheet(path)
        return as_text(sheet, where), notes
    if ending == ".sdf":
        from shiftproof.data.readers.molecule_objects import sdf_frame

        return as_text(sdf_frame(path), where), ()
    return (_parquet(path) if ending == ".parquet" else _delimited(path, wanted, where)), ()


def checked_table(frame: Any, where: str, wanted: Sequence[str] = (), given_index: Any = None) -> Table:
    """The table of a frame of text cells, once every column has a name of its own and the wanted ones are there."""
    names = _require_different(list(frame.columns), where)
    frame.columns = names
    nameless = [number for number, name in enumerate(names) if not name]
    notes: tuple[str, ...] = ()
    if nameless:
        if len(nameless) == len(names):
            raise ShiftproofError(f"{where} has no column with a name; its first line is the header")
        listed = ", ".join(str(number + 1) for number in nameless)
        notes = (f"columns without a name are not used (number {listed} of {len(names)})",)
        frame = frame.iloc[:, [number for number, name in enumerate(names) if name]]
    for name in wanted:
        found_column(list(frame.columns), name, "column", where)
    if not len(frame):
        raise ShiftproofError(f"{where} has {'a header and ' if given_index is None else ''}no rows")
    return Table(frame, where, notes, given_index)


def _require_different(names: Sequence[Any], where: str) -> list[str]:
    """The names of columns without spaces around them, once no two are the same."""
    stripped = [str(name).strip() for name in names]
    first: dict[str, int] = {}
    for number, name in enumerate(stripped):
        if name and first.setdefault(name, number) != number:
            raise ShiftproofError(
                f"{where} has two columns named '{_short(name)}' (numbers {first[name] + 1} and {number + 1}), so it "
                f"is not known which is meant; rename one"
            )
    return stripped


def found_column(names: Sequence[str], name: str, what: str, where: str) -> str:
    if not isinstance(name, str):
        raise ShiftproofError(f"a {what} of {where} is named by a text, not by {name!r}")
    for known in (name, name.strip(), unquote(name), unquote(name).strip()):
        if known in names:
            return known
    shown = [_short(known) for known in names[:_NAMES_SHOWN]]
    rest = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    hint = nearest(name, [known for known in names if len(known) < 80]) or f"; it has {', '.join(shown)}{rest}"
    raise ShiftproofError(f"{where} has no {what} '{_short(name)}'{hint}")


def label_missing(source: Any) -> ShiftproofError:
    """The error for a table whose label nobody named; it lists the columns there are."""
    table = source if isinstance(source, Table) else read_table(source)
    shown = ", ".join(_short(name) for name in table.names[:_NAMES_SHOWN])
    return ShiftproofError(
        f"{table.where}: which column holds the label? Name it: label='COLUMN', or --label COLUMN; it has {shown}"
    )


def as_option(names: str | Sequence[str]) -> str:
    """Column names as the value of an option in text, which `Table.find` understands whatever they contain."""
    if isinstance(names, str):
        return quote(names, safe=" -_./*")
    return as_option(names[0]) if len(names) == 1 else "(" + ",".join(as_option(name) for name in names) + ")"


def as_names(option: str | Sequence[str] | None) -> tuple[str, ...]:
    """The column names in an option: one, a list, or the text "(a,b)"."""
    if option is None:
        return ()
    if isinstance(option, str):
        inside = option[1:-1] if option.startswith("(") and option.endswith(")") else None
        return (option,) if inside is None else tuple(part.strip() for part in inside.split(",") if part.strip())
    if isinstance(option, Sequence):
        return tuple(str(name) for name in option)
    return (str(option),)


def _delimited(path: Path, wanted: Sequence[str], where: str) -> Any:
    import pandas as pd

    require_unfolding(path)
    header = _QUOTED.sub("", _header(path, where))
    separator = "\t" if _plain_suffix(path) == ".tsv" else max(_SEPARATORS, key=header.count)
    if header.count(separator) >= MOST_COLUMNS:
        raise ShiftproofError(f"{where} has {header.count(separator) + 1:,} columns, at most {MOST_COLUMNS:,} are read")
    options: dict[str, Any] = {
        "sep": separator,
        "dtype": str,
        "keep_default_na": False,
        "encoding": "utf-8-sig",
        "compression": "infer",
        "skipinitialspace": True,  # a quote after a comma and a space is a quote
    }
    try:
        names = _require_different(pd.read_csv(path, nrows=1, header=None, **options).iloc[0].tolist(), where)
        for name in wanted:
            found_column(names, name, "column", where)
        frame = pd.read_csv(path, header=0, names=list(range(len(names))), **options)
        if not isinstance(frame.index, pd.RangeIndex):  # pandas takes cells beyond the header for an index
            wide = list(range(len(names) + frame.index.nlevels))
            frame = _without_empty_ends(pd.read_csv(path, header=0, names=wide, **options), len(names), where)
        frame.columns = names
        return frame.fillna("")  # a row that ends early ends in empty cells
    except ShiftproofError:
        raise
    except pd.errors.EmptyDataError:
        raise ShiftproofError(f"{where} is empty") from None
    except UnicodeDecodeError as problem:
        raise _not_text(where, problem) from None
    except pd.errors.ParserError as problem:
        detail = str(problem).removeprefix("Error tokenizing data. C error: ").strip()
        raise ShiftproofError(f"{where} is not a table with the same number of cells in every row ({detail})") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as problem:
        raise ShiftproofError(f"{where} is damaged or cut short ({problem})") from None


def _without_empty_ends(frame: Any, columns: int, where: str) -> Any:
    """Rows that are longer than the header, cut to it where they end in empty cells; an error where they do not."""
    beyond = frame.iloc[:, columns:].fillna("").map(str.strip) != ""
    if bool(beyond.to_numpy().any()):
        row = int(beyond.any(axis=1).to_numpy().argmax())
        raise ShiftproofError(
            f"{where} has {columns} column names in its header and {frame.shape[1]} cells in row {row + 1}; every cell "
            f"needs a column"
        )
    return frame.iloc[:, :columns]


def _header(path: Path, where: str) -> str:
    """The first line, after a look at whether the file is text at all."""
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    try:
        with opened(path, "rb") as file:
            head = file.read(_LONGEST_HEADER)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as problem:
        raise ShiftproofError(f"{where} is damaged or cut short ({problem})") from None
    except OSError as problem:
        raise ShiftproofError(f"{where} cannot be read: {problem.strerror or problem}") from None
    if not head.strip():
        raise ShiftproofError(f"{where} is empty")
    if b"\0" in head:
        raise ShiftproofError(f"{where} is not text: byte {head.index(0)} is zero; a table is CSV, TSV or Parquet")
    line = head.lstrip().splitlines()[0]
    if len(line) >= _LONGEST_HEADER - 8:
        raise ShiftproofError(f"{where} has a first line of a megabyte or more, so it holds no table")
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise _not_text(where, problem) from None


def _not_text(where: str, problem: UnicodeDecodeError) -> ShiftproofError:
    byte = problem.object[problem.start : problem.start + 1].hex()
    return ShiftproofError(f"{where} is not UTF-8 text (there is a byte 0x{byte}); save it as UTF-8")


def _parquet(path: Path) -> Any:
    import pandas as pd

    optional("pyarrow", "tables", "reading Parquet files")
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as problem:
        raise ShiftproofError(f"{path} is not a whole Parquet file ({str(problem).splitlines()[0]})") from None
    return as_text(frame, str(path))


def as_text(frame: Any, where: str) -> Any:
    """A frame of values as a frame of the texts that a CSV file would hold, once no two columns have one name."""
    import pandas as pd

    names = _require_different(frame.columns.tolist(), where)
    columns = [[cell_text(value) for value in frame.iloc[:, k].tolist()] for k in range(frame.shape[1])]
    texts = pd.DataFrame(dict(enumerate(columns)), dtype=str)
    texts.columns = names
    return texts


def cell_text(value: Any) -> str:
    """A value as the text that a CSV would hold; whole numbers with gaps, stored as 1.0, are called 1 again."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, float) and value != value:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain_suffix(path: Path) -> str:
    endings = [ending.lower() for ending in path.suffixes]
    packed = len(endings) > 1 and endings[-1] in (".gz", ".xz")
    return endings[-2] if packed else (endings[-1] if endings else "")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
