"""From named loss terms to one gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Method


class Balance(Protocol):
    """Turns a method's named terms into gradients; `Weighted` is the plain one."""

    def backward(self, terms: Mapping[str, Tensor], method: Method, step: int) -> None:
        """Add the gradient of the balanced terms to every parameter's `.grad`."""
        ...

    def phase(self, step: int) -> int:
        """A number that changes whenever the way of balancing does (a captured step is then captured anew)."""
        ...

    def refreshes(self, step: int) -> bool:
        """Whether the optimiser's state is to be forgotten before this step."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Weighted:
    """The weighted sum of the terms.

    .. math:: \\Big(\\sum_k w_k L_k + \\lambda_2\\lVert\\theta\\rVert^2\\Big) / \\max(1, \\max_k w_k)

    `weights` overrides the method's own, term by term. For the first `anneal_steps` steps every penalty (each term but
    "task") has the weight `anneal_weight` instead. `rescale` divides the whole sum by the largest penalty weight above
    one, which keeps gradients bounded (spec pair 4.10, item 2). `l2` counts every parameter, biases too, without the
    half. `refresh` forgets the optimiser's state when the annealing ends.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        l2: float = 0.0,
        anneal_steps: int = 0,
        anneal_weight: float = 1.0,
        rescale: bool = False,
        refresh: bool = False,
    ) -> None:
        self.weights = dict(weights or {})
        self.l2 = l2
        self.anneal_steps = anneal_steps
        self.anneal_weight = anneal_weight
        self.rescale = rescale
        self.refresh = refresh

    def coefficients(self, method: Method, step: int) -> tuple[dict[str, float], float]:
        """The factor of each term and of the squared norm at a step."""
        for name in self.weights:
            if name not in method.weights:
                raise unknown("loss term", name, method.weights)
        weights = {**method.weights, **self.weights}
        if self.phase(step) == 0:
            weights = {name: w if name == "task" else self.anneal_weight for name, w in weights.items()}
        penalties = [w for name, w in weights.items() if name != "task"]
        scale = max([1.0, *penalties]) if self.rescale else 1.0
        return {name: w / scale for name, w in weights.items()}, self.l2 / scale

    def total(self, terms: Mapping[str, Tensor], method: Method, step: int) -> Tensor:
        """The weighted sum of the terms (without the squared norm, whose gradient is added directly)."""
        factors, _ = self.coefficients(method, step)
        for name in terms:
            if name not in factors:
                raise ShiftproofError(f"loss term '{name}' has no weight; add it to the weights of the method")
        parts = [term if factors[name] == 1.0 else term * factors[name] for name, term in terms.items()]
        return torch.stack(parts).sum() if len(parts) > 1 else parts[0]

    def backward(self, terms: Mapping[str, Tensor], method: Method, step: int) -> None:
        self.total(terms, method, step).backward()
        _, l2 = self.coefficients(method, step)
        if l2:
            _add_l2(list(method.parameters()), l2)

    def phase(self, step: int) -> int:
        return int(step >= self.anneal_steps)

    def refreshes(self, step: int) -> bool:
        return self.refresh and self.anneal_steps > 0 and step == self.anneal_steps

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore: the weights follow from the settings and the step."""


def _add_l2(parameters: list[nn.Parameter], factor: float) -> None:
    """The gradient of `factor * ||theta||^2`, added without building its graph."""
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.add_(parameter, alpha=2 * factor)
            elif parameter.requires_grad:
                parameter.grad = 2 * factor * parameter
