"""Training on all rows before use, and taking a few rows of a new domain in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset, DomainSet
from shiftproof.errors import ShiftproofError
from tests.methods.test_vector_methods import table_of


def turned(samples: int, seed: int) -> DomainSet:
    """Rows of a new place, where the first column means the opposite."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 5, generator=g)
    return DomainSet(x, (x[:, 0] < 0).float())


def same(samples: int, seed: int) -> DomainSet:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 5, generator=g)
    return DomainSet(x, (x[:, 0] > 0).float())


@pytest.fixture(scope="module")
def data() -> Dataset:
    return table_of("binary", samples=240)


@pytest.mark.parametrize("method", ["forest", "erm"])
def test_refit_trains_on_all_rows_and_keeps_the_honest_metrics(method: str, data: Dataset, tmp_path: Path) -> None:
    settings = {"trees": 5} if method == "forest" else {"epochs": 3, "widths": (8,)}
    judged = sp.fit(method, data, **settings)
    run = sp.fit(method, data, refit=True, out=tmp_path / "run", **settings)
    assert run.metrics == judged.metrics
    assert run.config["refit"]["rows"] == 240
    assert not torch.equal(run.logits(data.test), judged.logits(data.test))
    again = sp.Run.load(tmp_path / "run")
    assert again.metrics == judged.metrics
    assert torch.equal(again.logits(data.test), run.logits(data.test))
    assert torch.equal(sp.Run.load(tmp_path / "run" / "judged").logits(data.test), judged.logits(data.test))
    if method == "erm":
        assert len(run.history) == judged.selected_epoch + 1


def test_auto_is_refitted_with_the_method_it_chose(data: Dataset) -> None:
    run = sp.fit("auto", data, refit=True, trees=3, epochs=1, widths=(4,))
    assert run.name == run.timing["chosen"]["method"]
    assert run.config["refit"]["rows"] == 240


@pytest.mark.parametrize("method", ["forest", "erm"])
def test_fifty_rows_of_a_place_where_all_is_turned_help_and_more_of_the_same_do_not_hurt(
    method: str, data: Dataset
) -> None:
    run = sp.fit(method, data, **({"trees": 20} if method == "forest" else {"epochs": 10, "lr": 1e-2, "widths": (16,)}))
    before = run.logits(data.test).clone()
    adapted = sp.adapt(run, turned(50, 0), data=data)
    assert adapted.helped
    assert "they helped" in str(adapted)
    fresh = turned(200, 1)
    right = ((adapted.run.logits(fresh) > 0) == (fresh.y > 0.5)).float().mean()
    was = ((run.logits(fresh) > 0) == (fresh.y > 0.5)).float().mean()
    assert right > was + (0.1 if method == "forest" else 0.3)
    assert torch.equal(run.logits(data.test), before)
    assert not sp.adapt(run, same(50, 2), data=data).gain.high < 0


def test_what_cannot_be_adapted_is_said(data: Dataset) -> None:
    run = sp.fit("forest", data, trees=3)
    with pytest.raises(ShiftproofError, match="give its training data too"):
        sp.adapt(run, turned(50, 0))
    with pytest.raises(ShiftproofError, match="5 labelled rows are too few"):
        sp.adapt(run, turned(5, 0), data=data)
