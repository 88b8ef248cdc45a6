"""Heads for many objectives on one set of features, as a method: what the tables of the FeAT paper are made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset, Split
from shiftproof.features.method import FeatureMethod
from shiftproof.features.probes import DFR
from shiftproof.features.sweep import HeadSweep, LinearHeadSweep, cache_features
from shiftproof.methods.base import Batch, DataShape, Network, Trains
from shiftproof.ranges import Count, NonNegative, Positive
from shiftproof.registry import register, with_options_of
from shiftproof.runtime.files import write_json
from shiftproof.statistics.metrics import LOWER_IS_BETTER, Predictions, measure

HEADS = "heads.json"
COUNTED = ("accuracy", "worst_group")


@register("feat-heads", tags=("graphs", "tensors", "nodes"))
class ManyHeads(FeatureMethod):
    """FeAT features, and heads for many objectives and penalties trained on them at once; the best one predicts.

    Features are learned as by `feat`. Then a head is trained for each of `objectives` and `penalties`, `head_steps`
    steps long (each length is tried), full batch, Adam. The head that is best on `val` (without one: on `train`) is
    kept; how good all of them are on every split is written to `heads.json` beside the run. `probe` adds DFR, fitted to
    one half of `test` and measured on the other, and DFR-s for the column `spurious` (the environments without one).
    """

    @with_options_of(FeatureMethod, without=("freeze",), reduction="sum")
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        objectives: tuple[str, ...] = ("erm", "irm", "vrex", "irmx", "iga", "fishr", "groupdro"),
        penalties: tuple[NonNegative, ...] = (1e1, 1e2, 1e3, 1e4, 1e5),
        head_steps: tuple[Count, ...] = (100, 500),
        head_lr: Positive = 1e-3,
        probe: bool = False,
        spurious: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        self.head.requires_grad_(False)  # nothing is left for the training loop to do
        self.objectives, self.penalties, self.head_steps = tuple(objectives), tuple(penalties), tuple(head_steps)
        self.head_lr, self.probe, self.spurious = head_lr, probe, spurious
        self.table: dict[str, Any] = {}

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        super().prepare(dataset, trainer)
        pretrained = self.learn_features(dataset, trainer)
        found = {name: cache_features(self.featurizer, split, by_batch=True) for name, split in dataset.splits.items()}
        swept = self._sweep(found["train"], dataset.train.y, trainer)
        metric = trainer.metric or dataset.metric
        scores = {name: self._scores(swept, h, dataset[name], metric) for name, h in found.items()}
        told = scores["val" if "val" in scores else "train"]
        judge = torch.tensor([[torch.nan if v is None else v for v in row] for row in told], dtype=torch.float64)
        judge = torch.nan_to_num(-judge if metric in LOWER_IS_BETTER else judge, nan=-torch.inf)
        step, number = divmod(int(judge.argmax()), judge.shape[1])
        self.head.load_state_dict(swept.head(number, step).state_dict())
        self.head.requires_grad_(False)
        self.table = {
            "metric": metric,
            "settings": [{"objective": s.objective, "penalty": s.penalty} for s in swept.settings],
            "steps": list(swept.steps),
            "scores": scores,
            "chosen": {"step": swept.steps[step], "number": number},
            "probes": self._probes(found, dataset, trainer.seed) if self.probe else {},
            "rounds": [] if pretrained is None else [log.to_json() for log in pretrained.rounds],
            "kept": None if pretrained is None else pretrained.kept,
            "stopped": None if pretrained is None else pretrained.stopped,
        }
        if trainer.out is not None:
            write_json(Path(trainer.out) / HEADS, self.table)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        raise NotImplementedError("all heads are trained in `prepare`")

    def _sweep(self, features: Tensor, y: Tensor, trainer: Trains) -> HeadSweep:
        l2 = trainer.l2
        sweep = LinearHeadSweep(
            objectives=self.objectives,
            penalties=self.penalties,
            seeds=(trainer.seed,),
            steps=self.head_steps,
            lr=self.head_lr,
            # docs/papers/feat.md#heads: the released code has no L2 on the head for CLOvE and Fishr
            l2={name: 0.0 if name in ("clove", "fishr") else l2 for name in (*self.objectives, "irm")},
            reduction=self.reduction,  # type: ignore[arg-type]
            start=self.start,
        )
        return sweep.fit(features, y, self.environment, task=self.shape.task, num_outputs=self.shape.num_outputs)

    def _probes(self, found: dict[str, Tensor], dataset: Dataset, seed: int) -> dict[str, float | None]:
        """DFR of the label on `test`, and of the spurious value on the split that has several of it."""
        test, order = dataset["test"], torch.Generator().manual_seed(seed)
        one = torch.zeros(len(test), dtype=torch.long, device=test.device)
        env = one if test.env is None else test.env
        y = test.y.reshape(-1).long()
        several = "worst_group" if int(env.max()) > 0 else "accuracy"
        values: dict[str, float | None] = {
            "dfr": _half_and_half(DFR(select=several, seed=seed), found["test"], y, y * (env.max() + 1) + env, order)
        }
        for name in ("test", "val", "train"):
            split = dataset.splits.get(name)
            columns = {} if split is None else {**split.columns, "": split.env}
            s = columns.get(self.spurious or "")
            if s is not None and len(s.unique()) > 1:
                values["dfr_s"] = _half_and_half(
                    DFR(select="accuracy", seed=seed), found[name], s.long(), s.long(), order
                )
                break
        return values

    def _scores(self, swept: HeadSweep, features: Tensor, split: Split, metric: str) -> list[list[float | None]]:
        """The metric of every head after every length of training, [steps][heads]."""
        if metric in COUNTED and self.shape.task in ("binary", "multiclass"):
            return self._counted(swept, features, split, metric)
        env = None if split.env is None else split.env.cpu()
        flat = self.shape.task in ("binary", "regression")
        scores: list[list[float | None]] = []
        for step in range(len(swept.steps)):
            known: dict[int, float | None] = {}
            for number, place in enumerate(swept.place):
                if place not in known:
                    with torch.no_grad():
                        logits = swept.head(number, step)(features).float().cpu()
                    judged = Predictions(logits.squeeze(-1) if flat else logits, split.y.cpu(), env, self.shape.task)
                    value = measure(metric, judged)
                    known[place] = value if value == value else None
            scores.append([known[place] for place in swept.place])
        return scores

    def _counted(self, swept: HeadSweep, features: Tensor, split: Split, metric: str) -> list[list[float | None]]:
        """The same for metrics that are counts of right answers: one product for all heads, one look at the result."""
        env = torch.zeros_like(split.index) if split.env is None or metric == "accuracy" else split.env
        present = torch.bincount(env) > 0
        values = swept.accuracy(features, split.y, env)[..., present].amin(-1)
        return values.tolist()


def _half_and_half(dfr: DFR, features: Tensor, values: Tensor, groups: Tensor, order: torch.Generator) -> float | None:
    """Fit to a random half and measure on the other; None where a half lacks a value."""
    rows = torch.randperm(len(values), generator=order).to(values.device)
    fitted, held = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    if len(values[fitted].unique()) < int(values.max()) + 1:
        return None
    model = dfr.fit(features[fitted], values[fitted], groups[fitted])
    return dfr.score(model, features[held], values[held], groups[held])
