"""Node features that stay fixed while a model trains, kept in the form in which products with them are cheapest.

Bags of words stay a constant plus a sparse matrix after any entry-wise normalisation, so their product with a layer's
weights needs their few non-constant entries only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

T = TypeVar("T")
SPARSE_BELOW = 0.1  # share of entries off the commonest value under which the sparse product wins
LOOKED_AT = 1000  # rows


class Features:
    """A fixed feature matrix `x`: dense, and as `base + sparse` where most entries share one value.

    Models take one wherever they take a tensor; `once` keeps what a model derives from it (similarities along edges).
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x.detach()
        self._kept: dict[Any, Any] = {}
        self._split = self._find_split() if x.is_floating_point() and x.numel() else None

    def _find_split(self) -> tuple[float, Tensor, Tensor] | None:
        # the commonest value of the first row is the only candidate: looking at all entries would cost a sort
        base = float(self.x[0].mode().values)
        if float((self.x[:LOOKED_AT] != base).double().mean()) > 2 * SPARSE_BELOW:
            return None  # plainly dense: no second table of its size is made to find out
        off = self.x - base
        if int(torch.count_nonzero(off)) > SPARSE_BELOW * off.numel():
            return None
        return base, _csr(off), _csr(off.T)

    @property
    def shape(self) -> torch.Size:
        return self.x.shape

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gives, kept for the next call with this key."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def linear(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`x @ weight.T + bias`, differentiable in the weight and the bias."""
        if self._split is None or weight.dtype != self.x.dtype:
            return F.linear(self.x.to(weight.dtype), weight, bias)
        base, off, turned = self._split
        out = _SparseLinear.apply(weight, off, turned) + base * weight.sum(1)
        return out if bias is None else out + bias


def dense(x: Tensor | Features) -> Tensor:
    """The features as a plain tensor."""
    return x.x if isinstance(x, Features) else x


def linear(x: Tensor | Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` by the cheapest way the features offer."""
    return x.linear(weight, bias) if isinstance(x, Features) else F.linear(x, weight, bias)


def _csr(x: Tensor) -> Tensor:
    made = x.contiguous().to_sparse_csr()
    # 32-bit indices: see Pattern
    start, col = made.crow_indices().int(), made.col_indices().int()
    return torch.sparse_csr_tensor(start, col, made.values(), x.shape, check_invariants=False)


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, off: Tensor, turned: Tensor) -> Tensor:
        ctx.turned = turned
        return off @ weight.detach().T.contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.turned @ grads[0].contiguous()).T, None, None
