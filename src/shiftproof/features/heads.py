"""Heads between rounds: fresh ones, frozen ones, and several merged into one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.errors import unknown

Start = Literal["default", "xavier"]
Merge = Literal["uniform", "halving", "sum"]
MERGES: tuple[Merge, ...] = ("uniform", "halving", "sum")


class HeadMixture(nn.Module):
    """The weighted sum of the logits of several heads; what merging gives where heads are not plain linear layers."""

    def __init__(self, heads: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.weights = tuple(weights)

    def forward(self, features: Tensor) -> Tensor:
        parts = [head(features) * weight for head, weight in zip(self.heads, self.weights, strict=True)]
        return torch.stack(parts).sum(0)

    def extra_repr(self) -> str:
        return f"weights={self.weights}"


def mix_heads(heads: Sequence[nn.Module], weights: Sequence[float]) -> nn.Module:
    r"""One head whose logits are the weighted sum of the logits of several, frozen.

    .. math:: W = \sum_i a_i W_i, \qquad b = \sum_i a_i b_i

    For linear layers this is again a linear layer (averaging weights and averaging logits are the same); other heads
    are kept side by side.
    """
    if all(isinstance(head, nn.Linear) for head in heads):
        mixed: nn.Module = deepcopy(heads[0])
        states = [head.state_dict() for head in heads]
        combined = {
            name: torch.stack([weight * state[name] for weight, state in zip(weights, states, strict=True)]).sum(0)
            for name in states[0]
        }
        mixed.load_state_dict(combined)
    else:
        mixed = HeadMixture([deepcopy(head) for head in heads], weights)
    return frozen(mixed)


def merge_weights(how: Merge, number: int) -> tuple[float, float]:
    """How much of the merged head so far and of the head of round `number` (from 2) go into the next merged head.

    "uniform" keeps the mean of all rounds; "halving" the mean of the two (the released code for WILDS: older rounds
    count 1/2, 1/4, ...); "sum" adds them (the released code for ColoredMNIST: retained logits grow with the rounds).
    """
    if how not in MERGES:
        raise unknown("merge", how, MERGES)
    return {"uniform": ((number - 1) / number, 1 / number), "halving": (0.5, 0.5), "sum": (1.0, 1.0)}[how]


def frozen(module: nn.Module) -> nn.Module:
    """The module in evaluation mode, its parameters without gradients."""
    return module.eval().requires_grad_(False)


def restart(module: nn.Module, start: Start = "default") -> None:
    """Draw the parameters anew, layer by layer; what a layer cannot draw itself stays as it is.

    "default" is every layer's own way, "xavier" gives linear layers Xavier-uniform weights and zero biases.
    """
    if start not in ("default", "xavier"):
        raise unknown("start", start, ("default", "xavier"))
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        if start == "xavier" and isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def fresh_head(like: nn.Module, start: Start = "default") -> nn.Module:
    """A head of the same kind with newly drawn weights, ready to be trained."""
    head = deepcopy(like)
    restart(head, start)
    return head.train().requires_grad_(True)
