"""The TU collection of graph data sets: its text files, and the split in which training graphs are small."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.ranges import Seed
from shiftproof.registry import register
from shiftproof.runtime.archives import require_unfolding

_HOME = "https://www.chrsmrrs.com/graphkerneldatasets"
SMALL_UP_TO, LARGE_FROM = 50, 90  # percentiles of the number of nodes: training and test graphs
VALIDATION_SHARE = 0.1
DEEPEST, MOST_FOLDERS = 2, 2000  # where text files are looked for below a folder that was named
WIDEST_ONE_HOT = 1000  # labels spread wider than this are numbered by what occurs


@register("tu", tags=("graphs", "files"))
def tu(name: str = "MUTAG", split: Literal["size", "random"] = "size", seed: Seed = 0) -> Dataset:
    """A data set of the TU collection by its name there (needs its files), split by size or at random.

    With `split="size"` graphs up to the median number of nodes train and validate, those from the 90th percentile
    test; index files `train_idx.txt`, `val_idx.txt` and `test_idx.txt` beside the text files are taken where present.
    """
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ShiftproofError(f"'{name}' is not the name of a TU data set, such as MUTAG or NCI1")
    place = _place(name)
    given = {"name": name, "split": split, "seed": seed}
    return _dataset(place, name, "tu", split, seed, named_options(tu, given, always=("name", "split", "seed")))


@register(".zip", tags=("files",))
def tu_archive(path: str | Path, split: Literal["size", "random"] = "size", seed: Seed = 0) -> Dataset:
    """A zip file with the text files of a TU data set, split by size or at random."""
    name = Path(path).stem
    return _dataset(Path(path), name, name, split, seed, {"split": split, "seed": seed})


def tu_folder(path: str | Path, split: Literal["size", "random"] = "size", seed: int = 0) -> Dataset:
    """A folder with the text files of one TU data set, split by size or at random."""
    path = Path(path)
    found = sorted(file.name.removesuffix("_A.txt") for file in texts_below(path) if file.name.endswith("_A.txt"))
    if len(set(found)) != 1:
        raise ShiftproofError(f"{path} holds {len(set(found))} TU data sets (files ending in _A.txt), not one")
    return _dataset(path, found[0], str(path), split, seed, {"split": split, "seed": seed})


@register("nci1", tags=("graphs", "files"))
def nci1(seed: Seed = 0) -> Dataset:
    """NCI1 molecules split by size: train on small ones, test on large ones (needs the TU files)."""
    return _size_shift("NCI1", seed, nci1)


@register("nci109", tags=("graphs", "files"))
def nci109(seed: Seed = 0) -> Dataset:
    """NCI109 molecules split by size: train on small ones, test on large ones (needs the TU files)."""
    return _size_shift("NCI109", seed, nci109)


@register("proteins", tags=("graphs", "files"))
def proteins(seed: Seed = 0) -> Dataset:
    """PROTEINS split by size: train on small ones, test on large ones (needs the TU files)."""
    return _size_shift("PROTEINS", seed, proteins)


@register("dd", tags=("graphs", "files"))
def dd(seed: Seed = 0) -> Dataset:
    """DD proteins split by size: train on small ones, test on large ones (needs the TU files)."""
    return _size_shift("DD", seed, dd)


def holds_tu(folder: Path) -> bool:
    """Whether a folder has the text files of a TU data set in it."""
    return any(file.name.endswith("_A.txt") for file in texts_below(folder))


def texts_below(folder: Path) -> Iterator[Path]:
    """The text files in a folder and a few folders down, as archives unfold; a whole disk is not searched."""
    top = len(folder.parts)
    for place, below, names in islice(os.walk(folder), MOST_FOLDERS):  # what may not be listed is passed over
        below[:] = sorted(name for name in below if not name.startswith("."))
        if len(Path(place).parts) - top >= DEEPEST:
            below.clear()
        yield from (Path(place, name) for name in names if name.endswith(".txt"))


def read_tu(path: str | Path, name: str) -> GraphSet:
    """The graphs in the text files of a TU data set, from a zip file or a folder.

    Node labels become one-hot features (node attributes where there are no labels, the constant 1 where there is
    neither), edge labels one-hot edge features, graph labels the classes 0, 1, ... in their order.
    """
    files = _Files(Path(path), name)
    owner = files.table("graph_indicator", whole=True)[:, 0]
    labels = files.table("graph_labels")[:, 0]
    graphs, nodes = len(labels), len(owner)
    _check_owner(owner, graphs, files)
    edges = files.table("A", whole=True, columns=2).T - 1
    source_graph = _check_edges(edges, owner, files)
    order = np.argsort(source_graph, kind="stable")
    owner = owner - 1
    sizes = np.bincount(owner, minlength=graphs)
    starts = np.cumsum(sizes) - sizes
    return GraphSet.from_parts(
        torch.from_numpy(sizes),
        torch.from_numpy(np.bincount(source_graph - 1, minlength=graphs)),
        torch.from_numpy(edges[:, order] - starts[source_graph[order] - 1]),
        x=_features(files, "node", nodes),
        edge_attr=_edge_features(files, edges.shape[1], order),
        y=torch.from_numpy(np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)),
    )


def size_split(sizes: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Positions of the small graphs (train, and a tenth of them val) and of the large ones (test)."""
    small = np.flatnonzero(sizes <= np.percentile(sizes, SMALL_UP_TO))
    large = np.flatnonzero(sizes >= np.percentile(sizes, LARGE_FROM))
    drawn = stream(seed).permutation(small)
    held = int(VALIDATION_SHARE * len(small))
    return {"train": np.sort(drawn[held:]), "val": np.sort(drawn[:held]), "test": large}


def random_split(count: int, seed: int) -> dict[str, np.ndarray]:
    """Positions of a random 80/10/10 split."""
    drawn = stream(seed).permutation(count)
    held = max(count // 10, 1)
    return {"train": drawn[2 * held :], "val": drawn[:held], "test": drawn[held : 2 * held]}


def _place(name: str) -> Path:
    return find(
        (f"tu/{name}.zip", f"tu/{name}", f"{name}.zip", f"TUDataset/{name}/raw", f"{name}/raw", name),
        what=f"the TU data set {name}",
        url=f"{_HOME}/{name}.zip",
    )


def _size_shift(name: str, seed: int, make: Callable[..., Dataset]) -> Dataset:
    return _dataset(
        _place(name), name, name.lower(), "size", seed, named_options(make, {"seed": seed}, always=("seed",))
    )


def _dataset(place: Path, tu_name: str, name: str, split: str, seed: int, options: dict) -> Dataset:
    if split not in ("size", "random"):
        raise unknown("split of a TU data set", split, ("size", "random"))
    graphs = read_tu(place, tu_name)
    by_size = split == "size"
    parts = None
    if by_size:
        parts = _Files(place, tu_name).index_files(len(graphs)) or size_split(graphs.sizes.numpy(), seed)
    parts = parts or random_split(len(graphs), seed)
    for part, rows in parts.items():
        if not len(rows):
            raise ShiftproofError(f"{place}: {len(graphs)} graphs are too few, split '{part}' would be empty")
    return Dataset(
        {part: graphs[torch.from_numpy(rows)] for part, rows in parts.items()},
        name=name,
        metric="mcc" if by_size else "accuracy",
        num_classes=0 if graphs.y is None else int(graphs.y.max()) + 1,
        provenance=f"{tu_name} of the TU collection" + (", split by size" if by_size else ", split at random"),
        options=options,
    )


class _Files:
    """The text files of one TU data set, in a zip file or a folder."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.name = place, name
        if place.is_dir():
            self.paths = {path.name: path for path in sorted(texts_below(place), reverse=True)}
            return
        require_unfolding(place)
        try:
            with zipfile.ZipFile(place) as archive:
                self.paths = {Path(member).name: member for member in archive.namelist() if member.endswith(".txt")}
        except (OSError, zipfile.BadZipFile) as problem:
            raise ShiftproofError(f"{place} is not a whole zip file ({problem})") from None

    def has(self, part: str) -> bool:
        return f"{self.name}_{part}.txt" in self.paths

    def raw(self, file: str) -> bytes:
        if file not in self.paths:
            raise ShiftproofError(f"{self.place} holds no file {file}; a TU data set needs it")
        member = self.paths[file]
        if isinstance(member, Path):
            return member.read_bytes()
        try:
            with zipfile.ZipFile(self.place) as archive:
                return archive.read(member)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as problem:
            raise ShiftproofError(f"{file} in {self.place} is cut short or damaged ({problem})") from None

    def table(self, part: str, *, whole: bool = False, columns: int | None = None) -> np.ndarray:
        """The numbers of one file as rows and columns; `whole`: they are whole numbers."""
        file = f"{self.name}_{part}.txt"
        rows = _numbers(self.raw(file), f"{self.place}: {file}", columns)
        if whole:
            bad = np.flatnonzero((rows != np.floor(rows)).any(1))
            if len(bad):
                raise ShiftproofError(f"{self.place}: {file} line {bad[0] + 1} does not hold whole numbers")
            return rows.astype(np.int64)
        return rows

    def index_files(self, graphs: int) -> dict[str, np.ndarray] | None:
        """The split that `train_idx.txt` and its fellows prescribe, where all three are there."""
        names = {part: f"{part}_idx.txt" for part in ("train", "val", "test")}
        if not all(file in self.paths for file in names.values()):
            return None
        parts = {}
        for part, file in names.items():
            rows = _numbers(self.raw(file), f"{self.place}: {file}", 1)[:, 0].astype(np.int64)
            bad = np.flatnonzero((rows < 0) | (rows >= graphs))
            if len(bad):
                raise ShiftproofError(
                    f"{self.place}: {file} line {bad[0] + 1} names graph {rows[bad[0]]}, there are 0 to {graphs - 1}"
                )
            parts[part] = rows
        return parts


def _numbers(raw: bytes, where: str, columns: int | None) -> np.ndarray:
    import pandas as pd

    try:
        rows = pd.read_csv(io.BytesIO(raw), header=None, sep=",", skipinitialspace=True, dtype=np.float64).to_numpy()
        if np.isfinite(rows).all() and (columns is None or rows.shape[1] == columns):
            return rows
    except pd.errors.EmptyDataError:
        raise ShiftproofError(f"{where} is empty") from None
    except (ValueError, UnicodeDecodeError):
        pass
    raise _bad_line(raw, where, columns)


def _bad_line(raw: bytes, where: str, columns: int | None) -> ShiftproofError:
    """The error for the first line that does not hold as many numbers as it should."""
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        cells = line.split(",")
        columns = columns or len(cells)
        try:
            good = len(cells) == columns and bool(np.isfinite([float(cell) for cell in cells]).all())
        except ValueError:
            good = False
        if not good:
            shown = line if len(line) < 40 else line[:40] + "..."
            amount = "one number" if columns == 1 else f"{columns} numbers"
            return ShiftproofError(f"{where} line {number} is '{shown}', expected {amount}")
    return ShiftproofError(f"{where} does not hold rows of numbers")


def _check_owner(owner: np.ndarray, graphs: int, files: _Files) -> None:
    file = f"{files.name}_graph_indicator.txt"
    falls = np.flatnonzero(np.diff(owner) < 0)
    if len(falls):
        row = int(falls[0]) + 1
        raise ShiftproofError(
            f"{files.place}: {file} line {row + 1} falls from graph {owner[row - 1]} to {owner[row]}; "
            f"nodes are listed graph by graph"
        )
    if owner[0] < 1 or owner[-1] != graphs:
        raise ShiftproofError(
            f"{files.place}: {file} names the graphs {owner[0]} to {owner[-1]}, "
            f"but {files.name}_graph_labels.txt has {graphs} rows"
        )
    missing = np.flatnonzero(np.bincount(owner, minlength=graphs + 1)[1:] == 0)
    if len(missing):
        raise ShiftproofError(f"{files.place}: {file} lists no node of graph {missing[0] + 1}")


def _check_edges(edges: np.ndarray, owner: np.ndarray, files: _Files) -> np.ndarray:
    """The graph (from 1) of every edge, once all end points exist and lie in one graph."""
    file = f"{files.name}_A.txt"
    outside = np.flatnonzero(((edges < 0) | (edges >= len(owner))).any(0))
    if len(outside):
        row = int(outside[0])
        raise ShiftproofError(
            f"{files.place}: {file} line {row + 1} joins the nodes {edges[0, row] + 1} and {edges[1, row] + 1}, "
            f"but {files.name}_graph_indicator.txt lists the nodes 1 to {len(owner)}"
        )
    across = np.flatnonzero(owner[edges[0]] != owner[edges[1]])
    if len(across):
        row = int(across[0])
        pair = owner[edges[:, row]]
        raise ShiftproofError(
            f"{files.place}: {file} line {row + 1} joins a node of graph {pair[0]} to graph {pair[1]}"
        )
    return owner[edges[0]]


def _features(files: _Files, kind: str, count: int) -> torch.Tensor:
    if files.has(f"{kind}_labels"):
        return _one_hot(_rows(files, f"{kind}_labels", count, whole=True))
    if files.has(f"{kind}_attributes"):
        return torch.from_numpy(_rows(files, f"{kind}_attributes", count).astype(np.float32))
    return torch.ones(count, 1)


def _edge_features(files: _Files, count: int, order: np.ndarray) -> torch.Tensor | None:
    if not (files.has("edge_labels") or files.has("edge_attributes")):
        return None
    return _features(files, "edge", count)[torch.from_numpy(order)]


def _rows(files: _Files, part: str, count: int, whole: bool = False) -> np.ndarray:
    rows = files.table(part, whole=whole)
    if len(rows) != count:
        kind, source = ("node", "graph_indicator") if part.startswith("node") else ("edge", "A")
        raise ShiftproofError(
            f"{files.place}: {files.name}_{part}.txt has {len(rows)} rows, "
            f"but {files.name}_{source}.txt lists {count} {kind}s"
        )
    return rows


def _one_hot(labels: np.ndarray) -> torch.Tensor:
    """The columns one-hot, side by side; a column spans the numbers from its lowest to its highest."""
    blocks = []
    for column in labels.T:
        column = column - column.min()
        if column.max() >= WIDEST_ONE_HOT:
            column = np.unique(column, return_inverse=True)[1].reshape(-1)
        blocks.append(torch.nn.functional.one_hot(torch.from_numpy(column)).float())
    return torch.cat(blocks, dim=1)
