"""FeAT: rich features by rounds. What is right is kept, what is wrong is where the next feature is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.features.heads import MERGES, Merge, fresh_head, frozen, merge_weights, mix_heads
from shiftproof.features.results import Pretrained, RoundLog
from shiftproof.features.rounds import FeaturePretrainer, RoundLoss, Study, part, round_seed, snapshot, under
from shiftproof.features.splits import GroupSplit
from shiftproof.features.termination import RULES, Termination, best_round, must_stop
from shiftproof.training.best import Best


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A trained round: its head, what it has right, what its merged predictor says, and the featurizer after it."""

    log: RoundLog
    head: nn.Module
    merged: nn.Module
    right: Tensor
    predictions: Tensor
    featurizer: dict[str, Tensor]
    best: float | None = None  # the best validation value, where this round has improved on it


@dataclass(eq=False)
class _Memory:
    """The rounds that stay, and which of their sets and heads the next round is held to."""

    latest_only: bool
    kept: list[_Outcome] = field(default_factory=list)

    @property
    def active(self) -> list[tuple[Tensor, nn.Module]]:
        """Right samples and head of the rounds that count: all with their own heads, or the last with the merged."""
        if self.latest_only:
            return [(past.right, past.merged) for past in self.kept[-1:]]
        return [(past.right, past.head) for past in self.kept]

    @property
    def merged(self) -> nn.Module | None:
        return self.kept[-1].merged if self.kept else None


@dataclass(kw_only=True)
class FeAT(FeaturePretrainer):
    r"""Feature augmented training: each round looks for features where the last ones fail, and keeps those it has.

    .. math:: \max_{D\in G^a}\ell_D(w_k\circ\varphi) + \lambda\sum_i \ell_{D^r_i}(w_i\circ\varphi)

    After every round the training samples are split into those that are right (retention) and wrong (augmentation).
    The next round trains a new head with the worst mean loss over the augmentation sets, while the old heads, frozen,
    must stay good on their retention sets.

    - `rounds`: at most this many; `termination` (see `must_stop`) may end it earlier, the last round is then undone.
      None trains all of them. `threshold`, `novelty` and `floor` belong to the rules.
    - `retention`: the weight of the retention losses; `retention_reduction` adds them up or averages them.
    - `include_full`: all samples are one of the groups under the maximum (the released code) beside the wrong ones.
    - `dro_includes_retention`: the right samples are too, with the new head (the released code for WILDS).
    - `split_with`: the round's own head ("current") or the merged one decides what is right.
    - `merge`: how heads become one, see `merge_weights`. `head_init`: a new head is "random", the "previous" merged
      one, or the "initial" one again, always a copy.
    - `select`: "val" measures the merged predictor on the watched split "val" every `evaluate_every` steps (0: at the
      end of a round only) and goes back to the best state of a round before the data are split; the result is then the
      best state of all.
    """

    latest_only: ClassVar[bool] = False

    rounds: int = 2
    retention: float = 0.01
    retention_reduction: Literal["sum", "mean"] = "sum"
    include_full: bool = True
    dro_includes_retention: bool = False
    split_with: Literal["current", "merged"] = "current"
    merge: Merge = "uniform"
    head_init: Literal["random", "previous", "initial"] = "random"
    termination: Termination | None = None
    threshold: float = 1.30
    novelty: float = 0.98
    floor: float = 0.5
    select: Literal["last", "val"] = "last"
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise ShiftproofError(f"there is at least one round, not {self.rounds}")
        if self.termination is not None and self.termination not in RULES:
            raise unknown("termination", self.termination, RULES)
        if self.merge not in MERGES:
            raise unknown("merge", self.merge, MERGES)

    def _fit(self, study: Study, head: nn.Module) -> Pretrained:
        if "val" in (self.termination, self.select) and "val" not in study.watch:
            raise ShiftproofError("choosing by validation needs a split 'val' among those watched")
        memory, logs = _Memory(self.latest_only), []
        first, stopped = deepcopy(head), f"all {self.rounds} rounds were trained"
        lower = study.better(0.0, 1.0)
        best, chosen = math.inf if lower else -math.inf, None
        for number in range(1, self.rounds + 1):
            outcome = self._round(study, memory, first, number, best)
            logs.append(outcome.log)
            reason = must_stop(
                self.termination, outcome.log, threshold=self.threshold, novelty=self.novelty, floor=self.floor
            )
            if reason is not None:
                stopped = f"round {number} was undone: {reason}"
                break
            memory.kept.append(outcome)
            if outcome.best is not None:
                best, chosen = outcome.best, number
            if outcome.log.augmented == 0:
                stopped = f"after round {number} no training sample is wrong"
                break
        kept = len(memory.kept)
        if self.termination == "val":
            kept = best_round(logs, lower=lower)
        elif chosen is not None:
            kept = chosen
        study.featurizer.load_state_dict(memory.kept[kept - 1].featurizer)
        splits = tuple(GroupSplit(past.right, study.data.index) for past in memory.kept[:kept])
        final = install_head(head, memory.kept[kept - 1].merged)
        return Pretrained(study.featurizer.eval(), final, tuple(logs), kept, stopped, splits)

    def _round(self, study: Study, memory: _Memory, first: nn.Module, number: int, best: float) -> _Outcome:
        """Train one round, or read it back where it lies in the folder."""
        name, head = f"round-{number}", self._new_head(memory, first, number)
        found = study.saved(name)
        if found is not None:
            tensors, note = found
            study.featurizer.load_state_dict(part("featurizer", tensors))
            head.load_state_dict(part("head", tensors))
            log, improved = RoundLog.from_json(note["log"]), note["best"]
            right, predictions = tensors["right"].bool(), tensors["predictions"]
        else:
            groups, loss = self._objective(study, memory, head)
            keeper = _BestState(study, head, lambda: self._merged(memory, head, number), best)
            last = study.train(
                name,
                head,
                groups,
                loss,
                number=number,
                judge=keeper if self.select == "val" else None,
                judge_every=self.evaluate_every,
            )
            improved = keeper.restore()
            log, right, predictions = self._measure(study, memory, head, number, last)
            tensors = {**under("featurizer", study.featurizer.state_dict()), **under("head", head.state_dict())}
            tensors |= {"right": right, "predictions": predictions}
            study.save(name, tensors, {"log": log.to_json(), "best": improved})
        merged = self._merged(memory, frozen(head), number)
        return _Outcome(log, head, merged, right, predictions, snapshot(study.featurizer), improved)

    def _new_head(self, memory: _Memory, first: nn.Module, number: int) -> nn.Module:
        """The caller's own head in the first round; a copy of an old one, or new weights, in later ones."""
        torch.manual_seed(round_seed(self.seed, number))
        if number > 1 and self.head_init == "random":
            return fresh_head(first, self.start)
        old = memory.merged if memory.merged is not None and self.head_init == "previous" else first
        return deepcopy(old).train().requires_grad_(True)

    def _objective(self, study: Study, memory: _Memory, head: nn.Module) -> tuple[list[Tensor | None], RoundLoss]:
        """The groups of samples of this round, those under the maximum first, and its loss."""
        under_max: list[Tensor | None] = [None] if self.include_full or not memory.active else []
        wrong = [(~right).nonzero().flatten() for right, _ in memory.active]
        kept = [(right.nonzero().flatten(), old) for right, old in memory.active if bool(right.any())]
        under_max += [positions for positions in wrong if len(positions)]
        if self.dro_includes_retention:
            under_max += [positions for positions, _ in kept]
        if self.retention == 0:
            kept = []
        worst = len(under_max)

        def loss(features: Tensor, rows: Tensor | None, weights: Tensor) -> Tensor:
            per_sample = study.losses(head, features, rows)
            if len(weights) == 1:
                return per_sample.mean()
            total = (weights[:worst] @ per_sample).amax()
            if kept:
                each = [
                    row @ study.losses(old, features, rows) for row, (_, old) in zip(weights[worst:], kept, strict=True)
                ]
                retained = torch.stack(each).sum()
                share = 1.0 if self.retention_reduction == "sum" else 1 / len(kept)
                total = total + self.retention * share * retained
            return total

        return [*under_max, *(positions for positions, _ in kept)], loss

    def _measure(
        self, study: Study, memory: _Memory, head: nn.Module, number: int, loss: float
    ) -> tuple[RoundLog, Tensor, Tensor]:
        """What the round has come to: one pass over the training data for the new, the merged and the old heads."""
        merged = self._merged(memory, head, number)
        current_logits, merged_logits, *old_logits = study.look([head, merged, *(old for _, old in memory.active)])
        current, together = study.right(current_logits), study.right(merged_logits)
        predictions = classes(merged_logits, study.task)
        right = current if self.split_with == "current" else together
        still_right = [
            float(study.right(logits)[before].double().mean())
            for (before, _), logits in zip(memory.active, old_logits, strict=True)
            if bool(before.any())
        ]
        scores, merged_scores = study.scores([head, merged])
        log = RoundLog(
            round=number,
            steps=self.steps,
            loss=loss,
            train_accuracy=study.accuracy(current),
            merged_accuracy=study.accuracy(together),
            retention_accuracy=sum(still_right) / len(still_right) if still_right else None,
            retention_reported=sum(still_right) / (number - 1) if still_right else None,
            agreement=tuple(agreement(predictions, past.predictions) for past in memory.kept),
            retained=int(right.sum()),
            augmented=int((~right).sum()),
            scores=scores,
            merged_scores=merged_scores,
        )
        return log, right, predictions

    def _merged(self, memory: _Memory, head: nn.Module, number: int) -> nn.Module:
        if memory.merged is None:
            return frozen(deepcopy(head))
        return mix_heads([memory.merged, head], merge_weights(self.merge, number))


@dataclass(kw_only=True)
class IFeAT(FeAT):
    """FeAT that remembers the last split and one merged head only: what every published experiment uses.

    A step costs one more pass than ERM at most, however many rounds there were. The merged head decides what is right.
    The first two rounds are those of `FeAT`.
    """

    latest_only: ClassVar[bool] = True

    split_with: Literal["current", "merged"] = "merged"


@dataclass(kw_only=True)
class ERMPretrainer(FeAT):
    """Plain training for `steps` steps: FeAT with one round."""

    rounds: int = 1


class _BestState:
    """Keeps the state that is best on the validation split, for going back to it at the end of a round."""

    def __init__(self, study: Study, head: nn.Module, merged: Callable[[], nn.Module], best: float) -> None:
        self.study, self.merged = study, merged
        self.parts = {"featurizer": study.featurizer, "head": head}
        self.best = Best(study.better, best)

    def __call__(self) -> None:
        value = self.study.scores([self.merged()], only=("val",))[0]["val"]
        if self.best.improves(value):
            self.best.take(0, value, self.parts)

    def restore(self) -> float | None:
        """Go back to the best state and return its value; None where this round has not improved on those before."""
        return self.best.value if self.best.restore(self.parts) else None


def install_head(head: nn.Module, trained: nn.Module) -> nn.Module:
    """The caller's head with the trained weights; the trained one itself where the two are of different kinds."""
    if type(head) is not type(trained):
        return trained
    head.load_state_dict(trained.state_dict())
    return head


def classes(logits: Tensor, task: Task) -> Tensor:
    """What a predictor says of each sample, for comparing two of them: the class, or the signs of its logits."""
    if task != "multiclass":
        return (logits > 0).to(torch.uint8)
    return logits.argmax(-1).to(torch.uint8 if logits.shape[1] < 256 else torch.long)


def agreement(a: Tensor, b: Tensor) -> float:
    """The share of predictions in which two predictors say the same."""
    return float((a == b).double().mean())
