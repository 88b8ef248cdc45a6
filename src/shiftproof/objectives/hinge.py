"""CIGA's hinge: the spurious part may predict the label, but no better than the invariant part."""

from __future__ import annotations

from torch import Tensor

from shiftproof.errors import unknown


def hinge(spurious_risk: Tensor, invariant_risk: Tensor, *, normalize: str = "active") -> Tensor:
    r"""The spurious part's loss on the samples where it is worse than the invariant part (both [n], per sample).

    .. math:: \frac{\sum_{i\in A} R_{s,i}}{|A|+10^{-6}}, \qquad A=\{i: R_{s,i} > R_{c,i}\}

    `normalize="N"` divides by the number of samples instead, as printed in the paper (docs/papers/ciga.md#d7). The
    condition is a constant: no gradient reaches the invariant risks.
    """
    if normalize not in ("active", "N"):
        raise unknown("normalize", normalize, ("active", "N"))
    active = spurious_risk > invariant_risk
    total = spurious_risk.masked_fill(~active, 0).sum()
    return total / (active.sum().to(total) + 1e-6) if normalize == "active" else total / spurious_risk.shape[0]
