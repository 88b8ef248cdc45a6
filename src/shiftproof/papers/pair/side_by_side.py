"""Many small regressions trained side by side: the same steps for every method, preference, seed and data set at once.

A hundred thousand steps of a network with 17,000 weights are nothing but overhead, one run after another. Here all runs
are one batch of matrix products, with the programme of PAIR solved for all of them on the device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.pareto.fronts import ROUNDING, SMALLEST
from shiftproof.pareto.programme import TOLERANCE
from shiftproof.training.capture import Captured, capture_if_possible

WIDTH = 128  # docs/papers/pair.md#extrapolation-network: 2-128-128-1
STEPS = 10  # of an epoch; the points of an environment make ten equal batches


@dataclass(frozen=True)
class Member:
    """One run of the stack: its data set (by number), seed, and either a preference or fixed weights of the penalties.

    The terms are risk, IRMv1 and V-REx; `anneal` are the weights of the last two in the first phase.
    """

    data: int
    seed: int
    preference: tuple[float, float, float] | None = None
    penalties: tuple[float, float] = (0.0, 0.0)
    anneal: tuple[float, float] = (0.0, 0.0)


def solve_three(losses: Tensor, gramian: Tensor, preference: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r"""What `PreferenceSolver` does for three objectives, for many of them at once: weights [K, 3], and who fell back.

    Every vertex of the simplex cut by the rows is the meeting point of two planes with the plane of sum one,

    .. math:: \alpha = \frac{u\times v + b_u\,(v\times\mathbf 1) + b_v\,(\mathbf 1\times u)}{\mathbf 1\cdot(u\times v)}

    so no system has to be solved, and a CUDA graph can hold it: nothing waits for the device, and no number comes from
    the host. All tensors are in double precision.
    """
    shares = preference * losses
    shares = shares / shares.sum(1, keepdim=True)
    logs = (3 * shares.clamp(min=SMALLEST)).log()
    counted = (shares * logs).masked_fill(shares <= torch.finfo(shares.dtype).eps, 0)
    uneven = counted.sum(1, keepdim=True).clamp(min=0)
    off = logs - uneven
    slopes = (gramian @ (preference * off.masked_fill(off.abs() < ROUNDING, 0)).unsqueeze(2)).squeeze(2)
    balance = uneven > eps
    worst = preference * losses == (preference * losses).amax(1, keepdim=True)
    objective = torch.where(balance, slopes, gramian.sum(1))
    rows = torch.cat([gramian, slopes.unsqueeze(1)], 1)
    last = slopes.amax(1, keepdim=True).clamp(max=0)
    bounds = torch.cat([slopes.masked_fill(~balance | worst, 0), last], 1)
    asked = torch.cat([~balance | worst | (slopes <= 0), ~balance], 1)
    size = rows.abs().amax(2, keepdim=True)
    asked = asked & (size.squeeze(2) > 0)
    size = size.masked_fill(size <= 0, 1)
    rows, bounds = rows / size, bounds / size.squeeze(2)
    points, whole = _meeting_points(rows, bounds, asked)
    values = points @ rows.transpose(1, 2)
    room = points.abs() @ rows.abs().transpose(1, 2) + bounds.abs().unsqueeze(1)
    met = ((values - bounds.unsqueeze(1) >= -TOLERANCE * room) | ~asked.unsqueeze(1)).all(2) & whole
    gained = (points @ objective.unsqueeze(2)).squeeze(2).masked_fill(~met, -torch.inf)
    found = points.gather(1, gained.argmax(1)[:, None, None].expand(-1, 1, 3)).squeeze(1)
    usable = met.any(1) & (losses >= 0).all(1) & losses.isfinite().all(1) & gramian.isfinite().flatten(1).all(1)
    return torch.where(usable[:, None], found, preference), ~usable


def _meeting_points(rows: Tensor, bounds: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The points [K, 21, 3] where two of the planes meet, and which of them are points of the simplex."""
    count = len(rows)
    zero = torch.eye(3, dtype=rows.dtype, device=rows.device).expand(count, 3, 3)
    planes = torch.cat([zero, rows], 1)
    right = torch.cat([torch.zeros_like(bounds[:, :3]), bounds], 1)
    there = torch.cat([torch.ones_like(asked[:, :3]), asked], 1)
    one, other = _pairs(planes.shape[1], rows.device)
    u, v, ones = planes[:, one], planes[:, other], torch.ones_like(planes[:, one])
    crossed = torch.linalg.cross(u, v)
    above = (
        crossed
        + right[:, one, None] * torch.linalg.cross(v, ones)
        + right[:, other, None] * torch.linalg.cross(ones, u)
    )
    points = above / crossed.sum(2, keepdim=True)
    total = points.sum(2)
    whole = points.isfinite().all(2) & (points >= -1e-12).all(2) & ((total - 1).abs() < 1e-6)
    points = points.clamp(min=0).masked_fill(~whole.unsqueeze(2), 0)
    return points / points.sum(2, keepdim=True).clamp(min=SMALLEST), whole & there[:, one] & there[:, other]


_PAIRS: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}


def _pairs(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    if (count, str(device)) not in _PAIRS:
        chosen = torch.tensor(list(itertools.combinations(range(count), 2)), device=device)
        _PAIRS[count, str(device)] = chosen[:, 0], chosen[:, 1]
    return _PAIRS[count, str(device)]


class Stack:
    """Networks 2-128-128-1 of all members, their Adams, and the step that moves them all."""

    def __init__(
        self, members: Sequence[Member], data: Sequence[Dataset], *, lr: float, eps: float, device: torch.device
    ) -> None:
        self.members, self.lr, self.eps, self.device = list(members), lr, eps, device
        self.epoch = 0
        self.which = torch.tensor([m.data for m in members], device=device)
        seeds = sorted({m.seed for m in members})
        self.of_seed = torch.tensor([seeds.index(m.seed) for m in members], device=device)
        self.orders = [torch.Generator().manual_seed(seed) for seed in seeds]
        trains = [d.train for d in data]
        self.per = min(int((t.env == e).sum()) for t in trains for e in (0, 1)) // STEPS  # type: ignore[operator]
        used = STEPS * self.per
        self.x = torch.stack([torch.stack([t.x[t.env == e][:used] for e in (0, 1)]) for t in trains]).to(device)
        self.y = torch.stack([torch.stack([t.y[t.env == e][:used] for e in (0, 1)]) for t in trains]).to(device)
        self.index = torch.zeros(len(seeds), 2, STEPS, self.per, dtype=torch.long, device=device)
        self.weights = _start(members, device)
        self.first, self.second = ([torch.zeros_like(w) for w in self.weights] for _ in range(2))
        self.count = torch.zeros(len(members), device=device)
        self.pair = torch.tensor([m.preference is not None for m in members], device=device)
        wanted = [m.preference or (1.0, 1.0, 1.0) for m in members]
        numbers = torch.tensor(wanted, dtype=torch.float64, device=device)
        self.preference = numbers / numbers.sum(1, keepdim=True)
        self.fixed = torch.tensor([(1.0, *m.penalties) for m in members], dtype=torch.float64, device=device)
        self.annealed = torch.tensor([(1.0, *m.anneal) for m in members], dtype=torch.float64, device=device)
        self.losses = torch.zeros(len(members), 3, dtype=torch.float64, device=device)
        self.alpha = torch.zeros_like(self.losses)
        self.fallbacks = torch.zeros(len(members), device=device)
        self._captured: dict[bool, Captured | None] = {}

    def predict(self, x: Tensor) -> Tensor:
        """The predictions of every member, [K, n], at points [n, 2] or [K, n, 2]."""
        return forward(self.weights, x if x.dim() == 3 else x.expand(len(self.members), -1, -1))[2]

    def train_epoch(self, *, balance: bool) -> None:
        """Ten steps; with `balance` the second phase: penalties count, and preferences are solved."""
        for number, order in enumerate(self.orders):
            drawn = torch.rand(2, STEPS * self.per, generator=order).argsort(1).view(2, STEPS, self.per)
            self.index[number].copy_(drawn)
        if self.device.type != "cuda":
            self._steps(balance)
        else:
            self._replayed(balance)
        self.epoch += 1

    def refresh(self) -> None:
        """Adam begins anew where weights are fixed; PAIR goes on with its own (docs/papers/pair.md#recovery)."""
        kept = self.pair.float()
        for slot in (*self.first, *self.second, self.count):
            slot.mul_(kept.view(-1, *[1] * (slot.dim() - 1)))

    def _replayed(self, balance: bool) -> None:
        if balance not in self._captured:
            self._steps(balance)  # warms up, and is this epoch
            torch.cuda.synchronize()
            what = "these steps of a stack"
            self._captured[balance] = capture_if_possible(lambda: self._steps(balance), what, warm_ups=0)
            return
        captured = self._captured[balance]
        self._steps(balance) if captured is None else captured()

    def _steps(self, balance: bool) -> None:
        for number in range(STEPS):
            self._step(self.index[:, :, number], balance)

    @torch.no_grad()
    def _step(self, index: Tensor, balance: bool) -> None:
        rows = index[self.of_seed]  # [K, 2, per]
        which, env = self.which[:, None, None], torch.arange(2, device=self.device)[None, :, None]
        x, y = self.x[which, env, rows].flatten(1, 2), self.y[which, env, rows].flatten(1)
        one, two, f = forward(self.weights, x)
        off, per = f - y, self.per
        risks = off.square().view(-1, 2, per).mean(2)
        dummies = (2 * off * f).view(-1, 2, per).mean(2)
        apart = risks[:, 0] - risks[:, 1]
        self.losses.copy_(torch.stack([risks.mean(1), dummies.square().mean(1), apart.square() / 2], 1))
        steep = 2 * off / per  # of an environment's risk in the predictions
        bent = dummies.unsqueeze(2).expand(-1, -1, per).flatten(1) * (4 * f - 2 * y) / per  # of IRMv1
        half = [slice(0, per), slice(per, None)]
        parts = [_backward(self.weights, x[:, h], one[:, h], two[:, h], steep[:, h]) for h in half]
        parts.append(_backward(self.weights, x, one, two, bent))
        self.alpha.copy_(self._weigh(parts, apart) if balance else self.annealed)
        # all three gradients are sums of those of the two risks and of IRMv1 (docs/papers/pair.md#linear-gradients)
        a, apart = self.alpha.float(), apart.view(-1)
        factors = (a[:, 0] / 2 + apart * a[:, 2], a[:, 0] / 2 - apart * a[:, 2], a[:, 1])
        moved = [sum(_of(c, p) * p for c, p in zip(factors, ps, strict=True)) for ps in zip(*parts, strict=True)]
        self._adam(moved)  # type: ignore[arg-type]

    def _weigh(self, parts: list[list[Tensor]], apart: Tensor) -> Tensor:
        flat = torch.stack([torch.cat([p.flatten(1) for p in part], 1) for part in parts], 1).double()
        apart, zero, half = apart.double(), torch.zeros_like(apart).double(), torch.full_like(apart, 0.5).double()
        made = [torch.stack(row, 1) for row in ((half, half, zero), (zero, zero, zero + 1), (apart, -apart, zero))]
        mixed = torch.stack(made, 1) @ flat
        found, fell = solve_three(self.losses, mixed @ mixed.transpose(1, 2), self.preference, self.eps)
        self.fallbacks.add_((fell & self.pair).float())
        return torch.where(self.pair[:, None], found, self.fixed)

    def _adam(self, gradients: list[Tensor]) -> None:
        self.count.add_(1)
        rate = self.lr / (1 - (self.count * math.log(0.9)).exp())
        spread = 1 - (self.count * math.log(0.999)).exp()
        for w, g, m, v in zip(self.weights, gradients, self.first, self.second, strict=True):
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            w.sub_(_of(rate, w) * m / ((v / _of(spread, v)).sqrt_().add_(1e-8)))

    def state(self) -> dict[str, Tensor]:
        """All that training goes on from."""
        named = {"weights": self.weights, "first": self.first, "second": self.second}
        found = {f"{name}.{n}": t.clone() for name, ts in named.items() for n, t in enumerate(ts)}
        found |= {f"order.{n}": order.get_state() for n, order in enumerate(self.orders)}
        return found | {
            "count": self.count.clone(),
            "fallbacks": self.fallbacks.clone(),
            "epoch": torch.tensor(self.epoch),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave, in place: a captured step reads these very tensors."""
        for name, tensors in {"weights": self.weights, "first": self.first, "second": self.second}.items():
            for number, tensor in enumerate(tensors):
                tensor.copy_(state[f"{name}.{number}"])
        for number, order in enumerate(self.orders):
            order.set_state(state[f"order.{number}"].cpu())
        self.count.copy_(state["count"])
        self.fallbacks.copy_(state["fallbacks"])
        self.epoch = int(state["epoch"])


def _of(factors: Tensor, like: Tensor) -> Tensor:
    return factors.view(-1, *[1] * (like.dim() - 1))


def _start(members: Sequence[Member], device: torch.device) -> list[Tensor]:
    """Xavier-uniform weights by the seed of each member, zero biases."""

    def drawn(order: torch.Generator, rows: int, columns: int) -> Tensor:
        return (2 * torch.rand(rows, columns, generator=order) - 1) * (6 / (rows + columns)) ** 0.5

    made = []
    for member in members:
        order = torch.Generator().manual_seed(member.seed)
        shapes = ((2, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))
        made.append([part for rows, cols in shapes for part in (drawn(order, rows, cols), torch.zeros(1, cols))])
    return [torch.stack(column).to(device) for column in zip(*made, strict=True)]


def forward(weights: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both hidden layers and the predictions [K, n] of networks at points [K, n, 2]."""
    w1, b1, w2, b2, w3, b3 = weights
    one = torch.baddbmm(b1, x, w1).relu_()
    two = torch.baddbmm(b2, one, w2).relu_()
    return one, two, torch.baddbmm(b3, two, w3).squeeze(2)


def _backward(weights: Sequence[Tensor], x: Tensor, one: Tensor, two: Tensor, slope: Tensor) -> list[Tensor]:
    """Gradients of all weights, from the slope of a loss in the predictions."""
    out = slope.unsqueeze(2)
    second = out * weights[4].transpose(1, 2) * (two > 0)
    first = (second @ weights[2].transpose(1, 2)) * (one > 0)
    layers = ((x, first), (one, second), (two, out))
    return [part for h, d in layers for part in (h.transpose(1, 2) @ d, d.sum(1, keepdim=True))]
