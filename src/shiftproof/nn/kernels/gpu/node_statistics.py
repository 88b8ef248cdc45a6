"""Mean, extremes, deviation and sum of the messages that arrive at each node, on a GPU without a message being stored.

Written with torch's own operations, a layer of PNA passes over rows of the size of its edges dozens of times.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from shiftproof.nn.kernels.cpu.availability import kernels_wanted
from shiftproof.nn.kernels.reference import LEAST_VARIANCE, STATISTICS, ByNode, plain_statistics
from shiftproof.nn.stacking import as_one_list

MOST_WARPS = 32  # of a program on a GPU
MOST_IN_TILE = 2  # samples that a program takes at once; with more of them, registers leave few programs on a processor
NUMBERS_OF_A_WARP = 128  # four a thread
ROUNDED = {"enable_fp_fusion": False}  # w·h - mean, multiplied and subtracted at once, is not zero for a single message


def kernel_serves(x: Tensor) -> bool:
    """Whether the statistics of such rows are a kernel's: on a GPU with Triton, unless SHIFTPROOF_KERNELS is 0.

    Its sums of gradients are in no fixed order, so it serves nobody who wants deterministic algorithms.
    """
    if x.device.type != "cuda" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    return not torch.are_deterministic_algorithms_enabled() and _works_on(x.device)


@cache
def _works_on(device: torch.device) -> bool:
    """Whether kernels are wanted and can be built for a device: Triton needs a C compiler and a GPU that it knows."""
    if not kernels_wanted() or find_spec("triton") is None:
        return False
    rows = torch.ones(1, 1, 64, dtype=torch.float32, device=device)
    edge = torch.zeros(1, dtype=torch.long, device=device)  # one edge, from the only node to itself
    try:
        _NodeStatistics.forward(rows, None, None, edge, edge, edge, edge + 1, None, STATISTICS, False)
    except Exception as error:  # of the compiler, the driver, the linker, the folder for what is compiled
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(
            f"Triton cannot build a kernel here ({type(error).__name__}: {reason}), so layers take torch's own "
            "operations, which are slower; SHIFTPROOF_KERNELS=0 says so beforehand",
            stacklevel=2,
        )
        return False
    return True


def node_statistics(
    x: Tensor,
    weight: Tensor | None,
    edge: Tensor | None,
    src: Tensor,
    by_node: ByNode,
    names: Sequence[str],
    *,
    real: Tensor | None = None,
    delete: bool = False,
) -> Tensor:
    """`[mean ‖ min ‖ ...]_{u→v} w_{uv} [h_v ‖ h_u ‖ e_{uv}]` of every node, `[N, q]` or, of `t` samples, `[N, t, q]`.

    Rows are `[N, p]` or `[N, t, p]`, weights `[E]` or `[E, t]`, edge rows `[E, p]`. Messages that tie for an extreme
    share its gradient. Nodes that are not `real` have the statistics of no message. `delete` leaves messages of weight
    zero out.
    """
    several = x.dim() == 3 or (weight is not None and weight.dim() == 2)
    x = x if x.dim() == 3 else x.unsqueeze(1)
    weight = weight.unsqueeze(1) if weight is not None and weight.dim() == 1 else weight
    out: Tensor = _NodeStatistics.apply(x, weight, edge, src, *by_node, real, tuple(names), delete)  # type: ignore[assignment]
    return out if several else out.squeeze(1)


class _NodeStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        edge: Tensor | None,
        src: Tensor,
        order: Tensor,
        start: Tensor,
        stop: Tensor,
        real: Tensor | None,
        names: tuple[str, ...],
        delete: bool,
    ) -> Tensor:
        from shiftproof.nn.kernels.gpu.statistics_kernel import forward

        work = _Launch(x, weight, edge, src, (order, start, stop), real, names, delete)
        out = x.new_empty(len(x), work.samples, len(names), work.parts, work.width)
        launch: Any = forward[work.grid]
        with torch.cuda.device_of(x):  # Triton starts kernels where torch is, not where its tensors are
            for part in range(work.parts):
                into = out[:, :, :, part]
                launch(*work.tensors(part), into, *into.stride()[:3], **work.constants(part))
        return out.flatten(2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        *tensors, ctx.names, ctx.delete = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from shiftproof.nn.kernels.gpu.statistics_kernel import backward

        x, weight, edge, src, *by_node, real = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody differentiates twice
            inputs = [value for value, asked in zip((x, weight, edge), ctx.needs_input_grad, strict=False) if asked]
            again = plain_statistics(x, weight, edge, src, ByNode(*by_node), real, ctx.names, ctx.delete)
            found = iter(torch.autograd.grad(again, inputs, grad, create_graph=True))
            return *(next(found) if asked else None for asked in ctx.needs_input_grad[:3]), *[None] * 7
        work = _Launch(x, weight, edge, src, tuple(by_node), real, ctx.names, ctx.delete)
        of_x, of_weight, of_edge, *_ = ctx.needs_input_grad
        grad = grad.contiguous().view(len(x), work.samples, len(ctx.names), work.parts, work.width)
        shared = x.shape[1] < work.samples
        make = torch.zeros if shared else torch.empty  # where rows are not shared, all of them are written
        to_x = make(x.shape, device=x.device) if of_x else None
        to_edge = torch.zeros(edge.shape, device=x.device) if of_edge else None
        to_weight = torch.zeros(work.parts, len(src), work.samples, device=x.device) if of_weight else None
        launch: Any = backward[work.grid]
        with torch.cuda.device_of(x):
            for part in range(work.parts):
                slope, into = grad[:, :, :, part], to_edge if part == 2 else to_x
                if into is None and to_weight is None:
                    continue
                strides = (0, 0) if into is None else (into.stride(0), 0 if part == 2 else into.stride(1))
                launch(
                    *work.tensors(part),
                    slope,
                    *slope.stride()[:3],
                    x if into is None else into,
                    *strides,
                    x if to_weight is None else to_weight[part],
                    work.samples,
                    OF_ROWS=into is not None,
                    SHARED=part == 2 or shared,
                    OF_WEIGHT=of_weight,
                    **work.constants(part),
                )
        if to_weight is not None:
            to_weight = to_weight.sum(0)
            to_weight = to_weight if weight.shape[1] == work.samples else to_weight.sum(1, keepdim=True)
        return to_x, to_weight, to_edge, *[None] * 7

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple:
        *tensors, names, delete = inputs
        # sources are nodes; the order, and where the edges of a node begin and end, are numbers of edges
        numbers = {3: 0, 4: 3, 5: 3, 6: 3}
        found = _NodeStatistics.apply(*as_one_list(info.batch_size, in_dims, tensors, numbers), names, delete)
        return found.unflatten(0, (info.batch_size, -1)), 0  # type: ignore[union-attr]


class _Launch:
    """What both kernels are told."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        edge: Tensor | None,
        src: Tensor,
        by_node: tuple[Tensor, ...],
        real: Tensor | None,
        names: tuple[str, ...],
        delete: bool,
    ) -> None:
        self.x, self.edge = whole_rows(x), None if edge is None else whole_rows(edge)
        self.weight, self.src, self.by_node = weight, src.contiguous(), by_node
        self.real = None if real is None else real.contiguous()
        self.names, self.delete = names, delete
        self.samples = max(x.shape[1], 1 if weight is None else weight.shape[1])
        self.width, self.parts = x.shape[2], 2 if edge is None else 3

    @property
    def grid(self) -> tuple[int, int]:
        return len(self.x), -(-self.samples // self.tile)

    @property
    def tile(self) -> int:
        return tile_of(self.samples)

    def tensors(self, part: int) -> tuple[Any, ...]:
        """The rows a part is made of, the weights and the edges, each with what lies between two of its entries."""
        rows = self.edge if part == 2 and self.edge is not None else self.x
        shared = rows.dim() == 2 or rows.shape[1] == 1
        weight = self.x if self.weight is None else self.weight
        alike = weight.shape[1] == 1
        return (
            rows,
            rows.stride(0),
            0 if shared else rows.stride(1),
            weight,
            weight.stride(0),
            0 if alike else weight.stride(1),
            self.src,
            *self.by_node,
            self.src if self.real is None else self.real,
            self.samples,
        )

    def constants(self, part: int) -> dict[str, Any]:
        block = 1 << (self.width - 1).bit_length()
        places = {name.upper(): self.names.index(name) if name in self.names else -1 for name in STATISTICS}
        return {
            "WIDTH": self.width,
            "TILE": self.tile,
            "BLOCK": block,
            "PART": part,
            "WEIGHTED": self.weight is not None,
            "DELETE": self.delete,
            "PADDED": self.real is not None,
            "LEAST": LEAST_VARIANCE,
            "num_warps": warps_of(self.tile * block),
            **ROUNDED,
            **places,
        }


def tile_of(samples: int) -> int:
    """How many samples a program takes: the most of a power of two that leaves few of its places empty."""
    sizes = [1 << power for power in range(MOST_IN_TILE.bit_length())]
    return max(size for size in sizes if size == 1 or -(-samples // size) * size <= 1.2 * samples)


def warps_of(numbers: int) -> int:
    """The warps of a program that holds so many numbers."""
    return min(max(1, numbers // NUMBERS_OF_A_WARP), MOST_WARPS)


def whole_rows(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()
