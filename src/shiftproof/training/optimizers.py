"""The optimisers of a run, and Adam with the bookkeeping of a step taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from shiftproof.runtime.torch_internals import fused_adam, without_compiler

if TYPE_CHECKING:
    from shiftproof.training.trainer import Trainer


class LeanAdam(torch.optim.Adam):
    """Torch's fused Adam, the same update bit for bit, without sorting the parameters anew in every step.

    A small model's step is mostly overhead: for fifty parameters torch's own bookkeeping costs several times the fused
    update itself. State and `state_dict` are torch's own.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        self._moving: list[nn.Parameter] = []
        self._slots: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])

    # torch's own load torch's compiler first, to keep it away from here: a second or more in every process
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        without_compiler(torch.optim.Adam.add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        without_compiler(torch.optim.Adam.zero_grad)(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "LeanAdam takes no closure"
        group = self.param_groups[0]
        moving = [p for p in group["params"] if p.grad is not None]
        if not moving:
            return
        if (
            len(moving) != len(self._moving)
            or moving[0] not in self.state
            or any(a is not b for a, b in zip(moving, self._moving, strict=True))
        ):
            self._collect(moving)
        averages, squares, steps = self._slots
        torch._foreach_add_(steps, 1)
        fused_adam(
            moving,
            [p.grad for p in moving],  # type: ignore[misc]
            averages,
            squares,
            [],
            steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return without_compiler(torch.optim.Adam.state_dict)(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        without_compiler(torch.optim.Adam.load_state_dict)(self, state_dict)
        self._moving = []

    def _collect(self, moving: list[nn.Parameter]) -> None:
        for parameter in moving:
            slots = self.state[parameter]
            if not slots:
                slots["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                slots["exp_avg"] = torch.zeros_like(parameter)
                slots["exp_avg_sq"] = torch.zeros_like(parameter)
        self._moving = moving
        names = ("exp_avg", "exp_avg_sq", "step")
        self._slots = tuple([self.state[p][name] for p in moving] for name in names)  # type: ignore[assignment]


def make_optimizer(trainer: Trainer, parameters: list[nn.Parameter], step: int) -> torch.optim.Optimizer:
    """The trainer's optimiser as its balance wants it at a step."""
    own = {"optimizer": trainer.optimizer, "lr": trainer.lr, "momentum": trainer.momentum}
    chosen = {**own, **trainer.balance.optimizer(step)}
    if chosen["optimizer"] == "adam":
        return LeanAdam(parameters, lr=chosen["lr"], betas=trainer.betas, weight_decay=trainer.weight_decay)
    return torch.optim.SGD(
        parameters, lr=chosen["lr"], momentum=chosen["momentum"], weight_decay=trainer.weight_decay, fused=True
    )
