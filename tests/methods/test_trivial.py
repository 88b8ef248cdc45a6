"""What any method must beat."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import DomainSet
from tests.methods.labelled import motif_data
from tests.methods.test_vector_methods import table_of


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "multilabel"])
def test_the_prior_says_the_rate_or_the_mean_of_everything(task: str, tmp_path: Path) -> None:
    data = table_of(task)
    run = sp.fit("prior", data, out=tmp_path / "run")
    said = sp.Run.load(tmp_path / "run").predict(data)
    y = data.train.y
    if task == "regression":
        assert said.values == pytest.approx(float(y.mean()), abs=1e-5)
    elif task == "multilabel":
        assert said.probabilities[0] == pytest.approx(y.nanmean(0).numpy(), abs=2e-3)
    else:
        rates = [float((y == number).float().mean()) for number in range(len(said.classes))]
        assert said.probabilities[0] == pytest.approx(rates, abs=2e-3)
    assert len(run.logits(data.test).reshape(len(data.test), -1).unique(dim=0)) == 1


def test_size_tells_graphs_apart_by_their_nodes_alone() -> None:
    data = motif_data(240)
    sizes = data.test.sizes
    logits = sp.fit("size", data).logits(data.test)
    for size in sizes.unique().tolist():
        assert len(logits[sizes == size].unique(dim=0)) == 1


def test_every_question_has_a_row_of_its_own() -> None:
    data = table_of("multilabel")
    y = data.test.y.clone()
    y[:, 1] = torch.nan
    found = sp.fit("linear", data.with_splits(test=DomainSet(data.test.x, y))).metrics["test"]["by_label"]
    assert list(found) == ["0", "1"]
    assert found["0"]["samples"] == int((~y[:, 0].isnan()).sum())
    assert found["0"]["roc_auc"] > 0.7
    assert found["1"] == {"samples": 0}
