"""What can be learned without environment labels, and what cannot: two-piece environments as exact tables.

An environment of two-piece graphs is the law of three ids: the class y, the piece c that causes it and the piece s
that goes along with it. Here it is a table `law[y, c, s]` that sums to 1, so that the statements of
docs/papers/gala.md#impossibility and 3.5 are arithmetic: no network, no sampling error. Rates are the chances of a
piece not to go with the class.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError

Rates = tuple[float, float]  # of the causing and of the accompanying piece


def environment(invariant: float, spurious: float, classes: int = 2) -> Tensor:
    r"""The law of an environment with the given rates, `[classes] * 3`.

    .. math:: P(y, c, s) = \tfrac1K\, P_\alpha(c \mid y)\, P_\beta(s \mid y), \qquad
        P_\alpha(c \mid y) = 1-\alpha \text{ if } c=y \text{ else } \tfrac{\alpha}{K-1}

    Both pieces depend on the class alone. With two classes these are the environments (α, β) of the theory.
    """
    for name, rate in (("invariant", invariant), ("spurious", spurious)):
        if not 0 <= rate <= 1:
            raise ShiftproofError(f"'{name}' is a chance between 0 and 1, not {rate}")
    return _piece(invariant, classes).unsqueeze(2) * _piece(spurious, classes).unsqueeze(1) / classes


def _piece(rate: float, classes: int) -> Tensor:
    """P(piece given class), [y, piece]."""
    other = rate / (classes - 1)
    same = torch.eye(classes, dtype=torch.float64)
    return same * (1 - rate) + (1 - same) * other


def mixture(laws: Sequence[Tensor]) -> Tensor:
    """What is seen of equally large environments when nobody says which sample is from which."""
    return torch.stack(tuple(laws)).mean(0)


def rates(law: Tensor) -> Rates:
    """How often each piece does not go with the class."""
    first = law.sum(2).diagonal().sum()
    second = law.sum(1).diagonal().sum()
    return float(1 - first), float(1 - second)


def exchanged(law: Tensor) -> Tensor:
    """The same world with the pieces' names exchanged."""
    return law.transpose(1, 2)


def generated(law: Tensor, *, reversed: bool = False) -> Tensor:
    r"""The environment that recombination makes: every estimated cause with its label, every estimated rest.

    .. math:: P'(y, \hat c, \hat s) = P(y, \hat c)\, P(\hat s)

    With `reversed` the estimate takes the accompanying piece for the cause, so that its tie to the label is kept and
    the true cause's is erased: from rates (α, β) to (1 - 1/K, β) (docs/papers/gala.md#impossibility).
    """
    if reversed:
        return exchanged(generated(exchanged(law)))
    return law.sum(2).unsqueeze(2) * law.sum((0, 1))


def conditional_entropy(law: Tensor, piece: str) -> float:
    """H(C given Y) for `piece="cause"`, H(S given Y) for `piece="shortcut"`, in nats."""
    joint = _of(law, piece)
    return float(-torch.special.xlogy(joint, joint / joint.sum(1, keepdim=True)).sum())


def label_given(law: Tensor, piece: str) -> Tensor:
    """P(y given the piece), [piece, y]; a piece that never occurs has NaN."""
    joint = _of(law, piece).T
    return joint / joint.sum(1, keepdim=True)


def _of(law: Tensor, piece: str) -> Tensor:
    """P(y, piece)."""
    if piece not in ("cause", "shortcut"):
        raise ShiftproofError(f"a piece is the 'cause' or the 'shortcut', not '{piece}'")
    return law.sum(2) if piece == "cause" else law.sum(1)


def varies_enough(laws: Sequence[Tensor], tolerance: float = 1e-9) -> bool:
    """Variation sufficiency: what the shortcut says of the class changes between environments, for each of its values.

    What the cause says does not.
    """
    seen = [torch.stack([label_given(law, piece) for law in laws]) for piece in ("cause", "shortcut")]
    spread = [(table.amax(0) - table.amin(0)).amax(1) for table in seen]
    return bool((spread[0] <= tolerance).all() and (spread[1] > tolerance).all())


def ordering(law: Tensor, tolerance: float = 1e-9) -> int:
    """1 where the shortcut is the weaker piece, H(S given Y) > H(C given Y); -1 where it dominates; 0 where neither."""
    gap = conditional_entropy(law, "shortcut") - conditional_entropy(law, "cause")
    return 0 if abs(gap) <= tolerance else (1 if gap > 0 else -1)


def is_consistent(laws: Sequence[Tensor]) -> bool:
    """Variation consistency: the same piece is the stronger one in every environment."""
    found = {ordering(law) for law in laws}
    return len(found) == 1 and 0 not in found


def indistinguishable(invariant: Rates, spurious: Rates) -> tuple[list[Tensor], list[Tensor]]:
    """Two sets of training environments with one mixture, whose causes are different pieces.

    Source: docs/papers/gala.md#impossibility.

    The first has the cause at the mean of `invariant` and its shortcut at each of the two rates of `spurious`. In the
    second the *other* piece is the cause, at the mean of `spurious`, and the first piece is the shortcut, at each rate
    of `invariant`. Tables are by piece, not by role: axis 1 is the same piece in both.
    """
    alpha, beta = sum(invariant) / 2, sum(spurious) / 2
    return [environment(alpha, rate) for rate in spurious], [environment(rate, beta) for rate in invariant]


def rules(classes: int = 2) -> Tensor:
    """Every way of predicting the class from the two pieces, [classes ** (classes ** 2), classes, classes]."""
    answers = itertools.product(range(classes), repeat=classes * classes)
    return torch.tensor(list(answers)).view(-1, classes, classes)


def accuracy(rule: Tensor, law: Tensor) -> Tensor:
    """How often each rule, [..., piece, piece], is right in an environment."""
    chosen = torch.nn.functional.one_hot(rule, law.shape[0]).to(law.dtype)
    return torch.einsum("...abk,kab->...", chosen, law)


def best_of_both(first: Tensor, second: Tensor) -> float:
    """The best that one rule can reach in the worse of two test environments, over all rules."""
    every = rules(first.shape[0])
    return float(torch.minimum(accuracy(every, first), accuracy(every, second)).max())


def sample_pieces(
    count: int, law: Tensor, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Classes and both pieces of samples drawn from an environment."""
    drawn = torch.multinomial(law.flatten(), count, replacement=True, generator=generator)
    size = law.shape[0]
    return drawn // size**2, drawn // size % size, drawn % size


def counted(y: Tensor, c: Tensor, s: Tensor, classes: int = 2) -> Tensor:
    """The law that samples have: the share of each combination."""
    place = (y * classes + c) * classes + s
    return (place.bincount(minlength=classes**3).double() / len(y)).view(classes, classes, classes)
