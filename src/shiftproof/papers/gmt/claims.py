"""What the GMT paper claims of its tables (docs/papers/gmt.md#table-explanation, #table-prediction)."""

from __future__ import annotations

from collections.abc import Callable

from shiftproof.sweeps.claims import Claim, Judge, Pick, best, better, every

SPMOTIF = tuple(f"spmotif-gsat:b={b},edge_ones=True" for b in (0.5, 0.7, 0.9))
GSAT_UNDER_THE_SECOND_STAGE = (
    "The gain is of the extension, not of the second stage: GMT-sam beats GSAT's extractor under that stage"
)
NETWORKS: dict[str, dict[str, str]] = {"GIN": {}, "PNA": {"protocol": "gmt-pna"}}


def _with_both(judge: Callable[[Callable[[str], Pick]], Judge]) -> Judge:
    """A judgement of both networks."""
    return every(*(judge(lambda method, n=network: Pick(method, n)) for network in NETWORKS.values()))


TABLE1 = (
    Claim(
        "GMT-sam explains better than GSAT on average, with GIN and with PNA",
        _with_both(lambda pick: better(pick("gmt-sam"), pick("gsat"))),
    ),
    Claim(
        "GMT-lin explains better than GSAT on average, with GIN and with PNA",
        _with_both(lambda pick: better(pick("gmt-lin"), pick("gsat"))),
    ),
    Claim(
        "GMT-sam explains better than post-hoc explainers on every data set",
        _with_both(
            lambda pick: every(
                better(pick("gmt-sam"), pick("gnnexplainer"), everywhere=True),
                better(pick("gmt-sam"), pick("pgexplainer"), everywhere=True),
            )
        ),
    ),
    Claim(
        "GMT-sam has the best average of all explanations",
        _with_both(
            lambda pick: best(
                pick("gmt-sam"), tuple(pick(n) for n in ("gsat", "gmt-lin", "gnnexplainer", "pgexplainer", "dir"))
            )
        ),
    ),
    Claim(
        "On Spurious-Motif with GIN, GMT-sam beats GSAT by more than 5 points",
        better(Pick("gmt-sam"), Pick("gsat"), SPMOTIF, by=0.05),
    ),
)
TABLE2 = (
    Claim(
        "GMT-sam predicts better than GSAT on every data set, with GIN and with PNA",
        _with_both(lambda pick: better(pick("gmt-sam"), pick("gsat"), everywhere=True)),
    ),
    Claim(
        "GMT-sam has the best average of all methods, with GIN and with PNA",
        _with_both(lambda pick: best(pick("gmt-sam"), tuple(pick(n) for n in ("erm", "gsat", "gmt-lin", "dir")))),
    ),
    Claim(
        "On Spurious-Motif with GIN, GMT-sam beats GSAT by more than 5 points",
        better(Pick("gmt-sam"), Pick("gsat"), SPMOTIF, by=0.05),
    ),
    Claim(
        GSAT_UNDER_THE_SECOND_STAGE,
        better(Pick("gmt-sam"), Pick("gsat-min0"), SPMOTIF),
    ),
)
