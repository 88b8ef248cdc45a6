"""Predict, then interpolate: one network an environment finds what is right and wrong, one more does well on all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.features.bonsai import log_of, new_network
from shiftproof.features.feat import install_head
from shiftproof.features.heads import frozen
from shiftproof.features.results import Pretrained, RoundLog
from shiftproof.features.rounds import FeaturePretrainer, Study, part, round_seed, snapshot, under
from shiftproof.features.splits import GroupSplit


@dataclass(kw_only=True)
class PI(FeaturePretrainer):
    r"""Predict-then-interpolate: the worst of the right and wrong sets of every environment decides.

    .. math:: \min \max_{e,\,s}\; \ell_{D^e_s}, \qquad s \in \{\text{right}, \text{wrong}\}

    For each environment a new network is trained for `steps` steps on the share `share` of its samples; what it has
    right and wrong in all of that environment are two groups. A new network then minimises the worst mean loss of all
    groups for `final_steps` steps (docs/papers/feat.md#rich-features-otherwise).
    """

    share: float = 0.9
    final_steps: int = 701

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ShiftproofError(f"'share' is above 0 and at most 1, not {self.share}")

    def _fit(self, study: Study, head: nn.Module) -> Pretrained:
        env = study.data.env
        if env is None:
            raise ShiftproofError("PI needs environments, and the data have none")
        begin = snapshot(study.featurizer), snapshot(head)
        logs: list[RoundLog] = []
        right = torch.zeros(len(env), dtype=torch.bool, device=env.device)
        groups: list[Tensor] = []
        for number, one in enumerate(env.unique().tolist(), 1):
            members = (env == one).nonzero().flatten()
            log, found = self._predict(study, head, begin, members, number)
            logs.append(log)
            right[members] = found[members]
            groups += [side for side in (members[found[members]], members[~found[members]]) if len(side)]
        final, last = self._interpolate(study, head, begin, groups, len(logs) + 1)
        splits = (GroupSplit(right, study.data.index),)
        stopped = f"{len(groups)} groups of {len(logs)} environments were joined"
        return Pretrained(study.featurizer.eval(), install_head(head, final), (*logs, last), 1, stopped, splits)

    def _predict(
        self, study: Study, head: nn.Module, begin: tuple[dict, dict], members: Tensor, number: int
    ) -> tuple[RoundLog, Tensor]:
        """Train on a part of one environment; what the network has right of all samples."""
        name, new = f"environment-{number}", new_network(study, head, begin, number)
        saved = study.saved(name)
        if saved is not None:
            return RoundLog.from_json(saved[1]["log"]), saved[0]["right"].bool()
        order = torch.randperm(len(members), generator=torch.Generator().manual_seed(round_seed(self.seed, number)))
        chosen = members[order[: max(1, round(self.share * len(members)))].to(members.device)]

        def loss(features: Tensor, rows: Tensor | None, weights: Tensor) -> Tensor:
            return weights[0] @ study.losses(new, features, rows)

        last = study.train(name, new, [chosen], loss, number=number)
        right = study.right(study.look([frozen(new)])[0])
        log = log_of(study, new, number, self.steps, last, right, [])
        study.save(name, {"right": right}, {"log": log.to_json()})
        return log, right

    def _interpolate(
        self, study: Study, head: nn.Module, begin: tuple[dict, dict], groups: list[Tensor], number: int
    ) -> tuple[nn.Module, RoundLog]:
        new = new_network(study, head, begin, number)
        saved = study.saved("interpolation")
        if saved is not None:
            study.featurizer.load_state_dict(part("featurizer", saved[0]))
            new.load_state_dict(part("head", saved[0]))
            return frozen(new), RoundLog.from_json(saved[1]["log"])

        def loss(features: Tensor, rows: Tensor | None, weights: Tensor) -> Tensor:
            return (weights @ study.losses(new, features, rows)).amax()

        last = study.train("interpolation", new, list(groups), loss, steps=self.final_steps, number=number)
        right = study.right(study.look([frozen(new)])[0])
        log = log_of(study, new, number, self.final_steps, last, right, [])
        tensors = {**under("featurizer", study.featurizer.state_dict()), **under("head", new.state_dict())}
        study.save("interpolation", tensors, {"log": log.to_json()})
        return new, log
