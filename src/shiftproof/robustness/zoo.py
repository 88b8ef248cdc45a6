"""The 38 defences an attack is held against, by name and by how hardened they are.

A name is a registered defence and its tricks: `gcn`, `gcn+ln`, `eguard+flag+lni`. `ln` normalises the input features,
`lni` every hidden layer, `flag` trains on adversarial features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations as combinations_of
from typing import Any, Literal

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.registry import defences, fitting_options, parse_name, require_choices
from shiftproof.robustness.flag import FLAG

Category = Literal["vanilla", "robust", "combo", "reference"]
TRICKS = ("flag", "ln", "lni")
POPULAR = ("gcn", "sage", "gat")
HARDENED = ("gcnguard", "eguard", "rgat", "robustgcn")
HOMOPHILY = ("gcnguard", "eguard", "rgat")  # those that look at how similar neighbours are
_NORMS = {"ln": "layer_norm_first", "lni": "layer_norm_inner"}


@dataclass(frozen=True)
class DefenceSpec:
    """One kind of classifier: its registered name, the tricks on top of it, and options of its constructor."""

    backbone: str
    tricks: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entry = defences[self.backbone]
        for trick in self.tricks:
            if trick not in TRICKS:
                raise unknown("trick", trick, TRICKS, f"the defence '{self.backbone}'")
            if trick in _NORMS and _NORMS[trick] not in entry.options:
                raise ShiftproofError(f"the defence '{self.backbone}' has no layer norm '{trick}'")
        fitted = fitting_options(self.options, entry.options, f"defence '{self.backbone}'")
        require_choices(fitted, entry.options, f"defence '{self.backbone}'")
        object.__setattr__(self, "options", fitted)
        object.__setattr__(self, "tricks", tuple(trick for trick in TRICKS if trick in self.tricks))

    @classmethod
    def parse(cls, text: str) -> DefenceSpec:
        """`"eguard+flag+ln:threshold=0.2"` as a spec."""
        name, options = parse_name(text)
        backbone, *tricks = name.split("+")
        return cls(backbone, tuple(tricks), options)

    @property
    def name(self) -> str:
        return "+".join((self.backbone, *self.tricks))

    @property
    def flag(self) -> bool:
        return "flag" in self.tricks

    @property
    def constructor(self) -> dict[str, Any]:
        """What the model's constructor takes: the layer norms of the tricks and the options."""
        return {**{_NORMS[trick]: True for trick in self.tricks if trick in _NORMS}, **self.options}

    @property
    def category(self) -> Category:
        """A popular GNN is vanilla, a robust one robust, and each trick raises that by one.

        Source: docs/papers/hao.md#defences.
        """
        if self.backbone not in (*POPULAR, *HARDENED):
            return "reference"
        level = len(self.tricks) + (self.backbone in HARDENED)
        return ("vanilla", "robust", "combo")[min(level, 2)]

    @property
    def homophily_defender(self) -> bool:
        """Whether the column Homo counts it: a homophily defender without tricks (docs/papers/hao.md#defences)."""
        return self.backbone in HOMOPHILY and not self.tricks


@dataclass(frozen=True)
class ZooPreset:
    """How the zoo is built and trained on one graph (docs/papers/hao.md#defences, #training).

    Training ends early where validation accuracy, looked at after every epoch, has not risen for `patience` epochs.
    """

    hidden: int = 64
    guard_threshold: float = 0.1
    rgat_threshold: float = 0.1
    flag: FLAG = field(default_factory=FLAG)
    epochs: int = 400
    patience: int | None = 100
    lr: float = 0.01
    large: bool = False  # on large graphs EGuard stands for Guard
    # LN-first models are left out on graphs without homophily (docs/papers/hao.md#defences)
    layer_norm_first: bool = True

    def specs(self) -> tuple[DefenceSpec, ...]:
        """The zoo with the options of this preset, and the MLP line."""
        zoo = tuple(self.fitted(spec) for spec in (*standard38(large=self.large), DefenceSpec("mlp")))
        return zoo if self.layer_norm_first else tuple(spec for spec in zoo if "ln" not in spec.tricks)

    def fitted(self, spec: DefenceSpec) -> DefenceSpec:
        """`spec` with this preset's width and threshold, unless it says its own."""
        accepted = defences[spec.backbone].options
        options: dict[str, Any] = {"hidden": self.hidden} if "hidden" in accepted else {}
        if spec.backbone == "rgat":
            options["threshold"] = self.rgat_threshold
        elif spec.backbone in HOMOPHILY:
            options["threshold"] = self.guard_threshold
        return replace(spec, options={**options, **spec.options})


PRESETS = {
    "cora": ZooPreset(flag=FLAG(steps=100)),
    "citeseer": ZooPreset(flag=FLAG(steps=50), rgat_threshold=0.2),
    "computers": ZooPreset(guard_threshold=0.15),
    "arxiv": ZooPreset(hidden=128, rgat_threshold=0.2, large=True),
    "aminer": ZooPreset(hidden=128, large=True),
    "reddit": ZooPreset(hidden=128, guard_threshold=0.15, large=True),
    "chameleon": ZooPreset(guard_threshold=0.05, rgat_threshold=0.05, flag=FLAG(10, 5e-4), layer_norm_first=False),
    "squirrel": ZooPreset(flag=FLAG(10, 5e-4), layer_norm_first=False),
}


def standard38(*, large: bool = False) -> tuple[DefenceSpec, ...]:
    """The zoo of the published tables: 3 vanilla, 12 robust and 23 combined models.

    With `large`, EGuard takes the place of Guard, whose released form is quadratic; ours is not, the place is kept for
    comparison with the tables.
    """
    combinations = [tricks for count in range(len(TRICKS) + 1) for tricks in combinations_of(TRICKS, count)]
    plain = [tricks for tricks in combinations if "flag" not in tricks]
    flagged = [tricks for tricks in combinations if "flag" in tricks]
    guard = "eguard" if large else "gcnguard"
    zoo = [DefenceSpec(backbone, tricks) for backbone in POPULAR for tricks in combinations]
    zoo += [DefenceSpec(guard, tricks) for tricks in plain]
    zoo += [DefenceSpec("eguard", tricks) for tricks in flagged]
    zoo += [DefenceSpec("rgat", tricks) for tricks in ((), ("ln",), ("flag",), ("flag", "ln"))]
    zoo += [DefenceSpec("robustgcn"), DefenceSpec("robustgcn", ("flag",))]
    return tuple(zoo)


def preset_for(name: str) -> ZooPreset:
    """The preset whose name the graph's name begins with, or the defaults."""
    return next((preset for key, preset in PRESETS.items() if name.lower().startswith(key)), ZooPreset())


def chosen(names: Sequence[str] | str, preset: ZooPreset | None = None) -> tuple[DefenceSpec, ...]:
    """Specs by name; "all" is the whole zoo and the MLP line, "vanilla", "robust" and "combo" are its categories."""
    preset = preset or ZooPreset()
    wanted = [names] if isinstance(names, str) else list(names)
    found: dict[str, DefenceSpec] = {}
    for name in wanted:
        if name in ("all", "vanilla", "robust", "combo"):
            several = [spec for spec in preset.specs() if name in ("all", spec.category)]
        else:
            several = [preset.fitted(DefenceSpec.parse(name))]
        found.update({spec.name: spec for spec in several})
    return tuple(found.values())
