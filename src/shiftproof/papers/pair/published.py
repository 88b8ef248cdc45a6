"""Figures printed in the PAIR paper, to stand beside ours."""

from __future__ import annotations

from shiftproof.registry import register
from shiftproof.sweeps.published import Printed

# docs/papers/pair.md#table-coloredmnist, per cent: least accuracy over the test environments of ColoredMNIST and of its
# modified version
CMNIST: dict[str, tuple[float, float, float, float]] = {
    "erm": (17.1, 0.9, 73.3, 0.9),
    "irm": (67.3, 1.9, 76.8, 3.2),
    "vrex": (68.6, 0.7, 82.9, 1.3),
    "irmx": (65.8, 2.9, 81.6, 2.0),
    "pair all": (68.6, 0.9, 83.7, 1.2),
    "pair featurizer": (68.6, 0.8, 83.7, 1.2),
    "pair head": (69.2, 0.7, 83.7, 1.2),
    "oracle": (72.2, 0.2, 86.5, 0.3),
}
# docs/papers/pair.md#table-pairs, #table-composite: the same measure; scheme "alone", "linear", "o" (PAIR-o) and "o+s"
# (with PAIR-s). The Fishr rows with PAIR are those of #table-composite, since #table-pairs contradicts its own
# differences.
COMPOSITE: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("ib", "alone"): (55.48, 3.67, 76.01, 0.58),
    ("ib", "linear"): (56.09, 2.04, 75.66, 10.6),
    ("ib", "o"): (61.12, 2.33, 83.30, 3.00),
    ("ib", "o+s"): (60.69, 2.26, 83.70, 1.79),
    ("vrex", "alone"): (68.62, 0.73, 83.52, 2.52),
    ("vrex", "linear"): (66.19, 1.41, 81.75, 1.68),
    ("vrex", "o"): (68.89, 1.13, 83.80, 1.60),
    ("vrex", "o+s"): (69.16, 0.76, 83.96, 1.65),
    ("fishr", "alone"): (69.38, 0.39, 77.29, 1.61),
    ("fishr", "linear"): (66.20, 2.31, 81.07, 3.98),
    ("fishr", "o"): (66.45, 0.90, 82.70, 1.09),
    ("fishr", "o+s"): (67.57, 0.81, 83.22, 2.10),
    ("clove", "alone"): (55.55, 9.97, 74.20, 2.45),
    ("clove", "linear"): (66.35, 1.51, 77.70, 1.00),
    ("clove", "o"): (64.99, 2.29, 75.70, 1.05),
    ("clove", "o+s"): (65.55, 2.17, 77.29, 1.55),
    ("iga", "alone"): (58.67, 7.69, 76.27, 1.01),
    ("iga", "linear"): (51.22, 3.67, 74.20, 2.45),
    ("iga", "o"): (66.17, 2.34, 81.84, 3.09),
    ("iga", "o+s"): (66.51, 0.78, 82.12, 3.04),
    ("sd", "alone"): (62.31, 1.54, 76.73, 0.90),
    ("sd", "linear"): (62.48, 1.25, 81.24, 0.69),
    ("sd", "o"): (59.52, 6.12, 82.82, 0.64),
    ("sd", "o+s"): (65.54, 0.91, 83.57, 0.81),
    ("ib+vrex", "linear"): (52.61, 1.56, 63.84, 1.08),
    ("ib+vrex", "o"): (68.35, 1.73, 81.25, 3.08),
    ("ib+vrex", "o+s"): (69.05, 0.76, 83.11, 1.46),
    ("ib+fishr", "linear"): (51.91, 1.26, 68.88, 3.22),
    ("ib+fishr", "o"): (59.70, 12.7, 74.59, 1.11),
    ("ib+fishr", "o+s"): (66.98, 2.66, 75.91, 3.50),
    ("vrex+fishr", "linear"): (64.83, 2.95, 79.34, 5.77),
    ("vrex+fishr", "o"): (67.96, 1.60, 81.44, 2.24),
    ("vrex+fishr", "o+s"): (68.19, 1.58, 81.89, 3.01),
    ("ib+vrex+fishr", "linear"): (50.00, 0.32, 69.60, 2.33),
    ("ib+vrex+fishr", "o"): (66.89, 1.80, 83.46, 3.10),
    ("ib+vrex+fishr", "o+s"): (68.59, 1.29, 85.30, 0.64),
}
# docs/papers/pair.md#table-selection-average, #table-selection-domains, training-domain validation: accuracy on the
# reversed domain of DomainBed's ColoredMNIST, by plain validation and by PAIR-s. Another network, another construction:
# the gain may be compared, not the figures.
SELECTION: dict[str, tuple[float, float]] = {
    "erm": (10.0, 10.0),
    "groupdro": (9.9, 13.0),
    "irm": (9.9, 24.2),
    "fishr": (9.9, 22.6),
}


def printed(row: tuple[float, float, float, float] | None, column: int) -> dict[str, float] | None:
    """The mean and deviation in a column (0: standard, 1: modified) as fractions."""
    if row is None:
        return None
    mean, std = row[2 * column : 2 * column + 2]
    return {"mean": mean / 100, "std": std / 100}


@register("pair", "printed")
def of_plain_methods() -> Printed:
    """The least accuracy over the test environments of ColoredMNIST, of the methods that are also trained alone."""
    figures = {}
    for first, data in ((0, "cmnist"), (2, "cmnist-m")):
        for method in ("erm", "irm", "vrex", "irmx"):
            mean, std = CMNIST[method][first : first + 2]
            figures[data, method, "worst_group"] = (round(mean / 100, 6), round(std / 100, 6))
    return Printed(figures)
