r"""Gradients of many objectives for many linear heads at once, in closed form.

All heads share the features: logits are one product for all of them, the gradient is another. Between the two, each
objective only decides how a sample's residual is weighted. With residuals :math:`r = p - y`, the Jacobian of the
probabilities :math:`J = \mathrm{diag}(p) - p p^T` (:math:`\sigma(1-\sigma)` for one logit) and means :math:`E_e` over
environment e, the gradient in a sample's logits is

======== =============================================================== ==========================================
name     penalty                                                         gradient in the logits, times :math:`n_e`
======== =============================================================== ==========================================
vrex     :math:`\sum_e (R_e-\bar R)^2/(E-1)`                             :math:`2(R_e-\bar R)/(E-1)\; r`
irm      :math:`\frac1E\sum_e g_e^2,\; g_e = E_e[r\cdot z]`              :math:`\frac2E g_e\,(r + Jz)`
iga      :math:`\sum_e\lVert G_e-\bar G\rVert^2,\; G_e=E_e[r\otimes h]`  :math:`2J(G_e-\bar G)h`
fishr    :math:`\sum_e\lVert v_e-\bar v\rVert^2,\; v_e=E_e[r^2\otimes h^2]` :math:`4J\,(r\cdot(v_e-\bar v)h^2)`
clove    :math:`\sum_e \mathrm{MMCE}_e`                                  through the confidence, see `clove_pull`
======== =============================================================== ==========================================

so nothing is differentiated twice and no gradient of a single sample is ever stored. A regression is the same with
:math:`p = 2z`, :math:`r = 2(z-y)` and :math:`J = 2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

KERNEL_WIDTH = 0.4  # docs/papers/feat.md#heads, of CLOvE's Laplacian kernel
NEEDS_RISK = ("vrex", "irmx", "groupdro")
NEEDS_SCALE = ("irm", "irmx")


@dataclass(frozen=True, eq=False)
class Samples:
    """Features sorted by environment, so that every block of rows lies in one; labels as one column a logit."""

    h: Tensor
    target: Tensor
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, features: Tensor, y: Tensor, env: Tensor, outputs: int, linear: bool = False) -> Samples:
        order = env.argsort(stable=True)
        counts = torch.unique_consecutive(env[order], return_counts=True)[1].tolist()
        bounds = [0]
        for count in counts:
            bounds.append(bounds[-1] + count)
        labels = y.reshape(-1)[order]
        target = labels.to(features.dtype).unsqueeze(1) if outputs == 1 else F.one_hot(labels.long(), outputs)
        target = 2 * target if linear else target
        return cls(features[order].contiguous(), target.to(features.dtype), tuple(bounds))

    @property
    def envs(self) -> int:
        return len(self.bounds) - 1

    def count(self, env: int) -> int:
        return self.bounds[env + 1] - self.bounds[env]

    def blocks(self, size: int) -> list[tuple[int, slice]]:
        """Environment and rows of every block of at most `size` rows."""
        return [
            (env, slice(start, min(start + size, self.bounds[env + 1])))
            for env in range(self.envs)
            for start in range(self.bounds[env], self.bounds[env + 1], size)
        ]


class RandomRows:
    """Random mini-batches of an environment, drawn a pass through it at a time; `chosen` always is the same memory."""

    def __init__(self, samples: Samples, env: int, size: int | None, generator: torch.Generator) -> None:
        self.first, self.count, self.device = samples.bounds[env], samples.count(env), samples.h.device
        self.size, self.generator = min(size or self.count, self.count), generator
        self.chosen = (torch.arange(self.size) + self.first).to(self.device)
        self.left: list[Tensor] = []

    def draw(self) -> None:
        if self.size == self.count:
            return
        if not self.left:
            order = torch.randperm(self.count, generator=self.generator) + self.first
            whole = self.count // self.size
            ordered = order[: whole * self.size].to(self.device, non_blocking=True)
            self.left = list(ordered.view(whole, self.size))
        self.chosen.copy_(self.left.pop())


class HeadGradients:
    """The gradients of all heads at their weights; `heads[objective]` are the columns of an objective's heads.

    `penalty` holds the weight of each head's penalty (the rate of the environment weights for GroupDRO), `risk` the
    weight of each environment's risk by objective. `linear` is a regression.
    """

    def __init__(
        self,
        samples: Samples,
        heads: Mapping[str, slice],
        penalty: Tensor,
        risk: Mapping[str, Tensor],
        outputs: int,
        block: int,
        clove_batch: int | None,
        linear: bool = False,
        seed: int = 0,
    ) -> None:
        self.linear = linear
        self.samples, self.heads, self.penalty, self.risk, self.outputs = samples, dict(heads), penalty, risk, outputs
        self.blocks = samples.blocks(block)
        n, count = len(samples.h), len(penalty)
        self.z = samples.h.new_empty(n, count, outputs)
        self.p = torch.empty_like(self.z)
        self.squares = samples.h.square() if "fishr" in heads else None
        self.sizes = samples.h.new_tensor([samples.count(env) for env in range(samples.envs)])
        generator = torch.Generator().manual_seed(seed)
        drawn = range(samples.envs) if "clove" in heads else ()
        self.calibrated = [RandomRows(samples, env, clove_batch, generator) for env in drawn]
        if "groupdro" in heads:
            columns = heads["groupdro"]
            self.q = samples.h.new_full((samples.envs, columns.stop - columns.start), 1 / samples.envs)

    def draw(self) -> None:
        """Choose the samples that CLOvE sees in the next step; nothing waits for the device."""
        for rows in self.calibrated:
            rows.draw()

    @property
    def state(self) -> list[Tensor]:
        """What a step changes beside the weights: the environment weights of GroupDRO."""
        return [self.q] if "groupdro" in self.heads else []

    def __call__(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients for weights [d, heads, C] and biases [heads, C], of the same shapes."""
        d = weight.shape[0]
        stats = self._first_pass(weight.reshape(d, -1), bias.reshape(-1))
        risk, scale, pull = self._coefficients(stats)
        grad = torch.zeros_like(weight.reshape(d, -1))
        grad_bias = torch.zeros_like(bias)
        for env, rows in self.blocks:
            c = self._logit_gradients(env, rows, risk, scale, pull)
            grad.addmm_(self.samples.h[rows].T, c.reshape(len(c), -1))
            grad_bias += c.sum(0)
        grad, columns = grad.view_as(weight), self.heads.get("clove")
        if columns is not None:
            for rows in self.calibrated:
                self._add_clove(rows.chosen, columns, grad, grad_bias)
        return grad, grad_bias

    def _first_pass(self, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
        """Logits and probabilities of all heads, and the means over environments that the penalties are made of."""
        s, (_, count, outputs), envs = self.samples, self.z.shape, self.samples.envs
        stats = {"risk": self.z.new_zeros(envs, count), "scale": self.z.new_zeros(envs, count)}
        for name in ("iga", "fishr"):
            if name in self.heads:
                of = self.heads[name]
                stats[name] = self.z.new_zeros(envs, s.h.shape[1] + 1, (of.stop - of.start) * outputs)
        for env, rows in self.blocks:
            h, y = s.h[rows], s.target[rows].unsqueeze(1)
            z = self.z[rows]
            torch.addmm(bias, h, weight, out=z.view(len(h), -1))
            p = self.p[rows]
            p.copy_(2 * z if self.linear else z.sigmoid() if outputs == 1 else z.softmax(-1))
            for name, of in self.heads.items():
                if name in NEEDS_RISK:
                    stats["risk"][env, of] += self._losses(z[:, of], y).sum(0)
                if name in NEEDS_SCALE:
                    stats["scale"][env, of] += ((p[:, of] - y) * z[:, of]).sum((0, 2))
                if name == "iga":
                    _add_moments(stats["iga"][env], h, p[:, of] - y)
                if name == "fishr":
                    assert self.squares is not None
                    _add_moments(stats["fishr"][env], self.squares[rows], (p[:, of] - y).square())
        return {name: value / self.sizes.view(-1, *[1] * (value.dim() - 1)) for name, value in stats.items()}

    def _coefficients(self, stats: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Per environment and head: the factors of the residual and of the scale term; where IGA and Fishr pull."""
        envs = self.samples.envs
        risk, scale = torch.zeros_like(stats["risk"]), torch.zeros_like(stats["scale"])
        for name, of in self.heads.items():
            risk[:, of] = self.risk[name].unsqueeze(1)
            if name in ("vrex", "irmx") and envs > 1:
                spread = stats["risk"][:, of] - stats["risk"][:, of].mean(0)
                risk[:, of] += self.penalty[of] * 2 / (envs - 1) * spread
            if name in NEEDS_SCALE:
                scale[:, of] = self.penalty[of] * 2 / envs * stats["scale"][:, of]
            if name == "groupdro":
                grown = self.penalty[of] * stats["risk"][:, of]
                self.q.mul_((grown - grown.amax(0)).exp())
                self.q.div_(self.q.sum(0))
                risk[:, of] = self.q
        pull = {}
        for name in ("iga", "fishr"):
            if name in stats:
                weight = self.penalty[self.heads[name]].unsqueeze(1).expand(-1, self.outputs).flatten()
                pull[name] = 2 * weight * (stats[name] - stats[name].mean(0))
        return risk, scale, pull

    def _logit_gradients(
        self, env: int, rows: slice, risk: Tensor, scale: Tensor, pull: Mapping[str, Tensor]
    ) -> Tensor:
        """The gradient of every head's loss in the logits of a block of samples."""
        s = self.samples
        z, p = self.z[rows], self.p[rows]
        r = p - s.target[rows].unsqueeze(1)
        c = r * ((risk[env] + scale[env]) / s.count(env)).unsqueeze(-1)
        for name, of in self.heads.items():
            if name in NEEDS_SCALE:
                c[:, of] += self._jacobian(p[:, of], z[:, of]) * (scale[env, of] / s.count(env)).unsqueeze(-1)
            if name in pull:
                inputs = s.h[rows] if name == "iga" else self.squares[rows]  # type: ignore[index]
                towards = pull[name][env]
                t = torch.addmm(towards[-1], inputs, towards[:-1]).view_as(z[:, of])
                c[:, of] += self._jacobian(p[:, of], t if name == "iga" else 2 * r[:, of] * t) / s.count(env)
        return c

    def _add_clove(self, rows: Tensor, of: slice, grad: Tensor, grad_bias: Tensor) -> None:
        """Add the gradient of the calibration error on some samples of one environment."""
        s = self.samples
        p, target = self.p[rows][:, of], s.target[rows].unsqueeze(1)
        if self.outputs == 1:
            confidence = torch.maximum(p, 1 - p).squeeze(-1)
            correct = ((p > 0.5) == (target > 0.5)).squeeze(-1)
            towards = 2 * (p > 0.5).to(p.dtype) - 1
        else:
            confidence, best = p.max(-1)
            towards = F.one_hot(best, self.outputs).to(p.dtype)
            correct = (towards * target).sum(-1) > 0.5
        pull = clove_pull(confidence, correct.to(p.dtype)) * self.penalty[of]
        c = self._jacobian(p, towards) * pull.unsqueeze(-1)
        grad[:, of] += (s.h[rows].T @ c.reshape(len(rows), -1)).view_as(grad[:, of])
        grad_bias[of] += c.sum(0)

    def _losses(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample under each head, [n, heads]."""
        if self.linear:
            return (z - y / 2).square().squeeze(-1)
        if self.outputs == 1:
            return (F.softplus(z) - y * z).squeeze(-1)
        return z.logsumexp(-1) - (z * y).sum(-1)

    def _jacobian(self, p: Tensor, u: Tensor) -> Tensor:
        """The derivative of the residuals in the logits, along u."""
        if self.linear:
            return 2 * u
        if self.outputs == 1:
            return p * (1 - p) * u
        return p * (u - (p * u).sum(-1, keepdim=True))


def clove_pull(confidence: Tensor, correct: Tensor, width: float = KERNEL_WIDTH) -> Tensor:
    r"""Gradient of the calibration error in each confidence, for every column at once ([n, heads]).

    With :math:`d_i = c_i - r_i`, in ascending order of r, and :math:`A_k=\sum_{j<k} d_j K_{kj}`,
    :math:`B_k=\sum_{j>k} d_j K_{kj}`,

    .. math:: \partial_k = \tfrac1{n^2}\big[-2(A_k + B_k + d_k) + 2 d_k (B_k - A_k)/\text{width}\big]

    where A and B are running sums: n log n for a full environment, no n-by-n kernel.
    """
    r, order = confidence.sort(0)
    d = (correct - confidence).gather(0, order)
    rising = ((r - 0.5) / width).exp()
    below, above = d * rising, d / rising
    before = (below.cumsum(0) - below) / rising
    after = (above.flip(0).cumsum(0).flip(0) - above) * rising
    pull = (-2 * (before + after + d) + 2 * d * (after - before) / width) / len(r) ** 2
    return torch.empty_like(pull).scatter_(0, order, pull)


def _add_moments(total: Tensor, inputs: Tensor, values: Tensor) -> None:
    """Add the sums over samples of values times inputs and, in the last row, of the values alone."""
    flat = values.reshape(len(values), -1)
    total[:-1].addmm_(inputs.T, flat)
    total[-1] += flat.sum(0)
