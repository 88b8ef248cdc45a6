"""Facts 8, 11, 12, 14, 27 and 29 of docs/papers/gmt.md#checked-facts: attention of GSAT and GMT, sampled or not."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import ERM, GSAT, Explanation, GMTLin, GMTSam, GMTSimulated, Method, Network
from shiftproof.nn import distribution, multilinear_extension, one_by_one, score_gradient
from shiftproof.objectives import attention_information
from tests.nn.families import assert_close, padded
from tests.properties.small_gmt import SMALL, made, small_motifs


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return small_motifs()


def open_up(method: Method) -> Method:
    """Attention that lets everything through: the logits of the scorer are far above zero."""
    holder = method.extractor if isinstance(method, GMTSam) else method
    with torch.no_grad():
        holder.scorer.mlp.rest[-1].weight.zero_()
        holder.scorer.mlp.rest[-1].bias.fill_(200.0)
    return method


def test_gmt_8_evaluation_of_sampled_subgraphs_is_unbiased(data):
    batch = data.test.batch([0])
    for aggregate in ("probs", "logits"):
        method = made(GMTSimulated, data, samples=2, eval_samples=1000, aggregate=aggregate, eval_seed=3).eval()
        with torch.no_grad():
            alpha = method.subgraph(batch).probs
            draws = (torch.rand(len(alpha), 1000, generator=torch.Generator().manual_seed(9)) < alpha[:, None]).float()
            logits = method.classify(batch, draws)
            values = distribution(logits, False) if aggregate == "probs" else logits
            error = values.std(1) / 1000**0.5
            found = method(batch).softmax(-1) if aggregate == "probs" else method(batch)
        assert bool(((found - values.mean(1)).abs() < 6 * error).all())
        assert float(error.max()) > 0


@pytest.mark.parametrize("kind", [GSAT, GMTLin, GMTSam])
def test_gmt_11_evaluation_has_no_noise(data, kind):
    batch, method = data.test.whole(), made(kind, data).eval()
    assert torch.equal(method(batch), method(batch))
    assert torch.equal(method.explain(batch).edge_scores, method.explain(batch).edge_scores)


def test_gmt_11_sampled_evaluation_differs_unless_its_draws_are_seeded(data):
    batch = data.test.whole()
    method = made(GMTSimulated, data, samples=5, eval_seed=None).eval()
    assert not torch.equal(method(batch), method(batch))
    one, other = (method(batch, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, other)
    method.eval_seed = 0
    assert torch.equal(method(batch), method(batch))
    method.train()
    assert not torch.equal(method(batch), method(batch))


def test_gmt_12_the_price_of_attention():
    for r in (0.5, 0.7, 0.9):
        assert abs(float(attention_information(torch.tensor(r, dtype=torch.double), r))) < 1e-5
        logits = torch.linspace(-6, 6, 101, dtype=torch.double).requires_grad_()
        alpha = logits.sigmoid()
        price = attention_information(alpha, r)
        away = (alpha - r).abs() > 0.02
        assert bool((price[away] > 0).all())
        (slope,) = torch.autograd.grad(price.sum(), logits)
        expected = alpha * (1 - alpha) * (alpha * (1 - r) / (r * (1 - alpha))).log()
        assert_close(slope, expected.detach(), atol=1e-4)
    corners = attention_information(torch.tensor([0.0, 1.0]), torch.tensor(1.0))
    assert bool(corners.isfinite().all())


def test_gmt_12_is_taken_of_clean_chances_in_each_direction_unless_told(data):
    both = sp.load("spmotif-gsat", directed=False, **SMALL)
    batch = both.train.whole()
    for attention in ("edge", "node"):
        method = made(GSAT, both, attention=attention, scorer_dropout=0.0)
        first, second = (method.losses(batch)["information"].detach() for _ in range(2))
        assert float(first) == pytest.approx(float(second), abs=1e-6)
        assert not torch.equal(method.losses(batch)["task"], method.losses(batch)["task"])
        expected = attention_information(method.attention_logits(batch).sigmoid(), method.r).mean()
        assert float(first) == pytest.approx(expected.item(), abs=1e-5)
    noisy = made(GSAT, both, kl_on="sample", scorer_dropout=0.0)
    assert not torch.equal(noisy.losses(batch)["information"], noisy.losses(batch)["information"])


@pytest.mark.parametrize("conv", ["gin", "pna"])
@pytest.mark.parametrize("kind", [GSAT, GMTLin, GMTSimulated, GMTSam])
def test_gmt_14_attention_that_lets_everything_through_is_plain_training(data, kind, conv):
    network = Network(conv, layers=2, hidden=8, readout="sum", style="gmt")
    options = {"samples": 3} if kind is GMTSimulated else {"samples": 3, "decoding": "normal"} if kind is GMTSam else {}
    method = open_up(made(kind, data, network, **options)).eval()
    batch = data.test.whole()
    holder = method
    assert_close(method(batch), holder.head(holder.featurizer(batch)), atol=1e-5)


def test_gmt_27_attention_that_has_settled_on_the_prior_is_called_out(data):
    method, batch = made(GSAT, data), data.test.whole()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.explain(batch)
    with pytest.warns(UserWarning, match="attention is the same .* on all edges of each graph, so it explains nothing"):
        open_up(method).explain(batch)


@pytest.mark.parametrize("conv", ["gin", "pna"])
def test_gmt_29_samples_in_one_pass_are_the_loop_also_for_a_method(data, conv):
    network = Network(conv, layers=2, hidden=8, readout="mean", style="gmt", batch_norm="per_sample")
    method = made(GMTSimulated, data, network, samples=4)
    batch = data.train.whole()
    weight = (torch.rand(batch.num_edges, 4, generator=torch.Generator().manual_seed(0)) < 0.7).float()
    for training in (False, True):  # in training too: batch norm sees every sample alone
        method.train(training)
        together, looped = method.classify(batch, weight), one_by_one(lambda w: method.classify(batch, w))(weight)
        assert_close(together, looped, atol=1e-4)
        of_one = torch.autograd.grad(together.square().sum(), list(method.featurizer.parameters()))
        of_other = torch.autograd.grad(looped.square().sum(), list(method.featurizer.parameters()))
        for one, other in zip(of_one, of_other, strict=True):
            assert_close(one, other, atol=1e-4 * float(other.abs().max().clamp(min=1)))


def test_pooled_statistics_differ_from_those_of_each_sample(data):
    weight = (torch.rand(data.train.num_edges, 4, generator=torch.Generator().manual_seed(0)) < 0.7).float()
    found = []
    for how in ("per_sample", "pooled"):
        network = Network("gin", layers=2, hidden=8, style="gmt", batch_norm=how)
        found.append(made(GMTSimulated, data, network, samples=4).train().classify(data.train.whole(), weight))
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def test_the_memory_bound_cuts_samples_and_changes_nothing(data):
    batch = data.train.whole()
    terms, gradients = [], []
    for memory in (4.0, 1e-4):
        method = made(GMTSimulated, data, samples=9, memory_gib=memory, scorer_dropout=0.0)
        torch.manual_seed(1)
        found = method.losses(batch)
        sum(found.values()).backward()
        terms.append(torch.stack(list(found.values())).detach())
        gradients.append(torch.cat([p.grad.flatten() for p in method.parameters()]))
    assert_close(terms[0], terms[1])
    assert_close(gradients[0], gradients[1], atol=1e-3 * float(gradients[0].abs().max()))


def test_the_machine_says_how_much_a_pass_may_hold(data, monkeypatch):
    monkeypatch.delenv("SHIFTPROOF_MEMORY_GIB", raising=False)
    assert made(GMTSimulated, data).memory == 4 * 2**30
    monkeypatch.setenv("SHIFTPROOF_MEMORY_GIB", "32")
    assert made(GMTSimulated, data).memory == 32 * 2**30
    assert made(GMTSimulated, data, memory_gib=1.0).memory == 2**30
    monkeypatch.setenv("SHIFTPROOF_MEMORY_GIB", "much")
    with pytest.raises(ShiftproofError, match="SHIFTPROOF_MEMORY_GIB is a number of GiB, not 'much'"):
        made(GMTSimulated, data)


@pytest.mark.parametrize("aggregate", ["logits", "probs", "loss"])
def test_what_is_averaged_orders_the_losses_as_jensen_says(data, aggregate):
    """Mean loss ≥ loss of the mean of probabilities: the log is concave; with one sample all three are equal."""
    batch = data.train.whole()

    def task(how: str, samples: int) -> Tensor:
        method = made(GMTSimulated, data, aggregate=how, samples=samples, scorer_dropout=0.0)
        torch.manual_seed(2)
        return method.losses(batch)["task"].detach()

    assert_close(task(aggregate, 1), task("logits", 1))
    assert float(task("loss", 6)) > float(task("probs", 6))


@pytest.mark.parametrize("aggregate", ["logits", "probs", "loss"])
@pytest.mark.parametrize("binary", [False, True])
def test_the_score_gradient_reaches_attention_through_what_is_averaged(data, aggregate, binary):
    if binary:
        halves = {name: replace(part, y=(part.y > 0).float()) for name, part in data.splits.items()}
        data = replace(data, splits=halves, task="binary")
    method = made(GMTSimulated, data, aggregate=aggregate, samples=7, sampler="score", tie_directions=True).eval()
    batch, weights = data.train.batch([0, 9, 17]), list(method.scorer.parameters())
    torch.manual_seed(4)
    loss = method.losses(batch)["task"]
    found = torch.autograd.grad(loss, weights)
    torch.manual_seed(4)
    subgraph = method.subgraph(batch)
    drawn = subgraph.sample(7, "score")
    chance = subgraph.log_chance(drawn, batch.edge_batch, 3)
    logits = method.classify(batch, drawn)
    right = batch.y.long().view(3, 1, 1).expand(3, 7, 1)
    probs = distribution(logits, binary).gather(2, right).squeeze(2)
    if aggregate == "logits":
        mean = score_gradient(logits, chance).mean(1)
        expected = -distribution(mean, binary).gather(1, right[:, 0]).log().mean()
    elif aggregate == "probs":
        expected = -score_gradient(probs, chance).mean(1).log().mean()
    else:
        expected = score_gradient(-probs.log(), chance).mean()
    assert_close(loss, expected, 1e-5)
    for one, other in zip(found, torch.autograd.grad(expected, weights), strict=True):
        assert_close(one, other, 1e-5)
    assert any(bool(one.any()) for one in found)


def test_spread_out_draws_train_and_mistakes_with_the_score_gradient_are_named(data):
    for draws in ("antithetic", "stratified"):
        method = made(GMTSimulated, data, samples=5, draws=draws)
        assert method.losses(data.train.whole())["task"].requires_grad
        assert torch.equal(method.eval()(data.test.whole()), method(data.test.whole()))
    for wrong in ({"samples": 1}, {"samples": 4, "sample_warmup": "single"}, {"samples": 4, "draws": "stratified"}):
        with pytest.raises(ShiftproofError, match="sampler='score' holds independent draws against each other"):
            made(GMTSimulated, data, sampler="score", **wrong)


@pytest.mark.parametrize("placement", ["first", "last", "mean", "all"])
@pytest.mark.parametrize("conv", ["gin", "pna"])
def test_gmt_lin_weighs_the_rounds_it_says(data, placement, conv):
    network = Network(conv, layers=2, hidden=8, readout="sum", style="gmt")
    method, batch = made(GMTLin, data, network, placement=placement).eval(), data.test.whole()
    weight = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0))
    rounds = {"first": [(0,)], "last": [(1,)], "mean": [(0,), (1,)], "all": [(0, 1)]}[placement]
    expected = torch.stack([method.head(method.featurizer(batch, weight, layers)) for layers in rounds]).mean(0)
    assert_close(method.classify(batch, weight), expected)


@pytest.mark.parametrize("kind", [GSAT, GMTLin, GMTSimulated, GMTSam])
@pytest.mark.parametrize("attention", ["edge", "node"])
def test_padding_does_not_count(data, kind, attention):
    options = {"samples": 3, "eval_seed": 0} if kind in (GMTSimulated, GMTSam) else {}
    method = made(kind, data, attention=attention, **options).eval()
    batch = data.train.whole()
    stretched = padded(batch)
    if kind is not GMTSimulated:  # its draws go by position
        assert_close(method(stretched), method(batch))
    if kind is not GMTSam:
        assert_close(method.losses(stretched)["information"], method.losses(batch)["information"])


def test_expected_predictions_and_the_gap_of_a_trained_method(data):
    from shiftproof.explanations.algorithms.multilinear import expected_prediction, extension_gap

    method = made(GSAT, data).eval()
    some = data.test[:4]
    found = expected_prediction(method, some, samples=50)
    assert found.shape == (4, 3)
    assert_close(found.sum(1), torch.ones(4))
    gap = extension_gap(method, some, samples=50)
    assert 0 < gap.value <= 1
    batch = some.whole()
    direct = multilinear_extension(
        lambda w: method.classify(batch, w),
        method.subgraph(batch).probs,
        batch.edge_batch,
        4,
        samples=50,
        generator=torch.Generator().manual_seed(0),
    )
    assert_close(found, direct)
    by_scores = expected_prediction(method, method.explain(batch), samples=50)
    assert_close(by_scores, direct, atol=1e-4)
    plain = made(ERM, data).eval()
    scored = Explanation(batch, edge_scores=method.subgraph(batch).probs.detach())
    looped = expected_prediction(plain, scored, samples=50)
    assert_close(looped.sum(1), torch.ones(4))
    assert not torch.allclose(looped, found, atol=1e-3)
    with pytest.raises(ShiftproofError, match="ERM gives edges no chances; pass an Explanation"):
        extension_gap(plain, some)
    open_up(method)
    assert extension_gap(method, some, samples=5).value == pytest.approx(0, abs=1e-5)
