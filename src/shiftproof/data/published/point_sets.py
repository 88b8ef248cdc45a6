"""Published point clouds: SynMol in space, ActsTrack, Tau3Mu and PLBind.

The authors' processed files are pickles, which are not opened here; `docs/point-clouds.md` has the line that makes an
npz file of each. Its arrays hold all clouds one after the other: `pos`, `x`, `y` and `node_label`, with `ptr` where
each cloud starts, and the clouds of the split in `train`, `valid` and `test`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.data.published.attribution import synmol
from shiftproof.data.readers.array_files import ArrayFile
from shiftproof.data.readers.conformers import POSITIONS
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.points import Neighbours, point_graphs
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Fraction, Seed, Whole
from shiftproof.registry import register

SYNMOL_SCALE = 5.0  # of places in ångström, docs/papers/gmt.md#point-networks
ACTSTRACK_SCALE = 100 / 2955.5  # docs/papers/gmt.md#point-networks
AFFINITY = 10e-9  # mol/l, docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind: what binds tighter is positive
RESIDUES, ATOMS = 38, 119  # kinds, docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind
CHARGE = 16  # the column of x_lig after the categorical ones, docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind
_MADE = "docs/point-clouds.md"


@register("synmol-3d", tags=("graphs", "molecules", "files", "points", "ground-truth"))
def synmol_3d(seed: Seed = 0, conformer_seed: Whole = 0) -> Dataset:
    """SynMol as point clouds: atoms at the places of a conformer, joined to their five nearest (needs logic8.npz).

    The molecules, atom types and split of `synmol`; places (`pos`) are multiplied by 5. Conformers are found by RDKit
    the first time, which takes minutes; the published ones are not to be had, these are others.
    """
    given = dict(locals())
    flat = synmol(seed=seed, conformers=True, conformer_seed=conformer_seed)
    splits = {name: _in_space(part) for name, part in flat.splits.items() if isinstance(part, GraphSet)}
    return replace(flat, splits=splits, name="synmol-3d", options=named_options(synmol_3d, given, always=("seed",)))


def _in_space(graphs: GraphSet) -> GraphSet:
    columns = {name: column for name, column in graphs.node_columns.items() if name != POSITIONS}
    return point_graphs(
        graphs.node_columns[POSITIONS] * SYNMOL_SCALE,
        graphs.sizes,
        Neighbours(k=5),
        x=graphs.x,
        truth=graphs.node_truth,
        y=graphs.y,
        index=graphs.index,
        columns=graphs.columns,
        node_columns=columns,
    )


@register("actstrack", tags=("graphs", "files", "points", "ground-truth"))
def actstrack() -> Dataset:
    """ActsTrack at 2 T: 3,241 events of particle hits, did a Z boson decay; the pair's hits are truth (needs its file).

    Hits have no features; each is joined to the five nearest in direction.
    """
    file = _open("actstrack", "ActsTrack")
    pos = _numbers(file, "pos", 3) * ACTSTRACK_SCALE
    return _dataset("actstrack", "ActsTrack", file, pos, Neighbours(k=5, unit=True), _labels(file))


@register("tau3mu", tags=("graphs", "files", "points", "ground-truth"))
def tau3mu() -> Dataset:
    """Tau3Mu: 129,687 events of muon hits, did a tau decay into three muons; their hits are truth (needs its file).

    Places are pseudorapidity and azimuth, the feature is the bending angle; hits within distance 1 are joined.
    """
    file = _open("tau3mu", "Tau3Mu")
    pos, x = _numbers(file, "pos", 2), _numbers(file, "x", 1)
    return _dataset("tau3mu", "Tau3Mu", file, pos, Neighbours(k=None, radius=1.0), _labels(file), x=x)


@register("plbind", tags=("graphs", "files", "points", "ground-truth"))
def plbind(negatives: Fraction = 0.1) -> Dataset:
    """PLBind: 10,891 proteins with a ligand, is its affinity below 10 nM; pocket residues are truth (needs its file).

    A node is a residue (type, accessible surface, B-factor) at its alpha carbon, joined to the five nearest. Residues
    in contact with the ligand are truth as well where it binds. The ligand lies in the columns `ligand_kind` (atomic
    number), `ligand_charge`, `ligand_pos` and `ligand_size`, which networks with `context=119` read. In training, the
    share `negatives` of all batches has the ligands of other proteins, and then nothing binds
    (docs/papers/gmt.md#actstrack-tau3mu-synmol-plbind).
    """
    given = dict(locals())
    file = _open("plbind", "PLBind")
    starts = file.starts("ptr")
    affinity = file.column("affinity", len(starts) - 1)
    if (affinity <= 0).any():
        raise ShiftproofError(f"{file.path}: 'affinity' row {(affinity <= 0).argmax()} is not positive")
    y = torch.from_numpy(affinity < AFFINITY).float()
    binds = torch.repeat_interleave(y > 0, torch.from_numpy(np.diff(starts)))
    near, touching = (torch.from_numpy(file.column(part, starts[-1]) > 0) for part in ("node_label", "contact_label"))
    told = _numbers(file, "x", 3)
    kind = _kinds(told[:, 0], RESIDUES, "residues", file)
    x = torch.cat([torch.nn.functional.one_hot(kind, RESIDUES), told[:, 1:]], 1).float()
    pos, truth = _numbers(file, "pos", 3), near | (binds & touching)
    data = _dataset("plbind", "PLBind", file, pos, Neighbours(k=5), y, x=x, truth=truth, columns=_ligands(file))
    swap = WrongLigands(negatives, data.train.columns) if negatives else None
    return replace(data, augment=swap, options=named_options(plbind, given))


@dataclass(frozen=True)
class WrongLigands:
    """Now and then gives all proteins of a training batch ligands of proteins outside it; none of them binds then.

    `ligands` are the columns of the whole training split, in its order, and `chance` is how often it happens.
    """

    chance: float
    ligands: Mapping[str, Tensor] = field(repr=False)

    def __call__(self, batch: GraphBatch) -> GraphBatch:
        if float(torch.rand(())) >= self.chance:
            return batch
        outside = torch.ones(len(self.ligands["ligand_size"]), dtype=torch.bool)
        outside[batch.index.cpu()] = False
        others = outside.nonzero()[:, 0]
        if not len(others):  # the batch is the whole split
            return batch
        order = torch.randperm(len(others)).repeat(-(-batch.num_graphs // len(others)))
        taken = others[order[: batch.num_graphs]]
        swapped = {name: column[taken.to(column.device)].to(batch.x.device) for name, column in self.ligands.items()}
        return replace(batch, y=torch.zeros_like(batch.y), columns={**batch.columns, **swapped})


def _ligands(file: ArrayFile) -> dict[str, Tensor]:
    """Every ligand padded to the largest, so that a graph has one row of each column."""
    starts, proteins = file.starts("ptr_lig"), len(file.starts("ptr")) - 1
    size = torch.from_numpy(np.diff(starts))
    if len(size) != proteins:
        raise ShiftproofError(f"{file.path}: {len(size)} ligands for {proteins} proteins")
    told = torch.from_numpy(file.table("x_lig", starts[-1], CHARGE + 1)).float()
    kind = _kinds(told[:, 0], ATOMS, "ligand atoms", file)
    real = torch.arange(int(size.max())) < size.unsqueeze(1)

    def padded(values: Tensor) -> Tensor:
        return values.new_zeros((*real.shape, *values.shape[1:])).masked_scatter_(
            real.view(*real.shape, *[1] * (values.dim() - 1)).expand(*real.shape, *values.shape[1:]), values
        )

    return {
        "ligand_kind": padded(kind.to(torch.int16)),
        "ligand_charge": padded(told[:, CHARGE]),
        "ligand_pos": padded(torch.from_numpy(file.table("pos_lig", starts[-1], 3)).float()),
        "ligand_size": size,
    }


def _kinds(numbers: Tensor, count: int, what: str, file: ArrayFile) -> Tensor:
    """Numbers of kinds, of which there are `count`."""
    bad = ((numbers < 0) | (numbers >= count) | (numbers != numbers.floor())).nonzero()
    if len(bad):
        found = f"{float(numbers[bad[0]]):g} in row {int(bad[0])}"
        raise ShiftproofError(f"{file.path}: the kinds of {what} are 0 to {count - 1}, not {found}")
    return numbers.long()


def _open(name: str, title: str) -> ArrayFile:
    path = find((f"{name}/{name}.npz", f"{name}.npz"), what=f"{title} (made from the authors' file, see {_MADE})")
    return ArrayFile(path, title, f"; {_MADE} says how it is made")


def _numbers(file: ArrayFile, part: str, columns: int) -> Tensor:
    """An array with one row for each point."""
    return torch.from_numpy(file.table(part, file.starts("ptr")[-1], columns)).float()


def _labels(file: ArrayFile) -> Tensor:
    return torch.from_numpy(file.column("y", len(file.starts("ptr")) - 1)).float()


def _dataset(
    name: str,
    title: str,
    file: ArrayFile,
    pos: Tensor,
    neighbours: Neighbours,
    y: Tensor,
    **more: Any,
) -> Dataset:
    """The clouds of a file in the file's split; where it says no more, points are true in positive clouds alone."""
    starts = file.starts("ptr")
    sizes = torch.from_numpy(np.diff(starts))
    truth = more.pop("truth", None)
    if truth is None:
        marked = torch.from_numpy(file.column("node_label", starts[-1]) > 0)
        truth = marked & torch.repeat_interleave(y > 0, sizes)
    rows = {split: torch.from_numpy(file.positions(key, len(sizes))) for split, key in _SPLITS.items()}
    clouds = point_graphs(pos, sizes, neighbours, truth=truth, y=y, **more)
    return Dataset(
        {split: clouds[chosen] for split, chosen in rows.items()},
        name=name,
        task="binary",
        provenance=f"{title} of the LRI collection ({file.path.name})",
    )


_SPLITS = {"train": "train", "val": "valid", "test": "test"}
