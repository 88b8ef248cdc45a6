"""What the GALA paper claims of its tables (docs/papers/gala.md#table-two-piece, #table-real)."""

from __future__ import annotations

from shiftproof.sweeps.claims import Claim, Pick, all_below, best, better, reaches

WEAK = ("two-piece:a=0.8,b=0.6", "two-piece:a=0.8,b=0.7")
DOMINATING = ("two-piece:a=0.8,b=0.9", "two-piece:a=0.7,b=0.9")
GALA, ERM, CIGA = Pick("gala"), Pick("erm"), Pick("ciga-v1")
OTHERS = tuple(
    Pick(name)
    for name in (
        "erm",
        "irm",
        "vrex",
        "ib-irm",
        "eiil",
        "cnc",
        "xgnn",
        "dir",
        "grea",
        "gsat",
        "cal",
        "moleood",
        "gil",
        "disc",
        "ciga-v1",
        "ciga-v2",
    )
)

TABLE1 = (
    Claim("GALA has the best average of all methods", best(GALA, OTHERS)),
    Claim("Where the shortcut dominates, GALA has the best average by far", best(GALA, OTHERS, DOMINATING)),
    Claim(
        "Where the shortcut dominates, GALA beats CIGA by more than 15 points", better(GALA, CIGA, DOMINATING, by=0.15)
    ),
    Claim("Where the shortcut dominates, all others stay below 60 %", all_below(OTHERS, 0.6, DOMINATING)),
    Claim("Where the shortcut is weak, GALA loses nothing to CIGA (one point)", better(GALA, CIGA, WEAK, by=-0.01)),
    Claim("CIGA beats ERM where the shortcut is weak", better(CIGA, ERM, WEAK, everywhere=True)),
    Claim("GALA reaches its printed average", reaches(GALA)),
)


def _gala(method: str) -> Pick:
    return Pick(method, {"protocol": "gala"})


DRUGOOD = (
    Claim("GALA beats ERM on every shift", better(_gala("gala"), _gala("erm"), everywhere=True)),
    Claim("GALA beats CIGA on every shift", better(_gala("gala"), _gala("ciga-v1"), everywhere=True)),
    Claim(
        "GALA has the best average of all methods",
        best(_gala("gala"), tuple(_gala(n) for n in ("erm", "grea", "gsat", "disc", "moleood", "ciga-v1", "ciga-v2"))),
    ),
)
# the released settings of all three: GALA's other row was searched, and nobody searched the others alike
CMNIST = (
    Claim("GALA beats ERM by more than 30 points", better(_gala("gala"), _gala("erm"), by=0.3)),
    Claim("GALA beats CIGA by more than 30 points", better(_gala("gala"), _gala("ciga-v1"), by=0.3)),
)
