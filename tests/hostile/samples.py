"""A small right input of every kind that a reader takes, to be made wrong."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import shiftproof as sp
from shiftproof.data.readers.storage import save_dataset

ROWS = 36
HEADER = ["size", "mass", "kind", "site", "day", "label"]
MOLECULES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "c1ccncc1", "CCCC", "O=C1CCCN1", "c1ccoc1", "CC#N", "CCS", "C1CCCCC1"]


def table_rows() -> list[list[str]]:
    """Two numbers, a text, an environment, a date and a label."""
    rng = np.random.default_rng(0)
    return [
        [
            f"{rng.normal():.3f}",
            f"{rng.normal():.3f}",
            ["red", "green", "blue"][row % 3],
            f"site{row % 4}",
            f"2024-01-{row % 28 + 1:02d}",
            str(int(rng.random() < 0.5)),
        ]
        for row in range(ROWS)
    ]


def molecule_rows() -> list[list[str]]:
    """A SMILES, a label and a group."""
    return [
        [MOLECULES[row % len(MOLECULES)] + "C" * (row // len(MOLECULES)), str((row // 2) % 2), f"assay{row % 4}"]
        for row in range(ROWS)
    ]


MOLECULE_HEADER = ["smiles", "label", "assay"]


def as_csv(header: list[str], rows: list[list[str]], delimiter: str = ",") -> str:
    """A table as text."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def graph_arrays() -> dict[str, np.ndarray]:
    """Twelve packed paths of three to five nodes."""
    sizes = np.array([3 + number % 3 for number in range(12)])
    node_ptr = np.concatenate([[0], sizes.cumsum()])
    ends = [
        np.stack([np.r_[a : b - 1, a + 1 : b], np.r_[a + 1 : b, a : b - 1]]) for a, b in itertools.pairwise(node_ptr)
    ]
    rng = np.random.default_rng(0)
    return {
        "node_ptr": node_ptr,
        "edge_ptr": np.concatenate([[0], (2 * (sizes - 1)).cumsum()]),
        "edge_index": np.concatenate(ends, 1),
        "x": rng.normal(size=(int(sizes.sum()), 3)).astype(np.float32),
        "y": np.arange(12) % 2,
        "env": np.arange(12) % 4,
    }


def node_arrays() -> dict[str, np.ndarray]:
    """A ring of 30 nodes with some chords and two classes."""
    count = 30
    ring = np.stack([np.arange(count), (np.arange(count) + 1) % count])
    chords = np.stack([np.arange(0, count, 3), (np.arange(0, count, 3) + 7) % count])
    one_way = np.concatenate([ring, chords], 1)
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(count, 4)).astype(np.float32),
        "edge_index": np.concatenate([one_way, one_way[::-1]], 1),
        "y": np.arange(count) % 2,
        "train_mask": np.arange(count) < 14,
        "val_mask": (np.arange(count) >= 14) & (np.arange(count) < 20),
        "test_mask": np.arange(count) >= 20,
    }


def sample_arrays() -> dict[str, np.ndarray]:
    """Vectors with labels and environments."""
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(40, 3)).astype(np.float32), "y": np.arange(40) % 2, "env": np.arange(40) // 10}


def tu_texts() -> dict[str, str]:
    """The text files of a TU data set of 20 small graphs."""
    sizes = [3 + number % 5 for number in range(20)]
    starts = np.cumsum([0, *sizes])
    pairs = [(a, a + 1) for s, size in zip(starts, sizes, strict=False) for a in range(s + 1, s + size)]
    lines = [f"{a}, {b}\n{b}, {a}\n" for a, b in pairs]
    nodes = sum(sizes)
    return {
        "TOY_A.txt": "".join(lines),
        "TOY_graph_indicator.txt": "".join(f"{n + 1}\n" * size for n, size in enumerate(sizes)),
        "TOY_graph_labels.txt": "".join(f"{n % 2}\n" for n in range(20)),
        "TOY_node_labels.txt": "".join(f"{n % 3}\n" for n in range(nodes)),
    }


def _csv(path: Path, delimiter: str = ",") -> None:
    path.write_text(as_csv(HEADER, table_rows(), delimiter))


def _parquet(path: Path) -> None:
    import pandas as pd

    pd.DataFrame(table_rows(), columns=HEADER).to_parquet(path)


def _xlsx(path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(table_rows(), columns=HEADER)
    frame.astype({"size": float, "mass": float, "label": int}).to_excel(path, index=False)


def _sdf(path: Path) -> None:
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs(), Chem.SDWriter(str(path)) as writer:
        for smiles, label, assay in molecule_rows():
            molecule = Chem.MolFromSmiles(smiles)
            if molecule is None:  # longer CC#N are no molecules; a file of SMILES holds them nevertheless
                continue
            molecule.SetProp("label", label)
            molecule.SetProp("assay", assay)
            writer.write(molecule)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tu_texts().items():
            archive.writestr(name, text)


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Arrays as npz or safetensors, as the ending says."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}, path)


# How a right file with each ending is written. The endings are the registry's; a test fails for one that is not here.
FILES: dict[str, Callable[[Path], None]] = {
    ".csv": _csv,
    ".tsv": lambda path: _csv(path, "\t"),
    ".parquet": _parquet,
    ".xlsx": _xlsx,
    ".sdf": _sdf,
    ".zip": _zip,  # named TOY.zip, after the files in it
    ".npz": lambda path: save_arrays(path, graph_arrays()),
    ".safetensors": lambda path: save_arrays(path, graph_arrays()),
}
# Further files that the same readers take.
MORE_FILES: dict[str, Callable[[Path], None]] = {
    ".csv.gz": lambda path: path.write_bytes(gzip.compress(as_csv(HEADER, table_rows()).encode())),
    ".csv.xz": lambda path: path.write_bytes(lzma.compress(as_csv(HEADER, table_rows()).encode())),
    "molecules.csv": lambda path: path.write_text(as_csv(MOLECULE_HEADER, molecule_rows())) and None,
    "nodes.npz": lambda path: save_arrays(path, node_arrays()),
    "nodes.safetensors": lambda path: save_arrays(path, node_arrays()),
    "samples.npz": lambda path: save_arrays(path, sample_arrays()),
}
QUICK = ["-m", "erm", "--set", "epochs=1", "--json"]
LABELLED = (".csv", ".tsv", ".parquet", ".xlsx", ".sdf", ".csv.gz", ".csv.xz", "molecules.csv")
GRAPHS = (".sdf", ".zip", ".npz", ".safetensors", "molecules.csv")


def reading(name: str, path: Path) -> list[object]:
    """The words of a command that reads a file of this kind to its end."""
    if name.startswith("nodes"):
        return ["attack", path, "-a", "random-flips", "--flips", 2, "--defences", "gcn", "--epochs", 1, "--json"]
    label = ["--label", "label"] if name in LABELLED else []
    small = ["--set", "hidden=4", "--set", "layers=1"] if name in GRAPHS else []
    return ["fit", path, *label, *QUICK, *small]


def write_image_folder(folder: Path) -> None:
    """Three domains of two classes of three pictures."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for domain in ("art", "photo", "sketch"):
        for kind in ("cat", "dog"):
            place = folder / domain / kind
            place.mkdir(parents=True)
            for number in range(3):
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(place / f"{number}.png")


def write_tu_folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, text in tu_texts().items():
        (folder / name).write_text(text)


def write_stored_folder(folder: Path) -> None:
    save_dataset(sp.load("spmotif-struc:train_per_class=4,val_per_class=2,test_per_class=2"), folder)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "images": write_image_folder,
    "tu": write_tu_folder,
    "stored": write_stored_folder,
}


def json_files(folder: Path) -> dict[str, object]:
    """The JSON files directly in a folder, read."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
