"""Numbered facts of docs/papers/feat.md#checked-facts, that concern training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shiftproof as sp
from shiftproof.methods import IRM, DataShape, Network
from shiftproof.training import Weighted

DATA = "two-bit:per_env=50"
SETTINGS = {"batch_size": None, "widths": (5,), "l2": 1e-2, "selection": "last", "epochs": 5, "lr": 1e-2}
ZERO = {
    "irm": {"penalty": 0.0},
    "vrex": {"penalty": 0.0},
    "irmx": {"irm_penalty": 0.0, "vrex_penalty": 0.0},
    "ib-irm": {"penalty": 0.0, "ib_penalty": 0.0},
}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("method", ZERO)
def test_feat_28_without_weight_every_penalty_reduces_to_erm_and_l2(method, optimizer):
    data = sp.load(DATA)
    plain = sp.fit("erm", data, optimizer=optimizer, **SETTINGS).method
    ours = sp.fit(method, data, optimizer=optimizer, **ZERO[method], **SETTINGS).method
    first = sp.fit("irm", data, optimizer=optimizer, penalty=0.0, **SETTINGS).method
    for a, b, c in zip(ours.parameters(), first.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b), "all penalties at weight 0 are the same training"
        # the mean of equally large environments is the mean of all, up to rounding
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-5)


def gradient(penalty: float, **balance) -> torch.Tensor:
    data = sp.load(DATA)
    torch.manual_seed(0)
    method = IRM(DataShape.of(data), network=Network(widths=(5,)), penalty=penalty)
    weighted = Weighted(**balance)
    method.prepare(data, weighted)
    weighted.backward(method.losses(data.train.whole()), method, 0)
    return torch.cat([p.grad.flatten() for p in method.parameters()]).double()


@settings(max_examples=15, deadline=None)
@given(penalty=st.floats(1e-2, 1e5), l2=st.sampled_from([0.0, 1e-3]))
def test_feat_34_rescaling_keeps_the_direction_of_sgd(penalty, l2):
    plain, scaled = gradient(penalty, l2=l2), gradient(penalty, l2=l2, rescale=True)
    torch.testing.assert_close(scaled * max(penalty, 1.0), plain, rtol=1e-4, atol=1e-5 * float(plain.abs().max()))


def test_feat_34_adam_takes_the_same_path_with_and_without_rescaling():
    data = sp.load(DATA)
    chosen = {**SETTINGS, "epochs": 20, "penalty": 1e4}
    plain, scaled = (sp.fit("irm", data, rescale=rescale, **chosen) for rescale in (False, True))
    # 1e4 times smaller gradients stay far above Adam's eps of 1e-8
    for a, b in zip(plain.method.parameters(), scaled.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
    chosen["penalty"] = 20.0
    one, other = (sp.fit("irm", data, optimizer="sgd", rescale=rescale, **chosen) for rescale in (False, True))
    pairs = zip(one.method.parameters(), other.method.parameters(), strict=True)
    assert max(float((a - b).detach().abs().max()) for a, b in pairs) > 0.01, "SGD takes shorter steps when rescaled"
