"""Figures printed in the FeAT paper, in per cent, to stand beside ours.

Source: docs/papers/feat.md#table-coloredmnist, #table-rounds.
"""

from __future__ import annotations

_COLUMNS = tuple((data, features) for data in ("cmnist", "cmnist-m") for features in ("none", "erm", "bonsai", "ifeat"))
# docs/papers/feat.md#table-coloredmnist: worst accuracy of the three test environments; features "none" are ERM-NF,
# trained with the head
_HEADLINE = {
    "erm": "17.14 0.73 12.40 0.32 11.21 0.49 17.27 2.55 73.06 0.71 73.75 0.49 70.95 0.93 76.05 1.45",
    "irm": "67.29 0.99 59.81 4.46 70.28 0.72 70.57 0.68 76.89 3.25 73.84 0.56 76.71 4.10 82.33 1.77",
    "vrex": "68.62 0.73 65.96 1.29 70.31 0.66 70.82 0.59 83.52 2.52 81.20 3.27 82.61 1.76 84.70 0.69",
    "irmx": "67.00 1.95 64.05 0.88 70.46 0.42 70.78 0.61 81.61 1.98 75.97 0.88 80.28 1.62 84.34 0.97",
    "ib-irm": "56.09 2.04 59.81 4.46 70.28 0.72 70.57 0.68 75.81 0.63 73.84 0.56 76.71 4.10 82.33 1.77",
    "clove": "58.67 7.69 65.78 0.00 65.57 3.02 65.78 2.68 75.66 10.6 74.73 0.36 72.73 1.18 75.12 1.08",
    "iga": "51.22 3.67 62.43 3.06 70.17 0.89 67.11 3.40 74.20 2.45 73.74 0.48 74.72 3.60 83.46 2.17",
    "fishr": "69.38 0.39 67.74 0.90 68.75 1.10 70.56 0.97 77.29 1.61 82.23 1.35 84.19 0.66 84.26 0.93",
}
# docs/papers/feat.md#table-rounds, by round; what the paper calls retention is divided by the number of rounds before
_ROUNDS = {
    ("cmnist", "train_accuracy"): "85.08 0.14 71.87 0.96 84.93 1.26",
    ("cmnist", "retention_reported"): "- - 88.11 4.28 43.82 0.59",
    ("cmnist", "ood_accuracy"): "11.08 0.30 70.64 0.62 10.07 0.26",
    ("cmnist-m", "train_accuracy"): "88.63 0.15 74.25 1.23 86.07 0.36 77.29 0.24",
    ("cmnist-m", "retention_reported"): "- - 85.91 1.78 48.05 1.39 29.09 1.15",
    ("cmnist-m", "ood_accuracy"): "73.50 0.41 17.32 2.69 85.40 0.54 12.48 2.85",
}
Figure = dict[str, float]


def printed_head(data: str, features: str, objective: str) -> Figure | None:
    """The paper's figure for an objective on features of a data set, as fractions."""
    if (data, features) not in _COLUMNS or objective not in _HEADLINE:
        return None
    return _at(_HEADLINE[objective], _COLUMNS.index((data, features)))


def printed_round(data: str, metric: str, number: int) -> Figure | None:
    """The paper's figure of a round, counted from 1, as fractions."""
    text = _ROUNDS.get((data, metric), "")
    return _at(text, number - 1) if 2 * number <= len(text.split()) else None


def _at(text: str, place: int) -> Figure | None:
    mean, std = text.split()[2 * place : 2 * place + 2]
    return None if mean == "-" else {"mean": float(mean) / 100, "std": float(std) / 100}
