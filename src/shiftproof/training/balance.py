"""From named loss terms to one gradient."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Method
from shiftproof.pareto.balance import Balance, add_l2
from shiftproof.pareto.conflicts import gradient_cosines
from shiftproof.pareto.pair import Pair
from shiftproof.ranges import NonNegative, Whole, checked


@checked
class Weighted(Balance):
    """The weighted sum of the terms.

    .. math:: \\Big(\\sum_k w_k L_k + \\lambda_2\\lVert\\theta\\rVert^2\\Big) / \\max(1, \\max_k w_k)

    `weights` overrides the method's own, term by term. For the first `anneal_steps` steps every penalty (each term but
    "task") has the weight `anneal_weight` instead. `rescale` divides the whole sum by the largest penalty weight above
    one, which keeps gradients bounded (docs/papers/pair.md#small-print). `l2` counts every parameter, biases too,
    without the half. `refresh` forgets the optimiser's state when the annealing ends. `watch_conflicts` writes the
    cosine between the task's gradient and that of every other term into the history, for one backward pass a term.
    """

    def __init__(
        self,
        weights: Mapping[str, NonNegative] | None = None,
        *,
        l2: NonNegative = 0.0,
        anneal_steps: Whole = 0,
        anneal_weight: NonNegative = 1.0,
        rescale: bool = False,
        refresh: bool = False,
        watch_conflicts: bool = False,
    ) -> None:
        self.weights = dict(weights or {})
        self.l2 = l2
        self.anneal_steps = anneal_steps
        self.anneal_weight = anneal_weight
        self.rescale = rescale
        self.refresh = refresh
        self.watch_conflicts = watch_conflicts
        self._cosines: list[dict[str, Tensor]] = []

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
        if self.watch_conflicts:
            self._cosines.append(gradient_cosines(terms, [p for p in method.parameters() if p.requires_grad]))
        self.total(terms, method, step).backward()
        _, l2 = self.coefficients(method, step)
        if l2:
            add_l2(list(method.parameters()), l2)

    def check(self, method: Method) -> None:
        self.coefficients(method, 0)  # a weight for a term that is not there

    def phase(self, step: int) -> int:
        return int(step >= self.anneal_steps)

    def is_sum(self, step: int) -> bool:
        return not self.watch_conflicts

    def report(self) -> dict[str, Any]:
        """The mean cosines of the epoch, where they are watched."""
        steps, self._cosines = self._cosines, []
        return {"cosine": {n: float(torch.stack([s[n] for s in steps]).mean()) for n in steps[0]}} if steps else {}

    def refreshes(self, step: int) -> bool:
        return self.refresh and self.anneal_steps > 0 and step == self.anneal_steps


BALANCES: dict[str, type[Balance]] = {"weighted": Weighted, "pair": Pair}


def balance_named(name: str) -> type[Balance]:
    """The balance that goes by this name."""
    if name not in BALANCES:
        raise unknown("balance", name, BALANCES)
    return BALANCES[name]


def described(balance: Balance) -> dict[str, Any]:
    """A balance as a run's config records it: its name and all its options."""
    options = inspect.signature(type(balance)).parameters
    known = {name: getattr(balance, name) for name in options if hasattr(balance, name)}
    name = next((name for name, kind in BALANCES.items() if kind is type(balance)), type(balance).__name__)
    return {"balance": name, **{key: _plain(value) for key, value in known.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
