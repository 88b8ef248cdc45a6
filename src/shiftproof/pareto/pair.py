"""PAIR inside the trainer: first the plain risk, then weights from a preference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Method
from shiftproof.pareto.backward import Weighed, balanced_backward, made_positive, require_positive, require_set
from shiftproof.pareto.balance import Balance, add_l2
from shiftproof.pareto.balancer import Balancer, FixedWeights
from shiftproof.pareto.fronts import normalised
from shiftproof.pareto.mgda import MinNorm
from shiftproof.pareto.solver import PreferenceSolver, SmoothedSolver
from shiftproof.ranges import BelowOne, NonNegative, Positive, Whole, checked

Preference = Mapping[str, Positive] | tuple[Positive, ...]
# docs/papers/pair.md#preference: the preference used throughout for risk, IRMv1 and V-REx
PUBLISHED: dict[str, float] = {"task": 1.0, "irm": 1e10, "vrex": 1e12}
AHEAD = 1e2  # docs/papers/pair.md#preference: how far penalties are preferred beyond the ratio of the losses
SOLVERS = ("preference", "smoothed", "min-norm", "fixed")


@checked
class Pair(Balance):
    """PAIR as the balance of a `Trainer`: works for every method with more than one loss term.

    For `anneal_steps` steps only the term "task" is minimised, with `l2` times the squared norm of all parameters and,
    if that is not zero, `anneal_weight` times the other terms.
    Then weights are found in every step from the `preference`: one number a term, by name or in the order of the
    method's terms. Without one, (1, 1e10, 1e12) for task, IRMv1 and V-REx; for other terms it is taken from the first
    balanced step, as a hundred times the ratio of the task's loss to the term's (docs/papers/pair.md#preference).

    `parameters` whose gradients are compared: "head" (PAIR-o w), "featurizer" (PAIR-o phi) or "all" (PAIR-o f); every
    parameter is moved, unless `freeze_featurizer` keeps all but the head as they are, in evaluation mode. The second
    phase begins with a fresh `balance_optimizer` ("sgd" or "adam") with `balance_lr`; None goes on with the trainer's.
    `balance_solver`: "preference", "smoothed" (SEPO), "min-norm" (MGDA) or "fixed" (the preference as weights).

    `balance_clip` is the longest gradient of a balanced step; a longer one is shortened to it. Once penalties are met,
    their gradients are far shorter than the task's, and a single step whose whole weight is on the task, which the
    programme allows, can undo many steps; momentum then repeats it.

    `solver_compat="reference"` imitates one trait of the released code and not the release: its solver (GUROBI) lets
    every row of the programme be violated by 1e-6.
    """

    def __init__(
        self,
        preference: Preference | None = None,
        *,
        parameters: Literal["head", "featurizer", "all"] = "head",
        eps: NonNegative = 1e-4,
        anneal_steps: Whole = 0,
        anneal_weight: NonNegative = 0.0,
        l2: NonNegative = 0.0,
        balance_optimizer: Literal["sgd", "adam"] | None = None,
        balance_lr: Positive | None = None,
        balance_momentum: BelowOne = 0.9,
        balance_clip: Positive | None = None,
        freeze_featurizer: bool = False,
        balance_solver: Literal["preference", "smoothed", "min-norm", "fixed"] = "preference",
        guard: bool = False,
        negative: Literal["multiply", "add", "error"] = "multiply",
        negative_rate: Positive = 1e-2,
        solver_compat: Literal["reference"] | None = None,
    ) -> None:
        require_set(parameters)
        if balance_solver not in SOLVERS:
            raise unknown("balance_solver", balance_solver, SOLVERS)
        if negative not in ("multiply", "add", "error"):
            raise unknown("negative", str(negative), ("multiply", "add", "error"))
        if balance_lr is not None and balance_optimizer is None:
            raise ShiftproofError("'balance_lr' needs a 'balance_optimizer' of its own, 'sgd' or 'adam'")
        self.preference = preference
        self.parameters = parameters
        self.eps = eps
        self.anneal_steps = anneal_steps
        self.anneal_weight = anneal_weight
        self.l2 = l2
        self.balance_optimizer = balance_optimizer
        self.balance_lr = balance_lr
        self.balance_momentum = balance_momentum
        self.balance_clip = balance_clip
        self.freeze_featurizer = freeze_featurizer
        self.balance_solver = balance_solver
        self.guard = guard
        self.negative = negative
        self.negative_rate = negative_rate
        self.solver_compat: Literal["reference"] | None = solver_compat
        self.names: list[str] = []
        self.balancer: Balancer | None = None
        self.last: Weighed | None = None
        self._epoch: list[Weighed] = []
        self._frozen: list[nn.Parameter] = []

    def check(self, method: Method) -> None:
        names = list(method.weights)
        if len(names) < 2:
            name = type(method).__name__
            raise ShiftproofError(f"balance 'pair' weighs loss terms against each other, and {name} has only one")
        if isinstance(self.preference, Mapping):
            for name in self.preference:
                if name not in names:
                    raise unknown("loss term in the preference", name, names)
            missing = [name for name in names if name not in self.preference]
            if missing:
                raise ShiftproofError(f"the preference has no number for the loss term '{missing[0]}'")
        elif self.preference is not None and len(self.preference) != len(names):
            raise ShiftproofError(
                f"a preference of {len(self.preference)} numbers does not fit the {len(names)} terms {', '.join(names)}"
            )
        if self.preference is not None:
            numbers = self.preference.values() if isinstance(self.preference, Mapping) else self.preference
            normalised(list(numbers))

    def before(self, method: Method, step: int) -> None:
        if not (self.freeze_featurizer and self.phase(step)):
            return
        kept = {id(p) for p in head_parameters(method)}
        for module in method.modules():
            own = list(module.parameters())
            if own and not any(id(p) in kept for p in own):
                module.eval()
        self._frozen = [p for p in method.parameters() if p.requires_grad and id(p) not in kept]
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    def backward(self, terms: Mapping[str, Tensor], method: Method, step: int) -> None:
        try:
            if self.phase(step):
                self._balance(terms, method)
            else:
                task, *others = terms.values()
                (task + self.anneal_weight * sum(others) if self.anneal_weight else task).backward()
                if self.l2:
                    add_l2(list(method.parameters()), self.l2)
        finally:
            for parameter in self._frozen:
                parameter.requires_grad_(True)
            self._frozen = []

    def _balance(self, terms: Mapping[str, Tensor], method: Method) -> None:
        terms = made_positive(terms, self.negative, self.negative_rate)
        if self.balancer is None or list(terms) != self.names:
            self.names = list(terms)
            self.balancer = self._made(self._numbers(terms))
        moved = [p for p in method.parameters() if p.requires_grad]
        self.last = balanced_backward(terms, self.balancer, self._compared(method, moved), moved)
        if self.negative == "error":
            require_positive(self.last)
        if self.balance_clip is not None:
            nn.utils.clip_grad_norm_(moved, self.balance_clip)
        self._epoch.append(self.last)

    def _numbers(self, terms: Mapping[str, Tensor]) -> list[float]:
        """The preference in the order of the terms."""
        if isinstance(self.preference, Mapping):
            return [float(self.preference[name]) for name in terms]
        if self.preference is not None:
            return [float(number) for number in self.preference]
        if set(terms) <= set(PUBLISHED):
            return [PUBLISHED[name] for name in terms]
        task, *others = (abs(float(term.detach())) for term in terms.values())
        floor = max(task, 1e-300) * 1e-12
        return [1.0, *(AHEAD * max(task, 1e-300) / max(other, floor) for other in others)]

    def _made(self, numbers: list[float]) -> Balancer:
        if self.balance_solver == "min-norm":
            return MinNorm()
        if self.balance_solver == "fixed":
            return FixedWeights([number / sum(numbers) for number in numbers])
        if self.balance_solver == "smoothed":
            return SmoothedSolver(numbers, eps=self.eps)
        return PreferenceSolver(numbers, eps=self.eps, guard=self.guard, compat=self.solver_compat)

    def _compared(self, method: Method, moved: list[nn.Parameter]) -> list[nn.Parameter]:
        if self.parameters == "all":
            return moved
        head = {id(p) for p in head_parameters(method)}
        wanted = self.parameters == "head"
        chosen = [p for p in moved if (id(p) in head) == wanted]
        return chosen or moved  # a frozen featurizer, or a method that is all head

    def phase(self, step: int) -> int:
        return int(step >= self.anneal_steps)

    def is_sum(self, step: int) -> bool:
        return self.phase(step) == 0

    def refreshes(self, step: int) -> bool:
        return self.balance_optimizer is not None and step == self.anneal_steps

    def optimizer(self, step: int) -> dict[str, Any]:
        if self.balance_optimizer is None or not self.phase(step):
            return {}
        lr = {} if self.balance_lr is None else {"lr": self.balance_lr}
        return {"optimizer": self.balance_optimizer, "momentum": self.balance_momentum, **lr}

    def report(self) -> dict[str, Any]:
        """Mean weights and non-uniformity of the epoch, its modes, and the share of fallbacks."""
        steps, self._epoch = self._epoch, []
        if not steps:
            return {"mode": {"descent": 1.0}} if self.balancer is None else {}
        count = len(steps)
        known = [s.nonuniformity for s in steps if math.isfinite(s.nonuniformity)]
        modes = Counter(s.mode for s in steps)
        return {
            "weights": {name: sum(s.weights[name] for s in steps) / count for name in steps[0].weights},
            "nonuniformity": sum(known) / len(known) if known else None,
            "mode": {mode: number / count for mode, number in sorted(modes.items())},
            "fallback_rate": modes["fallback"] / count,
        }

    def state_dict(self) -> dict[str, Any]:
        if self.balancer is None:
            return {}
        numbers = getattr(self.balancer, "preference", None)
        numbers = [1.0] * len(self.names) if numbers is None else numbers.tolist()
        if isinstance(self.balancer, FixedWeights):
            numbers = self.balancer.fixed.tolist()
        return {"names": self.names, "preference": numbers, "balancer": self.balancer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            self.names = list(state["names"])
            self.balancer = self._made(list(state["preference"]))
            self.balancer.load_state_dict(state["balancer"])


def head_parameters(method: Method) -> list[nn.Parameter]:
    """The parameters of the last layer of a method; all of them where it has no `head`."""
    head = getattr(method, "head", None)
    return list(head.parameters()) if isinstance(head, nn.Module) else list(method.parameters())
