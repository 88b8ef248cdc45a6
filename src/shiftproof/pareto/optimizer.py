"""PAIR for anybody's training loop: `step` takes named losses instead of nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.pareto.backward import (
    Weighed,
    balanced_backward,
    made_positive,
    require_finite,
    require_positive,
    require_set,
)
from shiftproof.pareto.balancer import Balancer
from shiftproof.pareto.minimax import MinimaxSolver
from shiftproof.pareto.solver import PreferenceSolver
from shiftproof.pareto.step_sizes import step_sizes
from shiftproof.ranges import NonNegative, Positive, Whole, checked

logger = logging.getLogger("shiftproof.pareto")


@checked
class PAIR(torch.optim.Optimizer):
    """An optimiser for losses that conflict, wrapped around any other.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> inner = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer = PAIR(inner, preference={"erm": 1, "irm": 1e10, "vrex": 1e12})
    >>> risk = model(torch.ones(4, 2)).square().mean()
    >>> step = optimizer.step({"erm": risk, "irm": risk.square(), "vrex": (risk - 1).square()})
    >>> sorted(step.weights)
    ['erm', 'irm', 'vrex']

    `step` zeroes the gradients, weighs the losses, runs backward and steps the inner optimiser; what it found comes
    back: weights, values, non-uniformity and mode. `preference` holds a relative size for every loss, the larger the
    smaller that loss is to become. The losses end where all are equal once multiplied by it, if a Pareto point is
    there, and otherwise at a Pareto point whose largest product is smallest; for smooth convex losses this holds from
    nearly every start (`MinimaxSolver`; slow tests show problems that Adam at a learning rate of .1 still misses).
    For `descent_steps` steps only the first loss, usually the plain risk, is minimised
    (PAIR's first phase); give the second phase an inner optimiser of its own by wrapping a new one.

    `parameters` are those whose gradients are compared: "all", "head" (the last weight matrix and what follows it;
    cheap, and without the promise above), or an iterable of parameters. All parameters of the inner optimiser are moved
    in any case. `negative` says what becomes of a negative penalty estimate: "multiply" by minus `negative_rate`, "add"
    `negative_rate`, or "error" (docs/papers/pair.md#negative-losses). PAIR is an optimiser of torch: schedulers of
    learning rates take it, or the inner one. A loss or gradient that is not finite stops with an error before anything
    is moved.

    `compat="reference"` finds the weights as the released code did, with `eps` (1e-4 unless given) and `guard`, and by
    the gradients of the head; it can stand still at the optimum of one loss (docs/papers/pair.md#d13). `balancer`
    replaces the preference by another rule, such as `MinNorm()`, `FixedWeights([...])` or, for the programme without
    the released tolerances, `PreferenceSolver([...])`.
    """

    def __init__(
        self,
        inner_optimizer: torch.optim.Optimizer,
        preference: Mapping[str, Positive] | None = None,
        parameters: Literal["head", "all"] | Iterable[nn.Parameter] | None = None,
        *,
        eps: NonNegative | None = None,
        descent_steps: Whole = 0,
        guard: bool = False,
        compat: Literal["reference"] | None = None,
        negative: Literal["multiply", "add", "error"] = "multiply",
        negative_rate: Positive = 1e-2,
        balancer: Balancer | None = None,
    ) -> None:
        if (preference is None) == (balancer is None):
            raise ShiftproofError("PAIR takes either a preference, such as {'erm': 1, 'irm': 1e10}, or a balancer")
        if not isinstance(inner_optimizer, torch.optim.Optimizer) or isinstance(inner_optimizer, torch.optim.LBFGS):
            kind = type(inner_optimizer).__name__
            raise ShiftproofError(f"PAIR wraps an optimiser of torch that steps without a closure, not {kind}")
        if negative not in ("multiply", "add", "error"):
            raise unknown("negative", str(negative), ("multiply", "add", "error"))
        if any(group.get("maximize") for group in inner_optimizer.param_groups):
            raise ShiftproofError("PAIR makes losses small, and its inner optimiser was made with maximize=True")
        self.inner = inner_optimizer
        super().__init__(inner_optimizer.param_groups, inner_optimizer.defaults)
        self._follow()
        self.names = None if preference is None else list(preference)
        self.balancer = balancer or _made(list((preference or {}).values()), eps, guard, compat)
        self.descent_steps = descent_steps
        self.negative, self.negative_rate = negative, negative_rate
        moved = [p for group in inner_optimizer.param_groups for p in group["params"]]
        if parameters is None:
            parameters = "head" if compat == "reference" else "all"
        self._all = parameters == "all"
        self._compared = _chosen(parameters, moved)
        self.steps = 0
        self.modes: Counter[str] = Counter()
        self.last: Weighed | None = None

    def _follow(self) -> None:
        """Groups and state are the inner optimiser's own, which replaces them when it loads a state."""
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state

    def __getstate__(self) -> dict[str, Any]:  # copies take the inner optimiser along
        own = ("inner", "names", "balancer", "descent_steps", "negative", "negative_rate", "steps", "modes", "last")
        mine = {name: getattr(self, name) for name in (*own, "_all", "_compared")}
        return {**super().__getstate__(), **mine}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Parameters that join later are moved, and compared where "all" are."""
        if not hasattr(self, "modes"):  # torch.optim.Optimizer takes over the inner optimiser's own
            super().add_param_group(param_group)
            return
        self.inner.add_param_group(param_group)
        self._follow()
        if self._all:
            self._compared = [p for group in self.param_groups for p in group["params"]]

    @property
    def fallback_rate(self) -> float:
        """The share of the balanced steps whose weights had to be the preference itself."""
        balanced = self.steps - self.modes["descent"]
        return self.modes["fallback"] / balanced if balanced else 0.0

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none=set_to_none)

    def step(self, losses: Mapping[str, Tensor]) -> Weighed:  # type: ignore[override]
        """One step on the named losses, in any order; each must be a scalar with its graph."""
        self._follow()
        terms = made_positive(self._ordered(losses), self.negative, self.negative_rate)
        self.inner.zero_grad(set_to_none=True)
        if self.steps < self.descent_steps:
            found = self._descend(terms)
        else:
            moved = [p for group in self.inner.param_groups for p in group["params"] if p.requires_grad]
            compared = [p for p in self._compared if p.requires_grad]
            if not compared and self.balancer.needs_gradients:
                raise ShiftproofError(
                    "none of the parameters whose gradients PAIR compares has a gradient; all are frozen"
                )
            sizes = partial(step_sizes, self.inner) if self.balancer.in_steps else None
            found = balanced_backward(terms, self.balancer, compared, moved, sizes)
        try:
            require_finite(found, self.steps)
            if self.negative == "error" and found.mode != "descent":
                require_positive(found)
        except ShiftproofError:
            self.inner.zero_grad(set_to_none=True)
            raise
        self.inner.step()
        self._note(found)
        return found

    def _ordered(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not isinstance(losses, Mapping) or not losses:
            raise ShiftproofError(
                f"step() takes losses by name, {{'erm': ..., 'irm': ...}}, not {type(losses).__name__}"
            )
        names = self.names or list(losses)
        for name, loss in losses.items():
            if not isinstance(loss, Tensor) or loss.dim():
                kind = (
                    f"has the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
                )
                raise ShiftproofError(f"loss '{name}' {kind}; step() takes scalar tensors")
            if name not in names:
                raise unknown("loss (the preference has none for it)", name, names)
        missing = [name for name in names if name not in losses]
        if missing:
            raise ShiftproofError(f"the preference has a loss '{missing[0]}', which step() was not given")
        return {name: losses[name] for name in names}

    def _descend(self, terms: dict[str, Tensor]) -> Weighed:
        first, *others = terms
        if not terms[first].requires_grad:
            raise ShiftproofError(f"loss '{first}' has no gradient, and the first steps minimise it alone")
        terms[first].backward()
        values = torch.stack([term.detach().double() for term in terms.values()]).tolist()
        weights = {first: 1.0, **dict.fromkeys(others, 0.0)}
        return Weighed(dict(zip(terms, values, strict=True)), weights, float("nan"), "descent")

    def _note(self, found: Weighed) -> None:
        self.steps += 1
        self.modes[found.mode] += 1
        self.last = found
        if found.mode == "fallback" and self.modes["fallback"] == 1:
            logger.warning("step %d: %s; the preference itself is used as weights", self.steps - 1, found.reason)
        logger.debug(
            "step %d: %s, weights %s, non-uniformity %.4g, fallback rate %.3f",
            self.steps - 1,
            found.mode,
            found.weights,
            found.nonuniformity,
            self.fallback_rate,
        )

    def state_dict(self) -> dict[str, Any]:
        """The inner optimiser's state with the solver's, enough to go on with the same weights."""
        return {
            "inner": self.inner.state_dict(),
            "balancer": self.balancer.state_dict(),
            "names": self.names,
            "steps": self.steps,
            "modes": dict(self.modes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        missing = sorted({"inner", "balancer", "names", "steps", "modes"} - set(state))
        if missing:
            raise ShiftproofError(f"this is no state of PAIR: it lacks '{missing[0]}'")
        if state["names"] != self.names:
            raise ShiftproofError(f"this state belongs to losses {state['names']}, not {self.names}")
        self.inner.load_state_dict(state["inner"])
        self._follow()
        self.balancer.load_state_dict(state["balancer"])
        self.steps, self.modes = state["steps"], Counter(state["modes"])


def _made(
    preference: list[float], eps: float | None, guard: bool, compat: Literal["reference"] | None
) -> MinimaxSolver | PreferenceSolver:
    if compat is None:
        for name, given in (("eps", eps is not None), ("guard", guard)):
            if given:
                raise ShiftproofError(f"'{name}' belongs to the released solver, PAIR(..., compat='reference')")
        return MinimaxSolver(preference)
    return PreferenceSolver(preference, eps=1e-4 if eps is None else eps, guard=guard, compat=compat)


def last_layer(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """The last parameter with two dimensions or more and those after it: usually the weight and bias of the head."""
    matrices = [number for number, p in enumerate(parameters) if p.dim() >= 2]
    return list(parameters[matrices[-1] :]) if matrices else list(parameters)


def _chosen(
    parameters: Literal["head", "all"] | Iterable[nn.Parameter], moved: list[nn.Parameter]
) -> list[nn.Parameter]:
    if isinstance(parameters, str):
        require_set(parameters)
        if parameters == "featurizer":
            raise ShiftproofError("PAIR cannot tell which parameters are the featurizer's; hand them over as a list")
        return last_layer([p for p in moved if p.requires_grad]) if parameters == "head" else moved
    chosen = list(parameters)
    if not chosen:
        raise ShiftproofError("'parameters' is empty; PAIR needs gradients of some parameter to compare")
    return chosen
