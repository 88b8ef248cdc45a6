"""What the HAO chapter claims of its attacks (spec hao 8.1, 8.3, 8.7)."""

from __future__ import annotations

from shiftproof.bench.claims import Claim, Judge, Pick, better, every

ATTACKS = ("pgd", "metagia", "agia", "tdgia", "atdgia")


def with_hao(weight: float) -> bool:
    return weight > 0


def without_hao(weight: float) -> bool:
    return weight == 0


def _plain(attack: str, column: str) -> Pick:
    return Pick(attack, {"hao": without_hao, "column": column})


def _hidden(attack: str, column: str) -> Pick:
    return Pick(attack, {"hao": with_hao, "column": column})


def _weaker(column: str, by: float = 0.0) -> Judge:
    """Defences keep less accuracy under every attack with HAO than without."""
    return every(*(better(_plain(name, column), _hidden(name, column), by=by) for name in ATTACKS))


ZOO = (
    Claim("HAO strengthens every attack against the best homophily defender", _weaker("homo")),
    Claim("HAO strengthens every attack against the best robust model", _weaker("robust")),
    Claim("HAO strengthens every attack against the best combination", _weaker("combo")),
    Claim(
        "HAO takes 3 points from the average of all defences under PGD",
        better(_plain("pgd", "average"), _hidden("pgd", "average"), by=0.03),
    ),
    Claim(
        "Without HAO the best homophily defender loses less than 5 points to PGD",
        better(_plain("pgd", "homo"), _plain("clean", "homo"), by=-0.05),
    ),
    Claim(
        "With HAO it loses more than 15 points to PGD", better(_plain("clean", "homo"), _hidden("pgd", "homo"), by=0.15)
    ),
)
