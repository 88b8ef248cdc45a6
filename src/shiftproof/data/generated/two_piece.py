"""Two-piece graphs: both pieces of a graph go with the label, one as often in every split, the other not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.motifs import BASE_NAMES, MOTIF_NAMES, Plan, build, draw_matching, draw_widths, redraw
from shiftproof.data.generated.spmotif import CLASSES, SMALL, class_labels
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Count, Fraction, Seed
from shiftproof.registry import register

TEST_MATCH = 0.33  # gala.md 6.2: matching 0.33, the others 0.335 each
VALIDATION_STEP = 0.2  # validation is less biased than training by this much
REVERSED = np.array([1, 0, 2])  # label 0 goes with ladder and house, 1 with tree and cycle, 2 with wheel and crane


@register("two-piece", tags=("graphs", "generated"))
def two_piece(
    a: Fraction = 0.8,
    b: Fraction = 0.9,
    seed: Seed = 0,
    directed: bool = True,
    reversed: bool = False,
    train_per_class: Count = 3000,
    val_per_class: Count = 1000,
    test_per_class: Count = 1000,
    inv: Fraction | None = None,
    spu: Fraction | None = None,
) -> Dataset:
    """Two-piece graphs {a, b}: the motif follows the class up to noise 1 - a, the base in `b` of the training graphs.

    With chance 1 - a a motif is drawn anew from all three, so it matches in 1 - 2(1 - a)/3 of the graphs of every
    split; the base matches in `b` of training, `b - 0.2` of validation and a third of test. All node features are 1.
    Edges are stored once, from low to high ids, unless `directed` is false. `reversed` makes the base the invariant
    piece and the motif the shortcut, with ground truth to match. `inv` and `spu` are other names of `a` and `b`.
    """
    a, b = (_one_of(*pair) for pair in (("a", a, "inv", inv, 0.8), ("b", b, "spu", spu, 0.9)))
    given = {name: value for name, value in locals().items() if name not in ("inv", "spu")}
    matching = {"train": b, "val": max(b - VALIDATION_STEP, 1 / 3), "test": TEST_MATCH}
    splits = {}
    for number, (split, chance) in enumerate(matching.items()):
        rng = stream(seed, number)
        label = class_labels(given[f"{split}_per_class"], "two-piece")
        piece = REVERSED[label] if reversed else label
        invariant, spurious = redraw(piece, 1 - a, rng), draw_matching(piece, chance, rng, CLASSES)
        base, motif = (invariant, spurious) if reversed else (spurious, invariant)
        width = draw_widths(base, SMALL["tree"], SMALL["ladder"], SMALL["wheel"], rng)
        branching = rng.integers(2, 4, size=len(base))
        plan = Plan(base, width, branching, motif)
        graphs = build(plan, rng, both_directions=not directed, y=torch.from_numpy(label))
        splits[split] = _truth_on_base(graphs) if reversed else graphs
    return Dataset(
        splits,
        name="two-piece",
        num_classes=CLASSES,
        provenance="generated (two-piece graphs, as released with GALA)",
        options=named_options(two_piece, given, always=("a", "b", "seed")),
        value_names={"base": BASE_NAMES, "motif": MOTIF_NAMES},
    )


def _one_of(name: str, value: float, other: str, again: float | None, default: float) -> float:
    if again is not None and value not in (default, again):
        raise ShiftproofError(f"options '{name}' and '{other}' of two-piece are one: {value} or {again}, not both")
    return value if again is None else again


def _truth_on_base(graphs: GraphSet) -> GraphSet:
    in_base = graphs.node_columns["role"] == 0
    return replace(graphs, node_truth=in_base, edge_truth=in_base[graphs.edge_index].all(0))
