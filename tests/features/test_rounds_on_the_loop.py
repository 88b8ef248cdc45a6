"""Rounds of feature learning are trained by the loop of runs: callbacks, progress, stopping, resuming are its own."""

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.errors import TrainingDiverged
from shiftproof.features import IFeAT
from shiftproof.training import Callback

DIGITS = sp.load("colored-digits").train[:100]


def pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 8), nn.ReLU()), nn.Linear(8, 1)


def test_every_round_tells_its_start_its_passes_and_its_end():
    lines = []

    class Diary(Callback):
        def on_start(self, training):
            lines.append(("start", training.title))

        def on_epoch(self, training):
            lines.append((training.epoch, training.step, training.record["steps"]))

        def on_end(self, training, run):
            lines.append(("end", run))

    IFeAT(rounds=2, steps=5, batch_size=40, callbacks=[Diary()]).fit(*pair(), DIGITS)
    one = [(1, 3, 3), (2, 5, 2), ("end", None)]
    assert lines == [("start", "features, round-1"), *one, ("start", "features, round-2"), *one]


def test_a_callback_ends_a_round_and_the_next_one_begins():
    def stop(training):
        if training.epoch == 2:
            training.stop("enough")

    done = []
    IFeAT(rounds=2, steps=30, callbacks=[stop, lambda training: done.append(training.step)]).fit(*pair(), DIGITS)
    assert done == [1, 2, 1, 2]


def test_a_loss_that_is_not_finite_names_the_round_and_the_step():
    featurizer, head = pair()
    with torch.no_grad():
        head.weight.fill_(float("nan"))
    with pytest.raises(TrainingDiverged, match=r"'task' became nan at step 0 .* in round-1"):
        IFeAT(steps=3).fit(featurizer, head, DIGITS)


def test_the_stage_of_a_run_is_shown_like_the_run(capsys, monkeypatch):
    monkeypatch.setattr("shiftproof.runtime.progress.SECONDS_BETWEEN_LINES", 0.0)
    data = sp.load("two-bit", per_env=30)
    sp.fit("feat", data, features="ifeat", round_steps=4, epochs=2, widths=(6,), batch_size=None, progress="lines")
    said = capsys.readouterr().err
    assert "features, round-1: 4/4" in said
    assert "feat on two-bit" in said
