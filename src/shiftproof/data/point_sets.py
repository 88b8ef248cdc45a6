"""Published point clouds: SynMol in space, ActsTrack, Tau3Mu and PLBind.

The authors' processed files are pickles, which are not opened here; `docs/point-clouds.md` has the line that makes an
npz file of each. Its arrays hold all clouds one after the other: `pos`, `x`, `y` and `node_label`, with `ptr` where
each cloud starts, and the clouds of the split in `train`, `valid` and `test`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.attribution import synmol
from shiftproof.data.conformers import POSITIONS
from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.loading import named_options
from shiftproof.data.points import Neighbours, point_graphs
from shiftproof.data.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.registry import register

SYNMOL_SCALE = 5.0  # of places in ångström, spec gmt 7.2
ACTSTRACK_SCALE = 100 / 2955.5  # spec gmt 7.2
AFFINITY = 10e-9  # mol/l, spec gmt 6.11: what binds tighter is positive
RESIDUES, ATOMS = 38, 119  # kinds, spec gmt 6.11
CHARGE = 16  # the column of x_lig after the categorical ones, spec gmt 6.11
_ALWAYS = ("pos", "node_label", "ptr", "train", "valid", "test")


@register("synmol-3d", tags=("graphs", "molecules", "files", "points", "ground-truth"))
def synmol_3d(seed: int = 0, conformer_seed: int = 0) -> Dataset:
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
    part, path = _read("actstrack", "ActsTrack")
    pos = torch.from_numpy(part["pos"]).float() * ACTSTRACK_SCALE
    return _dataset("actstrack", "ActsTrack", part, path, pos, Neighbours(k=5, unit=True), _labels(part, path))


@register("tau3mu", tags=("graphs", "files", "points", "ground-truth"))
def tau3mu() -> Dataset:
    """Tau3Mu: 129,687 events of muon hits, did a tau decay into three muons; their hits are truth (needs its file).

    Places are pseudorapidity and azimuth, the feature is the bending angle; hits within distance 1 are joined.
    """
    part, path = _read("tau3mu", "Tau3Mu", ("x",))
    pos, x = torch.from_numpy(part["pos"]).float(), torch.from_numpy(part["x"]).float()
    return _dataset("tau3mu", "Tau3Mu", part, path, pos, Neighbours(k=None, radius=1.0), _labels(part, path), x=x)


@register("plbind", tags=("graphs", "files", "points", "ground-truth"))
def plbind() -> Dataset:
    """PLBind: 10,891 proteins with a ligand, is its affinity below 10 nM; pocket residues are truth (needs its file).

    A node is a residue (type, accessible surface, B-factor) at its alpha carbon, joined to the five nearest. Residues
    in contact with the ligand are truth as well where it binds. The ligand lies in the columns `ligand_kind` (atomic
    number), `ligand_charge`, `ligand_pos` and `ligand_size`, which networks with `context=119` read.
    """
    more = ("x", "affinity", "contact_label", "x_lig", "pos_lig", "ptr_lig")
    part, path = _read("plbind", "PLBind", more)
    y = torch.from_numpy(part["affinity"].reshape(-1) < AFFINITY).float()
    sizes = torch.from_numpy(np.diff(part["ptr"]))
    binds = torch.repeat_interleave(y > 0, sizes)
    truth = torch.from_numpy(part["node_label"].reshape(-1) > 0)
    truth |= binds & torch.from_numpy(part["contact_label"].reshape(-1) > 0)
    kind = torch.from_numpy(part["x"][:, 0]).long()
    if int(kind.min()) < 0 or int(kind.max()) >= RESIDUES:
        raise ShiftproofError(f"{path}: the kinds of residues are 0 to {RESIDUES - 1}, not up to {int(kind.max())}")
    x = torch.cat([torch.nn.functional.one_hot(kind, RESIDUES), torch.from_numpy(part["x"][:, 1:])], 1).float()
    pos = torch.from_numpy(part["pos"]).float()
    columns = _ligands(part, path)
    return _dataset("plbind", "PLBind", part, path, pos, Neighbours(k=5), y, x=x, truth=truth, columns=columns)


def _ligands(part: Mapping[str, np.ndarray], path: Path) -> dict[str, Tensor]:
    """Every ligand padded to the largest, so that a graph has one row of each column."""
    size = torch.from_numpy(np.diff(part["ptr_lig"]))
    if len(size) != len(part["ptr"]) - 1:
        raise ShiftproofError(f"{path}: {len(size)} ligands for {len(part['ptr']) - 1} proteins")
    kind = torch.from_numpy(part["x_lig"][:, 0])
    if float(kind.min()) < 0 or float(kind.max()) >= ATOMS:
        raise ShiftproofError(f"{path}: the kinds of ligand atoms are 0 to {ATOMS - 1}, not up to {int(kind.max())}")
    real = torch.arange(int(size.max())) < size.unsqueeze(1)

    def padded(values: Tensor) -> Tensor:
        return values.new_zeros((*real.shape, *values.shape[1:])).masked_scatter_(
            real.view(*real.shape, *[1] * (values.dim() - 1)).expand(*real.shape, *values.shape[1:]), values
        )

    return {
        "ligand_kind": padded(kind.to(torch.int16)),
        "ligand_charge": padded(torch.from_numpy(part["x_lig"][:, CHARGE]).float()),
        "ligand_pos": padded(torch.from_numpy(part["pos_lig"]).float()),
        "ligand_size": size,
    }


def _read(name: str, title: str, more: tuple[str, ...] = ()) -> tuple[dict[str, np.ndarray], Path]:
    """The arrays of a file, all there and of lengths that fit each other."""
    file = f"{name}.npz"
    path = find((f"{name}/{file}", file), what=f"{title} (made from the authors' file, see docs/point-clouds.md)")
    try:
        with np.load(path, allow_pickle=False) as archive:
            part = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError) as problem:
        raise ShiftproofError(f"{path} is not {title} or is damaged ({problem})") from None
    for key in (*_ALWAYS, *more):
        if key not in part:
            raise ShiftproofError(f"{path} has no array '{key}'; docs/point-clouds.md says how it is made")
    points, clouds = int(part["ptr"][-1]), len(part["ptr"]) - 1
    for key in ("pos", "node_label", *(k for k in ("x", "contact_label") if k in more)):
        if len(part[key]) != points:
            raise ShiftproofError(f"{path}: '{key}' has {len(part[key])} rows, 'ptr' ends at {points}")
    for key in ("train", "valid", "test"):
        if len(part[key]) and not 0 <= int(part[key].min()) <= int(part[key].max()) < clouds:
            raise ShiftproofError(f"{path}: '{key}' names clouds from 0 to {clouds - 1}, and others")
    return part, path


def _labels(part: Mapping[str, np.ndarray], path: Path) -> Tensor:
    if "y" not in part or part["y"].size != len(part["ptr"]) - 1:
        raise ShiftproofError(f"{path} needs an array 'y' of {len(part['ptr']) - 1} labels")
    return torch.from_numpy(part["y"].reshape(-1)).float()


def _dataset(
    name: str,
    title: str,
    part: Mapping[str, np.ndarray],
    path: Path,
    pos: Tensor,
    neighbours: Neighbours,
    y: Tensor,
    **more: Any,
) -> Dataset:
    """The clouds of a file in the file's split; where it says no more, points are true in positive clouds alone."""
    sizes = torch.from_numpy(np.diff(part["ptr"]).astype(np.int64))
    truth = more.pop("truth", None)
    if truth is None:
        truth = torch.from_numpy(part["node_label"].reshape(-1) > 0) & torch.repeat_interleave(y > 0, sizes)
    clouds = point_graphs(pos, sizes, neighbours, truth=truth, y=y, **more)
    rows = {split: torch.from_numpy(part[key].astype(np.int64)) for split, key in _SPLITS.items()}
    return Dataset(
        {split: clouds[chosen] for split, chosen in rows.items()},
        name=name,
        task="binary",
        provenance=f"{title} of the LRI collection ({path.name})",
    )


_SPLITS = {"train": "train", "val": "valid", "test": "test"}
