"""The numbered facts of the GALA chapter that concern its method and baselines (spec gala, section 10)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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
from shiftproof.objectives import proxy_contrast, proxy_pairs, supervised_contrastive
from shiftproof.training import Trainer

NETWORK = Network(layers=2, hidden=8)
E = math.e
PAIRS = [(0.2, 0.6), (0.2, 0.7), (0.2, 0.9), (0.3, 0.9)]  # label noise and spurious strength of the four data sets


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return sp.load("two-piece", train_per_class=16, val_per_class=4, test_per_class=4)


def seeded(make, data: sp.Dataset, **options):
    torch.manual_seed(0)
    return make(DataShape.of(data), network=NETWORK, **options)


def pieces(n: int, noise: float, strength: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Balanced labels, motif ids and base ids of n two-piece graphs."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    motif = torch.where(torch.rand(n, generator=g) < noise, torch.randint(3, (n,), generator=g), y)
    other = (y + torch.randint(1, 3, (n,), generator=g)) % 3
    base = torch.where(torch.rand(n, generator=g) < strength, y, other)
    return y, motif, base


def one_hot(ids: Tensor) -> Tensor:
    return F.one_hot(ids, 3).double()


def mean_over_draws(loss, noise: float, strength: float, n: int = 1024, draws: int = 20) -> float:
    return sum(float(loss(*pieces(n, noise, strength, seed))) for seed in range(draws)) / draws


def chance_of_agreement(match: float) -> float:
    return match**2 + (1 - match) ** 2 / 2


# theory: one-hot codes of the motif or the base as representations


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T1_cigas_term_prefers_the_better_correlated_piece(noise, strength):
    n = 1024
    for piece, match in (("motif", 1 - 2 * noise / 3), ("base", strength)):
        expected = math.log(n - 1) + math.log((E + 2) / 3) - chance_of_agreement(match)
        got = mean_over_draws(
            lambda y, m, b, piece=piece: supervised_contrastive(one_hot(m if piece == "motif" else b), y),
            noise,
            strength,
        )
        assert got == pytest.approx(expected, abs=0.03)


def codes_under_base_proxy(noise: float, strength: float, **sizes) -> tuple[float, float]:
    motif = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(m), y, b), noise, strength, **sizes)
    base = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(b), y, b), noise, strength, **sizes)
    return motif, base


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T2_with_the_base_as_proxy_the_motif_code_has_the_lower_loss(noise, strength):
    n, b = 1024, strength
    q = chance_of_agreement(1 - 2 * noise / 3)
    shared = b * math.log(1 - b) + (1 - b) * math.log((1 + b) / 2)
    motif, base = codes_under_base_proxy(noise, strength)
    assert base == pytest.approx(math.log(n / 3 * (1 + E)) + shared, abs=0.05)
    assert motif == pytest.approx(-q + math.log(n / 3 * (2 + (E - 1) * (1 + q) / 2)) + shared, abs=0.05)
    assert base - motif == pytest.approx({0.2: 0.817, 0.3: 0.742}[noise], abs=0.05)


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T3_the_term_penalises_whichever_piece_the_proxy_follows(noise, strength):
    motif = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(m), y, m), noise, strength, draws=5)
    base = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(b), y, m), noise, strength, draws=5)
    assert base < motif


@pytest.mark.parametrize(
    ("noise", "strength", "gaps"),
    [(0.2, 0.9, (0.82, 0.23, 0.07, 0.0)), (0.3, 0.9, (0.74, 0.18, 0.0, -0.06))],
)
def test_gala_T4_noise_in_the_proxy_shrinks_the_gap(noise, strength, gaps):
    def gap(y, motif, base, share):
        g = torch.Generator().manual_seed(int(base.sum()))
        noisy = torch.where(torch.rand(len(y), generator=g) < share, torch.randint(3, (len(y),), generator=g), base)
        return proxy_contrast(one_hot(base), y, noisy) - proxy_contrast(one_hot(motif), y, noisy)

    for share, expected in zip((0.0, 0.2, 0.4, 0.6), gaps, strict=True):
        got = mean_over_draws(lambda y, m, b, s=share: gap(y, m, b, s), noise, strength)
        assert got == pytest.approx(expected, abs=0.04)


def test_gala_T5_an_assistant_that_follows_the_base_errs_exactly_where_the_base_does():
    noise, strength = 0.3, 0.9
    y, motif, base = pieces(9000, noise, strength, 0)
    correct = base == y
    for group in (correct, ~correct):
        assert float((motif == y)[group].double().mean()) == pytest.approx(1 - 2 * noise / 3, abs=0.03)
    assert bool((base == y)[correct].all())
    assert not bool((base == y)[~correct].any())


@pytest.mark.parametrize(
    ("noise", "strength", "on_train", "on_test"),
    [(0.2, 0.6, 0.867, 0.867), (0.2, 0.7, 0.867, 0.867), (0.2, 0.9, 0.9, 1 / 3), (0.3, 0.9, 0.9, 1 / 3)],
)
def test_gala_T6_the_best_predictor_of_training_follows_the_stronger_piece(noise, strength, on_train, on_test):
    y, motif, base = pieces(200_001, noise, strength, 0)
    counts = torch.zeros(3, 3, 3).index_put((motif, base, y), torch.tensor(1.0), accumulate=True)
    rule = counts.argmax(-1)
    assert float((rule[motif, base] == y).double().mean()) == pytest.approx(on_train, abs=0.01)
    y, motif, base = pieces(200_001, noise, 1 / 3, 1)
    assert float((rule[motif, base] == y).double().mean()) == pytest.approx(on_test, abs=0.01)


# the mechanics of the loss


def drawn(n: int = 12, seed: int = 0, classes: int = 3, proxies: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 5, generator=g, dtype=torch.float64)
    return z, torch.randint(classes, (n,), generator=g), torch.randint(proxies, (n,), generator=g)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L1_pairs_are_disjoint_symmetric_and_never_with_oneself(seed):
    _, y, proxy = drawn(seed=seed)
    positives, negatives = proxy_pairs(y, proxy)
    assert not bool((positives & negatives).any())
    for mask in (positives, negatives):
        assert not bool(mask.diagonal().any())
        assert torch.equal(mask, mask.T)


def test_gala_L2_one_proxy_for_all_takes_cigas_positives_and_the_other_classes_below():
    z, y, _ = drawn()
    got = proxy_contrast(z, y, torch.zeros_like(y))
    s = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    means = []
    for i in range(len(y)):
        mates = [j for j in range(len(y)) if j != i and y[j] == y[i]]
        below = torch.stack([s[i, j] for j in range(len(y)) if y[j] != y[i]]).logsumexp(0)
        if mates:
            means.append(torch.stack([s[i, j] - below for j in mates]).mean())
    torch.testing.assert_close(got, -torch.stack(means).mean())


def test_gala_L2b_a_perfect_label_proxy_gives_cigas_loss():
    z, y, _ = drawn()
    torch.testing.assert_close(proxy_contrast(z, y, y), supervised_contrastive(z, y), atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L2c_label_proxies_join_one_right_and_one_wrong_sample(seed):
    for classes in (2, 4):
        _, y, predicted = drawn(30, seed, classes, classes)
        positives, negatives = proxy_pairs(y, predicted)
        right = y == predicted
        mixed = right.unsqueeze(1) != right.unsqueeze(0)
        used = positives | negatives
        if classes > 2:
            used = used & right.unsqueeze(1)
        assert bool(mixed[used].all())


def per_anchor(z: Tensor, y: Tensor, proxy: Tensor, anchor: int) -> Tensor:
    only = torch.arange(len(y)) == anchor
    return proxy_contrast(z, y, proxy, anchors=only)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L3_an_anchor_costs_at_least_the_logarithm_of_its_positives(seed):
    z, y, proxy = drawn(seed=seed)
    count = proxy_pairs(y, proxy)[0].sum(1)
    for i in count.nonzero().flatten().tolist():
        assert float(per_anchor(z, y, proxy, i)) >= math.log(count[i]) - 1e-9
    same = torch.zeros(4, dtype=torch.long)
    equal = per_anchor(torch.ones(4, 3), same, torch.tensor([0, 1, 1, 2]), 0)
    assert float(equal) == pytest.approx(math.log(3), abs=1e-6)


def test_gala_L4_neither_order_nor_names_nor_lengths_matter():
    z, y, proxy = drawn(20)
    loss = proxy_contrast(z, y, proxy)
    order, names = torch.randperm(20), torch.tensor([2, 0, 1])
    for other in (
        proxy_contrast(z[order], y[order], proxy[order]),
        proxy_contrast(z, names[y], proxy),
        proxy_contrast(z, y, names[proxy]),
        proxy_contrast(z * torch.rand(20, 1).add(0.1), y, proxy),
    ):
        torch.testing.assert_close(other, loss, atol=1e-6, rtol=0)


def test_gala_L5_a_copy_adds_no_pair_with_its_original():
    _, y, proxy = drawn()
    twice = torch.cat([y, y[:1]]), torch.cat([proxy, proxy[:1]])
    for mask in proxy_pairs(*twice):
        assert not bool(mask[0, -1])


def test_gala_L6_the_gradient_is_orthogonal_to_the_representation():
    z, y, proxy = drawn(20)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(proxy_contrast(z, y, proxy), z)
    along = (gradient * z).sum(1).abs()
    assert bool((along <= 1e-5 * gradient.norm(dim=1) * z.norm(dim=1) + 1e-12).all())


@pytest.mark.parametrize("seed", range(4))
def test_gala_L7_the_loss_equals_the_loop_and_its_gradient_finite_differences(seed):
    z, y, proxy = drawn(10, seed)
    s = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    means = []
    for i in range(10):
        positives = [j for j in range(10) if y[j] == y[i] and proxy[j] != proxy[i]]
        negatives = [j for j in range(10) if y[j] != y[i] and proxy[j] == proxy[i]]
        if positives:
            below = math.log(sum(math.exp(s[i, j]) for j in positives + negatives))
            means.append(sum(float(s[i, j]) - below for j in positives) / len(positives))
    assert float(proxy_contrast(z, y, proxy)) == pytest.approx(-sum(means) / len(means), abs=1e-10)
    assert torch.autograd.gradcheck(lambda z: proxy_contrast(z, y, proxy), z.requires_grad_())


def test_gala_L8_a_single_positive_without_negatives_costs_nothing():
    z, y, proxy = torch.randn(3, 4), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2])
    assert float(proxy_contrast(z, y, proxy)) == pytest.approx(0, abs=1e-6)


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


def test_gala_L10_one_sided_anchors_have_nothing_to_do_when_all_is_right():
    z, y, _ = drawn()
    z.requires_grad_()
    loss = proxy_contrast(z, y, y, anchors=torch.zeros(len(y), dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(loss.detach()) == 0
    assert not bool(gradient.any())


def test_gala_a_batch_without_any_pair_costs_nothing_and_has_a_gradient():
    for y in (torch.tensor([0, 1, 2]), torch.tensor([0])):
        z = torch.randn(len(y), 4, requires_grad=True)
        loss = proxy_contrast(z, y, torch.zeros_like(y))
        loss.backward()
        assert float(loss.detach()) == 0
        assert z.grad is not None
        assert not bool(z.grad.any())


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
