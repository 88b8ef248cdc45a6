"""What others report for a GIN without pre-training on scaffold splits of MoleculeNet, as the range it spans.

ROC-AUC in per cent, mean and deviation. "OGB" figures are of the same split as ours, molecule by molecule. TorchDrug's
are of the same kind (80/10/10 by scaffold, ten draws); its table does not name the network, its tutorial takes a GIN.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reported:
    """One reported figure and where it stands."""

    mean: float
    std: float
    source: str


OGB = "GIN on OGB's leaderboard, ogb.stanford.edu/docs/leader_graphprop"
DIGRAF = "GIN with ReLU on OGB's sets, table 3 of DiGRAF, NeurIPS 2024"
TORCHDRUG = "no pre-training, torchdrug.ai/docs/benchmark/pretrain.html"
GMT = "GIN trained by ERM, docs/papers/gmt.md#table-prediction"

GIN = {
    "hiv": (Reported(75.58, 1.40, OGB), Reported(76.69, 1.25, GMT), Reported(76.4, 1.6, TORCHDRUG)),
    "bace": (Reported(72.97, 4.00, DIGRAF), Reported(66.5, 9.0, TORCHDRUG)),
    "bbbp": (Reported(67.1, 2.9, TORCHDRUG),),
}


def spanned(name: str) -> tuple[float, float]:
    """From the lowest mean less its deviation to the highest mean plus its deviation, as fractions."""
    figures = GIN[name]
    return min(f.mean - f.std for f in figures) / 100, max(f.mean + f.std for f in figures) / 100
