"""Attacks on node classifiers, found by name and composed of parts.

`attack` runs one; an attack is a choice of edges (`RandomEdges`, `VulnerableEdges`, `FlippedEdges`, `AdaptiveEdges`,
`LayeredEdges`), an update of features (`SignPGD`, `SmoothSine`, `ClippedAdam`) and, where nodes come in rounds, a
`Sequential`. Your own is any combination:

>>> from shiftproof.robustness.attacks import InjectionAttack, Sequential, SmoothSine, attack
>>> mine = InjectionAttack(update=SmoothSine(steps=100), start="normal", sequential=Sequential(0.5))
>>> attack(mine, graph, budget=budget)                                               # doctest: +SKIP
"""

from shiftproof.robustness.attacks import named as named  # registers the injection attacks
from shiftproof.robustness.attacks.attacking import Attack, attack, build_attack
from shiftproof.robustness.attacks.choices import RandomEdges, VulnerableEdges
from shiftproof.robustness.attacks.layered import LayeredEdges
from shiftproof.robustness.attacks.optimised import AdaptiveEdges, FlippedEdges
from shiftproof.robustness.attacks.rounds import InjectionAttack, Sequential
from shiftproof.robustness.attacks.situation import Situation
from shiftproof.robustness.attacks.updates import ClippedAdam, SignPGD, SmoothSine

__all__ = [
    "AdaptiveEdges",
    "Attack",
    "ClippedAdam",
    "FlippedEdges",
    "InjectionAttack",
    "LayeredEdges",
    "RandomEdges",
    "Sequential",
    "SignPGD",
    "Situation",
    "SmoothSine",
    "VulnerableEdges",
    "attack",
    "build_attack",
]
