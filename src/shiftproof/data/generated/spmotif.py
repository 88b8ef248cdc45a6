"""SPMotif: the motif decides the class, the base (and the node features) only go along with it in training."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.motifs import BASE_NAMES, MOTIF_NAMES, Plan, build, draw_matching, draw_widths
from shiftproof.data.generated.room import require_room
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.loading import named_options
from shiftproof.data.seeds import stream
from shiftproof.errors import unknown
from shiftproof.ranges import Count, Fraction, Seed
from shiftproof.registry import register

CLASSES = 3
NUMBERS = 30 * 4 + 60 * 4  # a graph at most: 30 nodes in the mean and 60 edges, each with features and truth
LABEL_FLIP = 0.05  # how often the observed label differs from the motif under "piif"
NEUTRAL = (0.33, 0.33, 0.34)  # chances of the constant feature 0, 1 and 2 outside the training split

# Ranges of tree heights, ladder rungs and wheel nodes, both ends included; ciga.md 6.1
SMALL = {"tree": (3, 3), "ladder": (8, 11), "wheel": (15, 19)}
LARGE = {"tree": (3, 5), "ladder": (30, 49), "wheel": (60, 79)}
# released training trees of the classes 1 and 2 are this low, those of class 0 are not (docs/papers/ciga.md#d19)
LOW_TREES = (0, 2)
Attribute = Literal["none", "fiif", "piif"]


@register("spmotif-struc", tags=("graphs", "generated"))
def spmotif_struc(
    bias: Fraction = 0.9,
    seed: Seed = 0,
    attr: Literal["none", "fiif", "piif"] = "none",
    size_shift: bool = True,
    undirected: bool = False,
    train_per_class: Count = 3000,
    val_per_class: Count = 1000,
    test_per_class: Count = 1000,
    uniform_trees: bool = False,
    edge_ones: bool = False,
) -> Dataset:
    """SPMotif with a structural shortcut: in training the base goes with the class in `bias` of the graphs.

    Classes are the motifs cycle, house and crane; bases are trees, ladders and wheels, test bases larger ones
    (`size_shift`). Node features are random, or with `attr` one constant a graph that follows the motif ("fiif") or
    a label that is wrong once in twenty ("piif"). Edges are stored once, from low to high ids, unless `undirected`.
    `uniform_trees` gives every class the same training trees, which the released data does not.
    """
    given = dict(locals())
    return _spmotif("spmotif-struc", spmotif_struc, given)


@register("spmotif-mixed", tags=("graphs", "generated"))
def spmotif_mixed(
    bias: Fraction = 0.9,
    seed: Seed = 0,
    attr: Literal["none", "fiif", "piif"] = "fiif",
    size_shift: bool = True,
    undirected: bool = False,
    train_per_class: Count = 3000,
    val_per_class: Count = 1000,
    test_per_class: Count = 1000,
    uniform_trees: bool = False,
    edge_ones: bool = False,
) -> Dataset:
    """SPMotif with two shortcuts: in training base and node features each go with the class in `bias` of the graphs."""
    given = dict(locals())
    return _spmotif("spmotif-mixed", spmotif_mixed, given)


@register("spmotif-gsat", tags=("graphs", "generated"))
def spmotif_gsat(
    b: Fraction = 0.5,
    seed: Seed = 0,
    tree_heights: Literal["released", "dir"] = "released",
    directed: bool = True,
    train_per_class: Count = 3000,
    val_per_class: Count = 1000,
    test_per_class: Count = 2000,
    edge_ones: bool = False,
) -> Dataset:
    """Spurious-Motif as the interpretability papers use it: 6,000 test graphs, the base goes with the class in `b`.

    `tree_heights="dir"` makes the trees of training and validation equally low for all classes.
    """
    given = dict(locals())
    if tree_heights not in ("released", "dir"):
        raise unknown("option tree_heights of spmotif-gsat:", tree_heights, ("released", "dir"))
    low = {"train": (0, 1, 2), "val": (0, 1, 2)} if tree_heights == "dir" else {"train": (1, 2)}
    splits = {}
    for number, (split, count) in enumerate(
        (("train", train_per_class), ("val", val_per_class), ("test", test_per_class))
    ):
        rng = stream(seed, number)
        label = class_labels(count, "spmotif-gsat")
        graphs = _structure(
            label,
            b if split == "train" else 1 / CLASSES,
            LARGE if split == "test" else SMALL,
            low_trees=low.get(split, ()),
            both_directions=not directed,
            rng=rng,
        )
        splits[split] = _finished(graphs, label, _random_features(graphs, rng), edge_ones)
    return Dataset(
        splits,
        name="spmotif-gsat",
        num_classes=CLASSES,
        provenance="generated (Spurious-Motif, as used by GSAT and GMT)",
        options=named_options(spmotif_gsat, given, always=("b", "seed")),
        value_names={"base": BASE_NAMES, "motif": MOTIF_NAMES},
    )


def class_labels(per_class: int, owner: str) -> np.ndarray:
    """Equally many labels of every class, in turn, so that any slice of a split is balanced."""
    require_room(CLASSES * per_class, NUMBERS, owner)
    return np.arange(CLASSES * per_class) % CLASSES


def _spmotif(name: str, make: object, given: dict) -> Dataset:
    bias, attr, seed = given["bias"], given["attr"], given["seed"]
    if attr not in ("none", "fiif", "piif"):
        raise unknown("attr", str(attr), ("none", "fiif", "piif"), name)
    splits = {}
    for number, split in enumerate(("train", "val", "test")):
        # structure, labels and features have streams of their own: Struc and Mixed of one seed share their graphs
        structure, attribute = (stream(seed, number, part) for part in range(2))
        motif = class_labels(given[f"{split}_per_class"], name)
        training = split == "train"
        graphs = _structure(
            motif,
            bias if training else 1 / CLASSES,
            LARGE if split == "test" and given["size_shift"] else SMALL,
            low_trees=(1, 2) if training and not given["uniform_trees"] else (),
            both_directions=given["undirected"],
            rng=structure,
        )
        label = draw_matching(motif, 1 - LABEL_FLIP, attribute) if attr == "piif" else motif
        if attr == "none":
            x = _random_features(graphs, attribute)
        else:
            follows = label if attr == "piif" else motif
            x = _constant_features(graphs, follows, bias if training else None, attribute)
        splits[split] = _finished(graphs, label, x, given["edge_ones"])
    return Dataset(
        splits,
        name=name,
        num_classes=CLASSES,
        provenance="generated (SPMotif, as released with CIGA)",
        options=named_options(make, given, always=("bias", "seed")),  # type: ignore[arg-type]
        value_names={"base": BASE_NAMES, "motif": MOTIF_NAMES},
    )


def _structure(
    motif: np.ndarray,
    chance: float,
    ranges: dict[str, tuple[int, int]],
    *,
    low_trees: tuple[int, ...],
    both_directions: bool,
    rng: np.random.Generator,
) -> GraphSet:
    base = draw_matching(motif, chance, rng)
    width = draw_widths(base, ranges["tree"], ranges["ladder"], ranges["wheel"], rng)
    low = (base == 0) & np.isin(motif, low_trees)
    width = np.where(low, rng.integers(LOW_TREES[0], LOW_TREES[1] + 1, size=len(base)), width)
    branching = rng.integers(2, 4, size=len(base))
    return build(Plan(base, width, branching, motif), rng, both_directions=both_directions)


def _random_features(graphs: GraphSet, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.random((graphs.num_nodes, 4), dtype=np.float32))


def _constant_features(
    graphs: GraphSet, follows: np.ndarray, chance: float | None, rng: np.random.Generator
) -> torch.Tensor:
    """One constant for each graph: the class it follows with the given chance, or any class where that is None."""
    if chance is None:
        value = rng.choice(CLASSES, p=NEUTRAL, size=len(follows))
    else:
        value = draw_matching(follows, chance, rng)
    flat = torch.repeat_interleave(torch.from_numpy(value.astype(np.float32)), graphs.sizes)
    return flat[:, None].repeat(1, 4)


def _finished(graphs: GraphSet, label: np.ndarray, x: torch.Tensor, edge_ones: bool) -> GraphSet:
    edge_attr = torch.ones(graphs.num_edges, 1) if edge_ones else None
    return replace(graphs, x=x, y=torch.from_numpy(label), edge_attr=edge_attr)
