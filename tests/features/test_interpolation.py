"""Predict-then-interpolate: groups by environment, the worst decides, and a killed one goes on."""

import pytest
import torch

import shiftproof as sp
from shiftproof.data import DomainSet
from shiftproof.errors import ShiftproofError
from shiftproof.features import PI, rounds
from shiftproof.nn import MLPFeaturizer
from shiftproof.nn import head as make_head

CHOSEN = {"steps": 40, "final_steps": 250, "lr": 1e-2, "l2": 1e-3, "start": "xavier"}


def network():
    torch.manual_seed(0)
    return MLPFeaturizer(128, (16, 16)), make_head(16, 1, init="xavier")


def test_the_worst_of_right_and_wrong_turns_from_colour_to_digit():
    data = sp.load("colored-digits")
    learned = PI(**CHOSEN).fit(*network(), data)
    assert [log.steps for log in learned.rounds] == [40, 40, 250]
    followed = (data.train.columns["colour"] == data.train.y.long())[learned.splits[0].right].double().mean()
    assert followed > 0.9, "each environment's network follows the colour"
    alone, joined = learned.rounds[0].scores["test"], learned.rounds[-1].scores["test"]
    assert joined > alone + 0.15


def test_a_killed_one_goes_on_to_the_same_result(tmp_path, monkeypatch):
    data, chosen = sp.load("colored-digits").train[:200], {**CHOSEN, "steps": 5, "final_steps": 5}
    whole = PI(**chosen).fit(*network(), data)
    original = rounds.Study.save

    def kill(self, name, *rest):
        original(self, name, *rest)
        if name == "environment-2":
            raise KeyboardInterrupt

    monkeypatch.setattr(rounds.Study, "save", kill)
    with pytest.raises(KeyboardInterrupt):
        PI(**chosen, out=tmp_path).fit(*network(), data)
    monkeypatch.setattr(rounds.Study, "save", original)
    resumed = PI(**chosen, out=tmp_path).fit(*network(), data)
    assert torch.equal(resumed.head.weight, whole.head.weight)
    assert resumed.rounds == whole.rounds


def test_data_without_environments_are_one_sentence():
    with pytest.raises(ShiftproofError, match="PI needs environments"):
        PI().fit(*network(), DomainSet(torch.rand(8, 128), torch.arange(8) % 2))
    with pytest.raises(ShiftproofError, match="'share' is above 0"):
        PI(share=0.0)
