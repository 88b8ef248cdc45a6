"""How the features of injected nodes are found while the edges stay: sign ascent, a smooth sine, Adam with clipping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from shiftproof.robustness.attacks.objective import Harmony, Mask, attack_loss
from shiftproof.robustness.attacks.situation import Situation

STEPS, RATE, PATIENCE = 500, 0.01, 200  # docs/papers/hao.md#sign-update, #building-blocks
SATURATION = 5.0  # docs/papers/hao.md#smooth-update
# Adam's usual memory of a thousand steps would hold the large gradients of the phase in which small features turn
# towards their neighbours, and keep the steps after it too small to do harm within 500 (ours)
SHORT_MEMORY = (0.9, 0.9)
ALIGNED = 0.01  # how far below its highest mean cosine an attack has left the phase in which it hides; ours


class Update(Protocol):
    def __call__(
        self, situation: Situation, edges: Tensor, features: Tensor, *, old: int = 0, inner: Tensor | None = None
    ) -> Tensor:
        """Better features for nodes joined by `edges`, starting from `features`, the first `old` of them solved."""
        ...


class EarlyStop:
    """Watches the share of targets that the surrogate predicts as before; any strict fall starts the wait anew.

    Injected nodes that are to stay like their neighbours first turn towards them, which changes no prediction, and do
    harm only afterwards. As long as the mean cosine `harmony` is at its highest nothing is waited for, and what was
    reached before does not count: the wait begins when the cosine falls (docs/papers/hao.md#d17).
    """

    def __init__(self, patience: int | None) -> None:
        self.patience, self.least, self.waited = patience, float("inf"), 0
        self.highest = -float("inf")

    def __call__(self, score: float, harmony: float | None = None) -> bool:
        if harmony is not None:
            self.highest = max(self.highest, harmony)
            if harmony > self.highest - ALIGNED:
                self.least, self.waited = score, 0
                return False
        if score < self.least:
            self.least, self.waited = score, 0
            return False
        self.waited += 1
        return self.patience is not None and self.waited > self.patience


class _Watch:
    """Score and homophily of every step, when to stop, and which features to return."""

    def __init__(self, situation: Situation, patience: int | None, best: bool) -> None:
        self.situation, self.stop, self.best = situation, EarlyStop(patience), best
        self.kept: Tensor | None = None
        self.fewest = float("inf")
        self.scores: list[float] = []
        self.harmonies: list[float] = []

    def look(self, logits: Tensor, features: Tensor, harmony: Tensor | None) -> bool:
        """Whether to stop after this step; `features` are those that gave `logits`."""
        score = float((logits.detach().argmax(1) == self.situation.labels).float().mean())
        if self.best and score < self.fewest:
            self.kept, self.fewest = features.detach().clone(), score
        self.scores.append(score)
        if harmony is None:
            return self.stop(score)
        self.harmonies.append(float(harmony.detach()))
        return self.stop(score, self.harmonies[-1])

    def done(self, last: Tensor) -> Tensor:
        log = self.situation.log
        log["steps"] = log.get("steps", 0) + len(self.scores)
        log.setdefault("score", []).extend(self.scores)
        log.setdefault("homophily", []).extend(self.harmonies)
        return self.kept if self.kept is not None else last


@dataclass(frozen=True)
class SignPGD:
    r"""Projected sign ascent, :math:`X \leftarrow \mathrm{clip}(X + \epsilon\,\mathrm{sign}\nabla_X J)` with
    :math:`J = \overline{m\,\mathrm{CE}} + \lambda\,\overline{\cos(X_w, r_w)}`.

    Where :math:`\lambda = 0` this is plain PGD and nothing is masked. The last features are returned; `best` returns
    those with which the surrogate kept the fewest predictions.
    """

    steps: int = STEPS
    rate: float = RATE
    patience: int | None = PATIENCE
    mask: Mask = "target"
    best: bool = False

    def __call__(
        self, situation: Situation, edges: Tensor, features: Tensor, *, old: int = 0, inner: Tensor | None = None
    ) -> Tensor:
        lam, (low, high) = situation.hao, situation.box
        view = situation.view(edges, len(features), inner)
        harmony = Harmony(situation.graph, edges, len(features), inner) if lam else None
        patience = 1000 if situation.reference and lam and self.patience == PATIENCE else self.patience
        watch = _Watch(situation, patience, self.best)
        features = features.detach().clone()
        for _ in range(self.steps):
            x = features.requires_grad_()
            logits = view.logits(x)
            gain = attack_loss(logits, situation.labels, self.mask if lam else "none")
            like = None if harmony is None else harmony(x).mean()
            (grad,) = torch.autograd.grad(gain if like is None else gain + lam * like, x)
            features = (x.detach() + self.rate * grad.sign()).clamp_(low, high)
            if watch.look(logits, x, like):
                break
        return watch.done(features.detach()).clamp(low, high)


@dataclass(frozen=True)
class SmoothSine:
    r"""Adam on :math:`Z` with :math:`X = \text{mid} + \text{half}\,\sin Z`, so that the box holds by itself.

    The loss is :math:`\overline{\mathrm{relu}(5 - \mathrm{CE}_u - \lambda\,\overline{\cos(X_w, r_w)})^2}`: a target
    whose loss passes 5 is let go. `symmetric` takes mid = 0 and half = high, as released; what then lies outside a
    box that is not symmetric is clipped at the end (docs/papers/hao.md#d2).
    """

    steps: int = STEPS
    rate: float = RATE
    patience: int | None = PATIENCE
    saturation: float = SATURATION
    symmetric: bool = False
    best: bool = False

    def __call__(
        self, situation: Situation, edges: Tensor, features: Tensor, *, old: int = 0, inner: Tensor | None = None
    ) -> Tensor:
        lam, (low, high) = situation.hao, situation.box
        symmetric = self.symmetric or situation.reference
        middle, half = (0.0, high) if symmetric else ((low + high) / 2, (high - low) / 2)
        view = situation.view(edges, len(features), inner)
        harmony = Harmony(situation.graph, edges, len(features), inner) if lam else None
        scale = half or 1.0
        solved = ((features[:old] - middle) / scale).clamp(-1, 1).arcsin()
        z = torch.cat([solved, features[old:] / scale]).detach().requires_grad_()
        optimizer = torch.optim.Adam([z], lr=self.rate, fused=True)
        watch = _Watch(situation, self.patience, self.best)
        for _ in range(self.steps):
            x = middle + half * z.sin()
            logits = view.logits(x)
            like = None if harmony is None else harmony(x).mean()
            loss = saturated_loss(logits, situation.labels, 0.0 if like is None else lam * like, self.saturation)
            (z.grad,) = torch.autograd.grad(loss, z)
            optimizer.step()
            if watch.look(logits, x, like):
                break
        return watch.done(middle + half * z.detach().sin()).clamp(low, high)


def saturated_loss(logits: Tensor, labels: Tensor, bonus: Tensor | float, saturation: float = SATURATION) -> Tensor:
    """The loss of `SmoothSine`; `bonus` is added to the cross-entropy of every target."""
    ce = F.cross_entropy(logits, labels, reduction="none")
    return F.relu(saturation - (ce + bonus)).square().mean()


@dataclass(frozen=True)
class ClippedAdam:
    """Adam ascent on the mean cross-entropy (and the homophily term), clipped to the box after every step."""

    steps: int = STEPS
    rate: float = RATE
    patience: int | None = PATIENCE
    mask: Mask = "target"
    best: bool = False

    def __call__(
        self, situation: Situation, edges: Tensor, features: Tensor, *, old: int = 0, inner: Tensor | None = None
    ) -> Tensor:
        lam, (low, high) = situation.hao, situation.box
        view = situation.view(edges, len(features), inner)
        harmony = Harmony(situation.graph, edges, len(features), inner) if lam else None
        x = features.detach().clamp(low, high).requires_grad_()
        memory = SHORT_MEMORY if lam else (0.9, 0.999)
        optimizer = torch.optim.Adam([x], lr=self.rate, betas=memory, maximize=True, fused=True)
        watch = _Watch(situation, self.patience, self.best)
        for _ in range(self.steps):
            logits = view.logits(x)
            gain = attack_loss(logits, situation.labels, self.mask if lam else "none")
            like = None if harmony is None else harmony(x).mean()
            (x.grad,) = torch.autograd.grad(gain if like is None else gain + lam * like, x)
            stop = watch.look(logits, x, like)
            optimizer.step()
            with torch.no_grad():
                x.clamp_(low, high)
            if stop:
                break
        return watch.done(x.detach().clone())


@dataclass(frozen=True)
class Untouched:
    """The features as they were drawn, brought into the box."""

    def __call__(
        self, situation: Situation, edges: Tensor, features: Tensor, *, old: int = 0, inner: Tensor | None = None
    ) -> Tensor:
        return features.clamp(*situation.box)
