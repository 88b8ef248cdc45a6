"""The measures chemists use say what scikit-learn and SciPy say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from shiftproof.statistics.metrics import FITTING, LOWER_IS_BETTER, Predictions, measure
from shiftproof.statistics.names import metric_name


def numbers(seed: int = 0, count: int = 60) -> Predictions:
    g = torch.Generator().manual_seed(seed)
    y = torch.randn(count, generator=g)
    return Predictions(y + torch.randn(count, generator=g), y, None, "regression")


def two_classes(seed: int = 0, count: int = 80) -> Predictions:
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(count, generator=g) < 0.3).float()
    return Predictions(y + torch.randn(count, generator=g) - 0.5, y, None, "binary")


def test_measures_of_numbers() -> None:
    p = numbers()
    said, y = p.logits.numpy(), p.y.numpy()
    assert measure("rmse", p) == pytest.approx(math.sqrt(sk.mean_squared_error(y, said)), rel=1e-5)
    assert measure("mae", p) == pytest.approx(sk.mean_absolute_error(y, said), rel=1e-5)
    assert measure("r2", p) == pytest.approx(sk.r2_score(y, said), rel=1e-4)
    assert measure("spearman", p) == pytest.approx(stats.spearmanr(said, y).statistic, rel=1e-6)
    same = Predictions(torch.ones(5), torch.ones(5), None, "regression")
    assert math.isnan(measure("r2", same))
    assert math.isnan(measure("spearman", same))


def test_measures_of_classes() -> None:
    p = two_classes()
    said, y = p.logits.numpy(), p.y.numpy()
    assert measure("average_precision", p) == pytest.approx(sk.average_precision_score(y, said))
    assert measure("balanced_accuracy", p) == pytest.approx(sk.balanced_accuracy_score(y, said > 0))
    several = Predictions(torch.eye(3).repeat(2, 1), torch.tensor([0, 1, 1, 0, 1, 2]), None, "multiclass")
    assert measure("balanced_accuracy", several) == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert math.isnan(measure("average_precision", several))


def test_several_questions_are_averaged_over_those_that_have_both_answers() -> None:
    one, other = two_classes(0), two_classes(1)
    gaps = torch.full_like(one.y, torch.nan)
    p = Predictions(
        torch.stack([one.logits, other.logits, other.logits], 1),
        torch.stack([one.y, other.y, gaps], 1),
        None,
        "multilabel",
    )
    for name in ("average_precision", "balanced_accuracy", "roc_auc"):
        assert measure(name, p) == pytest.approx((measure(name, one) + measure(name, other)) / 2), name


def test_the_calibration_error_is_the_gap_between_what_is_said_and_what_comes_true() -> None:
    sure = torch.full((100,), math.log(0.8 / 0.2))
    y = (torch.arange(100) < 60).float()
    assert measure("calibration_error", Predictions(sure, y, None, "binary")) == pytest.approx(0.2, abs=1e-6)
    honest = (torch.arange(100) < 80).float()
    assert measure("calibration_error", Predictions(sure, honest, None, "binary")) == pytest.approx(0, abs=1e-6)
    two = torch.stack([torch.zeros(100), sure], 1)
    assert measure("calibration_error", Predictions(two, y.long(), None, "multiclass")) == pytest.approx(0.2, abs=1e-6)


def test_every_measure_has_a_name_and_a_direction() -> None:
    for task, names in FITTING.items():
        for name in names:
            assert metric_name(name, task)
    better, worse = numbers(0), numbers(0)
    worse = Predictions(
        worse.logits + 5 * torch.from_numpy(np.sign(np.arange(60) - 30.5)).float(), worse.y, None, "regression"
    )
    for name in ("rmse", "mae", "r2", "spearman", "mse"):
        sign = -1 if name in LOWER_IS_BETTER else 1
        assert sign * measure(name, better) > sign * measure(name, worse), name
