"""Probes of features: what a linear model can still read out of them, and deep feature reweighting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Task
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.statistics.metrics import Predictions, measure

C_GRID = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)  # docs/papers/feat.md#probes
STEPS_BETWEEN_LOOKS = 20  # a look at the change waits for the device
AT_ONCE = 2**25  # values of the subsets that are fitted side by side
Select = Literal["worst_group", "accuracy", "macro_f1"]


@dataclass(frozen=True, eq=False)
class LogisticModel:
    """A linear classifier on standardised features: weights [d, classes], biases, and the standardisation."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    def logits(self, features: Tensor) -> Tensor:
        return ((features - self.mean) / self.scale) @ self.weight + self.bias

    def predict(self, features: Tensor) -> Tensor:
        return self.logits(features).argmax(1)


def fit_logistic(
    x: Tensor, y: Tensor, classes: int, strengths: Sequence[float], *, steps: int = 500, tolerance: float = 1e-7
) -> tuple[Tensor, Tensor]:
    r"""Multinomial logistic regressions with an L1 penalty, one for each C at once: weights [C, d, classes] and biases.

    .. math:: \min_{W,b}\; \frac1n\sum_i \ell(W^T x_i + b, y_i) + \frac1{Cn}\lVert W\rVert_1

    by accelerated proximal gradient steps (FISTA), the bias unpenalised. Features should be standardised. Several data
    sets of the same size, [sets, n, d] and [sets, n], are fitted side by side: weights [sets, C, d, classes].
    """
    if x.dim() == 2:
        weight, bias = fit_logistic(x[None], y[None], classes, strengths, steps=steps, tolerance=tolerance)
        return weight[0], bias[0]
    sets, n, d = x.shape
    count = len(strengths)
    target = torch.nn.functional.one_hot(y.long(), classes).to(x).unsqueeze(2)
    inputs = torch.cat([x, x.new_ones(sets, n, 1)], 2)
    # the softmax loss has curvature at most 1/2 of the inputs' largest squared singular value
    largest = torch.linalg.eigvalsh((inputs.mT @ inputs).double())[:, -1].to(x)
    step = (2 * n / largest.clamp(min=1e-12)).view(-1, 1, 1, 1)
    cut = step / (n * torch.tensor(list(strengths)).to(x)).view(1, 1, -1, 1)
    w = x.new_zeros(sets, d + 1, count, classes)
    ahead, t = w.clone(), 1.0
    for number in range(1, steps + 1):
        p = torch.bmm(inputs, ahead.flatten(2)).view(sets, n, count, classes).softmax(-1)
        moved = ahead - step * torch.bmm(inputs.mT, (p - target).flatten(2)).view_as(w) / n
        rows = moved[:, :-1]
        moved[:, :-1] = rows.sign() * (rows.abs() - cut).clamp(min=0)
        t_next = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead = moved + (t - 1) / t_next * (moved - w)
        before, w, t = w, moved, t_next
        if number % STEPS_BETWEEN_LOOKS == 0 and float((w - before).abs().max()) < tolerance:
            break
    w = w.transpose(1, 2)
    return w[:, :, :-1], w[:, :, -1]


def balanced_subset(groups: Tensor, generator: torch.Generator, *, least: int = 0) -> Tensor:
    """Positions of a random subset with equally many samples of every group that has more than `least`."""
    kinds, counts = groups.unique(return_counts=True)
    kept = kinds[counts > least]
    if len(kept) == 0:
        raise ShiftproofError(f"no group has more than {least} samples; take a smaller 'least'")
    size = int(counts[counts > least].min())
    chosen = []
    for kind in kept.tolist():
        members = (groups == kind).nonzero().flatten()
        chosen.append(members[torch.randperm(len(members), generator=generator)[:size].to(members.device)])
    return torch.cat(chosen)


@dataclass(kw_only=True)
class DFR:
    """Deep feature reweighting: how well labels can be read out of features when groups are balanced.

    Half of the held-out data, balanced over groups (those with more than `least` samples, or all where these lack a
    class), fits an L1-regularised logistic regression for every C; the other half chooses C by `select`. Then
    `retrains` balanced subsets of all held-out data give as many models, whose coefficients are averaged. With the
    spurious attribute in place of the label this is DFR-s: higher means that more of it can be read
    (docs/papers/feat.md#probes).
    """

    strengths: tuple[float, ...] = C_GRID
    retrains: int = 20
    least: int = 100
    select: Select = "worst_group"
    steps: int = 500
    seed: int = 0

    def fit(self, features: Tensor, y: Tensor, groups: Tensor) -> LogisticModel:
        """The averaged model from held-out features, labels and groups."""
        if self.select not in ("worst_group", "accuracy", "macro_f1"):
            raise unknown("selection of DFR", self.select, ("worst_group", "accuracy", "macro_f1"))
        y, classes = y.reshape(-1).long(), int(y.max()) + 1
        generator = torch.Generator().manual_seed(self.seed)
        strength = self._tune(features, y, groups, classes, generator)
        mean, scale = standardisation(features)
        subsets = []
        for _ in range(self.retrains):
            for _ in range(20):  # until every class is there, as in the reference
                rows = balanced_subset(groups, generator, least=self._least(groups, y, classes))
                if len(y[rows].unique()) == classes:
                    break
            subsets.append(rows)
        x, found = (features - mean) / scale, []
        for rows in torch.stack(subsets).split(max(1, AT_ONCE // (len(subsets[0]) * features.shape[1]))):
            found.append(fit_logistic(x[rows], y[rows], classes, (strength,), steps=self.steps))
        weight = torch.cat([w[:, 0] for w, _ in found]).mean(0)
        bias = torch.cat([b[:, 0] for _, b in found]).mean(0)
        return LogisticModel(weight, bias, mean, scale)

    def score(self, model: LogisticModel, features: Tensor, y: Tensor, groups: Tensor) -> float:
        """The metric of a model by `select`."""
        return grouped_score(self.select, model.logits(features), y, groups)

    def _least(self, groups: Tensor, y: Tensor, classes: int) -> int:
        """`least`, or 0 where the groups that are larger do not hold every class."""
        _, which, counts = groups.unique(return_inverse=True, return_counts=True)
        covered = y[(counts > self.least)[which]].unique()
        return self.least if len(covered) == classes else 0

    def _tune(self, features: Tensor, y: Tensor, groups: Tensor, classes: int, generator: torch.Generator) -> float:
        order = torch.randperm(len(y), generator=generator).to(y.device)
        choosing, pool = order[: len(y) // 2], order[len(y) // 2 :]
        rows = pool[balanced_subset(groups[pool], generator, least=self._least(groups[pool], y[pool], classes))]
        mean, scale = standardisation(features[rows])
        weight, bias = fit_logistic((features[rows] - mean) / scale, y[rows], classes, self.strengths, steps=self.steps)
        x = (features[choosing] - mean) / scale
        logits = torch.einsum("nd,kdc->knc", x, weight) + bias.unsqueeze(1)
        values = [grouped_score(self.select, each, y[choosing], groups[choosing]) for each in logits]
        return self.strengths[values.index(max(values))]


def dfr_spurious(dfr: DFR, features: Tensor, spurious: Tensor, groups: Tensor | None = None) -> LogisticModel:
    """DFR-s: the same probe for a spurious attribute, balanced over its own values unless groups are given."""
    return dfr.fit(features, spurious, spurious if groups is None else groups)


@dataclass(frozen=True)
class ProbeScore:
    """How well a linear model reads a value out of features: on the data it was fitted to, and on others."""

    train: float
    test: float


def linear_probe(
    features: Tensor,
    values: Tensor,
    test_features: Tensor,
    test_values: Tensor,
    *,
    strength: float = 1.0,
    steps: int = 500,
) -> ProbeScore:
    """The accuracy of a logistic regression from features to labels; to a spurious attribute it is a spurious probe."""
    values, test_values = values.reshape(-1).long(), test_values.reshape(-1).long()
    classes = int(max(values.max(), test_values.max())) + 1
    mean, scale = standardisation(features)
    weight, bias = fit_logistic((features - mean) / scale, values, classes, (strength,), steps=steps)
    model = LogisticModel(weight[0], bias[0], mean, scale)
    found = [(model.predict(h) == v).double().mean() for h, v in ((features, values), (test_features, test_values))]
    return ProbeScore(float(found[0]), float(found[1]))


def standardisation(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each feature; a constant one is left as it is."""
    scale = features.std(0, unbiased=False)
    return features.mean(0), torch.where(scale > 1e-8, scale, torch.ones_like(scale))


def grouped_score(metric: Select, logits: Tensor, y: Tensor, groups: Tensor) -> float:
    """A measure of class logits with the groups as environments."""
    task: Task = "multiclass"
    return measure(metric, Predictions(logits.float().cpu(), y.reshape(-1).long().cpu(), groups.cpu(), task))
