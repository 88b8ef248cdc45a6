"""What the FeAT paper claims of ColoredMNIST (docs/papers/feat.md#table-coloredmnist), and tried elsewhere."""

from __future__ import annotations

from shiftproof.sweeps.claims import Claim, Judge, Pick, better, every

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
)
STYLES = tuple(f"pacs64:test={style}" for style in ("art_painting", "cartoon", "photo", "sketch"))


def _on_every(objectives: tuple[str, ...], sets: tuple[str, ...] | None) -> Judge:
    heads = ((_head("ifeat", name), _head("erm", name)) for name in objectives)
    return every(*(better(rich, plain, sets, everywhere=True) for rich, plain in heads))


# the general claim, on data that the paper does not print: it is held against both kinds, where FeAT does well and not
PACS = (
    Claim(
        "Tried on PACS, which the paper does not print: heads of GroupDRO and IRMX do better on FeAT's features than "
        "on ERM's, whichever style is held out",
        _on_every(("groupdro", "irmx"), STYLES),
    ),
)
GRAPHS = (
    Claim(
        "Tried on graphs, which the paper does not print: heads of IRMv1, V-REx, IRMX and GroupDRO do better on FeAT's "
        "features than on ERM's",
        _on_every(("irm", "vrex", "irmx", "groupdro"), None),
    ),
)
