"""What a sample is and where it comes from.

- samples: `GraphSet` (packed graphs), `DomainSet` (tensors with environments), `Dataset` (their named splits)
- `load` makes a `Dataset` from a name, a path or PyG graphs; `save_dataset` and `load_dataset` keep one on disk
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

Importing this package registers every data set under its name.
"""

from shiftproof.data import (  # noqa: F401
    attacked,
    attribution,
    ba2motifs,
    census_and_bikes,
    colored,
    copurchase,
    cora_like,
    corner,
    domainbed_digits,
    drugood,
    extrapolation,
    failure,
    graphon,
    grb,
    heterophilous,
    moleculenet,
    molhiv,
    mutag,
    node_files,
    office_caltech,
    pacs,
    planetoid,
    point_sets,
    reviews,
    sample_files,
    sentiment,
    social,
    spmotif,
    superpixels,
    table_files,
    toy_groups,
    toy_tracks,
    tu,
    two_bit,
    two_patch,
    two_piece,
    wilds,
)
from shiftproof.data.dataset import Dataset
from shiftproof.data.domain_batches import DomainBatchSampler
from shiftproof.data.domains import DomainBatch, DomainSet
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.idx import read_idx
from shiftproof.data.loading import load, load_nodes, load_samples
from shiftproof.data.molecules import molecule_graphs, scaffold_of
from shiftproof.data.node_preparation import arctan_normalize, grb_degree_split
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.sources import find
from shiftproof.data.storage import load_dataset, save_dataset
from shiftproof.data.tu import read_tu
from shiftproof.data.two_bit import TwoBit

__all__ = [
    "Dataset",
    "DomainBatch",
    "DomainBatchSampler",
    "DomainSet",
    "GraphBatch",
    "GraphSet",
    "NodeGraph",
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
