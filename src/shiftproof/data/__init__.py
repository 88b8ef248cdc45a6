"""What a sample is and where it comes from.

- samples: `GraphSet` (packed graphs), `DomainSet` (tensors with environments), `Dataset` (their named splits),
  `Predictions` (what every model returns)
- `load` makes a `Dataset` from a name, a path or PyG graphs; `save_dataset` and `load_dataset` keep one on disk,
  `DatasetWriter` and `SetWriter` write one piece by piece that is larger than memory
- generated graphs: `spmotif` (struc, mixed, gsat), `two_piece`, `ba2motifs`, all built on `motifs`; `graphon`
- data on which shortcuts fail: `failure` (spmotif-failure, linear-fiif); `scm`: finite causal models, exact entropies
- generated vectors: `two_bit` (and its exact law `TwoBit`), `two_patch`, `extrapolation`
- coloured images: `colored` (colored-digits needs nothing, cmnist the MNIST files); `pacs`: objects in four styles;
  `corner` (cmnist-corner): the colour as a patch beside the digit
- domains of which one is left out: `office_caltech`, `reviews`, `census_and_bikes`, `domainbed_digits`, `wilds`
- images as graphs: `superpixels` (cmnist-75sp, mnist-75sp)
- sentences as graphs: `sentiment` (Graph-SST and Graph-Twitter, and stand-ins made of parse `trees`)
- molecules: `molecule_graphs` (SMILES, needs RDKit), `drugood`, `molhiv`, `moleculenet`; with truth `attribution` and
  `mutag`
- points in space: `points` (who is near whom), `toy_tracks`, `toy_groups`, `point_sets` (synmol-3d, actstrack, tau3mu,
  plbind)
- one graph whose nodes are classified: `NodeGraph` (`cora`, `computers`, ..., `cora-like` at any size, npz files)
- files: `read_tu` for the TU collection, `read_idx` for MNIST; `find` knows where files are looked for

    >>> from shiftproof.data import load
    >>> data = load("spmotif-struc:bias=0.9", train_per_class=100)
    >>> len(data.train), data.train.batch([0, 1, 2]).y.tolist()
    (300, [0, 1, 2])

The rooms within: `readers` (what a user brings), `published` (one file a published data set) and `generated` (one file
a generator); importing these registers what is in them. Names from there are imported here when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftproof.data.dataset import Dataset
from shiftproof.data.domain_batches import DomainBatchSampler
from shiftproof.data.domains import DomainBatch, DomainSet
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.predictions import Predictions

if TYPE_CHECKING:
    from shiftproof.data.generated.two_bit import TwoBit
    from shiftproof.data.readers.idx import read_idx
    from shiftproof.data.readers.loading import load, load_nodes, load_samples
    from shiftproof.data.readers.molecules import molecule_graphs, scaffold_of
    from shiftproof.data.readers.node_preparation import arctan_normalize, grb_degree_split
    from shiftproof.data.readers.sources import find
    from shiftproof.data.readers.storage import DatasetWriter, load_dataset, save_dataset
    from shiftproof.data.readers.tu import read_tu
    from shiftproof.data.stored import SetWriter

_HOMES = {
    "DatasetWriter": "readers.storage",
    "SetWriter": "stored",
    "TwoBit": "generated.two_bit",
    "arctan_normalize": "readers.node_preparation",
    "find": "readers.sources",
    "grb_degree_split": "readers.node_preparation",
    "load": "readers.loading",
    "load_dataset": "readers.storage",
    "load_nodes": "readers.loading",
    "load_samples": "readers.loading",
    "molecule_graphs": "readers.molecules",
    "read_idx": "readers.idx",
    "read_tu": "readers.tu",
    "save_dataset": "readers.storage",
    "scaffold_of": "readers.molecules",
}

__all__ = [
    "Dataset",
    "DatasetWriter",
    "DomainBatch",
    "DomainBatchSampler",
    "DomainSet",
    "GraphBatch",
    "GraphSet",
    "NodeGraph",
    "Predictions",
    "SetWriter",
    "TwoBit",
    "arctan_normalize",
    "find",
    "grb_degree_split",
    "load",
    "load_dataset",
    "load_nodes",
    "load_samples",
    "molecule_graphs",
    "read_idx",
    "read_tu",
    "save_dataset",
    "scaffold_of",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"shiftproof.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'shiftproof.data' has no attribute '{name}'")
