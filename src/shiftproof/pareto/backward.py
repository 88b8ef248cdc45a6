"""Gradients of several losses: compared in a Gram matrix, weighted, and left in `.grad`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.ranks import averaged_
from shiftproof.objectives import nonnegative
from shiftproof.pareto.balancer import NOT_FINITE, Balanced, Balancer

SETS = ("head", "featurizer", "all")
Sizes = Callable[[Sequence[Tensor], Sequence[Sequence[Tensor]]], Sequence[float | Tensor]]


@dataclass(frozen=True)
class Weighed:
    """What one balanced backward pass found: the values of the losses and their weights, by name."""

    losses: dict[str, float]
    weights: dict[str, float]
    nonuniformity: float
    mode: str
    reason: str = ""

    @property
    def loss(self) -> float:
        """The weighted sum."""
        return sum(self.weights[name] * value for name, value in self.losses.items())


def balanced_backward(
    terms: Mapping[str, Tensor],
    balancer: Balancer,
    compared: Sequence[nn.Parameter],
    moved: Sequence[nn.Parameter],
    sizes: Sizes | None = None,
) -> Weighed:
    """Weigh the losses and add the gradient of their weighted sum to the `.grad` of the `moved` parameters.

    The balancer sees the gradients of the `compared` parameters. Where these are a few of the last ones, comparing
    stops there, and one more backward pass makes the gradient of everything: M short passes and one long one. Where
    they reach below (`compared` holds the first of the `moved`), the M long passes are needed anyway, and their
    gradients are added up instead. Values and Gram matrix come to the host in one transfer. With `sizes`, which says of
    parameters and their gradients how far the optimiser moves for a gradient of one, the matrix holds what a step on
    each loss does to each.
    """
    losses = list(terms.values())
    if not balancer.needs_gradients:
        values = torch.stack([loss.detach().double() for loss in losses]).cpu().numpy()
        found = balancer.weights(values, ())
        _sum_backward(losses, found.weights, moved)
        return _weighed(terms, values, found)
    among = {id(p) for p in compared}
    deep = bool(moved) and id(moved[0]) in among
    asked = list(moved) if deep else list(compared)
    gradients = [gradients_of(loss, asked) for loss in losses]
    seen = [[g for p, g in zip(asked, row, strict=True) if id(p) in among] for row in gradients]
    rows = torch.stack([_flat(row) for row in seen])
    scaled = rows
    if sizes is not None:
        scaled = rows * _flat_sizes(sizes([p for p in asked if id(p) in among], seen), seen[0])
    values = torch.stack([loss.detach().double() for loss in losses])
    together = torch.cat([values, (scaled @ rows.T).flatten()]).cpu().numpy()
    count = len(losses)
    found = balancer.weights(together[:count], together[count:].reshape(count, count))
    if deep:
        _add_up(asked, gradients, found.weights)
    else:
        _sum_backward(losses, found.weights, moved)
    return _weighed(terms, together[:count], found)


def made_positive(terms: Mapping[str, Tensor], negative: str, rate: float) -> dict[str, Tensor]:
    """The terms with every one but the first made non-negative as `nonnegative` does; "error" leaves them alone."""
    if negative == "error":
        return dict(terms)
    first = next(iter(terms))
    return {name: term if name == first else nonnegative(term, negative, rate) for name, term in terms.items()}


def require_positive(found: Weighed) -> None:
    """With `negative="error"`: stop at a negative loss instead of falling back."""
    for name, value in found.losses.items():
        if value < 0:
            raise ShiftproofError(f"loss '{name}' is {value:.3g}; a preference needs losses that are not negative")


def require_finite(found: Weighed, step: int) -> None:
    """Stop at a loss or a gradient that is not finite: no weights bring such a step back."""
    for name, value in found.losses.items():
        if not math.isfinite(value):
            raise ShiftproofError(
                f"loss '{name}' is {value} at step {step}, and no parameter was moved; a smaller learning rate or "
                "shorter gradients keep losses finite"
            )
    if found.reason == NOT_FINITE:
        raise ShiftproofError(f"the gradient of a loss is not finite at step {step}, and no parameter was moved")


def require_set(parameters: str) -> None:
    if parameters not in SETS:
        raise unknown("set of parameters", parameters, SETS)


def gradients_of(loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """The gradient of a loss, zero where a parameter has no part in it; the graph is kept."""
    if not loss.requires_grad:
        return [torch.zeros_like(p) for p in parameters]
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    dense = [g.to_dense() if g is not None and g.is_sparse else g for g in found]
    whole = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, dense, strict=True)]
    averaged_(whole)  # where several processes train one model, before anything is compared
    return whole


def _flat(gradients: list[Tensor]) -> Tensor:
    # squares of small penalties' gradients leave the range of single precision
    return torch.cat([g.flatten().double() for g in gradients])


def _flat_sizes(sizes: Sequence[float | Tensor], gradients: Sequence[Tensor]) -> Tensor:
    pairs = zip(sizes, gradients, strict=True)
    return torch.cat([(size * torch.ones_like(g, dtype=torch.float64)).flatten() for size, g in pairs])


def _sum_backward(losses: list[Tensor], weights: np.ndarray, moved: Sequence[nn.Parameter]) -> None:
    parts = [loss * weight for loss, weight in zip(losses, weights.tolist(), strict=True) if loss.requires_grad]
    if parts:
        torch.stack(parts).sum().backward(inputs=list(moved))


def _add_up(parameters: list[nn.Parameter], gradients: list[list[Tensor]], weights: np.ndarray) -> None:
    for number, parameter in enumerate(parameters):
        total = gradients[0][number] * weights[0]
        for row, weight in zip(gradients[1:], weights[1:].tolist(), strict=True):
            total.add_(row[number], alpha=weight)
        parameter.grad = total if parameter.grad is None else parameter.grad.add_(total)


def _weighed(terms: Mapping[str, Tensor], values: np.ndarray, found: Balanced) -> Weighed:
    return Weighed(
        dict(zip(terms, values.tolist(), strict=True)),
        dict(zip(terms, found.weights.tolist(), strict=True)),
        found.nonuniformity,
        found.mode,
        found.reason,
    )
