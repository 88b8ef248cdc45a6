"""Do the gradients of two losses pull in the same direction?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from shiftproof.pareto.backward import gradients_of


def gradient_cosines(terms: Mapping[str, Tensor], parameters: Iterable[nn.Parameter]) -> dict[str, Tensor]:
    r"""The cosine between the gradient of the first loss and that of every other; 0 where one has no gradient.

    .. math:: \cos(\nabla L_{ERM}, \nabla L_j) =
        \frac{\langle\nabla L_{ERM},\nabla L_j\rangle}{\lVert\nabla L_{ERM}\rVert\,\lVert\nabla L_j\rVert}

    Below zero a step on one raises the other. The graph is kept, so `backward` can follow.
    """
    chosen = list(parameters)
    rows = [torch.cat([g.flatten().double() for g in gradients_of(term, chosen)]) for term in terms.values()]
    first, *others = rows
    names = list(terms)[1:]
    return {name: _cosine(first, other) for name, other in zip(names, others, strict=True)}


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    length = one.norm() * other.norm()
    return torch.where(length > 0, one @ other / length.clamp(min=torch.finfo(length.dtype).tiny), 0.0)
