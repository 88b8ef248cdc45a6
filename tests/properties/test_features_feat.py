"""Numbered facts of docs/papers/feat.md#checked-facts, that concern feature learning by rounds."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.data import DomainSet
from shiftproof.features import Bonsai, ERMPretrainer, FeAT, GroupSplit, IFeAT, RoundLog, mix_heads, must_stop
from shiftproof.features.one_round import Round
from shiftproof.features.rounds import Study, is_right
from shiftproof.features.steps import Draws
from shiftproof.nn import MLPFeaturizer
from shiftproof.nn import head as make_head
from tests.properties.module_weights import assert_same, weights_of

QUICK = {"steps": 30, "lr": 1e-2, "l2": 1e-3, "start": "xavier"}


def coloured(n: int | None = 400, seed: int = 0) -> DomainSet:
    return sp.load("colored-digits", seed=seed).train[:n]


def pair(seed=0, inputs=128, width=16, outputs=1) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(seed)
    return MLPFeaturizer(inputs, (width, width)), make_head(width, outputs, init="xavier")


@pytest.mark.parametrize("kind", [FeAT, IFeAT, ERMPretrainer])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_feat_17_one_round_is_plain_training_bit_by_bit(kind, batch_size):
    data, (featurizer, head) = coloured(), pair()
    ours = kind(rounds=1, batch_size=batch_size, **QUICK).fit(featurizer, head, data)
    plain, linear = pair()
    adam = torch.optim.Adam([*plain.parameters(), *linear.parameters()], lr=1e-2, fused=True)
    order, step = torch.Generator().manual_seed(0), 0
    while step < 30:
        for batch in data.batches(batch_size, shuffle=batch_size is not None, generator=order):
            if step == 30:
                break
            logits = linear(plain(batch)).squeeze(-1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.y, reduction="none").mean()
            adam.zero_grad()
            loss.backward()
            for group in adam.param_groups[0]["params"]:
                group.grad.add_(group.detach(), alpha=2e-3)
            adam.step()
            step += 1
    assert_same(weights_of(ours.featurizer, ours.head), weights_of(plain, linear))
    assert ours.head is head
    assert ours.featurizer is featurizer


def test_feat_17_one_round_is_what_the_trainer_does():
    data = sp.load("colored-digits")
    chosen = {"batch_size": None, "widths": (16, 16), "epochs": 20, "lr": 1e-2, "l2": 1e-3, "selection": "last"}
    run = sp.fit("erm", data, seed=0, **chosen)
    featurizer, head = pair()
    ERMPretrainer(**{**QUICK, "steps": 20}).fit(featurizer, head, data)
    for ours, theirs in zip(weights_of(featurizer, head), weights_of(run.method), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [None, 64])
def test_feat_18_both_kinds_coincide_for_two_rounds(batch_size):
    found = []
    for kind in (FeAT, IFeAT):
        result = kind(rounds=2, retention=0.1, batch_size=batch_size, **QUICK).fit(*pair(), coloured())
        found.append(weights_of(result.featurizer, result.head))
        assert result.rounds[1].retention_accuracy == result.rounds[1].retention_reported
    assert_same(*found)
    three = [kind(rounds=3, retention=0.1, **QUICK).fit(*pair(), coloured()) for kind in (FeAT, IFeAT)]
    assert three[0].rounds[2].loss != three[1].rounds[2].loss
    assert three[1].rounds[2].retention_reported == pytest.approx(three[1].rounds[2].retention_accuracy / 2)
    assert three[0].rounds[2].retention_reported == pytest.approx(three[0].rounds[2].retention_accuracy)


def test_feat_19_right_and_wrong_samples_part_the_training_set():
    data = coloured()
    result = IFeAT(rounds=1, **QUICK).fit(*pair(), data)
    (split,), log = result.splits, result.rounds[0]
    together = torch.cat([split.augmentation, split.retention]).sort().values
    assert torch.equal(together, torch.arange(len(data)))
    logits = result.head(result.featurizer(data.x)).squeeze(-1)
    right = (logits > 0) == (data.y > 0.5)
    assert torch.equal(split.right, right)
    assert (log.retained, log.augmented) == (int(right.sum()), int((~right).sum()))
    # environments are equally large here, so the mean over them is the mean over all
    assert log.train_accuracy == pytest.approx(split.share_right, abs=1e-9)
    assert 0.6 < split.share_right < 1


def test_feat_19_a_split_is_found_again_by_sample_index():
    data = coloured(50)
    split = GroupSplit(torch.rand(50) < 0.5, data.index)
    order = torch.randperm(50)
    assert torch.equal(split.in_order_of(data[order]).right, split.right[order])
    with pytest.raises(sp.ShiftproofError, match="does not know"):
        split.in_order_of(coloured(60))


def test_feat_20_the_worst_of_all_and_wrong_is_all_plus_a_hinge():
    g = torch.Generator().manual_seed(0)
    for _ in range(50):
        losses, wrong = torch.rand(40, generator=g).double(), torch.rand(40, generator=g) < 0.4
        if not wrong.any() or wrong.all():
            continue
        everything, bad, good, share = losses.mean(), losses[wrong].mean(), losses[~wrong].mean(), wrong.double().mean()
        hinge = ((1 - share) * (bad - good)).clamp(min=0)
        torch.testing.assert_close(torch.maximum(everything, bad), everything + hinge, rtol=0, atol=1e-9)
        assert max(everything, good, bad) == max(good, bad)


def all_samples(study: Study, groups) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Features, positions and group weights of a step on the full batch."""
    drawn = Draws(study.data, groups, None, joint=True, seed=0).draw()
    return study.features(drawn.batches[0]), drawn.rows, drawn.weights


def rounds_of(retention: float, old_seed: int) -> tuple[list[torch.Tensor], nn.Module, nn.Module, float]:
    """Gradients of a second round's loss in the featurizer, with a stored head of some seed."""
    data, (featurizer, head) = coloured(100), pair()
    settings = IFeAT(retention=retention, **QUICK)
    study = Study(settings, featurizer, head, data, "binary", {}, "accuracy", "auto")
    torch.manual_seed(old_seed)
    old = make_head(16, 1).requires_grad_(False)
    right = is_right(study.logits(old, featurizer(data.x)), data.y, "binary")
    memory = type("Memory", (), {"active": [(right, old)]})()
    groups, loss = settings._objective(study, memory, head)
    value = loss(*all_samples(study, groups))
    value.backward()
    return [p.grad for p in featurizer.parameters()], old, head, float(value.detach())


def test_feat_21_and_22_stored_heads_are_constants_through_which_gradients_reach_the_features():
    # without retention the gradient is that of the worst group, whatever the stored head says beside choosing the sets
    without, with_it = rounds_of(0.0, 1), rounds_of(1.0, 1)
    assert any(not torch.allclose(a, b) for a, b in zip(without[0], with_it[0], strict=True))
    assert all(p.grad is None for p in with_it[1].parameters())
    data, (featurizer, head) = coloured(100), pair()
    study = Study(IFeAT(**QUICK), featurizer, head, data, "binary", {}, "accuracy", "auto")
    right = torch.arange(100) < 60
    gradients = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        memory = type("Memory", (), {"active": [(right, make_head(16, 1).requires_grad_(False))]})()
        groups, loss = IFeAT(retention=0.0, **QUICK)._objective(study, memory, head)
        featurizer.zero_grad()
        loss(*all_samples(study, groups)).backward()
        gradients.append([p.grad.clone() for p in featurizer.parameters()])
    assert_same(*gradients)


def test_feat_21_stored_heads_do_not_change_in_a_round():
    data = coloured()
    stored = []

    class Watched(IFeAT):
        def _round(self, study, memory, first, number, best):
            before = [deepcopy(old.state_dict()) for _, old in memory.active]
            outcome = super()._round(study, memory, first, number, best)
            for (_, old), state in zip(memory.active, before, strict=True):
                assert all(torch.equal(old.state_dict()[name], value) for name, value in state.items())
                assert not any(p.requires_grad for p in old.parameters())
                stored.append(number)
            return outcome

    for start in ("random", "previous", "initial"):
        Watched(rounds=3, retention=1.0, head_init=start, **QUICK).fit(*pair(), data)
    assert stored == [2, 3] * 3


def test_feat_23_averaging_heads_is_averaging_logits():
    torch.manual_seed(0)
    heads, h = [nn.Linear(6, 3) for _ in range(3)], torch.randn(40, 6)
    mean = torch.stack([head(h) for head in heads]).mean(0)
    uniform, total = mix_heads(heads, [1 / 3] * 3), mix_heads(heads, [1.0] * 3)
    torch.testing.assert_close(uniform(h), mean, rtol=0, atol=1e-5)
    assert torch.equal(uniform(h).argmax(1), total(h).argmax(1))
    deep = [nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(2)]
    torch.testing.assert_close(mix_heads(deep, [0.5, 0.5])(h), (deep[0](h) + deep[1](h)) / 2)


def log(number: int, train: float, true: float | None, agreement=()) -> RoundLog:
    reported = None if true is None else true / (number - 1)
    return RoundLog(number, 1, 0.1, train, train, true, reported, agreement=agreement)


def test_feat_24_the_rule_of_130_is_a_cap_on_rounds_and_the_honest_one_never_fires():
    """Of docs/papers/feat.md#table-rounds: training and true retention accuracies of the paper's tables."""
    first = [log(1, 0.8508, None), log(2, 0.7187, 0.881), log(3, 0.8493, 0.876)]
    second = [log(1, 0.8863, None), log(2, 0.7425, 0.859), log(3, 0.8607, 0.961), log(4, 0.7729, 0.873)]
    for logs, last in ((first, 3), (second, 4)):
        stops = [number for number, entry in enumerate(logs, 1) if must_stop("sum130", entry) is not None]
        assert stops == [last]
        assert all(must_stop("honest_sum", entry) is None for entry in logs)
    for rule in ("sum130", "honest_sum", "novelty", "train", "val"):
        assert must_stop(rule, log(1, 0.1, None)) is None
    # with perfect retention a fifth round would need more than 100 % training accuracy
    assert must_stop("sum130", log(5, 1.0, 1.0)) is not None
    assert must_stop("novelty", log(3, 0.85, 0.87, (0.994, 0.7))) == (
        "agrees with round 1 on 0.9940 > 0.98 of the samples"
    )
    assert must_stop("novelty", log(3, 0.86, 0.97, (0.968, 0.8))) is None


def test_feat_24_stopping_goes_back_to_the_round_before():
    data = coloured()
    two = IFeAT(rounds=2, **QUICK).fit(*pair(), data)
    kept = weights_of(two.featurizer, two.head)
    stopped = IFeAT(rounds=5, termination="sum130", threshold=9.0, **QUICK).fit(*pair(), data)
    one = IFeAT(rounds=1, **QUICK).fit(*pair(), data)
    assert stopped.kept == 1
    assert len(stopped.rounds) == 2
    assert stopped.stopped.startswith("round 2 was undone")
    assert_same(weights_of(stopped.featurizer, stopped.head), weights_of(one.featurizer, one.head))
    again = IFeAT(rounds=2, termination="honest_sum", threshold=0.1, **QUICK).fit(*pair(), data)
    assert_same(weights_of(again.featurizer, again.head), kept)


def test_feat_25_nothing_wrong_and_nothing_right_end_gracefully():
    x = torch.cat([torch.ones(20, 3), -torch.ones(20, 3)])
    easy = DomainSet(x, torch.arange(40).lt(20).float(), torch.arange(40) % 2)
    featurizer = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    result = FeAT(rounds=4, steps=200, lr=0.05).fit(featurizer, nn.Linear(4, 1), easy)
    assert result.kept == 1
    assert "no training sample is wrong" in result.stopped
    # one step of almost no length leaves a head that is wrong everywhere
    wrong = nn.Linear(4, 1)
    featurizer = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with torch.no_grad():
        featurizer[0].weight.fill_(1.0)
        featurizer[0].bias.zero_()
        wrong.weight.fill_(-1.0)
        wrong.bias.fill_(0.5)
    result = FeAT(rounds=3, steps=1, lr=1e-6).fit(featurizer, wrong, easy)
    assert result.splits[0].share_right == 0
    assert all(torch.isfinite(torch.tensor(entry.loss)) for entry in result.rounds)
    assert result.rounds[1].retention_accuracy is None


def test_feat_26_the_order_of_the_samples_does_not_matter():
    data = coloured(120)
    order = torch.randperm(120)
    right = torch.rand(120) < 0.6
    values = []
    for samples, kept in ((data, right), (data[order], right[order])):
        featurizer, head = pair()
        settings = IFeAT(retention=0.5, **QUICK)
        study = Study(settings, featurizer, head, samples, "binary", {}, "accuracy", "auto")
        torch.manual_seed(3)
        memory = type("Memory", (), {"active": [(kept, make_head(16, 1))]})()
        groups, loss = settings._objective(study, memory, head)
        values.append(float(loss(*all_samples(study, groups)).detach()))
    assert values[0] == pytest.approx(values[1], abs=1e-6)


@pytest.mark.slow
def test_feat_40_rounds_on_coloured_mnist_turn_from_colour_to_digit(real_data):
    data = sp.load("cmnist")
    torch.manual_seed(0)
    featurizer, head = MLPFeaturizer(392, (256, 256)), make_head(256, 1, init="xavier")
    learner = IFeAT(rounds=2, steps=151, l2=1e-3, merge="sum", start="xavier")
    first, second = learner.fit(featurizer, head, data).rounds
    assert first.train_accuracy == pytest.approx(0.85, abs=0.03)
    assert first.scores["test"] == pytest.approx(0.11, abs=0.03)
    assert second.scores["test"] > 0.65
    assert second.train_accuracy == pytest.approx(0.72, abs=0.03)
    assert second.retention_accuracy > 0.75


def test_rounds_of_the_stand_in_turn_from_colour_to_digit():
    data = sp.load("colored-digits")
    learner = IFeAT(rounds=2, steps=100, lr=3e-3, l2=1e-3, merge="sum", start="xavier")
    first, second = learner.fit(*pair(width=64), data).rounds
    assert first.scores["test"] < 0.35
    assert second.scores["test"] > first.scores["test"] + 0.1


def test_bonsai_distils_what_its_rounds_said():
    data = coloured(None)
    result = Bonsai(round_steps=(30, 60), synthesis_steps=150, lr=5e-3, start="xavier").fit(*pair(width=32), data)
    assert [entry.steps for entry in result.rounds] == [30, 60, 150]
    assert result.rounds[1].agreement[0] < 0.95
    assert len(result.splits) == 2
    # the synthesis has learned both rounds' answers
    assert result.rounds[2].loss < 0.3


@pytest.mark.parametrize("batch_size", [None, 50])
@pytest.mark.parametrize("kind", [FeAT, IFeAT, Bonsai])
def test_a_killed_round_goes_on_to_the_same_result(kind, batch_size, tmp_path, monkeypatch):
    data = coloured(150)
    options = {**QUICK, "steps": 12, "batch_size": batch_size, "rounds": 2, "checkpoint_seconds": 0.0}
    if kind is Bonsai:
        options["synthesis_steps"] = 12
    whole = kind(**options).fit(*pair(), data)

    class Killed(Exception):
        pass

    original = Round.save

    def kill(self):
        original(self)
        if self.name.endswith("-2") and self.step == 6:  # in the middle of the second round
            raise Killed

    monkeypatch.setattr(Round, "save", kill)
    with pytest.raises(Killed):
        kind(**options, out=tmp_path).fit(*pair(), data)
    assert (tmp_path / "partial.safetensors").exists()
    monkeypatch.setattr(Round, "save", original)
    torch.manual_seed(99)
    resumed = kind(**options, out=tmp_path).fit(*pair(), data)
    assert_same(weights_of(whole.featurizer, whole.head), weights_of(resumed.featurizer, resumed.head))
    assert resumed.rounds == whole.rounds
    assert not (tmp_path / "partial.safetensors").exists()
    with pytest.raises(sp.ShiftproofError, match=r"'settings\.lr' is 0\.01 there and 0\.5 now"):
        kind(**{**options, "lr": 0.5}, out=tmp_path).fit(*pair(), data)


def test_graphs_are_learned_from_by_rounds_too():
    data = sp.load("spmotif-struc", bias=0.9, train_per_class=20, val_per_class=5, test_per_class=5)
    run = sp.fit("feat", data, objective="vrex", round_epochs=2, epochs=2, batch_size=16, hidden=8, layers=2)
    rounds = run.method.pretrained.rounds
    assert [entry.round for entry in rounds] == [1, 2]
    assert set(rounds[0].scores) == {"val", "test"}
    assert not any(p.requires_grad for p in run.method.featurizer.parameters())
