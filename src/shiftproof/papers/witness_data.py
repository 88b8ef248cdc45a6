"""Generated data a witness is trained on: a few samples of the kind that a published data set holds, under its name.

A data set's name chooses its preset, so a stand-in that bears the name is trained with the settings of the real one,
and no file is needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.loading import load_nodes, load_samples
from shiftproof.registry import parse_name
from shiftproof.runtime.files import write_csv

FEW = "train_per_class=8,val_per_class=3,test_per_class=3"
GENERATED = {
    "spmotif-struc": f"spmotif-struc:{FEW}",
    "spmotif-mixed": f"spmotif-mixed:{FEW}",
    "spmotif-gsat": f"spmotif-gsat:edge_ones=True,{FEW}",
    "two-piece": f"two-piece:{FEW}",
    "ba-2motifs": "ba-2motifs:graphs=30",
    "toy-tracks": "toy-tracks:graphs=30,tracks=4",
    "toy-groups": "toy-groups:graphs=30",
    "two-bit": "two-bit:per_env=24",
    "cora-like": "cora-like:nodes=60,edges=150,classes=3,features=8,by=degree",
    "extrapolation": "extrapolation:train_size=32,val_size=8,test_size=8",
}
SIZES = ("nci1", "nci109", "proteins", "dd")
BINARY = ("mutag", "molhiv", "benzene", "logic7", "logic8", "logic10")
DIGITS = ("cmnist", "cmnist-m", "domainbed-cmnist", "cmnist-corner")
DOMAINS = ("office-caltech10", "amazon-reviews", "adult", "bike", "mnist-usps", "wilds")
SUPERPIXELS = ("cmnist-75sp", "mnist-75sp")
SMILES = ("CCO", "c1ccccc1O", "CC(=O)N", "CCN(CC)CC", "c1ccncc1", "CC(C)Cl", "O=C(O)c1ccccc1", "CCCCBr")
CHAINS = ("", "C", "CC", "OC")


@lru_cache(maxsize=64)
def stand_in(spec: str) -> Dataset:
    """A few samples that bear the name of the data set; of its options those count that choose a preset."""
    name, _ = parse_name(spec)
    if name in GENERATED:
        return load_samples(GENERATED[name])
    if name in SIZES:
        return replace(_binary("spmotif-struc", task="multiclass"), name=name, metric="mcc", num_classes=2)
    if name.startswith("drugood-"):
        return replace(_binary("two-piece"), name=name)
    if name in BINARY:
        return replace(_binary("spmotif-gsat"), name=name)
    if name == "crippen":
        return replace(_binary("spmotif-gsat"), name=name, task="regression", metric="mse")
    if name in SUPERPIXELS:
        return replace(_few(load_samples("colored-digits-sp"), 24), name=name, options={})
    if name == "moleculenet":
        return replace(molecules(), name=name)
    if name in DIGITS:
        return replace(_few(load_samples("colored-digits"), 32), name=name, options={})
    if name == "pacs64":
        return _pictures()
    if name in DOMAINS:
        return replace(load_samples(GENERATED["two-bit"]), name=name, options={})
    return replace(load_samples(GENERATED["spmotif-struc"]), name=name, options={})


@lru_cache(maxsize=1)
def small_graph() -> NodeGraph:
    """A graph of 120 nodes to attack and to defend."""
    return load_nodes("cora-like:nodes=120,edges=300,classes=3,features=8")


def named(graph: NodeGraph, name: str) -> NodeGraph:
    """The same graph under the name of another, which chooses how it is attacked and defended."""
    return replace(graph, name=name)


def molecules() -> Dataset:
    """32 molecules out of a table of SMILES, as a user's own would be read."""
    with TemporaryDirectory() as folder:
        return load_samples(molecule_table(Path(folder) / "molecules.csv"), smiles="smiles", label="active")


def molecule_table(path: Path) -> Path:
    """A table of 32 molecules with a label and an assay."""
    names = [chain + text for chain in CHAINS for text in SMILES]
    rows = ((text, int("N" in text or "n" in text), f"assay{i % 3}") for i, text in enumerate(names))
    write_csv(path, ("smiles", "active", "assay"), rows)
    return path


def _few(data: Dataset, count: int) -> Dataset:
    """Samples of every split at even distances, so that all environments and classes are among them."""
    return replace(data, splits={name: _spread(split, count) for name, split in data.splits.items()})


def _spread(split: Split, count: int) -> Split:
    return split[torch.linspace(0, len(split) - 1, min(count, len(split))).long()]


def _binary(source: str, task: str = "binary") -> Dataset:
    """Motif graphs with two classes and three environments."""
    data = load_samples(GENERATED[source])
    splits: dict[str, Split] = {}
    for name, split in data.splits.items():
        assert isinstance(split, GraphSet)
        y = (split.y > 0) if task == "multiclass" else (split.y > 0).float()
        splits[name] = replace(split, y=y.long() if task == "multiclass" else y, env=torch.arange(len(y)) % 3)
    return replace(data, splits=splits, task=task, metric="roc_auc", options={})  # type: ignore[arg-type]


def _pictures() -> Dataset:
    """Noise of 3 x 16 x 16 whose mean follows the class, from three domains."""
    draw = torch.Generator().manual_seed(0)
    splits = {}
    for name, count in (("train", 48), ("val", 24), ("test", 24)):
        y, env = torch.arange(count) % 4, torch.arange(count) // 4 % 3
        x = torch.rand(count, 3, 16, 16, generator=draw) + 0.1 * y.view(-1, 1, 1, 1) + 0.05 * env.view(-1, 1, 1, 1)
        splits[name] = DomainSet(x=x, y=y, env=env)
    return Dataset(splits, name="pacs64", num_classes=4)
