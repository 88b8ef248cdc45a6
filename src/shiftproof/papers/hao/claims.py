"""What the HAO paper claims of its attacks.

Source: docs/papers/hao.md#table-untargeted, #table-average, #what-counts-as-reproduced.
"""

from __future__ import annotations

from shiftproof.sweeps.claims import Claim, Judge, Pick, better, every

ATTACKS = ("pgd", "metagia", "agia", "tdgia", "atdgia")


_MLP = Pick("mlp", {"hao": 0.0, "column": "mlp"})


def _plain(attack: str, column: str) -> Pick:
    return Pick(attack, {"hao": 0.0, "column": column})


def _of_every_attack(hao: str, column: str) -> Judge:
    """Defences keep less accuracy under every attack with HAO than without."""
    hidden = {name: Pick(name, {"hao": hao, "column": column}) for name in ATTACKS}
    return every(*(better(_plain(name, column), pick) for name, pick in hidden.items()))


def zoo(hao: str) -> tuple[Claim, ...]:
    """The claims on attacks whose weight of HAO is "chosen" by the attacker or the "published" one."""
    average, homo = (Pick("pgd", {"hao": hao, "column": column}) for column in ("average", "homo"))
    return (
        Claim("HAO strengthens every attack against the best homophily defender", _of_every_attack(hao, "homo")),
        Claim("HAO strengthens every attack against the best robust model", _of_every_attack(hao, "robust")),
        Claim("HAO strengthens every attack against the best combination", _of_every_attack(hao, "combo")),
        Claim(
            "HAO takes 3 points from the average of all defences under PGD",
            better(_plain("pgd", "average"), average, by=0.03),
        ),
        Claim(
            "Without HAO the best homophily defender loses less than 5 points to PGD",
            better(_plain("pgd", "homo"), _plain("clean", "homo"), by=-0.05),
        ),
        Claim("With HAO it loses more than 15 points to PGD", better(_plain("clean", "homo"), homo, by=0.15)),
        Claim(
            "With HAO every attack brings the best homophily defender below the MLP",
            every(*(better(_MLP, Pick(name, {"hao": hao, "column": "homo"})) for name in ATTACKS)),
        ),
    )


ZOO, ZOO_PUBLISHED = zoo("chosen"), zoo("published")
