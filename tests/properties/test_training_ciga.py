"""Numbered facts of docs/papers/ciga.md#checked-facts, that concern training and its measures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef, roc_auc_score
from torch import nn

import shiftproof as sp
from shiftproof.data import Dataset, DomainSet
from shiftproof.methods import DataShape, Method
from shiftproof.statistics.metrics import Predictions, mcc, roc_auc
from shiftproof.training import Trainer

seeds = st.integers(0, 10_000)


def multiclass(y: torch.Tensor, guess: torch.Tensor, classes: int) -> Predictions:
    return Predictions(nn.functional.one_hot(guess, classes).float(), y, None, "multiclass")


@settings(max_examples=40, deadline=None)
@given(seed=seeds, classes=st.integers(2, 5), n=st.integers(2, 60))
def test_ciga_44_mcc_is_that_of_scikit_learn_and_symmetric_in_labels_and_guesses(seed, classes, n):
    g = torch.Generator().manual_seed(seed)
    y, guess = torch.randint(classes, (2, n), generator=g)
    value = mcc(multiclass(y, guess, classes))
    assert value == pytest.approx(matthews_corrcoef(y, guess), abs=1e-12)
    assert value == pytest.approx(mcc(multiclass(guess, y, classes)), abs=1e-12)
    # Gorodkin's formula, written out
    table = torch.zeros(classes, classes, dtype=torch.float64)
    table.index_put_((y, guess), torch.ones(n, dtype=torch.float64), accumulate=True)
    true, told = table.sum(1), table.sum(0)
    spread = (n**2 - told @ told) * (n**2 - true @ true)
    wanted = (table.trace() * n - true @ told) / spread.sqrt() if spread > 0 else torch.zeros(())
    assert value == pytest.approx(float(wanted), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, classes=st.integers(2, 4))
def test_ciga_44_mcc_of_constant_predictions_is_zero(seed, classes):
    y = torch.randint(classes, (30,), generator=torch.Generator().manual_seed(seed))
    assert mcc(multiclass(y, torch.ones_like(y), classes)) == 0.0


@settings(max_examples=40, deadline=None)
@given(seed=seeds, levels=st.integers(2, 20), n=st.integers(3, 40))
def test_ciga_44_auc_is_the_share_of_pairs_in_order_with_ties_half(seed, levels, n):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=g)
    y[0], y[1] = 0, 1
    score = torch.randint(levels, (n,), generator=g).double()  # few levels: many ties
    pairs = score[y == 1][:, None] - score[y == 0][None]
    wanted = float(((pairs > 0).double() + 0.5 * (pairs == 0)).mean())

    def auc(values):
        return roc_auc(Predictions(values, y, None, "binary"))

    assert auc(score) == pytest.approx(wanted, abs=1e-12)
    for increasing in (torch.exp, torch.atan, lambda v: 3 * v - 7):
        assert auc(increasing(score)) == pytest.approx(wanted, abs=1e-12)
    assert auc(-score) == pytest.approx(1 - wanted, abs=1e-12)
    two_logits = torch.stack([torch.ones(n, dtype=torch.float64), score], 1)
    assert roc_auc(Predictions(two_logits, y, None, "multiclass")) == pytest.approx(wanted, abs=1e-12)


def test_ciga_44_auc_over_more_classes_or_columns_is_a_mean_and_undefined_for_one_class():
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(60, 3, generator=g), torch.randint(3, (60,), generator=g)
    wanted = np.mean([roc_auc_score(y == k, logits.softmax(1)[:, k]) for k in range(3)])
    assert roc_auc(Predictions(logits, y, None, "multiclass")) == pytest.approx(wanted, abs=1e-6)
    assert math.isnan(roc_auc(Predictions(logits, y.clamp(max=1), None, "multiclass")))
    assert math.isnan(roc_auc(Predictions(logits[:, 0], torch.ones(60), None, "binary")))
    columns = (y[:, None] == torch.arange(3)).float()
    columns[:5, 0] = float("nan")  # unknown labels
    columns[:, 2] = 1.0  # a column of one class only
    parts = [roc_auc_score(columns[5:, 0], logits[5:, 0]), roc_auc_score(columns[:, 1], logits[:, 1])]
    assert roc_auc(Predictions(logits, columns, None, "multilabel")) == pytest.approx(np.mean(parts), abs=1e-6)


class Scripted(Method):
    """Predicts the share `scores[epoch]` of the samples right."""

    def __init__(self, shape: DataShape, scores: list[float]) -> None:
        super().__init__(shape)
        self.scores, self.now = scores, 0
        self.weight = nn.Parameter(torch.zeros(1))

    def start_epoch(self, epoch: int) -> None:
        self.now = epoch

    def forward(self, batch):
        right = 2 * batch.y - 1
        return torch.where(torch.arange(len(right)) < round(self.scores[self.now] * len(right)), right, -right)

    def losses(self, batch):
        return {"task": self.weight.square().sum()}


def scripted(scores: list[float], **stopping):
    split = DomainSet(torch.zeros(20, 1), torch.arange(20) % 2.0)
    data = Dataset({"train": split, "val": split}, name="toy", task="binary")
    return Trainer(epochs=len(scores), **stopping).fit(Scripted(DataShape.of(data), scores), data)


def test_ciga_45_a_constant_metric_stops_after_warm_up_and_patience_and_keeps_the_first_epoch():
    run = scripted([0.5] * 100, warmup=20, patience=5)
    assert len(run.history) == 25
    assert run.selected_epoch == 0


@settings(max_examples=25, deadline=None)
@given(best=st.integers(0, 19))
def test_ciga_45_an_improvement_inside_the_warm_up_is_remembered(best):
    run = scripted([0.9 if epoch == best else 0.5 for epoch in range(100)], warmup=20, patience=5)
    assert run.selected_epoch == best
    assert len(run.history) == 25


@pytest.mark.parametrize(("best", "epochs"), [(20, 26), (23, 29), (24, 30), (25, 25), (40, 25)])
def test_ciga_45_after_the_warm_up_patience_counts_from_the_last_improvement(best, epochs):
    run = scripted([0.9 if epoch == best else 0.5 for epoch in range(100)], warmup=20, patience=5)
    assert len(run.history) == epochs
    assert run.selected_epoch == (best if best < 25 else 0)


def test_ciga_45_a_better_epoch_just_in_time_starts_the_count_again():
    scores = [0.5] * 20 + [0.4, 0.55, 0.4, 0.4, 0.4, 0.4, 0.6] + [0.4] * 50
    run = scripted(scores, warmup=20, patience=5)
    assert len(run.history) == 32
    assert run.selected_epoch == 26


@pytest.mark.parametrize("method", ["erm", "irm", "groupdro", "eiil"])
@pytest.mark.parametrize(
    "data", ["two-bit:per_env=40", "spmotif-struc:train_per_class=8,val_per_class=4,test_per_class=4"]
)
def test_ciga_46_the_same_seed_gives_the_same_bits(method, data):
    options = {"reference_epochs": 1, "inference_steps": 20} if method == "eiil" else {}
    if "spmotif" in data:
        options |= {"dropout": 0.3, "hidden": 8}
    runs = []
    for seed in (4, 4, 5):
        torch.rand(3)  # the state of the global generator must not matter
        runs.append(sp.fit(method, sp.load(data), seed=seed, epochs=3, batch_size=16, **options))
    one, same, other = runs
    assert one.metrics == same.metrics
    assert one.history == same.history
    weights = [run.method.state_dict() for run in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert one.history != other.history
