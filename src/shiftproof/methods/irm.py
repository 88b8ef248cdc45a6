"""Invariant risk minimisation, alone and together with the variance of risks or the information bottleneck."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import env_risks, ib_penalty, irm_penalty, vrex_penalty
from shiftproof.ranges import NonNegative
from shiftproof.registry import register, with_options_of

Estimator = Literal["full", "halves", "cross"]


@register("irm", tags=("graphs", "tensors", "nodes"))
class IRM(EnvironmentMethod):
    """IRMv1: one classifier scale must be optimal in every environment at once.

    .. math:: \\frac1E\\sum_e R^e + \\lambda\\,\\frac1E\\sum_e \\big(\\partial_w R^e(w f)|_{w=1}\\big)^2

    `estimator`: "full" squares each environment's gradient, "halves" multiplies those of two halves (unbiased on
    mini-batches), "cross" multiplies those of two environments (the released graph code, docs/papers/ciga.md#d21).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        estimator: Estimator = "full",
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.estimator = estimator
        self.weights = {"task": 1.0, "irm": penalty}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        _, logits, losses, env = self.judged(batch)
        return {
            "task": self.risk(losses, env),
            "irm": irm_penalty(logits, batch.y, env, self.num_envs, self.shape.task, estimator=self.estimator),
        }


@register("irmx", tags=("graphs", "tensors", "nodes"))
class IRMX(EnvironmentMethod):
    """IRMv1 and V-REx together, the objective vector of PAIR; here added up with fixed weights.

    .. math:: \\frac1E\\sum_e R^e + \\lambda_1 L_{IRM} + \\lambda_2 \\mathrm{Var}_e(R^e)
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        irm_penalty: NonNegative = 1.0,
        vrex_penalty: NonNegative = 1.0,
        estimator: Estimator = "full",
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        self.estimator = estimator
        self.weights = {"task": 1.0, "irm": irm_penalty, "vrex": vrex_penalty}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        _, logits, losses, env = self.judged(batch)
        return {
            "task": self.risk(losses, env),
            "irm": irm_penalty(logits, batch.y, env, self.num_envs, self.shape.task, estimator=self.estimator),
            "vrex": vrex_penalty(*env_risks(losses, env, self.num_envs)),
        }


@register("ib-irm", tags=("graphs", "tensors", "nodes"))
class IBIRM(IRM):
    """IRMv1 with an information bottleneck: features that vary no more than they must.

    .. math:: \\frac1E\\sum_e R^e + \\lambda L_{IRM} + \\lambda_{IB}\\,\\mathrm{mean}_d \\mathrm{Var}(z_d)
    """

    @with_options_of(IRM)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        ib_penalty: NonNegative = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, penalty=penalty, **options)
        self.weights["ib"] = ib_penalty

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features, logits, losses, env = self.judged(batch)
        return {
            "task": self.risk(losses, env),
            "irm": irm_penalty(logits, batch.y, env, self.num_envs, self.shape.task, estimator=self.estimator),
            # graphs: variance over the batch (docs/papers/ciga.md#ib-irm); tensors: mean over environments
            # (docs/papers/pair.md#penalties-on-coloredmnist)
            "ib": ib_penalty(features) if self.shape.kind != "tensors" else ib_penalty(features, env, self.num_envs),
        }
