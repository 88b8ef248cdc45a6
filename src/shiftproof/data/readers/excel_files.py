"""Sheets of Excel files as tables of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiftproof.errors import ShiftproofError, optional


def excel_sheet(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The first sheet that holds anything as a frame of values, and a note where there are others."""
    import pandas as pd

    optional("openpyxl", "tables", "reading Excel files")
    try:
        sheets = pd.read_excel(path, sheet_name=None, header=None, dtype=object, engine="openpyxl")
    except Exception as problem:  # a damaged file fails in the parts of openpyxl, zipfile and the XML parser
        said = str(problem).partition("\n")[0] or type(problem).__name__
        raise ShiftproofError(f"{path} is not a whole Excel file ({said}); save it as .xlsx or .csv") from None
    filled = {name: sheet for name, sheet in sheets.items() if len(sheet)}
    if not filled:
        raise ShiftproofError(f"{path} is empty")
    name, sheet = next(iter(filled.items()))
    header = ["" if cell is None or cell != cell else str(cell) for cell in sheet.iloc[0].tolist()]
    rows = sheet.iloc[1:].reset_index(drop=True)
    rows = rows[~rows.isna().all(axis=1)].reset_index(drop=True)
    rows.columns = header
    others = [other for other in filled if other != name]
    notes = (f"the sheet '{name}' is read, not {', '.join(map(repr, others))}",) if others else ()
    return rows, notes
