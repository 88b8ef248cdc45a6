"""Finite causal models whose every entropy can be computed exactly, and the toy on which CIGA's theorem is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from shiftproof.errors import ShiftproofError, unknown

Mode = Literal["fiif", "piif", "miif"]
MODES: tuple[Mode, ...] = ("fiif", "piif", "miif")
TOLERANCE = 1e-9  # quantities in bits this close count as equal


@dataclass(frozen=True, eq=False)
class Joint:
    """The joint law of named finite variables: one axis of `table` a variable. Entropies are in bits."""

    names: tuple[str, ...] = ()
    table: np.ndarray = field(default_factory=lambda: np.ones(()))

    def add(self, name: str, law: np.ndarray | Sequence, given: Sequence[str] = ()) -> Joint:
        """The law with one variable more; `law[parents..., value]` is its chance given the parents named."""
        law = np.asarray(law, dtype=np.float64)
        if name in self.names:
            raise ShiftproofError(f"there is a variable '{name}' already")
        axes = self._axes(given)
        expected = tuple(self.table.shape[axis] for axis in axes)
        if law.shape[:-1] != expected:
            raise ShiftproofError(f"the law of '{name}' has shape {law.shape}, expected {(*expected, 'values')}")
        if (law < 0).any() or not np.allclose(law.sum(-1), 1):
            raise ShiftproofError(f"the law of '{name}' does not hold chances that sum to 1")
        new = len(self.names)
        return Joint((*self.names, name), np.einsum(self.table, [*range(new)], law, [*axes, new], [*range(new + 1)]))

    def noisy_copy(self, name: str, of: str, flip: float | Sequence[float], given: Sequence[str] = ()) -> Joint:
        """The law with a bit more: `of`, wrong with the chance `flip` (one for each value of what is `given`)."""
        wrong = np.asarray(flip, dtype=np.float64)
        law = np.stack([np.stack([1 - wrong, wrong], -1), np.stack([wrong, 1 - wrong], -1)])
        return self.add(name, law, (of, *given))

    def marginal(self, names: Iterable[str]) -> np.ndarray:
        """The law of some variables, in the order given."""
        kept = self._axes(names)
        return np.einsum(self.table, [*range(len(self.names))], kept)

    def entropy(self, of: Iterable[str], given: Iterable[str] = ()) -> float:
        """`H(of | given)`."""
        of, given = _unique(of), _unique(given)
        return self._entropy((*of, *given)) - self._entropy(given)

    def mutual_information(self, one: Iterable[str], other: Iterable[str]) -> float:
        """`I(one; other)`."""
        return self.conditional_mutual_information(one, other, ())

    def conditional_mutual_information(self, one: Iterable[str], other: Iterable[str], given: Iterable[str]) -> float:
        """`I(one; other | given)`."""
        one, other, given = _unique(one), _unique(other), _unique(given)
        both = self._entropy((*one, *other, *given))
        return self._entropy((*one, *given)) + self._entropy((*other, *given)) - both - self._entropy(given)

    def _entropy(self, names: Sequence[str]) -> float:
        chances = self.marginal(_unique(names)).ravel()
        chances = chances[chances > 0]
        return float(-(chances * np.log2(chances)).sum())

    def _axes(self, names: Iterable[str]) -> list[int]:
        names = _unique(names)
        for name in names:
            if name not in self.names:
                raise unknown("variable", name, self.names)
        return [self.names.index(name) for name in names]


@dataclass(frozen=True, eq=False)
class SCM:
    r"""A finite causal model of invariant `C`, environment `E`, label `Y` and spurious `S`.

    ===== ============================================== ==========================================
    mode  label                                          spurious part
    ===== ============================================== ==========================================
    fiif  :math:`Y := f_{inv}(C)`                        :math:`S := f_{spu}(C, E)`
    piif  :math:`Y := f_{inv}(C)`                        :math:`S := f_{spu}(Y, E)`
    miif  :math:`Y := f_{inv}(C)`                        :math:`S_1` as in fiif, :math:`S_2` as in piif
    ===== ============================================== ==========================================

    `y[c]` is the law of the label given C (one-hot rows: no noise). `s[source, e]` is the law of the spurious variable,
    one table under fiif and piif, two under miif.
    """

    mode: Mode
    c: np.ndarray
    e: np.ndarray
    y: np.ndarray
    s: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown("mode of an SCM", str(self.mode), MODES)
        if len(self.s) != len(self.sources):
            raise ShiftproofError(f"{self.mode} has {len(self.sources)} spurious variables, not {len(self.s)}")

    @property
    def sources(self) -> tuple[str, ...]:
        """What each spurious variable follows, besides the environment."""
        return {"fiif": ("C",), "piif": ("Y",), "miif": ("C", "Y")}[self.mode]

    @property
    def spurious(self) -> tuple[str, ...]:
        """The names of the spurious variables."""
        return ("S",) if len(self.s) == 1 else ("S1", "S2")

    @cached_property
    def joint(self) -> Joint:
        """The joint law of C, E, Y and the spurious variables."""
        joint = Joint().add("C", self.c).add("E", self.e).add("Y", self.y, ("C",))
        for name, source, law in zip(self.spurious, self.sources, self.s, strict=True):
            joint = joint.add(name, law, (source, "E"))
        return joint

    @classmethod
    def random(
        cls,
        mode: Mode,
        rng: np.random.Generator,
        *,
        invariant: int = 4,
        classes: int = 3,
        environments: int = 2,
        spurious: int = 3,
        label_noise: bool = False,
    ) -> SCM:
        """A model with random laws; without `label_noise` the label is a random function of C onto all classes."""
        if classes > invariant:
            raise ShiftproofError(f"{invariant} values of C cannot give {classes} classes")
        label = rng.permutation(np.concatenate([np.arange(classes), rng.integers(0, classes, invariant - classes)]))
        y = rng.dirichlet(np.ones(classes), size=invariant) if label_noise else np.eye(classes)[label]
        wide = {"C": invariant, "Y": classes}
        sources = {"fiif": ("C",), "piif": ("Y",), "miif": ("C", "Y")}.get(mode, ())
        laws = tuple(rng.dirichlet(np.ones(spurious), size=(wide[source], environments)) for source in sources)
        return cls(mode, rng.dirichlet(np.ones(invariant)), np.full(environments, 1 / environments), y, laws)


@dataclass(frozen=True, eq=False)
class Toy:
    r"""The smallest graphs on which CIGA's objectives can be solved by trying everything.

    A graph is the set `c1, c2, s1, s2`: :math:`Y = c_1 \oplus \mathrm{Ber}(q)`, and
    :math:`s_k = src \oplus \mathrm{Ber}(p_{E,k})` follows c1 (fiif) or Y (piif). A second graph of the same label (its
    parts end in "'") shares c1 and c2 and has an environment and noise of its own; with `coupled=False` it shares
    the label alone. A candidate is a part of the graph that may be taken for the invariant one.
    """

    mode: Literal["fiif", "piif"] = "fiif"
    q: float = 0.0
    coupled: bool = True
    flips: tuple[tuple[float, float], tuple[float, float]] = ((0.10, 0.15), (0.20, 0.25))

    PARTS = ("c1", "c2", "s1", "s2")
    TRUE = frozenset(("c1", "c2"))

    @cached_property
    def joint(self) -> Joint:
        """The joint law of Y and the parts of both graphs."""
        if self.mode not in ("fiif", "piif"):
            raise unknown("mode of the toy", str(self.mode), ("fiif", "piif"))
        fair = np.array([0.5, 0.5])
        joint = Joint().add("c1", fair).add("c2", fair).noisy_copy("Y", "c1", self.q)
        if self.coupled:
            same = np.eye(2)
            joint = joint.add("c1'", same, ("c1",)).add("c2'", same, ("c2",))
        else:
            joint = joint.noisy_copy("c1'", "Y", self.q).add("c2'", fair)  # c1 given Y is as Y given c1
        for copy in ("", "'"):
            source = f"c1{copy}" if self.mode == "fiif" else "Y"
            joint = joint.add(f"E{copy}", fair)
            for number in (0, 1):
                flip = [rates[number] for rates in self.flips]
                joint = joint.noisy_copy(f"s{number + 1}{copy}", source, flip, (f"E{copy}",))
        parts = ("Y", *self.PARTS, *(f"{part}'" for part in self.PARTS))
        return Joint(parts, joint.marginal(parts))

    @cached_property
    def candidates(self) -> tuple[frozenset[str], ...]:
        """Every part of the graph that is not empty."""
        return tuple(frozenset(some) for k in range(1, 5) for some in combinations(self.PARTS, k))

    def agreement(self, candidate: Iterable[str]) -> float:
        r"""What the candidate tells about that of the other graph, :math:`I(\hat G_c; \tilde G_c | Y)`."""
        candidate = list(candidate)
        return self.joint.conditional_mutual_information(candidate, [f"{part}'" for part in candidate], ["Y"])

    def information(self, candidate: Iterable[str]) -> float:
        r"""What a part of the graph tells about the label, :math:`I(\hat G; Y)`."""
        return self.joint.mutual_information(candidate, ["Y"])

    def rest(self, candidate: Iterable[str]) -> frozenset[str]:
        return frozenset(self.PARTS) - frozenset(candidate)

    def erm(self) -> set[frozenset[str]]:
        """The candidates that tell most about the label."""
        return _best(self.candidates, self.information)

    def ciga_v1(self, size: int = 2) -> set[frozenset[str]]:
        """The solutions of CIGAv1: of at most `size` parts, agreeing most, then most about the label."""
        small = [candidate for candidate in self.candidates if len(candidate) <= size]
        return _best(_best(small, self.agreement), self.information)

    def ciga_v2(self) -> set[frozenset[str]]:
        """The solutions of CIGAv2: agreeing most, telling no less than the rest, then most of both together."""
        agreeing = _best(self.candidates, self.agreement)
        told = {
            candidate: (self.information(candidate), self.information(self.rest(candidate))) for candidate in agreeing
        }
        allowed = [candidate for candidate, (kept, left) in told.items() if left <= kept + TOLERANCE]
        return _best(allowed, lambda candidate: sum(told[candidate]))


def _best(candidates: Iterable[frozenset[str]], value: Callable[[frozenset[str]], float]) -> set[frozenset[str]]:
    values = {candidate: value(candidate) for candidate in candidates}
    highest = max(values.values(), default=0.0)
    return {candidate for candidate, found in values.items() if found >= highest - TOLERANCE}


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once; a text is one name."""
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
