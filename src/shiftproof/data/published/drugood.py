"""DrugOOD: does a ligand bind, on assays, scaffolds or sizes of molecules that were not trained on."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.idx import _bytes_of
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.molecules import molecule_graphs
from shiftproof.data.readers.sources import cache_folder, find
from shiftproof.data.readers.storage import load_dataset, save_dataset
from shiftproof.errors import ShiftproofError
from shiftproof.registry import register

PACKED_VERSION = 2  # rises when the features or columns of a packed file change
MEASURES = ("ec50", "ic50", "ki")
SHIFTS = ("assay", "scaffold", "size")
PARTS = {"train": "train", "val": "ood_val", "test": "ood_test", "iid_val": "iid_val", "iid_test": "iid_test"}


@register("drugood", tags=("graphs", "molecules", "files", "environments"))
def drugood(file: str = "lbap_core_ec50_assay", largest_domain_only: bool = False) -> Dataset:
    """A file of the DrugOOD benchmark by its name there (needs that file; the first time also RDKit).

    `val` and `test` are the benchmark's ood_val and ood_test. The column "domain" is what the file was split by,
    "assay" the assay of a measurement; both are numbered from the commonest of the training split, which are its
    environments. `largest_domain_only` trains on that commonest domain alone.
    """
    given = {"file": file, "largest_domain_only": largest_domain_only}
    return _loaded(file, "drugood", largest_domain_only, named_options(drugood, given, always=("file",)))


def _register_named(measure: str, shift: str) -> Callable[..., Dataset]:
    name, file = f"drugood-{measure}-{shift}", f"lbap_core_{measure}_{shift}"

    def named(largest_domain_only: bool = False) -> Dataset:
        return _loaded(
            file, name, largest_domain_only, named_options(named, {"largest_domain_only": largest_domain_only})
        )

    named.__name__ = named.__qualname__ = name.replace("-", "_")
    named.__doc__ = f"DrugOOD {measure.upper()}, test molecules differ from training by {shift} (needs {file}.json)."
    return register(name, tags=("graphs", "molecules", "files", "environments"))(named)


for _measure in MEASURES:
    for _shift in SHIFTS:
        _register_named(_measure, _shift)


def read_drugood(path: str | Path, name: str = "drugood") -> Dataset:
    """The molecules of one DrugOOD file (.json or .json.gz) as graphs, from its packed form where there is one.

    The packed form lies in the cache folder under the digest of the file, is read in a moment and needs no RDKit; it
    is a data set folder as `load` takes it.
    """
    path = Path(path)
    raw = _bytes_of(path)
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    packed = cache_folder() / "drugood" / f"{stem}-{hashlib.sha256(raw).hexdigest()[:16]}-v{PACKED_VERSION}"
    if packed.is_dir():
        with contextlib.suppress(ShiftproofError):  # a damaged or unfinished copy is made anew
            return replace(load_dataset(packed), name=name)
    data = _read(raw, path, name)
    with contextlib.suppress(OSError):  # no room or no right to write there: the next time takes as long as this one
        save_dataset(data, packed)
    return data


def _loaded(file: str, name: str, largest_domain_only: bool, options: Mapping[str, Any]) -> Dataset:
    stem = file.removesuffix(".gz").removesuffix(".json")
    if not stem.replace("_", "").isalnum():
        raise ShiftproofError(f"'{file}' is not the name of a DrugOOD file, such as lbap_core_ec50_assay")
    endings = (".json", ".json.gz")
    places = [f"{folder}{stem}{ending}" for folder in ("drugood/", "DrugOOD/", "") for ending in endings]
    data = replace(read_drugood(find(places, what=f"the DrugOOD file {stem}"), name), options=dict(options))
    if largest_domain_only:
        train = data["train"]
        data = data.with_splits(train=train[train.columns["domain"] == 0])  # domains are numbered by their size
    return data


def _read(raw: bytes, path: Path, name: str) -> Dataset:
    page = _page(raw, path)
    records = {part: _table(page["split"], source, path) for part, source in PARTS.items()}
    numbers = {
        column: _numbered([records[part][key] for part in PARTS])
        for column, key in (("domain", "domain_id"), ("assay", "assay_id"))
    }
    everything = [smiles for part in PARTS for smiles in records[part]["smiles"]]
    graphs = molecule_graphs(everything, where=f"{path}, all splits in a row")
    splits: dict[str, GraphSet] = {}
    start = 0
    for number, (part, table) in enumerate(records.items()):
        end = start + len(table["smiles"])
        columns = {column: torch.from_numpy(found[number]) for column, (found, _) in numbers.items()}
        columns["value"] = torch.tensor(table["reg_label"], dtype=torch.float32)
        splits[part] = replace(
            graphs[start:end],
            y=torch.from_numpy(_labels(table["cls_label"], f"{path}, split '{PARTS[part]}'")),
            env=columns["domain"].clone() if part == "train" else None,
            index=torch.arange(end - start),
            columns=columns,
        )
        start = end
    return Dataset(
        splits,
        name=name,
        metric="roc_auc",
        provenance=_provenance(page, path),
        environment="domain",
        value_names={column: names for column, (_, names) in numbers.items()},
    )


def _numbered(parts: Sequence[Sequence[Any]]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """The values of all parts numbered from 0: those of the first part by how often they occur there, then the rest."""
    texts = [np.array([str(value) for value in part]) for part in parts]
    values, counts = np.unique(texts[0], return_counts=True)
    first = values[np.argsort(-counts, kind="stable")]
    names = np.concatenate([first, np.setdiff1d(np.concatenate(texts), first)])
    order = np.argsort(names)
    found = [order[np.searchsorted(names, part, sorter=order)].astype(np.int64) for part in texts]
    return found, tuple(map(str, names))


def _labels(values: Sequence[Any], where: str) -> np.ndarray:
    for row, value in enumerate(values):
        if value not in (0, 1):
            raise ShiftproofError(f"{where}: cls_label of row {row} is {value!r}, expected 0 or 1")
    return np.array(values, dtype=np.int64)


def _table(splits: Mapping[str, Any], split: str, path: Path) -> dict[str, list[Any]]:
    """The records of a split as columns."""
    keys = ("smiles", "cls_label", "reg_label", "domain_id", "assay_id")
    rows = splits.get(split)
    if not isinstance(rows, list) or not rows:
        raise ShiftproofError(f"{path} has no split '{split}'; a DrugOOD file holds {', '.join(PARTS.values())}")
    for row, record in enumerate(rows):
        missing = [key for key in keys if not isinstance(record, dict) or record.get(key) is None]
        if missing:
            raise ShiftproofError(f"{path}, split '{split}': row {row} has no {missing[0]}")
        if not isinstance(record["reg_label"], (int, float)):
            raise ShiftproofError(f"{path}, split '{split}': row {row} has no number as reg_label")
    return {key: [record[key] for record in rows] for key in keys}


def _page(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        page = json.loads(raw)
    except ValueError as problem:
        raise ShiftproofError(f"{path} is not readable as JSON ({problem})") from None
    if not isinstance(page, dict) or not isinstance(page.get("split"), dict):
        raise ShiftproofError(f"{path} is not a DrugOOD file: there is no 'split' in it")
    return page


def _provenance(page: Mapping[str, Any], path: Path) -> str:
    """Which ChEMBL release the curator read, as far as the file says it."""
    subset = path.name.removesuffix(".gz").removesuffix(".json")
    cfg = page.get("cfg")
    cfg = cfg.get("path") if isinstance(cfg, dict) else None
    source = str(cfg.get("source_root", "")) if isinstance(cfg, dict) else ""
    release = next((part.split("_")[1] for part in Path(source).parts if part.startswith("chembl_")), None)
    text = f"DrugOOD {subset}, curated from " + (f"ChEMBL {release}" if release else "ChEMBL, release not stated")
    if "ec50" in subset and release != "30":
        text += "; published EC50 figures are from a curation of ChEMBL 30, so they compare only approximately"
    return text
