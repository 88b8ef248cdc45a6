"""Feature learning as a method: rich features in stage 0, an invariant predictor on top of them after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.features.bonsai import Bonsai
from shiftproof.features.feat import FeAT, IFeAT
from shiftproof.features.heads import Merge, Start, restart
from shiftproof.features.results import Pretrained
from shiftproof.features.rounds import FeaturePretrainer
from shiftproof.features.sweep import OBJECTIVES
from shiftproof.features.termination import Termination
from shiftproof.methods.base import Batch, DataShape, Network, Trains, as_network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import (
    GroupWeights,
    clove_penalty,
    env_risks,
    fishr_penalty,
    ib_penalty,
    iga_penalty,
    irm_penalty,
    sample_losses,
    vrex_penalty,
)
from shiftproof.ranges import Count, NonNegative
from shiftproof.registry import register, with_options_of

Objective = Literal["erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr", "groupdro"]
Features = Literal["feat", "ifeat", "bonsai", "erm", "none"]
FEATURES: tuple[Features, ...] = ("feat", "ifeat", "bonsai", "erm", "none")


class FeatureMethod(EnvironmentMethod):
    """What methods with a feature-learning stage share: the stage, and features that stay as they are after it."""

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        features: Features = "ifeat",
        rounds: Count = 2,
        round_epochs: Count = 20,
        round_steps: Count | None = None,
        discovery_epochs: tuple[Count, ...] = (),
        synthesis_epochs: Count | None = None,
        retention: NonNegative = 0.01,
        dro_includes_retention: bool = False,
        merge: Merge = "uniform",
        termination: Termination | None = None,
        freeze: bool = True,
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        if features not in FEATURES:
            raise unknown("way to learn features", features, FEATURES)
        self.features, self.rounds, self.round_epochs = features, rounds, round_epochs
        self.discovery_epochs, self.synthesis_epochs = tuple(discovery_epochs), synthesis_epochs
        self.round_steps, self.retention = round_steps, retention
        self.dro_includes_retention = dro_includes_retention
        self.merge: Merge = merge
        self.termination: Termination | None = termination
        self.freeze = freeze
        named = None if isinstance(network, nn.Module) else as_network(network).of(shape.kind).name
        plain = named == "mlp"
        self.start: Start = "xavier" if plain else "default"
        self.pretrained: Pretrained | None = None
        self.cache: Tensor | None = None
        self.epochs_seen = 0
        if freeze:
            self.featurizer.requires_grad_(False)

    def learn_features(self, dataset: Dataset, trainer: Trains) -> Pretrained | None:
        """Stage 0, with the batch size, optimiser and L2 of the run; the head is left with the merged weights."""
        if self.features == "none":
            return None
        size = trainer.batch_size
        each = 1 if size is None else -(-len(dataset.train) // size)
        learner = self._learner(each, {**_settings(trainer), "compile": self._replays(trainer)})
        watch = {name: split for name, split in dataset.splits.items() if name != "train"}
        return learner.fit(
            self.featurizer,
            self.head,
            dataset.train,
            task=self.shape.task,
            watch=watch,
            metric=trainer.metric or dataset.metric,
            inputs="batch",
        )

    def _replays(self, trainer: Trains) -> bool:
        """Whether the steps of stage 0 are captured and replayed on a GPU."""
        return bool(trainer.compile) and self.how_trained.capturable

    def _learner(self, each: int, shared: dict[str, Any]) -> FeaturePretrainer:
        shared = {**shared, "steps": self.round_steps or self.round_epochs * each, "start": self.start}
        if self.features == "bonsai":
            last = self.synthesis_epochs * each if self.synthesis_epochs else shared["steps"]
            each_round = tuple(epochs * each for epochs in self.discovery_epochs)
            return Bonsai(rounds=self.rounds, round_steps=each_round, synthesis_steps=last, **shared)
        kind = FeAT if self.features == "feat" else IFeAT
        return kind(
            rounds=1 if self.features == "erm" else self.rounds,
            retention=self.retention,
            dro_includes_retention=self.dro_includes_retention,
            merge=self.merge,
            termination=self.termination,
            **shared,
        )

    def train(self, mode: bool = True) -> FeatureMethod:
        """Frozen features stay in evaluation mode, so that batch norm and dropout do not move either."""
        super().train(mode)
        if self.freeze:
            self.featurizer.eval()
        return self

    def start_epoch(self, epoch: int) -> None:
        self.epochs_seen += 1

    def represent(self, batch: Batch) -> Tensor:
        """The features of a training batch; frozen ones are computed in the first epoch and then looked up."""
        if not self.freeze:
            return self.featurizer(batch)
        if not self.training or torch.compiler.is_compiling():
            return self.featurizer(batch).detach()
        if self.epochs_seen > 1 and self.cache is not None:
            whole = len(batch.index) == len(self.cache)
            return self.cache if whole and self.in_order else self.cache.index_select(0, batch.index)
        with torch.no_grad():
            found = self.featurizer(batch)
        cache = self.cache
        if cache is None or cache.device != found.device:
            cache = self.cache = found.new_zeros(self.shape.num_train, found.shape[1])
            self.in_order = len(batch.index) == self.shape.num_train
        cache.index_copy_(0, batch.index, found)
        return found


@register("feat", tags=("graphs", "tensors", "nodes"))
class FeATMethod(FeatureMethod):
    r"""FeAT: learn rich features by rounds, then train an invariant predictor on them.

    .. math:: \max_{D\in G^a}\ell_D(w_k\circ\varphi) + \lambda_r\,\ell_{D^r}(\bar w\circ\varphi)
              \quad\text{for some rounds, then}\quad \min_w \sum_e R^e + \lambda P

    Stage 0 learns `features` ("feat", "ifeat", "bonsai", plain "erm", or "none") in `rounds` rounds of `round_epochs`
    epochs or `round_steps` steps (Bonsai: `discovery_epochs` by round, then `synthesis_epochs`), with the batch size,
    optimiser and L2 of the run. Training then minimises `objective` with weight `penalty`
    (`step` for "groupdro") over a `head` that is "new" or the "merged" one of stage 0, on features that are frozen
    unless `freeze=False`. `termination` is a rule of `shiftproof.features.must_stop`; None trains all rounds.
    """

    @with_options_of(FeatureMethod)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        objective: Objective = "irm",
        penalty: NonNegative = 1.0,
        ib_penalty: NonNegative = 1.0,
        step: NonNegative = 0.01,
        head: Literal["new", "merged"] = "new",
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        if objective not in OBJECTIVES:
            raise unknown("objective", objective, OBJECTIVES)
        if objective == "clove" and shape.task not in ("binary", "multiclass"):
            raise ShiftproofError(f"the objective 'clove' calibrates classes, and the task is '{shape.task}'")
        self.objective, self.keep_head = objective, head == "merged"
        penalties = {"irmx": {"irm": penalty, "vrex": penalty}, "ib-irm": {"irm": penalty, "ib": ib_penalty}}
        own = {} if objective in ("erm", "groupdro") else {objective: penalty}
        self.weights = {"task": 1.0, **penalties.get(objective, own)}
        self.group_weights = GroupWeights(self.num_envs, step=step) if objective == "groupdro" else None

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        super().prepare(dataset, trainer)
        self.pretrained = self.learn_features(dataset, trainer)
        if self.pretrained is not None and not self.keep_head:
            torch.manual_seed(trainer.seed)
            restart(self.head, self.start)
        self.head.requires_grad_(True)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        z, env, task = self.represent(batch), self.env(batch), self.shape.task
        logits = self.classify(z)
        losses = sample_losses(logits, batch.y, task)
        if self.objective == "erm":
            return {"task": losses.mean()}
        risks, counts = env_risks(losses, env, self.num_envs)
        if self.group_weights is not None:
            return {"task": self.group_weights(risks, counts)}
        terms = {"task": self.risk(losses, env)}
        for name in self.weights:
            if name == "irm":
                terms[name] = irm_penalty(logits, batch.y, env, self.num_envs, task)
            elif name == "vrex":
                terms[name] = vrex_penalty(risks, counts)
            elif name == "ib":
                terms[name] = ib_penalty(z, env, self.num_envs)
            elif name == "clove":
                terms[name] = clove_penalty(logits, batch.y, env, self.num_envs, task)
            elif name == "iga":
                terms[name] = iga_penalty(risks, [p for p in self.parameters() if p.requires_grad], counts)
            elif name == "fishr":
                terms[name] = fishr_penalty(z, logits, batch.y, env, self.num_envs, task, centred=False)
        return terms


def _settings(trainer: Trains) -> dict[str, Any]:
    """What stage 0 takes over from the trainer of the run."""
    return {
        "batch_size": trainer.batch_size,
        "optimizer": trainer.optimizer,
        "lr": trainer.lr,
        "momentum": trainer.momentum,
        "weight_decay": trainer.weight_decay,
        "l2": trainer.l2,
        "seed": trainer.seed,
        "progress": trainer.progress,
        "out": None if trainer.out is None else Path(trainer.out) / "features",
    }
