"""The paper's settings on WILDS reach the methods of the paper and no others."""

from dataclasses import replace

import pytest
import torch

from shiftproof.api.fitting import Plan, fit
from shiftproof.data import Dataset, load
from shiftproof.data.published.wilds import KNOWN
from shiftproof.presets import preset_for

# docs/papers/feat.md#wilds-settings, "overall steps"
STEPS = {
    "amazon": 31_000,
    "camelyon17": 10_000,
    "civilcomments": 50_445,
    "fmow": 9_600,
    "iwildcam": 48_000,
    "rxrx1": 20_000,
}


def named(name: str) -> Dataset:
    return replace(load("colored-digits"), name="wilds", options={"name": name})


@pytest.mark.parametrize("name", STEPS)
def test_rounds_and_steps_are_those_of_the_paper(name):
    settings = preset_for(named(name)).settings("feat")
    total = settings["rounds"] * settings["round_steps"]
    assert 0 <= total - STEPS[name] < settings["rounds"]
    assert settings["merge"] == "halving"
    assert settings["dro_includes_retention"] is True
    assert preset_for(named(name), "feat").settings("feat") == settings
    Plan.make("feat-heads", named(name), {})
    assert "round_steps" not in preset_for(named(name)).settings("irm")
    assert "featurizer" not in preset_for(named(name)).settings("irm")


def test_all_sets_of_the_paper_can_be_read():
    assert STEPS.keys() <= KNOWN.keys()
    assert KNOWN["amazon"].metric == "percentile10"


def test_sets_without_an_entry_get_the_default():
    assert "rounds" not in preset_for(named("poverty")).settings("feat")


def test_a_round_can_be_counted_in_steps():
    data = named("civilcomments")
    chosen = {"widths": (8,), "round_steps": 3, "rounds": 2, "batch_size": 32, "epochs": 1, "lr": 1e-2}
    chosen["domains_per_batch"] = 2  # the stand-in has two; those of the data set are five a batch
    run = fit("feat", data, device="cpu", **chosen)
    assert [log.steps for log in run.method.pretrained.rounds] == [3, 3]
    assert torch.isfinite(run.method.head.weight).all()
