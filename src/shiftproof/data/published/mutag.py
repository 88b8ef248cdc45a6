"""Mutag with ground truth: molecules that cause mutations, and the groups that are known to do it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.chemistry import ATOM, BOND, elements_of
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.readers.tu import read_tu
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed
from shiftproof.registry import register

# columns of x, docs/papers/gmt.md#mutag
ELEMENTS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
OXYGEN, HYDROGEN, NITROGEN = ELEMENTS.index("O"), ELEMENTS.index("H"), ELEMENTS.index("N")
VALIDATION_SHARE = 0.2
_HOME = "https://www.chrsmrrs.com/graphkerneldatasets/Mutagenicity.zip"


@register("mutag", tags=("graphs", "molecules", "files", "ground-truth"))
def mutag(seed: Seed = 0) -> Dataset:
    """Mutag: 2,951 molecules, is it no mutagen, NO2 and NH2 bonds of mutagens are ground truth (needs the TU files).

    These are the molecules of Mutagenicity without the mutagens that have neither group; class 0 is "mutagen". `seed`
    draws the random 80/20 split into train and val. `test` holds the 1,015 mutagens, which lie in train and val too: it
    measures explanations, and accuracy there is about one class (docs/papers/gmt.md#mutag).
    """
    place = find(
        ("tu/Mutagenicity.zip", "tu/Mutagenicity", "Mutagenicity.zip", "Mutagenicity/raw", "Mutagenicity"),
        what="the TU data set Mutagenicity",
        url=_HOME,
    )
    graphs = _with_truth(read_tu(place, "Mutagenicity"))
    order = torch.from_numpy(stream(seed).permutation(len(graphs)))
    train = int((1 - VALIDATION_SHARE) * len(graphs))
    return Dataset(
        {"train": graphs[order[:train]], "val": graphs[order[train:]], "test": graphs[graphs.y == 0]},
        name="mutag",
        task="binary",
        provenance="Mutagenicity of the TU collection, marked bonds by the rule of docs/papers/gmt.md#mutag",
        options=named_options(mutag, {"seed": seed}, always=("seed",)),
        value_names={"mutagen": ("mutagen", "not a mutagen")},
    )


def _with_truth(everything: GraphSet) -> GraphSet:
    """The molecules that are kept, with marked bonds and atoms, and what it takes to draw them."""
    if everything.num_features != len(ELEMENTS):
        raise ShiftproofError(
            f"Mutagenicity has {len(ELEMENTS)} kinds of atoms, these files have {everything.num_features}"
        )
    if int(everything.y.max()) != 1:
        raise ShiftproofError(
            f"Mutagenicity has 2 classes of molecules, these files have {int(everything.y.max()) + 1}"
        )
    owner = torch.repeat_interleave(torch.arange(len(everything)), everything.edge_counts)
    truth = mutagenic_bonds(everything.x.argmax(1), everything.edge_index) & (everything.y[owner] == 0)
    marked = torch.zeros(len(everything), dtype=torch.bool).index_fill_(0, owner[truth], True)
    atoms = torch.zeros(everything.num_nodes, dtype=torch.bool).index_fill_(0, everything.edge_index[0, truth], True)
    kinds = everything.edge_attr
    bonds = torch.zeros(everything.num_edges) if kinds is None else kinds.argmax(1) + 1  # single, double, triple
    whole = replace(
        everything,
        y=everything.y.float(),
        edge_attr=None,  # not used in the paper
        edge_truth=truth,
        node_truth=atoms,
        node_columns={ATOM: elements_of(everything.x, ELEMENTS, hydrogens=0)},
        edge_columns={BOND: bonds.to(torch.int8)},
    )
    return whole[(everything.y == 1) | marked]


def mutagenic_bonds(element: Tensor, edge_index: Tensor) -> Tensor:
    """Which directed bonds belong to NO2 or NH2: at every N with three neighbours, of which exactly two are O, the two
    N-O bonds; or of which exactly two are H and the third is no O, the two N-H bonds (docs/papers/gmt.md#mutag)."""
    source, target = edge_index[0], edge_index[1]

    def neighbours(kind: int | None) -> Tensor:
        counted = torch.ones_like(target) if kind is None else (element[target] == kind).long()
        return torch.zeros_like(element).index_add_(0, source, counted)

    three = (element == NITROGEN) & (neighbours(None) == 3)
    oxygens, hydrogens = neighbours(OXYGEN), neighbours(HYDROGEN)
    nitro = three & (oxygens == 2)
    amino = three & (hydrogens == 2) & (oxygens == 0)

    def bonds(nitrogens: Tensor, kind: int) -> Tensor:
        outwards = nitrogens[source] & (element[target] == kind)
        return outwards | (nitrogens[target] & (element[source] == kind))

    return bonds(nitro, OXYGEN) | bonds(amino, HYDROGEN)
