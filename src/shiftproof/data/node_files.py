"""Files that hold one node graph: npz in the layouts in use, and safetensors; never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.nodes import SPLITS, NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.runtime.archives import require_unfolding

Arrays = dict[str, np.ndarray]


def read_npz(path: Path, symmetrise: bool = False, split: int = 0) -> NodeGraph:
    """A node graph from an npz file, without pickles.

    Read are the layout of `NodeGraph.save` and of PyG's tensor names (`x`, `edge_index`, `y`, `train_mask` or `train`,
    ...), that of Shchur et al. and of Nettack (`adj_data`, `adj_indices`, `adj_indptr`, `attr_*`, `labels`), that of
    Planetoid re-packed (`x_data`, `x_indices`, ...) and that of the heterophilous graphs (`node_features`,
    `node_labels`, `edges`, `train_masks`), of whose splits `split` is taken. A directed graph needs `symmetrise`.
    """
    arrays = read_arrays(path)
    about: dict[str, Any] = {}
    if "about" in arrays:
        try:
            about = json.loads(str(arrays.pop("about")))
        except ValueError as problem:
            raise ShiftproofError(f"the text 'about' in {path} is not JSON ({problem})") from None
    tensors = _tensors_of(arrays, path, split)
    if about.get("classes") is not None:
        tensors["classes"] = torch.tensor(int(about["classes"]))
    return NodeGraph.from_tensors(
        tensors,
        name=str(about.get("name", path.stem)),
        symmetrise=symmetrise,
        provenance=about.get("provenance") or {"file": path.name},
    )


def read_safetensors(path: Path, symmetrise: bool = False) -> NodeGraph:
    """A node graph from a safetensors file with the tensors of a PyG graph (`x`, `edge_index`, `y`, masks)."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing, cut short or not a safetensors file ({problem})") from None
    return NodeGraph.from_tensors(tensors, name=path.stem, symmetrise=symmetrise, provenance={"file": path.name})


def read_arrays(path: Path) -> Arrays:
    """Every array of an npz file; one that holds pickled objects is refused."""
    require_unfolding(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            if not hasattr(file, "files"):
                raise ShiftproofError(f"{path} holds a single array, not the named arrays of a graph")
            return {name: file[name] for name in file.files}
    except ShiftproofError:
        raise
    except (OSError, ValueError, EOFError, KeyError) as problem:
        raise ShiftproofError(f"{path} is not an npz file of plain arrays ({problem})") from None
    except Exception as problem:  # zipfile and lzma have errors of their own for files cut short
        raise ShiftproofError(f"{path} is damaged ({problem})") from None


def compressed_rows(arrays: Arrays, prefix: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the CSR matrix stored as `{prefix}_data`, `_indices`, `_indptr`, checked."""
    data, columns, pointer = (arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr"))
    good = (
        len(pointer) == shape[0] + 1
        and int(pointer[0]) == 0
        and int(pointer[-1]) == len(columns) == len(data)
        and not (np.diff(pointer.astype(np.int64)) < 0).any()
        and (not len(columns) or (int(columns.min()) >= 0 and int(columns.max()) < shape[1]))
    )
    if not good:
        raise ShiftproofError(f"the sparse matrix '{prefix}' of the file does not fit its own shape {shape}")
    rows = np.repeat(np.arange(shape[0]), np.diff(pointer.astype(np.int64)))
    return rows, columns.astype(np.int64), data


def dense_rows(arrays: Arrays, prefix: str) -> Tensor:
    """The CSR matrix stored under `prefix` as a float32 table."""
    rows_count, columns_count = (int(size) for size in arrays[f"{prefix}_shape"])
    rows, columns, values = compressed_rows(arrays, prefix, (rows_count, columns_count))
    table = np.zeros((rows_count, columns_count), np.float32)
    table[rows, columns] = values
    return torch.from_numpy(table)


def sparse_edges(arrays: Arrays, prefix: str = "adj") -> tuple[Tensor, int]:
    """The non-zero entries of a stored adjacency as [2, m] and the number of nodes."""
    size = int(arrays[f"{prefix}_shape"][0])
    rows, columns, values = compressed_rows(arrays, prefix, (size, size))
    pairs = np.stack([rows, columns])[:, values != 0]
    return torch.from_numpy(pairs), size


def _tensors_of(arrays: Arrays, path: Path, split: int) -> dict[str, Tensor]:
    try:
        if "adj_data" in arrays:
            edges, size = sparse_edges(arrays)
            x = dense_rows(arrays, "attr") if "attr_data" in arrays else torch.eye(size)
            return {"x": x, "edge_index": edges, "y": _as_tensor(arrays["labels"], path, "labels").long()}
        if "node_features" in arrays:
            return heterophilous_tensors(arrays, split)
        if "x_data" in arrays:
            arrays = {**arrays, "x": dense_rows(arrays, "x").numpy()}
    except KeyError as problem:
        raise ShiftproofError(f"{path} lacks the array {problem} of its layout") from None
    tensors = {}
    for name in ("x", "edge_index", "y", *SPLITS, *(f"{part}_mask" for part in SPLITS)):
        if name in arrays:
            tensors[name] = _as_tensor(arrays[name], path, name)
    for part in SPLITS:
        if f"{part}_idx" in arrays:
            tensors[part] = _as_tensor(arrays[f"{part}_idx"], path, f"{part}_idx").long()
    return tensors


def heterophilous_tensors(arrays: Arrays, split: int) -> dict[str, Tensor]:
    """The tensors of a graph in the layout of the heterophilous benchmark, with the masks of one of its splits."""
    edges = torch.from_numpy(arrays["edges"].astype(np.int64)).T
    tensors = {
        "x": torch.from_numpy(arrays["node_features"].astype(np.float32)),
        "edge_index": torch.cat([edges, edges.flip(0)], 1),
        "y": torch.from_numpy(arrays["node_labels"].astype(np.int64)),
    }
    count = len(arrays["train_masks"])
    if not 0 <= split < count:
        raise ShiftproofError(f"option 'split' is one of the splits 0 to {count - 1} of the file, not {split}")
    for part in SPLITS:
        tensors[f"{part}_mask"] = torch.from_numpy(arrays[f"{part}_masks"][split].astype(bool))
    return tensors


def _as_tensor(array: np.ndarray, path: Path, name: str) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except TypeError:
        raise ShiftproofError(f"the array '{name}' of {path} holds {array.dtype}, not numbers") from None
