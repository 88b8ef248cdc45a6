"""The numbered facts of the GALA paper that concern its method, proxies and baselines.

Source: docs/papers/gala.md#checked-facts.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

import shiftproof as sp
from shiftproof.methods import (
    CAL,
    CIGA,
    GALA,
    GIL,
    GREA,
    GSAT,
    XGNN,
    DataShape,
    EnvironmentAssistant,
    MoleOOD,
    Network,
    VREx,
)
from shiftproof.methods.assistant import cosine_kmeans, kmeans_without_waiting, nearest_centre, seen_by
from shiftproof.methods.cal import divergence_from_uniform
from shiftproof.methods.disc import difficulty
from shiftproof.methods.grea import every_pair
from shiftproof.methods.gsat import attention_information
from shiftproof.methods.moleood import prior_over
from shiftproof.methods.upsampling import upsampled
from shiftproof.training import Trainer

NETWORK = Network(layers=2, hidden=8)


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return sp.load("two-piece", train_per_class=16, val_per_class=4, test_per_class=4)


def seeded(make, data: sp.Dataset, **options):
    torch.manual_seed(0)
    return make(DataShape.of(data), network=NETWORK, **options)


def test_gala_L9_without_the_term_it_is_the_interpretable_gnn(data):
    same = {"epochs": 2, "batch_size": 16, "layers": 2, "hidden": 8, "seed": 1, "ratio": -1.0}
    backbone = {"scorer_norm": True, "classifier_input": "raw"}
    plain = sp.fit("xgnn", data, **same, **backbone)
    gala = sp.fit("gala", data, **same, alpha=0.0, upsample="off")
    for name, tensor in plain.method.state_dict().items():
        assert torch.equal(tensor, gala.method.state_dict()[name]), name


def test_gala_L9_a_term_of_weight_zero_moves_nothing(data):
    same = {"epochs": 2, "batch_size": 16, "layers": 2, "hidden": 8, "seed": 1, "upsample": "off", "proxy": "base"}
    same["selection"] = "last"
    without = sp.fit("gala", data, alpha=0.0, **same)
    later = sp.fit("gala", data, alpha=8.0, terms_from=2, **same)
    for ours, theirs in zip(without.method.parameters(), later.method.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    sooner = sp.fit("gala", data, alpha=8.0, terms_from=1, **same)
    assert any(
        not torch.equal(p, q) for p, q in zip(later.method.parameters(), sooner.method.parameters(), strict=True)
    )


# proxies and upsampling


def test_gala_P1_clusters_are_reproducible_and_never_break():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=g)
    centres = cosine_kmeans(x, 3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(centres, cosine_kmeans(x, 3, generator=torch.Generator().manual_seed(5)))
    longer = x * torch.rand(60, 1, generator=g).add(0.1)
    assert torch.equal(nearest_centre(x, centres), nearest_centre(longer, centres))
    for points, clusters in ((torch.ones(6, 4), 3), (x, 60), (x[:2], 5), (torch.zeros(4, 3), 2)):
        assert bool(cosine_kmeans(points, clusters).isfinite().all())


def test_gala_P1_clusters_find_directions_and_their_centres_are_plain_means():
    directions = torch.eye(3).repeat_interleave(20, 0)
    g = torch.Generator().manual_seed(0)
    x = (directions + 0.05 * torch.randn(60, 3, generator=g)) * torch.rand(60, 1, generator=g).add(0.5)
    # distinct starting points may lie in one direction; of a few starts the best is the one that separates
    runs = [cosine_kmeans(x, 3, generator=torch.Generator().manual_seed(s)) for s in range(5)]
    spread = [float(F.cosine_similarity(x, c[nearest_centre(x, c)]).sum()) for c in runs]
    best = runs[spread.index(max(spread))]
    ids = nearest_centre(x, best)
    assert all(len(set(part.tolist())) == 1 for part in ids.split(20))
    torch.testing.assert_close(best[ids[0]], x[:20].mean(0))


def test_gala_P1_clusters_without_waiting_for_the_device_are_such_clusters():
    directions = torch.eye(3).repeat_interleave(20, 0)
    x = directions + 0.05 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(2)
    runs = [kmeans_without_waiting(x, 3) for _ in range(5)]
    for centres in runs:  # each is where one more step changes nothing
        ids = nearest_centre(x, centres)
        for number in ids.unique():
            torch.testing.assert_close(centres[number], x[ids == number].mean(0), atol=1e-2, rtol=0)
    assert any(all(len(set(part.tolist())) == 1 for part in nearest_centre(x, c).split(20)) for c in runs)
    for points, count in ((torch.ones(6, 4), 3), (x, 60), (torch.zeros(4, 3), 2)):
        assert bool(kmeans_without_waiting(points, count).isfinite().all())


@pytest.mark.parametrize("model", ["erm", "xgnn"])
def test_gala_P2_cached_proxies_equal_those_of_any_batch(data, model):
    assistant = EnvironmentAssistant(model=model, epochs=1)
    trained = assistant.fit(data, Trainer(epochs=1, device="cpu"), NETWORK)
    table = assistant.proxies(trained, data.train, kind="cluster", clusters=3, seed=0)
    centres = cosine_kmeans(table.representation, 3, generator=torch.Generator().manual_seed(0))
    for size in (1, 7):
        parts = data.train[torch.randperm(len(data.train), generator=torch.Generator().manual_seed(size))]
        for start in range(0, 21, size):
            some = parts[start : start + size]
            z, predicted = seen_by(trained, some)
            torch.testing.assert_close(z, table.representation[some.index], atol=1e-5, rtol=1e-4)
            assert torch.equal(nearest_centre(z, centres), table.proxy[some.index])
            assert torch.equal(predicted, table.predicted[some.index])


@pytest.mark.parametrize("right", [0, 3, 5, 8, 10])
@pytest.mark.parametrize("copies", [0, 1, 4])
def test_gala_P3_the_smaller_group_is_repeated(right, copies):
    correct = torch.arange(10) < right
    index = upsampled(correct, copies)
    assert len(index) == 10 + copies * min(right, 10 - right)
    smaller = ~correct if right >= 5 else correct
    assert torch.equal(index.bincount(minlength=10), 1 + copies * smaller.long() * int(0 < right < 10))


def test_gala_P3_off_is_the_identity_and_auto_doubles_a_clear_minority_of_errors():
    correct = torch.arange(10) < 7
    assert torch.equal(upsampled(correct, "off"), torch.arange(10))
    assert torch.equal(upsampled(correct, "auto"), torch.tensor([*range(10), 7, 8, 9]))
    for right in (0, 3, 6, 10):
        assert len(upsampled(torch.arange(10) < right, "auto")) == 10


def test_gala_P4_the_assistant_stands_still_while_gala_trains(data, monkeypatch):
    kept = []
    original = EnvironmentAssistant.fit

    def remember(self, *arguments):
        model = original(self, *arguments)
        kept.append((model, {name: tensor.clone() for name, tensor in model.state_dict().items()}))
        return model

    monkeypatch.setattr(EnvironmentAssistant, "fit", remember)
    sp.fit("gala", data, epochs=2, batch_size=16, layers=2, hidden=8, reference_epochs=1)
    ((model, before),) = kept
    assert all(parameter.grad is None or not parameter.requires_grad for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


# the baselines


def test_gala_M2_the_weight_of_a_sample_lies_between_0_and_1_and_is_a_half_for_equal_losses():
    biased, causal = torch.rand(50) * 9, torch.rand(50, requires_grad=True)
    weight = difficulty(biased, causal)
    assert bool(((weight >= 0) & (weight <= 1)).all())
    assert not weight.requires_grad
    for equal in (torch.zeros(3), torch.ones(3), torch.full((3,), 50.0)):
        torch.testing.assert_close(difficulty(equal, equal), torch.full((3,), 0.5))
    torch.testing.assert_close(weight, (biased / (biased + causal)).detach(), atol=1e-5, rtol=1e-5)


def test_gala_M3_the_information_of_attention_is_least_at_its_prior(data):
    for r in (0.9, 0.7):
        alpha = torch.linspace(0.001, 0.999, 999)
        information = attention_information(alpha, r)
        assert float(information.min()) >= -1e-5
        assert float(alpha[information.argmin()]) == pytest.approx(r, abs=1e-3)
        assert float(attention_information(torch.tensor(r), r)) == pytest.approx(0, abs=1e-5)
    model = seeded(GSAT, data, decay_interval=25)
    schedule = [model.chance_at(epoch) for epoch in range(200)]
    assert all(later <= now for now, later in pairwise(schedule))
    assert schedule[0] == 0.9
    assert schedule[-1] == 0.7
    assert (schedule[24], schedule[25], schedule[50]) == (0.9, pytest.approx(0.8), pytest.approx(0.7))


def test_gala_M3_attention_is_drawn_in_training_only_and_the_prior_follows_the_epoch(data):
    batch, model = data.train.whole(), seeded(GSAT, data, decay_interval=1)
    assert not torch.equal(model.attention(batch), model.attention(batch))
    model.eval()
    assert torch.equal(model.attention(batch), model.attention(batch))
    before = model.losses(batch)["information"]
    model.start_epoch(2)
    assert float(model.r) == pytest.approx(0.7)
    assert not torch.equal(model.losses(batch)["information"], before)


def test_gala_M4_every_rationale_meets_every_left_over_in_row_major_order(data):
    torch.manual_seed(0)
    c, s, y = torch.randn(4, 8), torch.randn(4, 8), torch.tensor([2, 0, 1, 1])
    model = seeded(GREA, data)
    mixed, labels = every_pair(c, s, y)
    logits = model.logits(mixed)
    for i in range(4):
        for j in range(4):
            torch.testing.assert_close(logits[4 * i + j], model.head(c[i] + s[j]))
            assert labels[4 * i + j] == y[i]


@pytest.mark.parametrize("pairs", ["permuted", "all"])
def test_gala_M4_cal_exchanges_contexts_under_a_trained_head_of_its_own(data, pairs):
    model = seeded(CAL, data, pairs=pairs)
    model.losses(data.train.whole())["exchange"].backward()
    assert all(parameter.grad is not None for parameter in model.mixed_head.parameters())
    assert all(parameter.grad is None for parameter in model.head.parameters())


def test_gala_M5_the_divergence_vanishes_for_uniform_predictions_only():
    even, uneven = torch.full((4, 3), 0.3), torch.tensor([[0.3, 0.3, 0.4]])
    torch.testing.assert_close(divergence_from_uniform(even, "multiclass"), torch.zeros(4), atol=1e-6, rtol=0)
    p = uneven.softmax(1)
    by_hand = (math.log(1 / 3) - p.log()).mean()
    got = divergence_from_uniform(uneven, "multiclass")
    assert float(got) == pytest.approx(float(by_hand), rel=1e-3)
    assert float(got) > 0
    one = divergence_from_uniform(torch.tensor([0.0, 2.0]), "binary")
    two = divergence_from_uniform(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), "multiclass")
    torch.testing.assert_close(one, two)


def test_gala_M6_gils_penalty_moves_the_networks_and_vanishes_for_one_environment(data):
    model = seeded(GIL, data)
    terms = model.losses(data.train.whole())
    terms["gradients"].backward()
    for part in (model.head, model.classifier, model.scorer, model.featurizer):
        assert any(p.grad is not None and bool(p.grad.abs().max() > 0) for p in part.parameters())
    alone = seeded(GIL, data, clusters=1)
    assert float(alone.losses(data.train.whole())["gradients"].detach()) == pytest.approx(0, abs=1e-9)


def test_gala_M6_gils_penalty_is_the_variance_of_the_heads_gradient(data, monkeypatch):
    batch, model = data.train.whole(), seeded(GIL, data)
    env = torch.arange(batch.num_graphs) % 2 * 2  # environment 1 is empty
    monkeypatch.setattr("shiftproof.methods.gil.nearest_centre", lambda *_: env)
    terms = model.losses(batch)
    rows = []
    for e in (0, 2):
        risk = model.risks(model(batch), batch)[env == e].mean()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(risk, list(model.head.parameters()))]))
    rows = torch.stack(rows)
    expected = (rows - rows.mean(0)).square().sum(1).mean()
    torch.testing.assert_close(terms["gradients"].detach(), expected, atol=1e-6, rtol=1e-4)


def test_gala_M6_gils_penalty_vanishes_where_all_environments_are_equal(data, monkeypatch):
    once = torch.arange(12)
    batch, model = data.train.batch(once.repeat(3)), seeded(GIL, data)
    monkeypatch.setattr("shiftproof.methods.gil.nearest_centre", lambda *_: torch.arange(36) // 12)
    assert float(model.losses(batch)["gradients"].detach()) == pytest.approx(0, abs=1e-10)
    monkeypatch.setattr("shiftproof.methods.gil.nearest_centre", lambda *_: torch.arange(36) % 3)
    assert float(model.losses(batch)["gradients"].detach()) > 1e-6


def test_gala_M6_the_penalty_of_vrex_moves_its_networks_and_vanishes_for_equal_environments(data):
    once, model = torch.arange(12), seeded(VREx, data, environments="random")
    model.environment.copy_(torch.arange(len(data.train)) % 2)
    loss = model.losses(data.train.whole())["vrex"]
    loss.backward()
    assert float(loss.detach()) > 0
    assert all(bool(p.grad.abs().max() > 0) for p in model.head.parameters() if p.grad is not None)
    assert any(p.grad is not None and bool(p.grad.any()) for p in model.featurizer.parameters())
    twice = data.train.batch(torch.cat([once, once]))
    twice = twice.replace(index=torch.arange(24))
    model.environment[:24] = torch.arange(24) // 12
    assert float(model.losses(twice)["vrex"].detach()) == pytest.approx(0, abs=1e-10)


def test_gala_M7_with_one_environment_moleood_is_plain_training(data):
    batch, model = data.train.whole(), seeded(MoleOOD, data, clusters=1)
    inference = model.inference
    h = inference.featurizer(batch)
    assert torch.equal(inference.log_domain(h, batch.y).exp(), torch.ones(len(batch), 1))
    assert float(inference.losses(batch)["divergence"].detach()) == 0
    risk = F.cross_entropy(model(batch), batch.y)
    torch.testing.assert_close(model.losses(batch)["task"], risk)


def test_gala_M7_the_losses_under_all_environments_equal_the_loop(data):
    batch, model = data.train.whole(), seeded(MoleOOD, data, clusters=3)
    inference = model.inference
    with torch.no_grad():
        inference.environments.normal_()
        h = inference.featurizer(batch)
        got = inference.conditional_losses(h, batch.y)
        for e, vector in enumerate(inference.environments):
            logits = inference.conditional(torch.cat([h, vector.expand_as(h)], 1))
            torch.testing.assert_close(got[:, e], F.cross_entropy(logits, batch.y, reduction="none"))


def test_gala_M7_the_gaussian_prior_is_symmetric_and_adds_up():
    prior = prior_over(5, "gaussian")
    assert float(prior.sum()) == pytest.approx(1)
    torch.testing.assert_close(prior, prior.flip(0))
    assert int(prior.argmax()) == 2


BACKBONE = {"ratio": -1.0, "scorer_norm": True, "classifier_input": "raw"}


@pytest.mark.parametrize(
    ("make", "options"), [(GREA, {"penalty": 0.0}), (CAL, {"penalty": 0.0}), (GIL, {"clusters": 1})]
)
def test_gala_M9_without_their_terms_the_baselines_have_the_loss_of_the_interpretable_gnn(data, make, options):
    batch = data.train.whole()
    plain, other = seeded(XGNN, data, **BACKBONE), seeded(make, data, **options)
    torch.testing.assert_close(other.losses(batch)["task"], plain.losses(batch)["task"])


def test_gala_M9_without_its_contrast_ciga_is_the_interpretable_gnn(data):
    batch = data.train.whole()
    plain, ciga = seeded(XGNN, data, **BACKBONE), seeded(CIGA, data, alpha=0.0, **BACKBONE)
    assert list(ciga.losses(batch)) == ["task"]
    assert torch.equal(plain.losses(batch)["task"], ciga.losses(batch)["task"])


def test_gala_M9_without_its_terms_gala_has_the_losses_of_the_interpretable_gnn(data):
    batch = data.train.whole()
    plain, gala = seeded(XGNN, data, **BACKBONE), seeded(GALA, data, alpha=0.0, upsample="off")
    assert torch.equal(plain.losses(batch)["task"], gala.losses(batch)["task"])
    assert list(gala.losses(batch)) == ["task"]
