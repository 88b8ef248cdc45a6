"""Many SMILES read at once: in several processes, with a reason for every one that cannot be, and kept in a cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM, BOND
from shiftproof.data.readers.molecules import ATOM_WIDTHS, BOND_WIDTHS, Reader, one_hot, schemes
from shiftproof.data.readers.sources import cache_folder
from shiftproof.errors import ShiftproofError, optional, unknown
from shiftproof.runtime.files import write_safetensors
from shiftproof.runtime.progress_hook import watched
from shiftproof.runtime.workers import process_pool

PACKED_VERSION = 1  # rises when what is read off a molecule changes
CHUNK = 500
FEW = 1500  # fewer are read sooner than processes start
MOST_ATOMS = 1000  # larger ones are polymers or proteins, and rings of such size take RDKit minutes
MOST_CHARACTERS = 20_000
MOST_PROCESSES = 16

Features = Literal["drugood", "ogb"]


@dataclass(frozen=True)
class Molecules:
    """What was read off many molecules, end to end, in as few bytes as it fits; `problems` names those left out.

    `number` gives each SMILES its molecule, -1 for none. `scaffold` is each molecule's scaffold, a place in
    `scaffolds`.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    ends: np.ndarray
    chemistry: np.ndarray
    kinds: np.ndarray
    sizes: np.ndarray
    bond_counts: np.ndarray
    scaffold: np.ndarray
    number: np.ndarray
    scaffolds: tuple[str, ...]
    problems: dict[int, str]
    features: str

    def __len__(self) -> int:
        return len(self.sizes)

    def packed(self) -> GraphSet:
        """The molecules as graphs whose features are still whole numbers; `described` turns a selection into features.

        A selection is described after it was made, since the features take several times the room.
        """
        both_ways = np.stack([self.ends, self.ends[:, ::-1]], axis=1).reshape(-1, 2).T.astype(np.int64)
        return GraphSet.from_parts(
            torch.from_numpy(self.sizes.astype(np.int64)),
            torch.from_numpy(self.bond_counts.astype(np.int64)) * 2,
            torch.from_numpy(np.ascontiguousarray(both_ways)),
            x=torch.from_numpy(self.atoms),
            edge_attr=torch.from_numpy(np.repeat(self.bonds, 2, axis=0)),
            node_columns={ATOM: torch.from_numpy(self.chemistry)},
            edge_columns={BOND: torch.from_numpy(np.repeat(self.kinds, 2))},
        )

    def described(self, graphs: GraphSet) -> GraphSet:
        """Packed graphs with their one-hot features."""
        graphs.x = torch.from_numpy(one_hot(graphs.x.numpy(), self.features))
        if graphs.edge_attr is not None:
            graphs.edge_attr = torch.from_numpy(one_hot(graphs.edge_attr.numpy(), self.features, of="bonds"))
        return graphs


def read_molecules(
    smiles: Sequence[str],
    features: Features = "drugood",
    *,
    strict: bool = True,
    max_atoms: int = MOST_ATOMS,
    processes: int | None = None,
    cached: bool = True,
) -> Molecules:
    """The molecules of a list of SMILES without repeats, from the cache where the same list was read before.

    Without `strict`, valences that RDKit holds impossible are taken as they are written. `processes` is the number of
    cores by default; the cache lies in the user's cache folder under the digest of the SMILES and the options.
    """
    if features not in ATOM_WIDTHS:
        raise unknown("features of molecules", features, ATOM_WIDTHS)
    if max_atoms < 1:
        raise ShiftproofError(f"option 'max_atoms' is at least 1, not {max_atoms}")
    place = _cache_place(smiles, features, strict, max_atoms)
    if cached and (kept := _kept(place, len(smiles), features)) is not None:
        return kept
    optional("rdkit.Chem", "molecules", "reading SMILES")
    chunks = [list(smiles[start : start + CHUNK]) for start in range(0, len(smiles), CHUNK)]
    parts = []
    with watched("reading molecules", len(smiles)) as advance:
        for part in _parts(chunks, (features, strict, max_atoms), processes or cores_for(len(smiles))):
            parts.append(part)
            advance(min(len(parts) * CHUNK, len(smiles)))
    found = _joined(parts, features, len(smiles))
    if cached:
        with contextlib.suppress(OSError):  # no room or no right to write there: the next time takes as long
            _keep(found, place)
    return found


def cores_for(count: int) -> int:
    """How many processes read so many molecules soonest."""
    if count < FEW or sys.platform != "linux":
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES, -(-count // CHUNK))


def _parts(chunks: list[list[str]], options: tuple[str, bool, int], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from (_read_chunk(chunk, *options) for chunk in chunks)
        return
    # forked children read at once and need no guarded main module; they touch RDKit only, never torch's threads
    schemes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with process_pool(processes, "fork") as pool:
            waiting = [pool.submit(_read_chunk, chunk, *options) for chunk in chunks]
            try:
                for future in waiting:
                    yield future.result()
            except BrokenProcessPool:
                raise ShiftproofError("RDKit died while reading the SMILES (out of memory?)") from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _read_chunk(smiles: list[str], features: str, strict: bool, max_atoms: int) -> dict[str, Any]:
    """One chunk as small arrays, which travel between processes."""
    reader = Reader(schemes()[features], strict=strict, max_atoms=max_atoms, max_characters=MOST_CHARACTERS)
    problems = {}
    scaffolds = []
    number = np.full(len(smiles), -1, np.int32)
    with optional("rdkit.rdBase", "molecules", "reading SMILES").BlockLogs():
        for row, text in enumerate(smiles):
            problem = reader.add(text)
            if problem is not None:
                problems[row] = problem
                continue
            number[row] = len(reader.sizes) - 1
            scaffolds.append(reader.scaffold())
    return {"arrays": reader.arrays(), "number": number, "scaffolds": scaffolds, "problems": problems}


def _joined(parts: list[dict[str, Any]], features: str, total: int) -> Molecules:
    widths = {"atoms": len(ATOM_WIDTHS[features]), "bonds": len(BOND_WIDTHS[features]), "ends": 2, "chemistry": 3}
    arrays = {}
    for name in ("atoms", "bonds", "ends", "chemistry", "kinds", "sizes", "bond_counts"):
        pieces = [part["arrays"][name] for part in parts]
        shape = (-1, widths[name]) if name in widths else (-1,)
        arrays[name] = np.concatenate(pieces).reshape(shape) if pieces else np.zeros(shape, np.int32)
    number = np.full(total, -1, np.int32)
    texts: list[str] = []
    problems = {}
    read = 0
    for place, part in enumerate(parts):
        own = part["number"]
        number[place * CHUNK : place * CHUNK + len(own)] = np.where(own >= 0, own + read, -1)
        read += int((own >= 0).sum())
        texts += part["scaffolds"]
        problems |= {place * CHUNK + row: why for row, why in part["problems"].items()}
    names, scaffold = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    return Molecules(
        **arrays,
        scaffold=scaffold.reshape(-1).astype(np.int32),
        number=number,
        scaffolds=tuple(map(str, names)),
        problems=problems,
        features=features,
    )


def _cache_place(smiles: Sequence[str], features: str, strict: bool, max_atoms: int) -> Path:
    digest = hashlib.sha256(json.dumps([features, strict, max_atoms, PACKED_VERSION]).encode())
    for text in smiles:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return cache_folder() / "molecules" / f"{digest.hexdigest()[:32]}.safetensors"


def _keep(found: Molecules, place: Path) -> None:
    arrays = {f.name: getattr(found, f.name) for f in fields(found) if isinstance(getattr(found, f.name), np.ndarray)}
    texts = {"scaffolds": list(found.scaffolds), "problems": {str(row): why for row, why in found.problems.items()}}
    packed = arrays | {name: np.frombuffer(json.dumps(value).encode(), np.uint8) for name, value in texts.items()}
    write_safetensors(place, packed)


def _kept(place: Path, total: int, features: str) -> Molecules | None:
    """What the cache holds; None where there is nothing, or something damaged, which is then made anew."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not place.exists():
        return None
    try:
        arrays = load_file(place)
        texts = {name: json.loads(arrays.pop(name).tobytes()) for name in ("scaffolds", "problems")}
        problems = {int(row): why for row, why in texts["problems"].items()}
        found = Molecules(**arrays, scaffolds=tuple(texts["scaffolds"]), problems=problems, features=features)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    return found if len(found.number) == total else None
