"""An injection attack put together from its parts: a choice of edges, an update of features, and rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.robustness.attacks.choices import Choice, Joined, RandomEdges, vulnerability
from shiftproof.robustness.attacks.situation import Situation, Start
from shiftproof.robustness.attacks.updates import SignPGD, Update
from shiftproof.robustness.budget import Perturbation


@dataclass(frozen=True)
class Sequential:
    """Inject in rounds of the share `step` of the nodes; every round sees what the earlier ones did.

    With `branching` a round joins only the targets that are easiest to turn now, as many as its share. With
    `first_random` the nodes before that share of all are joined at random.
    """

    step: float = 0.2
    branching: bool = False
    first_random: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise ShiftproofError(f"the 'step' of an attack in rounds lies in (0, 1], not {self.step}")
        if not 0 <= self.first_random <= 1:
            raise ShiftproofError(f"the share of nodes joined at random first lies in [0, 1], not {self.first_random}")


@dataclass(frozen=True)
class InjectionAttack:
    """Edges by `choice`, features by `update`, all nodes at once or in rounds (`sequential`)."""

    choice: Choice = field(default_factory=RandomEdges)
    update: Update = field(default_factory=SignPGD)
    start: Start = "random"
    sequential: Sequential | None = None
    kind = "injection"
    targets_only = True

    def run(self, situation: Situation) -> Perturbation:
        """Inject as many nodes as the budget of the situation allows."""
        count = situation.budget.nodes
        if self.sequential is not None:
            return self._in_rounds(situation, count, self.sequential)
        joined = self.choice(situation, count, situation.targets)
        features = joined.features
        if features is None:
            start = situation.start(count, self.start)
            features = self.update(situation, joined.edges, start, inner=joined.inner)
        return _perturbation(situation, features, joined.edges, joined.inner)

    def _in_rounds(self, situation: Situation, count: int, rounds: Sequential) -> Perturbation:
        graph = situation.graph
        features = graph.x.new_zeros(0, graph.num_features)
        edges = torch.zeros(2, 0, dtype=torch.long, device=graph.device)
        done = 0
        while done < count:
            now = _batch(situation, count, done, rounds.step, self.choice.distinct)
            current = situation.on(Perturbation(features=features, edges=edges).apply(graph)) if done else situation
            candidates = _candidates(current, situation, now, rounds) if rounds.branching else situation.targets
            random = done + now < int(count * rounds.first_random)
            joined: Joined = (RandomEdges() if random else self.choice)(current, now, candidates)
            edges = torch.cat([edges, torch.stack([joined.edges[0] + done, joined.edges[1]])], 1)
            features = torch.cat([features, situation.start(now, self.start)])
            features = self.update(situation, edges, features, old=done)
            done += now
            situation.log["round"] = situation.log.get("round", 0) + 1
        return _perturbation(situation, features, edges, None)


def _batch(situation: Situation, count: int, done: int, step: float, distinct: bool) -> int:
    """The number of nodes of the next round; where no target is used twice, no more than there are targets for."""
    now = min(count - done, max(1, int(count * step)))
    return min(now, max(1, len(situation.targets) // situation.budget.edges_per_node)) if distinct else now


def _candidates(current: Situation, clean: Situation, now: int, rounds: Sequential) -> Tensor:
    """The targets that are easiest to turn, by the score of ATDGIA with the degrees of the clean graph."""
    targets, each = clean.targets, clean.budget.edges_per_node
    wanted = min(len(targets), max(now * (each + 1), int(len(targets) * rounds.step)))
    degree = clean.graph.degree[targets] + 1
    scores = vulnerability(current.probabilities(), clean.labels, degree, each, "atdgia")
    return targets[torch.argsort(scores, descending=True, stable=True)[:wanted]]


def _perturbation(situation: Situation, features: Tensor, edges: Tensor, inner: Tensor | None) -> Perturbation:
    others = {} if inner is None else {"inner": inner}
    return Perturbation(features=features, edges=edges, log=situation.log, **others)
