"""Vectors of whole molecules beside their graphs: counted fingerprints, MACCS keys and RDKit's descriptors.

`load("assays.csv", ..., features="graph+ecfp+descriptors")` adds them as the table is read, and
`load(name, vectors="ecfp+descriptors")` to any data set whose graphs know their elements and bonds. They are made from
those alone, so that a molecule has the same vector wherever it was read; what hangs on its written stereochemistry is
not in them.

| block | what it holds |
|---|---|
| `ecfp`, or `ecfp6-1024` | how often each circular neighbourhood occurs, hashed: diameter (4) and columns (2048) |
| `fcfp`, or `fcfp6-1024` | the same by what atoms do (donor, acceptor, acid, ...) instead of what they are |
| `maccs` | 167 yes-or-no questions |
| `descriptors` | RDKit's 2D descriptors, scaled by the median and the quartiles of the training rows |
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM, BOND, is_molecule
from shiftproof.data.readers.featurising import CHUNK, cores_for
from shiftproof.data.readers.fragments import rebuilt
from shiftproof.data.readers.molecules import ATOM_WIDTHS
from shiftproof.data.readers.sources import cache_folder
from shiftproof.errors import ShiftproofError, optional, unknown
from shiftproof.runtime.files import write_safetensors
from shiftproof.runtime.progress_hook import watched
from shiftproof.runtime.workers import process_pool

VERSION = 1  # rises when what stands in a vector changes
MOST_OF_A_COUNT = 255
FURTHEST = 10.0  # scaled descriptors end there; a few have no upper bound
KINDS = ("ecfp", "fcfp", "maccs", "descriptors")
GRAPH = "graph"  # the usual features of atoms and bonds
# these need the stereochemistry as it was written, which packed graphs do not keep
_OF_STEREO = ("SPS", "NumAtomStereoCenters", "NumUnspecifiedAtomStereoCenters")

Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # atoms, ends of bonds, kinds of bonds of one molecule


@dataclass(frozen=True)
class Block:
    """One block of a molecule's vector; `radius` and `bits` are those of a circular fingerprint."""

    kind: str
    radius: int = 2
    bits: int = 2048

    @property
    def name(self) -> str:
        if self.kind not in ("ecfp", "fcfp"):
            return self.kind
        diameter = "" if self.radius == 2 else str(2 * self.radius)
        return f"{self.kind}{diameter}" + ("" if self.bits == 2048 else f"-{self.bits}")


def parse_features(text: str) -> tuple[str, tuple[str, ...]]:
    """`"graph+ecfp+descriptors"` as the scheme of the graph's features and the names of the blocks beside it."""
    parts = [part.strip() for part in str(text).split("+")]
    schemes = [part for part in parts if part == GRAPH or part in ATOM_WIDTHS]
    if len(schemes) > 1:
        raise ShiftproofError(f"features '{text}' name two kinds of graph, {schemes[0]} and {schemes[1]}; take one")
    scheme = schemes[0] if schemes and schemes[0] != GRAPH else next(iter(ATOM_WIDTHS))
    names = [block_named(part).name for part in parts if part not in schemes]
    return scheme, tuple(dict.fromkeys(names))


def block_named(text: str) -> Block:
    """The block a user named: `ecfp` and `ecfp4` are the same, `ecfp6-1024` has radius 3 and 1,024 columns."""
    found = re.fullmatch(r"(ecfp|fcfp)(\d+)?(?:-(\d+))?", text)
    if found is None:
        if text not in ("maccs", "descriptors"):
            raise unknown("features of molecules", text, (*ATOM_WIDTHS, GRAPH, *KINDS))
        return Block(text)
    kind, diameter, bits = found[1], int(found[2] or 4), int(found[3] or 2048)
    if diameter % 2 or diameter > 12:
        raise ShiftproofError(f"features '{text}': the number is the diameter, 0, 2, 4, ... 12, as in {kind}4")
    if not 16 <= bits <= 1 << 16:
        raise ShiftproofError(f"features '{text}': a fingerprint has 16 to 65536 columns, not {bits}")
    return Block(kind, diameter // 2, bits)


def with_vectors(dataset: Dataset, blocks: str | Sequence[str]) -> Dataset:
    """The data set with vectors of its molecules in every split; the training rows decide how descriptors are scaled.

    `blocks` as in `features`: "ecfp+descriptors". How many descriptors had no value is told in `notes`.
    """
    wanted = parse_features(blocks)[1] if isinstance(blocks, str) else tuple(block_named(b).name for b in blocks)
    if not wanted:
        return dataset
    for split in dataset.splits.values():
        if not isinstance(split, GraphSet) or not is_molecule(split):
            raise ShiftproofError(
                f"'{dataset.name}' has no molecules whose elements and bonds are known, so it has no {wanted[0]}"
            )
    raw = dict(zip(dataset.splits, raw_vectors(list(dataset.splits.values()), wanted), strict=True))  # type: ignore[arg-type]
    described: dict[str, Any] = {"blocks": list(wanted)}
    notes = dataset.notes
    if "descriptors" in wanted:
        described["descriptors"] = {"names": descriptor_names(), **_scaling(raw["train"]["descriptors"])}
        tables = [vectors["descriptors"] for vectors in raw.values()]
        missing = sum(int((~np.isfinite(table)).sum()) for table in tables)
        rows = sum(int((~np.isfinite(table)).any(1).sum()) for table in tables)
        if missing:
            notes = (*notes, f"{missing} descriptors of {rows} molecules are undefined; the median stands for them")
    splits = {
        name: replace(split, vectors={**split.vectors, **_finished(raw[name], described)})  # type: ignore
        for name, split in dataset.splits.items()
    }
    options = {**dataset.options, "vectors": "+".join(wanted)}
    return replace(dataset, splits=splits, vectors=described, options=options, notes=notes)


def add_blocks(dataset: Dataset, blocks: Sequence[str]) -> Dataset:
    """The data set with these blocks beside those that its molecules have already."""
    there = tuple(dataset.vectors.get("blocks", ()))
    return with_vectors(dataset, (*there, *(name for name in blocks if name not in there)))


def add_vectors(graphs: GraphSet, described: Mapping[str, Any]) -> GraphSet:
    """New molecules with the vectors that `Dataset.vectors` describes, scaled as those were."""
    if not is_molecule(graphs):
        raise ShiftproofError("these graphs do not know their elements and bonds, so they have no fingerprints")
    known = described.get("descriptors")
    names = None if known is None else known["names"]
    return replace(graphs, vectors=_finished(raw_vectors([graphs], described["blocks"], names=names)[0], described))


def descriptor_names() -> list[str]:
    """The descriptors of the RDKit that is installed, in its order, without those of stereochemistry."""
    descriptors = optional("rdkit.Chem.Descriptors", "molecules", "computing descriptors")
    return [name for name, _ in descriptors._descList if name not in _OF_STEREO]


def raw_vectors(
    sets: Sequence[GraphSet], blocks: Sequence[str], *, names: Sequence[str] | None = None, cached: bool = True
) -> list[dict[str, np.ndarray]]:
    """Of each set, counts [graphs, width] as bytes and descriptors unscaled (NaN where undefined).

    A molecule that occurs several times is computed once, and the cache knows the same molecules again in any order and
    split. `names` are the descriptors wanted, all of the installed RDKit by default.
    """
    optional("rdkit.Chem", "molecules", "computing fingerprints")
    chosen = [block_named(name) for name in blocks]
    if any(block.kind == "descriptors" for block in chosen):
        names = list(names) if names is not None else descriptor_names()
        absent = set(names) - set(descriptor_names())
        if absent:
            raise ShiftproofError(
                f"the RDKit that is installed has no descriptor '{sorted(absent)[0]}'; the run had it"
            )
    pieces = [_molecules(graphs) for graphs in sets]
    keys = [[_key(piece) for piece in some] for some in pieces]
    once = {key: piece for some, own in zip(pieces, keys, strict=True) for piece, key in zip(some, own, strict=True)}
    ordered = sorted(once)
    place = {key: row for row, key in enumerate(ordered)}
    rows = [np.array([place[key] for key in own], np.int64) for own in keys]
    digest = hashlib.sha256(b"".join(ordered)).hexdigest()
    found: list[dict[str, np.ndarray]] = [{} for _ in sets]
    for block in chosen:
        table = _table([once[key] for key in ordered], digest, block, names, cached)
        for vectors, own in zip(found, rows, strict=True):
            vectors[block.name] = table[own]
    return found


def _table(pieces: list[Piece], digest: str, block: Block, names: Sequence[str] | None, cached: bool) -> np.ndarray:
    """One block of all molecules, from the cache where it lies there."""
    width = {"maccs": 167, "descriptors": len(names or ())}.get(block.kind, block.bits)
    place = _cache_place(digest, block, names)
    if cached and (kept := _kept(place, (len(pieces), width))) is not None:
        return kept
    parts = [np.zeros((0, width), _kind_of(block))]
    chunks = [pieces[start : start + CHUNK] for start in range(0, len(pieces), CHUNK)]
    done = 0
    with watched(f"{block.name} of molecules", len(pieces)) as advance:
        for part in _computed(chunks, block, names, cores_for(len(pieces))):
            parts.append(part)
            done += len(part)
            advance(done)
    table = np.concatenate(parts)
    if cached and len(pieces):
        with contextlib.suppress(
            OSError, ShiftproofError
        ):  # no room or no right to write there: the next time takes as long
            _keep(table, place)
    return table


def _key(piece: Piece) -> bytes:
    """The same for the same atoms and bonds in the same order."""
    digest = hashlib.blake2b(digest_size=16)
    for array in piece:
        digest.update(np.ascontiguousarray(array).tobytes() + b"|")
    return digest.digest()


def _kind_of(block: Block) -> type:
    return np.float32 if block.kind == "descriptors" else np.uint8


def _molecules(graphs: GraphSet) -> list[Piece]:
    """Atoms, ends of bonds and kinds of bonds of each molecule, every bond once."""
    atoms = graphs.node_columns[ATOM].cpu().numpy().astype(np.int16)
    bonds = graphs.edge_columns[BOND].cpu().numpy().astype(np.int16)
    ends = graphs.edge_index.cpu().numpy()
    nodes, edges = graphs._node_starts.numpy(), graphs._edge_starts.numpy()
    pieces = []
    for first, last, begin, end in zip(nodes[:-1], nodes[1:], edges[:-1], edges[1:], strict=True):
        own = ends[:, begin:end] - first
        once = own[0] < own[1]
        pieces.append((atoms[first:last], own[:, once], bonds[begin:end][once]))
    return pieces


def _computed(
    chunks: list[list[Piece]], block: Block, names: Sequence[str] | None, processes: int
) -> Iterator[np.ndarray]:
    if processes == 1:
        yield from (_compute(chunk, block, names) for chunk in chunks)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forked children touch RDKit only, never torch's threads
        with process_pool(processes, "fork") as pool:
            waiting = [pool.submit(_compute, chunk, block, names) for chunk in chunks]
            try:
                for future in waiting:
                    yield future.result()
            except BrokenProcessPool:
                raise ShiftproofError("RDKit died while describing the molecules (out of memory?)") from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _compute(pieces: list[Piece], block: Block, names: Sequence[str] | None) -> np.ndarray:
    make = _maker(block, names)
    with optional("rdkit.rdBase", "molecules", "computing fingerprints").BlockLogs():
        return np.stack([make(rebuilt(*piece)) for piece in pieces]).astype(_kind_of(block))


def _maker(block: Block, names: Sequence[str] | None) -> Any:
    if block.kind == "maccs":
        keys = optional("rdkit.Chem.rdMolDescriptors", "molecules", "computing MACCS keys")
        return lambda molecule: np.array(keys.GetMACCSKeysFingerprint(molecule), np.uint8)
    if block.kind == "descriptors":
        return _descriptors(list(names or ()))
    fingerprints = optional("rdkit.Chem.rdFingerprintGenerator", "molecules", "computing fingerprints")
    more = {} if block.kind == "ecfp" else {"atomInvariantsGenerator": fingerprints.GetMorganFeatureAtomInvGen()}
    generator = fingerprints.GetMorganGenerator(radius=block.radius, fpSize=block.bits, **more)
    return lambda molecule: np.minimum(generator.GetCountFingerprintAsNumPy(molecule), MOST_OF_A_COUNT)


def _descriptors(names: list[str]) -> Any:
    descriptors = optional("rdkit.Chem.Descriptors", "molecules", "computing descriptors")
    functions = [dict(descriptors._descList)[name] for name in names]

    def values(molecule: Any) -> np.ndarray:
        row = np.full(len(functions), np.nan)
        for place, function in enumerate(functions):
            with contextlib.suppress(Exception):  # RDKit raises many things where a descriptor is undefined
                row[place] = float(function(molecule))
        # some grow exponentially with the molecule; a float keeps them, and infinity is as undefined as NaN
        row[~(np.abs(row) < np.finfo(np.float32).max)] = np.nan
        return row

    return values


def _scaling(table: np.ndarray) -> dict[str, list[float]]:
    """The median of each column and its deviation as the quartiles show it, or its own where they are one number."""
    known = np.where(np.isfinite(table), table, np.nan).astype(np.float64)
    known[:, np.isnan(known).all(0)] = 0.0
    median = np.nanmedian(known, 0)
    scale = np.nanpercentile(known, 75, axis=0) - np.nanpercentile(known, 25, axis=0)
    scale = np.where(scale > 0, scale / 1.349, np.nanstd(known, 0))  # 1.349 deviations lie between a Gaussian's
    return {"median": median.tolist(), "scale": np.where(scale > 0, scale, 1.0).tolist()}


def _finished(raw: Mapping[str, np.ndarray], described: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    finished = {}
    for name in described["blocks"]:
        values = raw[name]
        if name == "descriptors":
            how = described["descriptors"]
            values = (values - np.array(how["median"])) / np.array(how["scale"])
            values = np.clip(np.where(np.isfinite(values), values, 0.0), -FURTHEST, FURTHEST).astype(np.float32)
        finished[name] = torch.from_numpy(np.ascontiguousarray(values))
    return finished


def _cache_place(molecules: str, block: Block, names: Sequence[str] | None) -> Path:
    import rdkit

    described = [VERSION, rdkit.__version__, molecules, list(names or ()) if block.kind == "descriptors" else []]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    return cache_folder() / "molecules" / f"{block.name}-{digest[:32]}.safetensors"


def _keep(table: np.ndarray, place: Path) -> None:
    """Counts are kept as what is not zero, which is a fortieth of them."""
    from scipy.sparse import csr_array

    if table.dtype == np.uint8:
        sparse = csr_array(table)
        packed = {"values": sparse.data, "columns": sparse.indices.astype(np.int32), "rows": sparse.indptr}
        packed["rows"] = packed["rows"].astype(np.int64)
    else:
        packed = {"table": np.ascontiguousarray(table)}
    write_safetensors(place, packed)


def _kept(place: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """What the cache holds; None where there is nothing, or something damaged, which is then made anew."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file
    from scipy.sparse import csr_array

    if not place.exists():
        return None
    try:
        packed = load_file(place)
        if "table" in packed:
            table = packed["table"]
        else:
            table = csr_array((packed["values"], packed["columns"], packed["rows"]), shape=shape).toarray()
    except (OSError, SafetensorError, ValueError, KeyError):
        return None
    return table if table.shape == shape else None
