"""What the FeAT paper claims of ColoredMNIST (docs/papers/feat.md#table-coloredmnist)."""

from __future__ import annotations

from shiftproof.sweeps.claims import Claim, Judge, Pick, all_below, better, every

SETS = ("cmnist:validation=5000", "cmnist-m:validation=5000")
HEADS = ("irm", "vrex", "irmx", "fishr")


def _head(features: str, objective: str) -> Pick:
    return Pick("feat-heads", {"features": features, "objective": objective, "selection": "val"})


def _richer(than: str) -> Judge:
    return every(*(better(_head("ifeat", name), _head(than, name), SETS) for name in HEADS))


CMNIST = (
    Claim("Heads of IRMv1, V-REx, IRMX and Fishr do better on FeAT's features than on ERM's", _richer("erm")),
    Claim("Heads of IRMv1, V-REx, IRMX and Fishr do better on FeAT's features than on Bonsai's", _richer("bonsai")),
    Claim(
        "On the standard version IRMv1 gains more than 5 points from FeAT's features",
        better(_head("ifeat", "irm"), _head("erm", "irm"), SETS[:1], by=0.05),
    ),
    Claim(
        "Rich features do not help ERM: its head follows the colour on the standard version (below 40 %)",
        all_below((_head("ifeat", "erm"),), 0.4, SETS[:1]),
    ),
)
