"""Generalised cross-entropy: a loss that prefers what is easy."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.objectives.risks import sample_losses


def generalised_cross_entropy(logits: Tensor, y: Tensor, q: float = 0.7, weight: bool = False) -> Tensor:
    r"""A loss of every sample, [n], whose gradient is that of cross-entropy times :math:`q\,p_y^q`.

    .. math:: 1-p_{y}^{\,q}, \qquad \nabla(1-p_y^q) = q\,p_y^q\,\nabla\mathrm{CE}

    Samples that are already predicted well (the biased, easy ones) weigh most. `weight=True` divides by q: the form
    :math:`(1-p_y^q)/q` of the literature, which tends to cross-entropy as q goes to 0. The released code of DisC and
    LfF writes :math:`q\,\mathrm{sg}(p_y^q)\,\mathrm{CE}`, another value with the same gradient
    (docs/papers/gala.md#disc, #m1). Logits are [n, C], or [n] and [n, 1] for a binary label.
    """
    task = "binary" if logits.numel() == logits.shape[0] else "multiclass"
    loss = -torch.expm1(-q * sample_losses(logits, y, task))
    return loss / q if weight else loss
