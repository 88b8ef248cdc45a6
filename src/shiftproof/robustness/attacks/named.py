"""The injection attacks by name, each made of its parts with its published settings (docs/papers/hao.md#injection)."""

from __future__ import annotations

from typing import Any

from shiftproof.ranges import Count, Fraction, NonNegative, Positive, Share, Whole
from shiftproof.registry import register
from shiftproof.robustness.attacks.choices import RandomEdges, VulnerableEdges
from shiftproof.robustness.attacks.layered import LayeredEdges, Shape
from shiftproof.robustness.attacks.objective import Mask
from shiftproof.robustness.attacks.optimised import AdaptiveEdges, FlippedEdges
from shiftproof.robustness.attacks.rounds import InjectionAttack, Sequential
from shiftproof.robustness.attacks.updates import (
    PATIENCE,
    RATE,
    STEPS,
    ClippedAdam,
    SignPGD,
    SmoothSine,
    Untouched,
)


def _sign(steps: int, rate: float, patience: int | None, **others: Any) -> SignPGD:
    return SignPGD(steps, rate, patience, **others)


@register("pgd", "attacks", tags=("injection",))
def pgd(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    mask: Mask = "target",
    best: bool = False,
) -> InjectionAttack:
    """Random edges; features by projected sign ascent."""
    return InjectionAttack(RandomEdges(), _sign(steps, rate, patience, mask=mask, best=best))


@register("fgsm", "attacks", tags=("injection",))
def fgsm(*, steps: Whole = STEPS, rate: Positive = RATE, patience: Whole | None = PATIENCE) -> InjectionAttack:
    """Random edges; features by sign ascent from zero."""
    return InjectionAttack(RandomEdges(), _sign(steps, rate, patience), start="zeros")


@register("rnd", "attacks", tags=("injection",))
def rnd() -> InjectionAttack:
    """Random edges and random features, nothing optimised."""
    return InjectionAttack(RandomEdges(), Untouched())


@register("speit", "attacks", tags=("injection",))
def speit(
    *, steps: Whole = STEPS, rate: Positive = RATE, patience: Whole | None = PATIENCE, shape: Shape = "auto"
) -> InjectionAttack:
    """Targets shared out among injected nodes in layers; features by Adam, clipped."""
    return InjectionAttack(LayeredEdges(shape), ClippedAdam(steps, rate, patience), start="zeros")


@register("tdgia", "attacks", tags=("injection",))
def tdgia(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    step: Share = 0.2,
    k1: NonNegative = 0.1,
    k2: NonNegative = 0.9,
    symmetric: bool = False,
    best: bool = False,
) -> InjectionAttack:
    """Edges to topologically weak targets, in rounds; features by a smooth sine."""
    update = SmoothSine(steps, rate, patience, symmetric=symmetric, best=best)
    return InjectionAttack(VulnerableEdges("tdgia", k1, k2), update, "normal", Sequential(step))


@register("atdgia", "attacks", tags=("injection",))
def atdgia(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    step: Share = 0.2,
    k1: NonNegative = 0.1,
    k2: NonNegative = 0.9,
    symmetric: bool = False,
    best: bool = False,
) -> InjectionAttack:
    """Edges to targets that are almost turned, none to those that are, in rounds; features by a smooth sine."""
    update = SmoothSine(steps, rate, patience, symmetric=symmetric, best=best)
    return InjectionAttack(VulnerableEdges("atdgia", k1, k2), update, "normal", Sequential(step))


@register("metagia", "attacks", tags=("injection",))
def metagia(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    step: Share = 1.0,
    epochs: Whole | None = None,
    branching: bool = False,
    best: bool = False,
) -> InjectionAttack:
    """Edges flipped along their gradient, features anew after every flip."""
    update = _sign(steps, rate, patience, best=best)
    return InjectionAttack(FlippedEdges(epochs, update), update, "normal", Sequential(step, branching))


@register("agia", "attacks", tags=("injection",))
def agia(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    rounds: Count = 2,
    edge_steps: Whole = 300,
    edge_rate: Positive = 0.01,
    beta: NonNegative | None = None,
    edge_mask: Mask = "target",
    step: Share | None = None,
    first_random: Fraction = 0.0,
    branching: bool = True,
    best: bool = False,
) -> InjectionAttack:
    """Edge weights optimised together with features; with `step`, inside SeqGIA."""
    update = _sign(steps, rate, patience, best=best)
    choice = AdaptiveEdges(rounds, edge_steps, edge_rate, beta, update, edge_mask)
    if step is None:
        return InjectionAttack(choice, update)
    return InjectionAttack(choice, update, "normal", Sequential(step, branching, first_random))


@register("seqgia", "attacks", tags=("injection",))
def seqgia(
    *,
    steps: Whole = STEPS,
    rate: Positive = RATE,
    patience: Whole | None = PATIENCE,
    step: Share = 0.2,
    branching: bool = True,
    best: bool = False,
) -> InjectionAttack:
    """Divide and conquer: random edges to the targets easiest to turn, round by round."""
    return InjectionAttack(
        RandomEdges(), _sign(steps, rate, patience, best=best), "normal", Sequential(step, branching)
    )
