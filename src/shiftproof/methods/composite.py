"""Several penalties over environments at once: the objective vectors that PAIR weighs."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import (
    clove_penalty,
    env_risks,
    fishr_penalty,
    ib_penalty,
    iga_penalty,
    irm_penalty,
    spectral_decoupling,
    vrex_penalty,
)
from shiftproof.ranges import NonNegative
from shiftproof.registry import register

TERMS = ("irm", "vrex", "ib", "fishr", "clove", "iga", "sd")


@register("composite", tags=("graphs", "tensors", "nodes"))
class Composite(EnvironmentMethod):
    """The plain risk with any penalties over environments, named in `terms` and joined by a plus.

    .. math:: \\frac1E\\sum_e R^e + \\lambda\\,\\sum_k \\Omega_k

    `terms` from "irm" (IRMv1), "vrex", "ib" (information bottleneck), "fishr", "clove" (calibration), "iga" (equal
    gradients) and "sd" (spectral decoupling), in the order a preference is to have. Each is a loss term of its own, so
    `balance="pair"` can weigh them; with fixed weights each has `penalty`.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        terms: str = "irm+vrex",
        penalty: NonNegative = 1.0,
        estimator: Literal["full", "halves", "cross"] = "full",
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        names = [name.strip() for name in terms.split("+")]
        for name in names:
            if name not in TERMS:
                raise unknown("term of composite", name, TERMS)
        if len(set(names)) < len(names):
            raise ShiftproofError(f"option 'terms' of composite names a term twice: '{terms}'")
        if "clove" in names and shape.task not in ("binary", "multiclass"):
            raise ShiftproofError(f"the term 'clove' needs a binary or multiclass task, not '{shape.task}'")
        self.names = names
        self.estimator = estimator
        self.weights = {"task": 1.0, **dict.fromkeys(names, penalty)}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features, logits, losses, env = self.judged(batch)
        count, task = self.num_envs, self.shape.task
        risks, counts = env_risks(losses, env, count)

        def penalty(name: str) -> Tensor:
            if name == "irm":
                return irm_penalty(logits, batch.y, env, count, task, estimator=self.estimator)
            if name == "vrex":
                return vrex_penalty(risks, counts)
            if name == "ib":
                return ib_penalty(features, env, count)
            if name == "fishr":
                return fishr_penalty(features, logits, batch.y, env, count, task)
            if name == "sd":
                return spectral_decoupling(logits, env, count)
            if name == "iga":
                return iga_penalty(risks, [p for p in self.parameters() if p.requires_grad], counts)
            return clove_penalty(logits, batch.y, env, count, task)

        return {"task": self.risk(losses, env), **{name: penalty(name) for name in self.names}}
