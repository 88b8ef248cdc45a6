"""Numbered facts of docs/papers/feat.md#checked-facts, that concern heads and probes on frozen features."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.features import DFR, LinearHeadSweep, cache_features
from shiftproof.features.probes import balanced_subset, fit_logistic
from shiftproof.nn import MLPFeaturizer
from tests.properties.module_weights import assert_same, weights_of


class Normed(nn.Module):
    """A featurizer with batch norm and dropout, whose buffers would drift in training mode."""

    out_channels = 12

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(128, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))

    def forward(self, batch):
        return self.layers(batch if isinstance(batch, torch.Tensor) else batch.x)


@pytest.mark.parametrize("batch_size", [None, 64])
def test_feat_27_frozen_features_stay_and_caching_them_changes_nothing(batch_size, monkeypatch):
    from shiftproof.features.method import FeatureMethod

    data = sp.load("colored-digits")
    chosen = {"features": "none", "objective": "vrex", "epochs": 6, "selection": "last", "batch_size": batch_size}
    found = []
    for cached in (True, False):
        torch.manual_seed(0)
        network = Normed()
        before = {name: value.clone() for name, value in network.state_dict().items()}
        if not cached:
            monkeypatch.setattr(FeatureMethod, "start_epoch", lambda self, epoch: None)
        run = sp.fit("feat", data, network=network, **chosen)
        after = run.method.featurizer.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        found.append(weights_of(run.method.head))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_feat_27_the_head_sweep_is_the_method_on_the_same_features(monkeypatch):
    data = sp.load("colored-digits")
    torch.manual_seed(0)
    network = MLPFeaturizer(128, (12,))
    chosen = {"features": "none", "objective": "vrex", "penalty": 10.0, "reduction": "sum", "batch_size": None}
    chosen |= {"network": network, "selection": "last", "rescale": True, "l2": 1e-3}
    trained = sp.fit("feat", data, epochs=15, **chosen).method.head
    untrained = sp.fit("feat", data, epochs=0, **chosen).method.head
    monkeypatch.setattr("shiftproof.features.sweep.first_head", lambda *_: deepcopy(untrained))
    sweep = LinearHeadSweep(objectives=("vrex",), penalties=(10.0,), steps=15, l2=1e-3)
    swept = sweep.fit(cache_features(network, data.train), data.train.y, data.train.env)
    torch.testing.assert_close(swept.head(0).weight, trained.weight, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(trained.weight, untrained.weight, atol=1e-3)


def test_feat_31_the_bottleneck_does_nothing_on_frozen_features():
    data = sp.load("colored-digits")
    chosen = {"features": "erm", "round_epochs": 3, "epochs": 10, "selection": "last", "widths": (8,), "penalty": 10.0}
    irm, ib = (sp.fit("feat", data, objective=name, **chosen).method for name in ("irm", "ib-irm"))
    assert_same(weights_of(irm.head), weights_of(ib.head))
    free = [sp.fit("feat", data, objective=name, freeze=False, **chosen).method for name in ("irm", "ib-irm")]
    assert not torch.equal(free[0].head.weight, free[1].head.weight)


def test_feat_37_dfr_balances_shrinks_and_averages():
    g = torch.Generator().manual_seed(0)
    groups = torch.tensor([0] * 50 + [1] * 20 + [2] * 5)
    rows = balanced_subset(groups, g, least=10)
    assert groups[rows].bincount(minlength=3).tolist() == [20, 20, 0]
    x, y = torch.randn(60, 5, generator=g).double(), torch.arange(60) % 2
    x[:, 0] += 2 * y
    weak, _ = fit_logistic(x, y, 2, (1.0, 1e-6))
    assert weak[0].abs().max() > 0.1
    assert weak[1].abs().max() == 0
    # every group has one sample count, so each balanced subset is all samples: twenty retrains are one
    once, often = (DFR(retrains=k, strengths=(0.3,), least=0).fit(x, y, y) for k in (1, 20))
    torch.testing.assert_close(once.weight, often.weight, rtol=1e-5, atol=1e-8)
    assert DFR(least=0).score(once, x, y, y) > 0.7
