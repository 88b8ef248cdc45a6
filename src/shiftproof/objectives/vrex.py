"""V-REx: equal risks in all environments."""

from __future__ import annotations

from torch import Tensor

from shiftproof.objectives.segments import spread_over_present


def vrex_penalty(risks: Tensor, counts: Tensor | None = None, unbiased: bool = True) -> Tensor:
    r"""Variance of the risks over the present environments; 0 when there is only one.

    .. math:: \frac{1}{|\mathcal E|-1}\sum_{e\in\mathcal E}(R_e-\bar R)^2

    For two environments this is :math:`(R_0-R_1)^2/2`. `unbiased=False` divides by :math:`|\mathcal E|` (DomainBed).
    The gradient flows; CIGA's released code took the variance of detached values and so trained ERM
    (docs/papers/ciga.md#d22).
    """
    spread, present = spread_over_present(risks, counts)
    return spread / (present - int(unbiased)).clamp(min=1)
