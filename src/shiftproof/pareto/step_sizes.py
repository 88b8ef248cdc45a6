"""How far an optimiser of torch is about to move a parameter for a gradient of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Where optimisers of torch keep the mean square of the gradients that they divide by, the one in use first
SQUARES = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "sum")
# Ours: of the present squares, so that a coordinate whose weighted gradient was zero so far has a size too
PRESENT = 1e-6


def step_sizes(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]]
) -> list[float | Tensor]:
    """One learning rate a parameter or, for those that divide by past gradients (Adam and its like), one an entry.

    `gradients` holds a row of gradients for each loss; their squares stand for the past that a first step lacks.
    Momentum is left out: it repeats steps, and does not lengthen the one that is decided on now.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    sizes: list[float | Tensor] = []
    for number, parameter in enumerate(parameters):
        group = groups.get(id(parameter))
        if group is None:  # compared, but not moved
            sizes.append(float(optimizer.param_groups[0]["lr"]))
        elif isinstance(group.get("eps"), float):
            sizes.append(_adaptive(group, optimizer.state.get(parameter, {}), [row[number] for row in gradients]))
        else:
            sizes.append(float(group["lr"]))
    return sizes


def _adaptive(group: dict, state: dict, gradients: list[Tensor]) -> Tensor:
    present = torch.stack([g.double().square() for g in gradients]).mean(dim=0)
    key = next((key for key in SQUARES if key in state), None)
    if "exp_inf" in state:
        past = state["exp_inf"].double().square()
    elif key is None:
        past = present
    else:
        past = state[key].double()
        if key.endswith("exp_avg_sq") and "betas" in group and "step" in state:
            past = past / (1 - group["betas"][1] ** float(state["step"]))
    return float(group["lr"]) / ((past + PRESENT * present).sqrt() + group["eps"])
