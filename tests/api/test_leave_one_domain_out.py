"""Every domain is the test domain once."""

import pytest
import torch

import shiftproof as sp
from shiftproof.api.leaving_out import domains_of
from shiftproof.errors import ShiftproofError
from shiftproof.nn import LinearFeaturizer, ResNetFeaturizer, WithDropout

CHOSEN = {"epochs": 3, "widths": (8,), "batch_size": 16, "domains_per_batch": "all", "steps_per_epoch": 20, "lr": 0.01}


def samples() -> sp.DomainSet:
    """Three domains with one rule; in the third the two classes are swapped."""
    rng = torch.Generator().manual_seed(0)
    y, env = torch.randint(0, 2, (300,), generator=rng), torch.arange(300) % 3
    sign = torch.where(env == 2, -1.0, 1.0)
    return sp.DomainSet((sign * (2.0 * y - 1)).unsqueeze(1) + 0.1 * torch.randn(300, 1, generator=rng), y, env)


def test_the_domain_that_is_unlike_the_others_scores_worst():
    scores = sp.leave_one_domain_out("erm", samples(), names=("a", "b", "swapped"), **CHOSEN)
    assert list(scores.scores) == ["a", "b", "swapped"]
    assert scores.worst == scores.scores["swapped"] < 0.1
    assert scores.mean == pytest.approx(sum(scores.scores.values()) / 3)
    assert "swapped 0.0" in str(scores)
    assert scores.runs["a"].config["data"] == "samples:test=a,seed=0"
    some = sp.leave_one_domain_out("erm", samples(), domains=("1",), **CHOSEN)
    assert list(some.scores) == ["1"]


def test_what_cannot_be_left_out_is_said():
    bare = sp.DomainSet(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ShiftproofError, match="at least two environments"):
        sp.leave_one_domain_out("erm", bare)
    with pytest.raises(ShiftproofError, match="3 environments and 2 names"):
        sp.leave_one_domain_out("erm", samples(), names=("a", "b"))
    with pytest.raises(ShiftproofError, match="no data set with an option 'test'"):
        sp.leave_one_domain_out("erm", "two-bit")
    assert domains_of("pacs64") == ("art_painting", "cartoon", "photo", "sketch")


def test_domains_that_no_list_names_are_read_from_the_data(real_data):
    try:
        assert domains_of("bike:by=weather") == ("clear", "mist", "rain")
    except ShiftproofError as missing:
        pytest.skip(str(missing))


def test_a_linear_model_has_no_weights_but_the_heads():
    run = sp.fit("erm", sp.load("two-bit", per_env=20), featurizer="linear", epochs=1)
    assert isinstance(run.method.featurizer, LinearFeaturizer)
    assert {name for name, _ in run.method.named_parameters()} == {"head.weight", "head.bias"}


def test_features_are_dropped_while_training_only():
    run = sp.fit("erm", sp.load("two-bit", per_env=20), dropout=0.5, epochs=1, widths=(64,))
    featurizer = run.method.featurizer
    assert isinstance(featurizer, WithDropout)
    x = torch.randn(4, run.method.shape.in_shape[0])
    assert torch.equal(featurizer.eval()(x), featurizer.featurizer(x))
    assert not torch.equal(featurizer.train()(x), featurizer.featurizer(x))


def test_resnets_need_torchvision_and_images(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ShiftproofError, match="the featurizer 'resnet18' needs the package 'torchvision'"):
        ResNetFeaturizer("resnet18")
    with pytest.raises(ShiftproofError, match="needs images"):
        sp.fit("erm", sp.load("two-bit", per_env=20), featurizer="resnet18", epochs=1)


def test_a_resnet_gives_pooled_features_and_keeps_its_norms():
    pytest.importorskip("torchvision")
    network = ResNetFeaturizer("resnet18", 8, freeze_norm=True).train()
    assert network(torch.randn(2, 8, 64, 64)).shape == (2, 512)
    norms = [part for part in network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(part.training for part in norms)
