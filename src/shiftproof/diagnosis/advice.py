"""Which methods can cope with what was found, and what nobody can know from the data."""

from __future__ import annotations

from dataclasses import dataclass

from shiftproof.data.dataset import Dataset
from shiftproof.diagnosis.shortcuts import Regime, Shortcuts
from shiftproof.registry import methods

# (can, in part, cannot): docs/papers/gala.md#assumptions for DisC, CIGA and GALA; docs/papers/gala.md#table-two-piece
# for the others on graphs
_ON_GRAPHS: dict[Regime, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "shortcut": (
        ("gala",),
        ("disc",),
        ("erm", "xgnn", "ciga-v1", "ciga-v2", "dir", "grea", "gsat", "cal", "moleood", "gil"),
    ),
    "cause": (("ciga-v1", "ciga-v2", "gala"), ("erm", "xgnn", "grea", "gil"), ("disc",)),
    "neither": ((), (), ("ciga-v1", "ciga-v2", "gala", "disc")),
}
_ON_TENSORS: dict[Regime, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "shortcut": ((), (), ("erm",)),
    "cause": ((), ("erm",), ()),
    "neither": ((), (), ("erm",)),
}
_BY_ENVIRONMENTS = ("irm", "vrex", "ib-irm", "groupdro")


_REASONS: dict[Regime, tuple[str, ...]] = {
    "shortcut": ("whatever fits the training samples best follows the shortcut",),
    "cause": (
        "whatever fits the training samples best follows the cause",
        "a shortcut that is easier to learn than the cause can still win, so look at the measured drop",
    ),
    "neither": ("cause and shortcut follow the label equally closely, and nothing in training tells them apart",),
}
_REASONS_ON_GRAPHS: dict[Regime, tuple[str, ...]] = {
    "shortcut": (
        "GALA copes as far as its assistant follows the shortcut; DisC takes the stronger part for the shortcut",
    ),
    "cause": ("CIGA is enough; DisC takes the stronger part for the shortcut and throws away the cause",),
    "neither": (),
}


@dataclass(frozen=True)
class Advice:
    """Names of registered methods that can cope, that may, and that cannot, and why, in words."""

    can: tuple[str, ...]
    perhaps: tuple[str, ...]
    cannot: tuple[str, ...]
    reasons: tuple[str, ...]


def advise(dataset: Dataset, shortcuts: Shortcuts) -> Advice:
    """What the theory says of methods on data with these strengths.

    Source: docs/papers/gala.md#impossibility, #assumptions.
    """
    regime, strongest = shortcuts.dominates, shortcuts.strongest
    can, perhaps, cannot = (_ON_GRAPHS if dataset.is_graph else _ON_TENSORS)[regime]
    reasons = list(_REASONS[regime])
    if dataset.is_graph:
        reasons += _REASONS_ON_GRAPHS[regime]
    if strongest.varies and shortcuts.cause.varies is False:
        can = (*can, *_BY_ENVIRONMENTS)
        reasons.append(
            "the training environments differ in the shortcut and agree in the cause: methods that use them can"
        )
    elif strongest.varies is False:
        cannot = (*cannot, *_BY_ENVIRONMENTS)
        reasons.append("the shortcut is as strong in every training environment, so knowing them does not help")
    elif regime != "cause":
        cannot = (*cannot, *_BY_ENVIRONMENTS)
        reasons.append(
            "methods over environments (irm, vrex) have only random ones here, and these do not differ in the shortcut"
        )
    return Advice(*map(_registered, (can, perhaps, cannot)), tuple(reasons))  # type: ignore[arg-type]


def _registered(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name in methods)


def unknowns(
    dataset: Dataset, shortcuts: Shortcuts | None, *, drops: bool, foretold: bool, assistant: bool
) -> tuple[str, ...]:
    """What cannot be known of this data set, and why."""
    said = []
    environments = dataset.train.env is not None and dataset.train.num_envs > 1
    if shortcuts is None:
        said.append(
            "Which part of a sample decides its label is not recorded here, and the training samples alone cannot "
            "tell: two sets of environments with different causes can mix to the very same data, for instance flip "
            "rates {(0.2, 0.1), (0.2, 0.3)} and {(0.1, 0.2), (0.3, 0.2)} of cause and shortcut."
        )
    if not environments:
        said.append(
            "Without environments nothing shows whether a shortcut changes between them; environments made up from "
            "these samples can destroy the cause instead, where the estimate of it is the wrong way round."
        )
    elif shortcuts is None:
        said.append(
            "A shortcut that is equally strong in all training environments looks like a cause, to every method; "
            "the relation test above only sees what a linear model of cheap summaries sees."
        )
    if not drops:
        said.append(
            "The expected drop cannot be estimated: there is no other split with enough labelled samples, and no "
            "environment to leave out."
        )
    elif not foretold:
        said.append(
            "The drop is measured for the splits at hand only; to foretell that in a new environment takes at least "
            "three training environments that are large enough to be left out in turn."
        )
    if not assistant:
        said.append("No assistant was trained, so it is not known what a plain network follows.")
    return tuple(said)
