"""What the PAIR paper claims of ColoredMNIST (docs/papers/pair.md#table-coloredmnist)."""

from __future__ import annotations

from shiftproof.sweeps.claims import Claim, Pick, all_below, better, every, reaches

SETS = ("cmnist", "cmnist-m")
PAIR_BEATS_THE_SUM = "PAIR-o beats adding the same terms up (IRMX) on both versions"
KINDS = {part: Pick("irmx", {"balance": "pair", "parameters": part}) for part in ("all", "featurizer", "head")}
IRM, VREX, IRMX = Pick("irm"), Pick("vrex"), Pick("irmx")

CMNIST = (
    Claim(
        PAIR_BEATS_THE_SUM,
        every(*(better(kind, IRMX, SETS, everywhere=True) for kind in KINDS.values())),
    ),
    Claim(
        "PAIR-o beats IRMv1 on both versions",
        every(*(better(kind, IRM, SETS, everywhere=True) for kind in KINDS.values())),
    ),
    Claim("PAIR-o on the head beats V-REx on both versions", better(KINDS["head"], VREX, SETS, everywhere=True)),
    Claim(
        "Adding IRMv1 to V-REx with fixed weights does harm on both versions", better(VREX, IRMX, SETS, everywhere=True)
    ),
    Claim("ERM follows the colour: below 20 % on the standard version", all_below((Pick("erm"),), 0.2, ("cmnist",))),
    Claim("PAIR-o on the head reaches its printed average", reaches(KINDS["head"], SETS)),
)
