"""One round of feature learning, on the one loop: shown, told to callbacks, resumed and stopped like any training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from shiftproof.errors import TrainingDiverged
from shiftproof.features.steps import Draws, ReplayedSteps, RoundLoss, RoundSteps
from shiftproof.runtime import files
from shiftproof.training.epochs import EpochLoop
from shiftproof.training.optimizers import LeanAdam
from shiftproof.training.resuming import go_on_from, state_of, whole_checkpoint

if TYPE_CHECKING:
    from shiftproof.features.rounds import Study

PARTIAL = "partial.safetensors"


class Round(EpochLoop):
    """`total` steps of a featurizer and a head down one loss; an epoch is as many as a pass through the data takes.

    `judge` is called every `judge_every` steps and at the end; a round that is judged as it goes is begun anew where it
    was killed.
    """

    def __init__(
        self,
        study: Study,
        name: str,
        head: nn.Module,
        groups: Sequence[Tensor | None],
        loss: RoundLoss,
        *,
        total: int,
        seed: int,
        judge: Callable[[], None] | None = None,
        judge_every: int = 0,
    ) -> None:
        s = study.settings
        self.name, self.total, self.judge, self.judge_every = name, total, judge, judge_every
        self.featurizer, self.head = study.featurizer, head
        for module in (self.featurizer, head):
            module.train().requires_grad_(True)
        parameters = [parameter for module in (self.featurizer, head) for parameter in module.parameters()]
        if s.optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = LeanAdam(parameters, lr=s.lr, weight_decay=s.weight_decay)
        else:
            self.optimizer = torch.optim.SGD(
                parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
            )
        torch.manual_seed(seed)
        self.draws = Draws(study.data, groups, s.batch_size, joint=s.joint_forward, seed=seed)
        self.per_epoch = 1 if s.batch_size is None else -(-len(study.data) // s.batch_size)
        super().__init__(
            epochs=-(-total // self.per_epoch),
            seed=s.seed,
            device=study.device,
            style=s.progress,
            callbacks=s.callbacks,
            folder=study.folder,
            checkpoint_seconds=s.checkpoint_seconds,
        )
        self.names = ["task"]
        self.metric = study.metric
        self.config = study.config
        replayed = s.compile and s.joint_forward and self.device.type == "cuda"
        kind = ReplayedSteps if replayed else RoundSteps
        self.moves = kind(self.draws, study.features, loss, (self.featurizer, head), self.optimizer, s.l2)
        self.value = torch.zeros(())

    def run(self) -> float:
        """Train the round and return the last value of the loss."""
        if self.folder is not None and (self.folder / PARTIAL).exists():
            self._resume(self.folder / PARTIAL)
        try:
            self.train_through()
            self.look()
        finally:
            self.callbacks.end(None)
        for module in (self.featurizer, self.head):
            module.eval()
        return float(self.value)

    def title(self) -> str:
        return f"features, {self.name}"

    def parts(self) -> dict[str, nn.Module]:
        return {"featurizer": self.featurizer, "head": self.head}

    def one_epoch(self) -> str:
        for _ in range(min(self.per_epoch, self.total - self.step)):
            self.value = self.moves.step()
            self.note_step(self.value.reshape(1))
            if self.judge is not None and (
                self.step == self.total or (self.judge_every and self.step % self.judge_every == 0)
            ):
                self.judge()
        return ""

    def save(self) -> None:
        if self.folder is None or self.judge is not None:
            return
        self.look()
        tensors, note = state_of(self, self.optimizer)
        note["stage"] = self.name
        if self.draws.batches is not None:
            tensors["order"], note["cursor"] = self.draws.batches.state()
        files.write_tensors(self.folder / PARTIAL, tensors, note)

    def _resume(self, path: Path) -> None:
        """Go back to where a killed round was; another round's file is left alone."""
        tensors, note = files.read_tensors(path, "resuming feature learning")
        if note.get("stage") != self.name:
            return
        with whole_checkpoint(path):
            go_on_from(self, tensors, note, path, self.optimizer)
            if self.draws.batches is not None:
                self.draws.batches.restore(tensors["order"], note["cursor"])

    def diverged(self, what: str) -> TrainingDiverged:
        return TrainingDiverged(f"{what} in {self.name}; a smaller learning rate may help")
