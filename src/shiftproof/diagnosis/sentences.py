"""A diagnosis in plain words."""

from __future__ import annotations

from shiftproof.diagnosis.diagnosis import Diagnosis
from shiftproof.diagnosis.shifts import ENVIRONMENTS
from shiftproof.diagnosis.shortcuts import Shortcuts
from shiftproof.diagnosis.tracking import Tracking
from shiftproof.statistics.names import metric_name

_ORDER = {"large": 0, "medium": 1, "small": 2}


def sections(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Topic by topic: first in short what matters, then shifts, shortcuts, the assistant, the drop, the unknown."""
    told = {"In short": headline(diagnosis), "Shifts": _shifts(diagnosis)}
    if diagnosis.shortcuts is not None:
        told["Shortcuts"] = _shortcuts(diagnosis.shortcuts) + _methods(diagnosis)
    if diagnosis.tracking is not None:
        told["Assistant"] = _assistant(diagnosis.tracking, diagnosis.shortcuts)
    if diagnosis.drops:
        told["Expected drop"] = [f"{drop.sentence[0].upper()}{drop.sentence[1:]}." for drop in diagnosis.drops]
    if diagnosis.expected:
        lines = told.setdefault("Expected drop", [])
        lines += [f"{one.sentence[0].upper()}{one.sentence[1:]}." for one in diagnosis.expected]
    if diagnosis.unknown or diagnosis.notes:
        told["What cannot be known"] = [*diagnosis.unknown, *diagnosis.notes]
    return told


def headline(diagnosis: Diagnosis) -> list[str]:
    """What matters, in at most four sentences: the worst drop, what moved most, the shortcut, and which method."""
    said = []
    falls = [drop for drop in diagnosis.drops if drop.drop > 0 and drop.low > 0]
    if falls:
        worst = max(falls, key=lambda drop: drop.drop)
        said.append(
            f"On {worst.where} the {metric_name(worst.metric)} of {worst.model} falls from {worst.before:.2f} to "
            f"{worst.after:.2f}."
        )
    elif diagnosis.drops:
        said.append("No drop was found that is more than chance: what was tried does as well where the data moved.")
    alarms = sorted(diagnosis.alarms, key=lambda f: (_ORDER[f.strength], -f.effect))
    if alarms:
        said.append(f"What moved most: a {alarms[0].strength} {alarms[0].kind} shift between {alarms[0].where}.")
    else:
        said.append("No shift was found between splits or environments.")
    if diagnosis.shortcuts is not None and diagnosis.shortcuts.dominates != "cause":
        said.append(f"The shortcut is the {diagnosis.shortcuts.strongest.name}.")
    return [*said, suggestion(diagnosis)]


def suggestion(diagnosis: Diagnosis) -> str:
    """A method that what was found speaks for, or that nothing does."""
    advice = diagnosis.advice
    if advice is not None:
        if advice.can:
            return f"Use {_or(advice.can[:3])}."
        return "Nothing here suggests a method that can be relied on."
    between = [f for f in diagnosis.alarms if f.between == (ENVIRONMENTS,)]
    if any(f.kind == "relation" for f in between):
        return (
            "Use vrex or irm: what features say of the label differs between the training environments, and these "
            "methods look for what does not."
        )
    if any(f.kind in ("label", "labels") for f in between):
        return "Use groupdro: the labels are not the same in the training environments, and it is fair to the worst."
    return (
        "Nothing found suggests one method over another: begin with erm, and let `shiftproof compare DATA -m erm "
        "-m ...` say whether another holds better."
    )


def _or(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _shifts(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.findings:
        return ["Nothing could be compared: there is one split, one environment, or too few samples."]
    alarms = sorted(diagnosis.alarms, key=lambda f: (_ORDER[f.strength], -f.effect))
    lines = [f"{f.sentence[0].upper()}{f.sentence[1:]}." for f in alarms]
    quiet = [f for f in diagnosis.findings if not f.alarm]
    if not alarms:
        lines.append(
            f"No shift was found in {len(quiet)} tests; effects up to {_blind(diagnosis):.2f} could be missed."
        )
    else:
        named: dict[str, list[str]] = {}
        for finding in quiet:
            named.setdefault(finding.where, []).append(finding.kind)
        lines += [f"No alarm between {where}: {', '.join(kinds)}." for where, kinds in named.items()]
    if not any(f.between == (ENVIRONMENTS,) for f in diagnosis.findings):
        lines.append("There are no environments to compare.")
    return lines


def _blind(diagnosis: Diagnosis) -> float:
    """The largest effect that the intervals do not exclude."""
    return max(f.high for f in diagnosis.findings)


def _shortcuts(found: Shortcuts) -> list[str]:
    cause, worst = found.cause, found.strongest
    low, high = found.gap
    names = f"H({worst.name}|label) - H({cause.name}|label)"
    gap = f"{names} = {worst.entropy - cause.entropy:+.2f} nats ({low:+.2f} to {high:+.2f})"
    follows = "follows the label more closely than the"
    head = {
        "shortcut": f"The shortcut dominates: the {worst.name} {follows} {cause.name} that decides it.",
        "cause": f"The cause dominates: the {cause.name} {follows} {worst.name} that only goes along.",
        "neither": f"Neither dominates: {cause.name} and {worst.name} follow the label equally closely in training.",
    }[found.dominates]
    lines = [head, f"{gap}."]
    for piece in found.pieces:
        rates = ", ".join(f"{split} {share:.2f}" for split, share in piece.strength.items())
        where = ""
        if piece.by_environment:
            shares = f"{min(piece.by_environment):.2f} to {max(piece.by_environment):.2f}"
            where = f"; over training environments {shares}, " + (
                "which differ" if piece.varies else "no difference found"
            )
        lines.append(f"The {piece.name} ({piece.role}) goes with the label in: {rates}{where}.")
    best = ", ".join(f"{split} {share:.2f}" for split, share in found.learned.items())
    honest = ", ".join(f"{split} {share:.2f}" for split, share in found.invariant.items())
    lines.append(f"The best fit of the training samples would score: {best}; the {cause.name} alone: {honest}.")
    if found.consistent is not None:
        kept = "the same in" if found.consistent else "not the same in"
        lines.append(f"Which of them is stronger is {kept} all training environments (variation consistency).")
    if worst.varies is not None:
        holds = worst.varies and not cause.varies
        told = "changes between training environments and the cause does not (variation sufficiency holds)."
        lines.append(f"The shortcut {told}" if holds else f"It is not shown that the shortcut {told}")
    return lines


def _methods(diagnosis: Diagnosis) -> list[str]:
    advice = diagnosis.advice
    if advice is None:
        return []
    lines = [f"Can cope: {', '.join(advice.can)}." if advice.can else "No method can be relied on here."]
    if advice.perhaps:
        lines.append(f"May cope: {', '.join(advice.perhaps)}.")
    if advice.cannot:
        lines.append(f"Cannot: {', '.join(advice.cannot)}.")
    return [*lines, *(f"{reason[0].upper()}{reason[1:]}." for reason in advice.reasons)]


def _assistant(found: Tracking, shortcuts: Shortcuts | None) -> list[str]:
    lines = [
        f"A plain network trained for {found.epochs} epochs on {found.samples} samples is right on {found.right} "
        f"({found.accuracy:.0%}) of them and wrong on {found.wrong}."
    ]
    if found.wrong == 0:
        lines.append("It errs nowhere: GALA with label proxies would then be CIGA, and nothing would be upsampled.")
    if shortcuts is not None and found.follows is not None:
        lines += _followed(found, shortcuts)
    if found.tracks_environment is not None:
        share = found.proxies["cluster"]["environment"]["nmi"]
        lines.append(
            f"The clusters of its representations {'track' if found.tracks_environment else 'do not track'} the "
            f"environment beyond what the label tells (NMI {share:.2f})."
        )
    elif shortcuts is None:
        lines.append("Whether it tracks the environment cannot be said: no environments and no ground truth are known.")
    return lines


def _followed(found: Tracking, shortcuts: Shortcuts) -> list[str]:
    cause, worst = shortcuts.cause, shortcuts.strongest
    named = {
        "shortcut": f"the shortcut ({worst.name})",
        "cause": f"the cause ({cause.name})",
        "neither": "neither part",
    }
    follows = found.follows or {}
    lines = [f"Its predictions follow {named[follows['label']]}, its clusters {named[follows['cluster']]}."]
    for name, entry in (("cause", cause.name), ("shortcut", worst.name)):
        told = found.proxies["label"][name]
        right, wrong = told["strength_correct"], told["strength_incorrect"]
        shares = f"{_share(right)} of the samples it gets right and {_share(wrong)} of the others"
        lines.append(f"The {entry} goes with the label in {shares}.")
    if found.accuracy < max(worst.strength["train"], cause.strength["train"]) - 0.1:
        lines.append(
            "It is not trained enough to be relied on: either part alone would do better; give it more epochs."
        )
    elif "shortcut" in follows.values():
        good = " or ".join(kind for kind, part in follows.items() if part == "shortcut")
        lines.append(f"It is a good assistant for GALA with {good} proxies: it shows where the shortcut leads.")
    elif follows["label"] == "cause":
        lines.append("It follows the cause, so it would turn GALA against it; CIGA or plain training fits better.")
    return lines


def _share(value: float) -> str:
    return f"{value:.2f}" if value == value else "none"
