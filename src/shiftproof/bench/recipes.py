"""Published tables as lists of runs: what `shiftproof bench NAME` trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftproof.bench.jobs import Job
from shiftproof.registry import register


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a method on a data set; `variant` holds what differs from the method's preset."""

    data: str
    method: str
    variant: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """The runs of one table: its cells, over `seeds` seeds counted from `first_seed`."""

    name: str
    cells: tuple[Cell, ...]
    seeds: int = 5
    first_seed: int = 1
    note: str = ""

    def jobs(self, out: Path, *, seeds: int | None = None, smoke: bool = False, device: str = "auto") -> list[Job]:
        """Every run, seed by seed, so that an unfinished table has whole columns of fewer seeds."""
        last = self.first_seed + (seeds or self.seeds)
        short = {"epochs": 1} if smoke else {}
        return [
            Job(
                data=cell.data,
                method=cell.method,
                seed=seed,
                out=out / folder_name(cell) / f"seed-{seed}",
                settings={**cell.variant, **short},
                variant=dict(cell.variant),
                resume=True,
                device=device,
            )
            for seed in range(self.first_seed, last)
            for cell in self.cells
        ]


def folder_name(cell: Cell) -> Path:
    """Where the runs of a cell lie: the data set with its options, then the method with its variant."""
    data = cell.data.replace(":", "_").replace(",", "_")
    variant = "".join(f"_{key}-{value}" for key, value in cell.variant.items())
    return Path(data) / f"{cell.method}{variant}"


def _cells(data: tuple[str, ...], methods: tuple[str, ...], **variant: Any) -> tuple[Cell, ...]:
    return tuple(Cell(name, method, variant) for name in data for method in methods)


SPMOTIF = tuple(f"spmotif-{kind}:bias={bias}" for kind in ("struc", "mixed") for bias in (0.33, 0.6, 0.9))
BASELINES = ("erm", "asap", "dir", "irm", "vrex", "eiil", "ib-irm", "cnc")
CIGA = ("ciga-v1", "ciga-v2")


@register("ciga-table1", "recipes")
def ciga_table1() -> Recipe:
    """SPMotif with structure and mixed shifts, three biases: accuracy of CIGA and its baselines (spec ciga 8.1)."""
    note = (
        "Epochs are chosen on the validation split. Penalties of IRM, V-REx, EIIL and IB-IRM are 1 (the papers search "
        "them); CNC takes CIGAv1's alpha. compat=reference is the released behaviour of CIGA."
    )
    cells = _cells(SPMOTIF, (*CIGA, *BASELINES, "oracle")) + _cells(SPMOTIF, CIGA, compat="reference")
    return Recipe("ciga-table1", cells, seeds=5, note=note)


@register("ciga-table3", "recipes")
def ciga_table3() -> Recipe:
    """TU graphs that grow at test time: Matthews correlation of CIGA, its baselines and kernels (spec ciga 8.3)."""
    sets = ("nci1", "nci109", "proteins", "dd")
    methods = ("erm", "dir", "irm", *CIGA, "wl-kernel", "gc-kernel")
    return Recipe("ciga-table3", _cells(sets, methods), seeds=10)


@register("ciga-drugood-ec50", "recipes")
def ciga_drugood_ec50() -> Recipe:
    """DrugOOD EC50 by assay, scaffold and size: ROC-AUC of CIGA and its baselines (figures of spec gala 8.2)."""
    sets = tuple(f"drugood-ec50-{domain}" for domain in ("assay", "scaffold", "size"))
    note = "Files curated from ChEMBL 29; the published figures beside them are from ChEMBL 30, so compare with care."
    return Recipe("ciga-drugood-ec50", _cells(sets, ("erm", "irm", "dir", *CIGA)), seeds=3, note=note)
