"""The grammar of hostile inputs: what a file, a cell, an array, a page of JSON or a word can be instead of right.

Every case is made from a right input by one rule, with fixed seeds, so that its name says all of it. Readers come from
the registry and commands from the command line's own list: what is added there has its cases without a line here.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile import samples
from tests.hostile.judge import Expected

Make = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One input: `make` writes it into an empty folder, `words` are the command that is given it."""

    name: str
    make: Make
    words: tuple[object, ...]
    expected: Expected = "either"

    def __str__(self) -> str:
        return self.name

    def chosen(self, share: float) -> bool:
        """Whether the case is in a fixed part of this size of all cases."""
        return int(hashlib.sha256(self.name.encode()).hexdigest()[:8], 16) < share * 2**32


def file_name(kind: str) -> str:
    """What a file of a kind is called in its folder."""
    return "TOY.zip" if kind == ".zip" else f"data{kind}" if kind.startswith(".") else kind


# ---- bytes of any file -----------------------------------------------------------------------------------------------


def _flipped(raw: bytes, every: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    changed = bytearray(raw)
    for place in rng.integers(0, len(raw), max(1, len(raw) // every)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _holed(raw: bytes, seed: int) -> bytes:
    start = int(np.random.default_rng(seed).integers(0, max(1, len(raw) - 64)))
    return raw[:start] + bytes(64) + raw[start + 64 :]


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "one byte": lambda raw: raw[:1],
    "spaces": lambda raw: b"   \n\n",
    "zeros": lambda raw: bytes(4096),
    "cut at 8": lambda raw: raw[:8],
    "cut at a third": lambda raw: raw[: len(raw) // 3],
    "cut in half": lambda raw: raw[: len(raw) // 2],
    "without its last byte": lambda raw: raw[:-1],
    "twice": lambda raw: raw + raw,
    "backwards": lambda raw: raw[::-1],
    "with a tail": lambda raw: raw + b"\x00\xff" * 50,
    "after noise": lambda raw: b"\xff\xfe\x00noise" + raw,
    "as UTF-16": lambda raw: raw.decode("latin-1").encode("utf-16"),
    "noise": lambda raw: np.random.default_rng(1).bytes(2000),
    "a page of HTML": lambda raw: b"<!DOCTYPE html><html><body>404 not found</body></html>",
    "a pickle": lambda raw: b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "a JSON object": lambda raw: b'{"a": [1, 2, {"b": null}]}',
    "packed once more": gzip.compress,
    "a program": lambda raw: b"\x7fELF" + bytes(100),
    "a long line": lambda raw: b"a," * 300_000,
    "a git pointer": lambda raw: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
}
for _every, _seed in ((40, 2), (400, 3), (4000, 4), (4000, 5)):
    BYTES[f"a bit in {_every} bytes flipped ({_seed})"] = lambda raw, e=_every, s=_seed: _flipped(raw, e, s)
for _seed in (6, 7):
    BYTES[f"a hole ({_seed})"] = lambda raw, s=_seed: _holed(raw, s)


def byte_cases(kinds: Sequence[str]) -> Iterator[Case]:
    """Files of every kind with wrong bytes; a kind of which no sample is known is given noise."""
    for kind in kinds:
        right = {**samples.FILES, **samples.MORE_FILES}.get(kind, lambda path: path.write_bytes(b"sample") and None)
        name = file_name(kind)
        for harm, change in BYTES.items():
            expected: Expected = (
                "refused" if harm in ("empty", "spaces", "zeros", "noise", "a pickle", "a program") else "either"
            )

            def make(folder: Path, right: Make = right, name: str = name, change: Any = change) -> None:
                right(folder / name)
                (folder / name).write_bytes(change((folder / name).read_bytes()))

            yield Case(f"{kind} {harm}", make, tuple(samples.reading(kind, Path(name))), expected)


# ---- cells and shapes of tables --------------------------------------------------------------------------------------

CELLS = {
    "empty": "",
    "space": " ",
    "nan": "nan",
    "inf": "inf",
    "minus inf": "-inf",
    "1e300": "1e300",
    "1e39": "1e39",
    "1e-320": "1e-320",
    "1e9": "1e9",
    "a number of 400 digits": "9" * 400,
    "hex": "0x10",
    "decimal comma": "1,5",
    "underscore": "1_000",
    "Arabic digits": "١٢",
    "true": "True",
    "null": "NULL",
    "quote": '"',
    "apostrophe": "'",
    "line break": "a\nb",
    "formula": "=1+1",
    "minus": "-",
    "BOM": "\ufeff",
    "accent": "é",
    "right to left": "\u202eabc",
    "bell": "\x07",
    "100,000 letters": "x" * 100_000,
    "cut number": "1e",
    "two numbers": "3 4",
    "HTML": "<script>alert(1)</script>",
    "path": "../../etc/passwd",
    "format": "%s{0}{{",
    "largest whole": str(2**63),
    "negative": "-1",
}
SMILES = {
    "unclosed ring": "C1CC",
    "no valence": "C(C)(C)(C)(C)C",
    "1,500 atoms": "C" * 1500,
    "deep": "C(" * 400 + "C" + ")" * 400,
    "dummy": "*",
    "salt": "[Na+].[Cl-]",
    "isotope": "[999C]",
    "charge": "[C+99]",
    "reaction": "CC>>CO",
    "hydrogen": "[H][H]",
    "quadruple": "C$C",
    "200 rings": "C1CCCCC1" * 100,
    "InChI": "InChI=1S/CH4/h1H4",
    "atom map": "[CH3:99999999999]C",
}
WHERE: dict[str, Callable[[int], range]] = {
    "in a row": lambda rows: range(5, 6),
    "in every row": lambda rows: range(rows),
    "in every other row": lambda rows: range(0, rows, 2),
}


def cell_cases() -> Iterator[Case]:
    """A wrong cell in one row or all of a column, for tables of features and of molecules."""
    tables = {
        "features": (samples.HEADER, samples.table_rows, ("size", "kind", "site", "day", "label"), CELLS),
        "molecules": (samples.MOLECULE_HEADER, samples.molecule_rows, ("smiles", "label", "assay"), CELLS | SMILES),
    }
    for table, (header, rows, columns, cells) in tables.items():
        for column in columns:
            for what, cell in cells.items():
                if what in SMILES and column != "smiles":
                    continue
                for where, chosen in WHERE.items():

                    def make(folder: Path, h=header, r=rows, c=column, text=cell, chosen=chosen) -> None:
                        content = r()
                        for row in chosen(len(content)):
                            content[row][h.index(c)] = text
                        (folder / "data.csv").write_text(samples.as_csv(h, content))

                    yield Case(f"{table}: {column} is {what} {where}", make, _with_table(table, column))


def _with_table(table: str, column: str) -> tuple[object, ...]:
    more: list[object] = {
        "site": ["--env", "site"],
        "day": ["--split", "time", "--by", "day"],
        "assay": ["--env", "assay"],
    }.get(column, [])
    small = ["--set", "hidden=4", "--set", "layers=1"] if table == "molecules" else []
    return ("fit", "data.csv", "--label", "label", *more, *small, *samples.QUICK)


def _table(change: Callable[[list[str], list[list[str]]], str]) -> Make:
    def make(folder: Path) -> None:
        (folder / "data.csv").write_text(change(list(samples.HEADER), samples.table_rows()), newline="")

    return make


SHAPES: dict[str, tuple[Callable[[list[str], list[list[str]]], str], Expected]] = {
    "only a header": (lambda h, r: samples.as_csv(h, []), "refused"),
    "one row": (lambda h, r: samples.as_csv(h, r[:1]), "refused"),
    "two rows": (lambda h, r: samples.as_csv(h, r[:2]), "either"),
    "no header": (lambda h, r: samples.as_csv(r[0], r[1:]), "refused"),
    "only the label": (lambda h, r: samples.as_csv(h[-1:], [row[-1:] for row in r]), "refused"),
    "the label twice": (lambda h, r: samples.as_csv([*h, "label"], [[*row, "1"] for row in r]), "refused"),
    "an empty name": (lambda h, r: samples.as_csv(["", *h[1:]], r), "either"),
    "all names empty": (lambda h, r: samples.as_csv([""] * len(h), r), "refused"),
    "names of spaces": (lambda h, r: samples.as_csv([" " * n for n in range(len(h))], r), "refused"),
    "longer rows": (lambda h, r: samples.as_csv(h, [[*row, "9", "9"] for row in r]), "refused"),
    "one longer row": (lambda h, r: samples.as_csv(h, [*r[:9], [*r[9], "9"], *r[10:]]), "refused"),
    "one shorter row": (lambda h, r: samples.as_csv(h, [*r[:9], r[9][:3], *r[10:]]), "read"),
    "empty lines": (lambda h, r: samples.as_csv(h, r).replace("\n", "\n\n"), "read"),
    "a title above": (lambda h, r: "My table\n" + samples.as_csv(h, r), "refused"),
    "comments": (lambda h, r: "# made by hand\n" + samples.as_csv(h, r), "refused"),
    "CRLF": (lambda h, r: samples.as_csv(h, r).replace("\n", "\r\n"), "read"),
    "only CR": (lambda h, r: samples.as_csv(h, r).replace("\n", "\r"), "either"),
    "a BOM": (lambda h, r: "\ufeff" + samples.as_csv(h, r), "read"),
    "semicolons": (lambda h, r: samples.as_csv(h, r, ";"), "read"),
    "bars": (lambda h, r: samples.as_csv(h, r, "|"), "either"),
    "an open quote": (lambda h, r: samples.as_csv(h, r) + '"', "either"),
    "all quoted": (lambda h, r: "\n".join(",".join(f'"{c}"' for c in row) for row in [h, *r]), "read"),
    "no line end": (lambda h, r: samples.as_csv(h, r).rstrip("\n"), "read"),
    "a zero byte": (lambda h, r: samples.as_csv(h, r).replace("red", "r\0d", 1), "refused"),
    "3,000 columns": (
        lambda h, r: samples.as_csv([*(f"c{n}" for n in range(3000)), *h], [["1"] * 3000 + row for row in r]),
        "read",
    ),
    "30,000 columns": (
        lambda h, r: samples.as_csv([*(f"c{n}" for n in range(30_000)), *h], [["1"] * 30_000 + row for row in r]),
        "either",
    ),
    "names like numbers": (lambda h, r: samples.as_csv([*map(str, range(len(h) - 1)), "label"], r), "read"),
    "names like formulas": (
        lambda h, r: samples.as_csv([*("=A1" + str(n) for n in range(len(h) - 1)), "label"], r),
        "read",
    ),
    "names that are options": (lambda h, r: samples.as_csv(["--help", "a=b", "x,y", "(a)", "a:b", "label"], r), "read"),
    "constant features": (lambda h, r: samples.as_csv(h, [["1", "1", "a", "s", "d", row[-1]] for row in r]), "read"),
    "one class": (lambda h, r: samples.as_csv(h, [[*row[:-1], "1"] for row in r]), "refused"),
    "a class a row": (
        lambda h, r: samples.as_csv(h, [[*row[:-1], f"class {n}"] for n, row in enumerate(r)]),
        "refused",
    ),
    "the same row": (lambda h, r: samples.as_csv(h, [r[0]] * len(r)), "refused"),
    "all gaps": (lambda h, r: samples.as_csv(h, [["", "", "", "", "", row[-1]] for row in r]), "refused"),
    "5,000 texts": (
        lambda h, r: samples.as_csv(h, [[row[0], row[1], f"t{n}", *row[3:]] for n, row in enumerate(r * 140)]),
        "read",
    ),
}


def shape_cases() -> Iterator[Case]:
    """Tables of a wrong shape."""
    words = ("fit", "data.csv", "--label", "label", *samples.QUICK)
    for what, (change, expected) in SHAPES.items():
        yield Case(f"a table with {what}", _table(change), words, expected)
    yield Case(
        "Parquet with lists as labels",
        _parquet_labels([[0, 1]] * 20),
        ("fit", "data.parquet", "--label", "label", *samples.QUICK),
        "refused",
    )
    for what, labels in {
        "objects": [{"a": 1}, {"a": 2}] * 10,
        "bytes": [b"\x00", b"\xff"] * 10,
        "dates": list(np.arange("2024-01-01", "2024-01-21", dtype="datetime64[D]")),
        "decimals": [__import__("decimal").Decimal(n % 2) for n in range(20)],
        "nothing": [None] * 20,
        "unsigned": np.array([2**64 - 1, 0] * 10, np.uint64),
    }.items():
        yield Case(
            f"Parquet with {what} as labels",
            _parquet_labels(labels),
            ("fit", "data.parquet", "--label", "label", *samples.QUICK),
        )


def _parquet_labels(labels: Any) -> Make:
    def make(folder: Path) -> None:
        import pandas as pd

        pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) ** 2 % 7, "label": labels}).to_parquet(
            folder / "data.parquet"
        )

    return make


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _with(array: np.ndarray, place: int, value: Any) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[place] = value
    return changed


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "left out": lambda a: None,
    "empty": lambda a: a[:0],
    "a number": lambda a: a.reshape(-1)[0],
    "one longer": lambda a: np.concatenate([a, a[-1:]]),
    "one shorter": lambda a: a[:-1],
    "turned": lambda a: a.T.copy(),
    "a dimension more": lambda a: a[..., None],
    "two dimensions more": lambda a: a[None, ..., None],
    "flat": lambda a: a.reshape(-1),
    "backwards": lambda a: a[::-1].copy(),
    "text": lambda a: a.astype(str),
    "truth": lambda a: a.astype(bool),
    "complex": lambda a: a.astype(complex),
    "halves": lambda a: a.astype(np.float64) + 0.5,
    "small whole": lambda a: a.astype(np.int8),
    "unsigned": lambda a: a.astype(np.uint16),
    "half precision": lambda a: a.astype(np.float16),
    "NaN": lambda a: _with(a.astype(np.float64), 1, np.nan),
    "infinite": lambda a: _with(a.astype(np.float64), -1, np.inf),
    "1e300": lambda a: _with(a.astype(np.float64), 1, 1e300),
    "1e9": lambda a: _with(a.astype(np.float64), 1, 1e9),
    "a billion": lambda a: _with(a.astype(np.int64), 1, 10**9),
    "negative": lambda a: _with(a.astype(np.int64), 1, -1),
    "far negative": lambda a: _with(a.astype(np.int64), -1, -(2**62)),
    "all equal": lambda a: np.zeros_like(a),
    "noise": lambda a: np.random.default_rng(3).integers(-5, 50, a.shape),
}


def array_cases() -> Iterator[Case]:
    """A wrong array in a file of graphs, nodes or samples."""
    layouts = {"graphs": samples.graph_arrays, "nodes": samples.node_arrays, "samples": samples.sample_arrays}
    for layout, arrays in layouts.items():
        for ending in (".npz", ".safetensors"):
            for name in arrays():
                for harm, change in ARRAYS.items():
                    if ending == ".safetensors" and harm in ("text", "complex"):
                        continue

                    def make(folder: Path, arrays=arrays, name=name, change=change, ending=ending) -> None:
                        parts = arrays()
                        changed = change(parts.pop(name))
                        parts |= {} if changed is None else {name: np.asarray(changed)}
                        samples.save_arrays(folder / f"data{ending}", parts)

                    kind = {"graphs": ending, "nodes": "nodes", "samples": "samples"}[layout]
                    words = samples.reading(kind, Path(f"data{ending}"))
                    yield Case(f"{layout}{ending}: '{name}' is {harm}", make, tuple(words))


# ---- archives that unfold --------------------------------------------------------------------------------------------


def _zip_with(members: dict[str, bytes | str], folder: Path) -> None:
    with zipfile.ZipFile(folder / "TOY.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in {**samples.tu_texts(), **members}.items():
            archive.writestr(name, content)


def _zip_of_two_gigabytes(folder: Path) -> None:
    _zip_with({}, folder)
    block = b"1, 2\n" * 4_000_000
    with (
        zipfile.ZipFile(folder / "TOY.zip", "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("TOY_edge_labels.txt", "w", force_zip64=True) as member,
    ):
        for _ in range(100):
            member.write(block)


def _lying_zip(folder: Path) -> None:
    """An archive whose directory says that a member is small, while it unfolds to 300 megabytes."""
    _zip_with({"TOY_A.txt": b"1, 2\n" * 60_000_000}, folder)
    path = folder / "TOY.zip"
    raw = path.read_bytes()
    true_size = (300_000_000).to_bytes(4, "little")
    path.write_bytes(raw.replace(true_size, (1000).to_bytes(4, "little")))


def _npz_of_zeros(folder: Path, shape: tuple[int, ...] = (400_000_000,), written: int = 10_000_000) -> None:
    """An npz whose header promises more than is there."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(folder / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x", "y"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(written))


def archive_cases() -> Iterator[Case]:
    """Archives that unfold to more than there is room for, or hold what they should not."""
    tu = ("fit", "TOY.zip", *samples.QUICK)
    table = ("--label", "label", *samples.QUICK)
    big = 1_500_000_000
    cases: dict[str, tuple[Make, tuple[object, ...], Expected]] = {
        "a zip that unfolds to 2 GB": (_zip_of_two_gigabytes, tu, "refused"),
        "a zip that says it is small": (_lying_zip, tu, "refused"),
        "a zip with a path out of it": (lambda f: _zip_with({"../../TOY_A.txt": "1, 2\n"}, f), tu, "either"),
        "a zip in a zip": (lambda f: _zip_with({"TOY_A.txt": b"PK\x03\x04"}, f), tu, "refused"),
        "a gz that unfolds to 1.5 GB": (
            lambda f: _packed(f / "data.csv.gz", big, gzip.open), ("fit", "data.csv.gz", *table), "refused"),
        "an xz that unfolds to 1.5 GB": (
            lambda f: _packed(f / "data.csv.xz", big, lzma.open), ("fit", "data.csv.xz", *table), "refused"),
        "an npz that promises 3 GB": (_npz_of_zeros, ("fit", "data.npz", *samples.QUICK), "refused"),
        "an npz that promises 8 exabytes": (
            lambda f: _npz_of_zeros(f, (2**60,), 10), ("fit", "data.npz", *samples.QUICK), "refused"),
        "an npz of objects": (
            lambda f: np.savez(f / "data.npz", x=np.array([{}, []], object), y=np.arange(2)),
            ("fit", "data.npz", *samples.QUICK), "refused"),
        "a safetensors header of a gigabyte": (
            lambda f: (f / "data.safetensors").write_bytes((2**30).to_bytes(8, "little") + b"{}") and None,
            ("fit", "data.safetensors", *samples.QUICK), "refused"),
        "safetensors that overlap": (_overlapping, ("fit", "data.safetensors", *samples.QUICK), "refused"),
    }  # fmt: skip
    for name, (make, words, expected) in cases.items():
        yield Case(name, make, words, expected)


def _packed(path: Path, size: int, opened: Any) -> None:
    rows = (samples.as_csv(samples.HEADER, samples.table_rows())).encode()
    block = b"0,0,red,site0,2024-01-01,1\n" * 400_000
    options = {"compresslevel": 9} if opened is gzip.open else {"preset": 0}
    with opened(path, "wb", **options) as file:
        file.write(rows)
        for _ in range(size // len(block)):
            file.write(block)


def _overlapping(folder: Path) -> None:
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in ("x", "y")}
    text = json.dumps(header).encode()
    (folder / "data.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
