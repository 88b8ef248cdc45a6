"""Counterfactual fidelity over epochs: looking changes nothing, and rows and figure hold what was seen."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.api.fitting import Plan
from shiftproof.errors import ShiftproofError
from shiftproof.papers.gmt import curves as gmt_curves
from shiftproof.papers.gmt.curves import curve_rows, draw_reactions_by_epoch, measures, watched
from shiftproof.sweeps.recipes import Work
from shiftproof.training.trainer import Trainer

SMALL = "ba-2motifs:graphs=60"


@pytest.mark.parametrize("method", ["gsat", "gmt-lin", "gmt-simulated", "gmt-sam"])
def test_a_method_trains_as_if_nobody_looked(method):
    data = sp.load(SMALL)
    settings = {"epochs": 3, "hidden": 8, "candidates": "all"}
    settings |= {"samples": 2} if method in ("gmt-sam", "gmt-simulated") else {}
    plain = sp.fit(method, data, **settings)
    plan = Plan.make(method, data, settings)
    seen = {}
    plan.make_method = watched(plan.make_method, lambda model, epoch: seen.setdefault(epoch, measures(model, data, 0)))
    torch.manual_seed(0)
    run = Trainer(**plan.training, seed=0).fit(plan.build(None), data, config=plan.config(None))
    assert list(seen) == [0, 1, 2]
    for name, value in plain.method.state_dict().items():
        torch.testing.assert_close(run.method.state_dict()[name], value, rtol=0, atol=0)
    for look in seen.values():
        assert set(look) == {"train", "val", "test"}
        assert all(0 <= of["counterfactual_tv"] <= 1 and 0 <= of["edge_auc"] <= 1 for of in look.values())


def test_rows_hold_every_look_and_finished_runs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(gmt_curves, "REACTING", (SMALL,))
    monkeypatch.setattr(gmt_curves, "LINES", {k: gmt_curves.LINES[k] for k in ("gsat", "simulated, 10 samples")})
    work = Work(tmp_path, range(2), smoke=True, device="cpu")
    rows = curve_rows(work)
    assert len(rows) == 2 * 3 * 4
    tv = next(r for r in rows if (r["metric"], r["split"], r["line"]) == ("counterfactual_tv", "test", "gsat"))
    assert tv["epochs"] == [0, 1]
    assert tv["values"] == [curve[-1] for curve in tv["curves"]]
    assert tv["times_gsat"] == pytest.approx(1.0)
    monkeypatch.setattr(gmt_curves, "train_and_look", lambda *_: pytest.fail("a finished run was trained again"))
    assert curve_rows(work) == rows
    few = curve_rows(replace(work, only=("gsat",)))
    assert {row["method"] for row in few} == {"gsat"}
    with pytest.raises(ShiftproofError, match="data set or method of this recipe"):
        curve_rows(replace(work, only=("gsad",)))
    drawn: Path = draw_reactions_by_epoch(rows, tmp_path / "curves.svg")
    text = drawn.read_text()
    assert "ba-2motifs, test" in text
    assert "simulated, 10 samples" in text
