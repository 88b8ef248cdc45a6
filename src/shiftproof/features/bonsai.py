"""Bonsai (rich feature construction): find features one network at a time, then distil all into one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.features.feat import agreement, classes, install_head
from shiftproof.features.heads import frozen, mix_heads, restart
from shiftproof.features.results import Pretrained, RoundLog
from shiftproof.features.rounds import FeaturePretrainer, Study, part, round_seed, snapshot, under
from shiftproof.features.splits import GroupSplit


@dataclass(kw_only=True)
class Bonsai(FeaturePretrainer):
    r"""Rich feature construction: networks that each solve what the earlier ones fail on, distilled into one.

    .. math:: \min\max_g \ell_g \text{ over the right and wrong sets of all earlier rounds; then }
              \frac1R\sum_r \ell(w_r\circ\varphi(x), \hat y_r)

    Every discovery round and the synthesis begin with a new network (`begin_with="fresh"`; "initial" goes back to the
    weights that were handed in, for pre-trained ones). `steps` may differ by round (`round_steps`); `synthesis_steps`
    is the length of the last stage. `balanced` draws half of the samples of the synthesis, with repeats, from those on
    which all rounds agree to be right or wrong and half from the others (the released ColoredMNIST code); all of one
    kind are taken as they are. The head is the mean of the heads of the synthesis.
    """

    rounds: int = 2
    round_steps: tuple[int, ...] = ()
    synthesis_steps: int = 500
    balanced: bool = True
    begin_with: Literal["fresh", "initial"] = "fresh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise ShiftproofError(f"there is at least one discovery round, not {self.rounds}")
        if self.round_steps and len(self.round_steps) != self.rounds:
            raise ShiftproofError(f"round_steps has {len(self.round_steps)} entries for {self.rounds} rounds")

    def _fit(self, study: Study, head: nn.Module) -> Pretrained:
        if study.task not in ("multiclass", "binary"):
            raise ShiftproofError(f"Bonsai distils predicted classes, and the task is '{study.task}'")
        begin = snapshot(study.featurizer), snapshot(head)
        logs: list[RoundLog] = []
        rights: list[Tensor] = []
        said: list[Tensor] = []
        for number in range(1, self.rounds + 1):
            log, right, predictions = self._discover(study, head, begin, number, rights, said)
            logs.append(log)
            rights.append(right)
            said.append(predictions)
        heads, last = self._synthesise(study, head, begin, rights, said)
        logs.append(last)
        splits = tuple(GroupSplit(right, study.data.index) for right in rights)
        final = install_head(head, mix_heads(heads, [1 / len(heads)] * len(heads)))
        stopped = f"{self.rounds} rounds were distilled"
        return Pretrained(study.featurizer.eval(), final, tuple(logs), self.rounds, stopped, splits)

    def _begin(self, study: Study, head: nn.Module, begin: tuple[dict, dict], number: int) -> nn.Module:
        return new_network(study, head, begin, number, fresh=self.begin_with == "fresh")

    def _discover(
        self,
        study: Study,
        head: nn.Module,
        begin: tuple[dict, dict],
        number: int,
        rights: Sequence[Tensor],
        said: Sequence[Tensor],
    ) -> tuple[RoundLog, Tensor, Tensor]:
        name, new = f"discovery-{number}", self._begin(study, head, begin, number)
        found = study.saved(name)
        if found is not None:
            tensors, note = found
            return RoundLog.from_json(note["log"]), tensors["right"].bool(), tensors["predictions"]
        sides = [side.nonzero().flatten() for right in rights for side in (right, ~right)]
        groups: list[Tensor | None] = [side for side in sides if len(side)] or [None]

        def loss(features: Tensor, rows: Tensor | None, weights: Tensor) -> Tensor:
            per_sample = study.losses(new, features, rows)
            return per_sample.mean() if len(weights) == 1 else (weights @ per_sample).amax()

        steps = self.round_steps[number - 1] if self.round_steps else self.steps
        last = study.train(name, new, groups, loss, steps=steps, number=number)
        (logits,) = study.look([frozen(new)])
        right, predictions = study.right(logits), classes(logits, study.task)
        log = log_of(study, new, number, steps, last, right, [agreement(predictions, old) for old in said])
        study.save(name, {"right": right, "predictions": predictions}, {"log": log.to_json()})
        return log, right, predictions

    def _synthesise(
        self, study: Study, head: nn.Module, begin: tuple[dict, dict], rights: list[Tensor], said: list[Tensor]
    ) -> tuple[list[nn.Module], RoundLog]:
        number = self.rounds + 1
        first = self._begin(study, head, begin, number)
        heads = nn.ModuleList([first, *(deepcopy(first) for _ in range(self.rounds - 1))])
        if self.begin_with == "fresh":
            for other in heads[1:]:
                restart(other, self.start)
        heads.to(study.device)
        found = study.saved("synthesis")
        if found is not None:
            study.featurizer.load_state_dict(part("featurizer", found[0]))
            heads.load_state_dict(part("heads", found[0]))
            frozen(heads)
            return list(heads), RoundLog.from_json(found[1]["log"])
        targets = [predictions.to(study.y.dtype) for predictions in said]
        groups = [self._balanced(rights) if self.balanced else None]

        def loss(features: Tensor, rows: Tensor | None, weights: Tensor) -> Tensor:
            each = [study.losses(h, features, rows, y).matmul(weights[0]) for h, y in zip(heads, targets, strict=True)]
            return torch.stack(each).mean()

        last = study.train("synthesis", heads, groups, loss, steps=self.synthesis_steps, number=number)
        frozen(heads)
        merged = mix_heads(list(heads), [1 / len(heads)] * len(heads))
        (logits,) = study.look([merged])
        log = log_of(study, merged, number, self.synthesis_steps, last, study.right(logits), [])
        tensors = {**under("featurizer", study.featurizer.state_dict()), **under("heads", heads.state_dict())}
        study.save("synthesis", tensors, {"log": log.to_json()})
        return list(heads), log

    def _balanced(self, rights: Sequence[Tensor]) -> Tensor | None:
        """Positions, with repeats: half where the rounds agree, half where not; None where all are of one kind."""
        votes = torch.stack(list(rights)).sum(0)
        agree = (votes == 0) | (votes == len(rights))
        sides = [side.nonzero().flatten() for side in (agree, ~agree)]
        if not all(len(side) for side in sides):
            return None
        generator = torch.Generator().manual_seed(self.seed)
        half = len(agree) // 2
        drawn = [side[torch.randint(len(side), (half,), generator=generator).to(side.device)] for side in sides]
        return torch.cat(drawn)


def new_network(
    study: Study, head: nn.Module, begin: tuple[dict, dict], number: int, *, fresh: bool = True
) -> nn.Module:
    """A new network: the featurizer in place, and the head that goes with it; the first is the one handed in."""
    study.featurizer.load_state_dict(begin[0])
    new = deepcopy(head)
    new.load_state_dict(begin[1])
    if number > 1 and fresh:
        torch.manual_seed(round_seed(study.settings.seed, number))
        restart(study.featurizer, study.settings.start)
        restart(new, study.settings.start)
    return new


def log_of(
    study: Study, head: nn.Module, number: int, steps: int, loss: float, right: Tensor, same: list[float]
) -> RoundLog:
    (scores,) = study.scores([head])
    accuracy = study.accuracy(right)
    return RoundLog(
        round=number,
        steps=steps,
        loss=loss,
        train_accuracy=accuracy,
        merged_accuracy=accuracy,
        agreement=tuple(same),
        retained=int(right.sum()),
        augmented=int((~right).sum()),
        scores=scores,
        merged_scores=scores,
    )
