"""ReLU and dropout; on a CPU they are one compiled pass, which makes its random numbers as it goes and keeps none.

A number there is dropped by 16 random bits, so that the chance is rounded to 1/65536. The bits follow from a key that
torch's generator draws, whatever the number of threads. `byte_dropout` needs no compiler: a byte of torch's generator
decides about a number. The defences of `robustness` take it, whose tables were measured with these draws.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.nn.kernels.cpu.availability import array, loops_serve, plainly, shared_out

DRAWS = 64  # of a block of random bits
ALL = 1 << 16
LEVELS = 256  # values of a byte


def dropout(x: Tensor, chance: float, training: bool) -> Tensor:
    """Zeros in the place of a share of the numbers, in training; the rest is scaled up so that the mean stays."""
    if not training or not chance:
        return x
    if 0 < chance < 1 and loops_serve(x):
        return _Dropout.apply(x, *_drawn(chance))  # type: ignore[return-value]
    return F.dropout(x, chance, True)


def byte_dropout(x: Tensor, chance: float, training: bool) -> Tensor:
    """The same by a random byte a number, on a CPU twenty times faster than one Bernoulli draw a number.

    A chance that is no multiple of 1/256, and tensors that are not on a CPU, take torch's own dropout.
    """
    cut = chance * LEVELS
    if not training or not chance:
        return x
    if x.device.type != "cpu" or cut != int(cut):
        return F.dropout(x, chance, True)
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= int(cut)
    return x * kept.to(x.dtype).mul_(1 / (1 - chance))


def relu_dropout(x: Tensor, chance: float, training: bool) -> Tensor:
    """ReLU, then dropout."""
    if training and 0 < chance < 1 and loops_serve(x):
        return _ReluDropout.apply(x, *_drawn(chance), False)  # type: ignore[return-value]
    return F.dropout(x.relu(), chance, True) if training and chance else x.relu()


def relu_dropout_(x: Tensor, chance: float, training: bool) -> Tensor:
    """ReLU, then dropout, of samples `[N, t, p]` on a CPU in the memory of `x`; what survives is all that is kept.

    Whoever kept `x` for a backward pass of its own is told by torch that it was overwritten; whoever just kept it, a
    hook, finds the outcome in its place.
    """
    in_order = x.is_contiguous() or not x.numel()
    own = x.requires_grad and x.is_leaf
    if x.dim() == 3 and in_order and not own and (0 <= chance < 1 or not training) and loops_serve(x):
        return _ReluDropout.apply(x, *_drawn(chance if training else 0.0), True)  # type: ignore[return-value]
    return relu_dropout(x, chance, training)


def _drawn(chance: float) -> tuple[int, float, int]:
    """How many of the 65536 draws are lost, what the others are scaled by, and a key of random bits."""
    lost = min(round(chance * ALL), ALL - 1)
    key = int(torch.empty((), dtype=torch.int64, device="cpu").random_()) if lost else 0
    return lost, ALL / (ALL - lost), key


class _Dropout(torch.autograd.Function):
    """The same draws are made again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lost: int, scale: float, key: int) -> Tensor:
        ctx.drawn, ctx.shape = (lost, scale, key), x.shape
        return _drop(x, lost, scale, key, relu=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if plainly(grad) and not torch.is_grad_enabled():  # many gradients at once
            kept = _drop(torch.ones(ctx.shape, dtype=grad.dtype, device="cpu"), *ctx.drawn, relu=False)
            return grad * kept, None, None, None
        return _Dropout.apply(grad, *ctx.drawn), None, None, None  # type: ignore[return-value]


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lost: int, scale: float, key: int, in_place: bool) -> Tensor:
        out = _drop(x, lost, scale, key, relu=True, in_place=in_place)
        ctx.scale = scale
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        from shiftproof.nn.kernels.cpu.loops_of_rows import pull_relu

        (out,) = ctx.saved_tensors  # positive exactly where the gradient passes
        if plainly(grad):
            return torch.where(out <= 0, 0, grad * ctx.scale), None, None, None, None
        inward = torch.empty_like(out)
        given = array(out).reshape(-1), array(grad).reshape(-1), array(out.new_tensor(ctx.scale))[()]
        shared_out(pull_relu, out.numel(), *given, array(inward).reshape(-1), numbers=out.numel())
        return inward, None, None, None, None


def _drop(x: Tensor, lost: int, scale: float, key: int, *, relu: bool, in_place: bool = False) -> Tensor:
    from shiftproof.nn.kernels.cpu.loops_of_rows import drop

    # the memory of x without its place in the graph: torch would copy gradients through an in-place step on a view
    out = x.detach() if in_place else x.new_empty(x.shape)
    into = None if in_place else array(out).reshape(-1)
    given = array(x).reshape(-1), lost, array(x.new_tensor(scale))[()], key, relu, into
    shared_out(drop, -(-x.numel() // DRAWS), *given, numbers=x.numel())
    if in_place:
        torch.autograd.graph.increment_version(out)  # a loop writes to it unseen
    return out
