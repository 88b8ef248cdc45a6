"""Batch norm that knows padding and parallel samples, and instance norm over the rows of each graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.dropout import relu_dropout_
from shiftproof.nn.kernels.cpu.availability import indices_serve, loops_serve
from shiftproof.nn.kernels.cpu.norm import loop_over_groups, loop_over_rows
from shiftproof.nn.kernels.gpu.node_statistics import kernel_serves
from shiftproof.nn.kernels.gpu.sample_norm import FEWEST_COLUMNS, norm_of_samples
from shiftproof.nn.kernels.reference import plain_instance_norm
from shiftproof.nn.ranks import spread, summed
from shiftproof.nn.segment import segment_count, segment_sum
from shiftproof.nn.stacking import members_first, numbered_apart, stacked, stacking

SAMPLES = ("per_sample", "pooled")


class RealRows:
    """Which rows of a padded batch are real, with what batch norm needs of them; made once for all layers."""

    def __init__(self, mask: Tensor, dtype: torch.dtype) -> None:
        real = mask.to(dtype)
        rows = real.sum()
        self.mask = mask
        self.count = rows.clamp(min=1)
        self.share = real / self.count
        self.unbias = rows / (rows - 1).clamp(min=1)
        self.any_row = (rows > 0).to(dtype)
        self._parts: dict[float, Tensor] = {}

    def part(self, momentum: float) -> Tensor:
        """How far the running statistics move: not at all where there is no row."""
        if momentum not in self._parts:
            self._parts[momentum] = self.any_row * momentum
        return self._parts[momentum]


class _RealRowsNorm(torch.autograd.Function):
    """Batch norm whose statistics weigh row `i` by `share[i]`; few kernels both ways, which a replayed step waits for.

    Rows outside of the mask have share 0 and become 0: all the loops of a padded batch are at one node, whose row would
    otherwise grow a thousandfold with every layer that sums. The gradient that arrives there must be 0, as it is for
    padding, which no real row depends on.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, share, mask, eps):
        mean = torch.mv(x.t(), share)
        centred = x - mean
        var = torch.mv(centred.square().t(), share)
        scale = (var + eps).rsqrt()
        out = centred * scale if weight is None else torch.addcmul(bias, centred, scale * weight)
        return torch.where(mask.unsqueeze(1), out, 0), mean, var, centred, scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, weight, _, share, _, _ = inputs
        _, mean, var, centred, scale = output
        ctx.mark_non_differentiable(mean, var, centred, scale)
        ctx.save_for_backward(centred, scale, weight, share)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        centred, scale, weight, share = ctx.saved_tensors
        factor = scale if weight is None else scale * weight
        total, along = grad.sum(0), (grad * centred).sum(0)
        pull = torch.addcmul(factor * total, centred, factor * scale.square() * along)
        inward = torch.addcmul(grad * factor, pull, share.unsqueeze(1), value=-1)
        return inward, *((None, None) if weight is None else (along * scale, total)), None, None, None


def _normalise_real_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, rows: RealRows, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _RealRowsNorm.apply(x, weight, bias, rows.share, rows.mask, eps)[:3]  # type: ignore[return-value]


class NodeBatchNorm(nn.BatchNorm1d):
    """Batch norm over node rows; the padding of a padded batch does not count.

    .. math:: y = γ (x - E[x]) / \\sqrt{Var[x] + ε} + β

    Rows `[N, p]` without a mask go to torch's own batch norm. With a boolean `mask` of shape `[N]` the statistics, the
    running ones included, are those of the true rows alone, with static shapes and no wait for the device. For `t`
    parallel samples `[N, t, p]`, `samples="per_sample"` normalises each sample by its own statistics and moves the
    running ones `t` times (what a loop over the samples does), `samples="pooled"` takes all `N * t` rows together.
    A single row has mean `x` and variance 0 instead of being an error; no row at all leaves the statistics alone.
    `relu=True` puts a ReLU behind it, which for samples, and on a GPU in a stack of networks, is of the same kernel.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(
        self, channels: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, samples: str = "per_sample"
    ) -> None:
        super().__init__(channels, eps=eps, momentum=momentum, affine=affine)
        if samples not in SAMPLES:
            raise unknown("batch statistics", samples, SAMPLES)
        self.samples = samples

    def forward(self, x: Tensor, mask: Tensor | RealRows | None = None, *, relu: bool = False) -> Tensor:
        if spread() and self.training:
            return self._over_ranks(x, mask, relu)
        several = x.dim() == 3 and self.samples == "per_sample"
        many = several and x.shape[1] * x.shape[2] >= FEWEST_COLUMNS
        if (many or (stacked() and x.dim() == 2)) and self.training and len(x) > 0 and kernel_serves(x):
            return self._by_kernel(x, mask, relu)
        if several and mask is None and self.training and len(x) > 1 and loops_serve(x, self.weight, self.bias):
            out, mean, var = loop_over_rows(x.flatten(1), self.weight, self.bias, self.eps, relu=relu)
            self._move(mean, var * len(x) / (len(x) - 1), x.shape[1])
            return out.view(x.shape)
        out = self._normalise(x, mask)
        return relu_dropout_(out, 0.0, self.training) if relu else out

    def _over_ranks(self, x: Tensor, mask: Tensor | RealRows | None, relu: bool) -> Tensor:
        """Training-mode batch norm of rows of which other ranks have more: by the statistics of all of them."""
        if mask is not None or x.dim() != 2:
            raise ShiftproofError("padded batches and parallel samples are trained on one device, not on several")
        rows = summed(x.new_tensor(len(x)))
        mean = summed(x.sum(0)) / rows
        centred = x - mean
        var = summed(centred.square().sum(0)) / rows
        out = centred * (var + self.eps).rsqrt()
        out = out if self.weight is None else torch.addcmul(self.bias, out, self.weight)
        self._move(mean.detach(), var.detach() * rows / (rows - 1).clamp(min=1), 1)
        return relu_dropout_(out, 0.0, self.training) if relu else out

    def _normalise(self, x: Tensor, mask: Tensor | RealRows | None) -> Tensor:
        if x.dim() == 2:
            if not self.training or (mask is None and x.shape[0] > 1):
                return super().forward(x)
            return self._by_hand(x, mask, 1)
        rows, parallel, channels = x.shape
        if self.training and self.samples == "per_sample":
            return self._by_hand(x.reshape(rows, parallel * channels), mask, parallel).view(x.shape)
        flat = x.reshape(rows * parallel, channels)
        if mask is not None:
            mask = mask.mask if isinstance(mask, RealRows) else mask
            mask = mask.repeat_interleave(parallel, output_size=rows * parallel)
        return self._normalise(flat, mask).view(x.shape)

    def _by_kernel(self, x: Tensor, mask: Tensor | RealRows | None, relu: bool) -> Tensor:
        """Training-mode batch norm of `[N, p]`, or of `[N, t, p]`, each sample by its own statistics."""
        rows = RealRows(mask, x.dtype) if isinstance(mask, Tensor) else mask
        given = self.weight, self.bias, None if rows is None else rows.mask
        count = None if rows is None else rows.count
        out, mean, var = norm_of_samples(x.flatten(1), *given, self.eps, relu=relu, count=count)
        unbias = len(x) / max(len(x) - 1, 1) if rows is None else rows.unbias
        parallel = x.shape[1] if x.dim() == 3 else 1
        self._move(mean, var * unbias, parallel, rows)
        return out.view(x.shape)

    def extra_repr(self) -> str:
        shown = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return shown if self.samples == "per_sample" else f"{shown}, samples={self.samples!r}"

    def _by_hand(self, x: Tensor, mask: Tensor | RealRows | None, parallel: int) -> Tensor:
        """Training-mode batch norm of `[N, parallel * p]` where torch's own cannot be used as it is."""
        weight = None if self.weight is None else self.weight.repeat(parallel)
        bias = None if self.bias is None else self.bias.repeat(parallel)
        if mask is None and x.shape[0] > 1:
            moved = [self.running_mean.repeat(parallel), self.running_var.repeat(parallel)]
            out = F.batch_norm(x, moved[0], moved[1], weight, bias, True, 1.0, self.eps)
            self._move(moved[0], moved[1], parallel)
            return out
        rows = RealRows(x.new_ones(x.shape[0], dtype=torch.bool), x.dtype) if mask is None else mask
        rows = rows if isinstance(rows, RealRows) else RealRows(rows, x.dtype)
        out, mean, var = _normalise_real_rows(x, weight, bias, rows, self.eps)
        self._move(mean, var * rows.unbias, parallel, rows)
        return out

    @torch.no_grad()
    def _move(self, mean: Tensor, var: Tensor, parallel: int, rows: RealRows | None = None) -> None:
        """Move the running statistics once for each sample, in order; not at all when there was no row."""
        # `data`: torch's own batch norm keeps the statistics for its backward pass, but in training does not read them
        running_mean, running_var = self.running_mean, self.running_var
        if not stacked():
            running_mean, running_var = running_mean.data, running_var.data
        if parallel == 1:
            part = self.momentum if rows is None else rows.part(self.momentum)
            running_mean.add_((mean - running_mean) * part)
            running_var.add_((var - running_var) * part)
            self.num_batches_tracked += 1
            return
        keep = 1 - self.momentum
        step = self.momentum * keep ** torch.arange(parallel - 1, -1, -1, device=mean.device, dtype=mean.dtype)
        for running, seen in ((running_mean, mean), (running_var, var)):
            target = running * keep**parallel + step @ seen.view(parallel, -1)
            running.add_((target - running) * (1.0 if rows is None else rows.any_row))
        self.num_batches_tracked += parallel


def norm_relu(norm: nn.Module, x: Tensor, mask: Tensor | RealRows | None = None) -> Tensor:
    """A norm and the ReLU behind it, in one where the norm is ours; whoever put another in its place gets both."""
    if isinstance(norm, NodeBatchNorm):
        return norm(x, mask, relu=True)
    return relu_dropout_(norm(x, mask), 0.0, norm.training)


class _InstanceNorm(torch.autograd.Function):
    """`plain_instance_norm` with its backward pass in closed form, half the passes over the rows.

    .. math:: \\partial x = (g - mean_G(g) - y\\, mean_G(g y)) / σ_G
    """

    @staticmethod
    def forward(x, group, num_groups, eps):
        share = segment_count(group, num_groups, x.dtype).clamp_(min=1).reciprocal_()
        share = share.view(-1, *[1] * (x.dim() - 1))
        out = x - segment_sum(x, group, num_groups).mul_(share).index_select(0, group)
        scale = segment_sum(out.square(), group, num_groups).mul_(share).add_(eps).rsqrt_().index_select(0, group)
        return out.mul_(scale), share, scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, group, _, ctx.eps = inputs
        out, share, scale = output
        ctx.mark_non_differentiable(share, scale)
        ctx.save_for_backward(x, group, share, out, scale)

    @staticmethod
    def vmap(info, in_dims, x, group, num_groups, eps):
        x, group = members_first(info.batch_size, in_dims, x, group)
        with stacking(0):
            found = _InstanceNorm.apply(x.flatten(0, 1), numbered_apart(group, num_groups), len(x) * num_groups, eps)
        return tuple(value.unflatten(0, (len(x), -1)) for value in found), (0, 0, 0)  # type: ignore[union-attr]

    @staticmethod
    def backward(ctx, *grads):
        grad = grads[0]
        x, group, share, out, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody differentiates twice
            again = plain_instance_norm(x, group, len(share), ctx.eps)
            return *torch.autograd.grad(again, x, grad, create_graph=True), None, None, None
        along = segment_sum(grad * out, group, len(share)).mul_(share).index_select(0, group).mul_(out)
        level = segment_sum(grad, group, len(share)).mul_(share).index_select(0, group)
        return (grad - along).sub_(level).mul_(scale), None, None, None


class GraphInstanceNorm(nn.Module):
    """Normalises each channel over the rows (edges or nodes) of each graph separately.

    .. math:: y_i = (x_i - μ_{g(i)}) / \\sqrt{σ²_{g(i)} + ε}

    A graph's only row becomes zero. No running statistics; `affine=True` adds a learned scale and shift.
    """

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.channels, self.eps, self.affine = channels, eps, affine
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    def forward(self, x: Tensor, group: Tensor, num_groups: int) -> Tensor:
        if x.dim() == 2 and len(x) == len(group) and loops_serve(x) and indices_serve(group):
            out = loop_over_groups(x, group, num_groups, self.eps)
        elif torch.compiler.is_compiling():
            out = plain_instance_norm(x, group, num_groups, self.eps)
        else:
            out = _InstanceNorm.apply(x, group, num_groups, self.eps)[0]  # type: ignore[index]
        return out if self.weight is None or self.bias is None else torch.addcmul(self.bias, out, self.weight)

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}, affine={self.affine}"
