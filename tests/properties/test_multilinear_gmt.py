"""Facts 1 to 10, 16, 17, 19, 23 (lifting) and 30 of docs/papers/gmt.md#checked-facts: the multilinear extension."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.nn import (
    BernoulliSubgraph,
    GNNEncoder,
    GraphFeaturizer,
    WeightedSGCConv,
    decode,
    distribution,
    in_chunks,
    lift_to_edges,
    mean_of_samples,
    multilinear_extension,
    multilinear_gap,
    one_by_one,
    score_gradient,
    straight_through,
    uniform_draws,
)
from tests.nn.families import assert_close, random_graphs, seeded

PATH = [(0, 1), (1, 2), (2, 3), (0, 3)]


def one_graph(edges: list[tuple[int, int]], nodes: int, features: int = 3) -> GraphSet:
    ends = torch.tensor(edges).t()
    x = torch.rand(nodes, features, generator=seeded(0), dtype=torch.double) + 0.1
    return GraphSet.from_parts(torch.tensor([nodes]), torch.tensor([len(edges)]), ends, x=x, y=torch.zeros(1).long())


def small_net(seed: int = 0, classes: int = 3, conv: str = "gin"):
    """A two-layer network with lively running statistics, in double precision and evaluation mode."""
    torch.manual_seed(seed)
    net = GraphFeaturizer(GNNEncoder(3, 8, 2, conv, style="gmt"), "sum").double()
    head = torch.nn.Linear(8, classes).double().requires_grad_(False)
    graphs = random_graphs(seed=5, count=16)
    net(graphs.whole().replace(x=graphs.x.double()))
    return net.eval().requires_grad_(False), head


def classifier(graphs: GraphSet):
    net, head = small_net()
    batch = graphs.whole()
    return batch, lambda weight: head(net(batch, weight))


def chances(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, generator=seeded(seed), dtype=torch.double) * 0.8 + 0.1


def exact(batch, classify, probs: Tensor, **options) -> Tensor:
    return multilinear_extension(classify, probs, batch.edge_batch, batch.num_graphs, method="exact", **options)


def by_hand(classify, probs: Tensor) -> Tensor:
    """The definition: a sum over all subsets of the edges of one graph."""
    total = torch.zeros(())
    for kept in product((0.0, 1.0), repeat=len(probs)):
        weight = torch.tensor(kept, dtype=probs.dtype)
        likely = torch.where(weight > 0, probs, 1 - probs).prod()
        total = total + likely * classify(weight.unsqueeze(1)).softmax(-1).squeeze(1)
    return total


def test_the_exact_extension_is_the_sum_over_all_subgraphs_also_of_graphs_of_unequal_size():
    loops = [(0, 1), (1, 0), (0, 2), (2, 1), (1, 1)]
    graphs = [one_graph(PATH, 4), one_graph([(0, 1), (1, 2)], 3), one_graph(loops, 3)]
    together = GraphSet.from_pyg([g.to_pyg()[0] for g in graphs])
    batch, classify = classifier(together)
    probs = chances(batch.num_edges)
    found = exact(batch, classify, probs, chunk=7)
    start = 0
    for number, single in enumerate(graphs):
        alone, of_one = classifier(single)
        assert_close(found[number : number + 1], by_hand(of_one, probs[start : start + alone.num_edges]), atol=1e-10)
        start += alone.num_edges


def test_gmt_1_the_extension_is_affine_in_each_chance():
    batch, classify = classifier(one_graph(PATH, 4))
    probs = chances(4)
    for edge in range(4):
        low, middle, high = (probs.clone() for _ in range(3))
        low[edge], middle[edge], high[edge] = 0.05, 0.4, 0.75
        mean = (exact(batch, classify, low) + exact(batch, classify, high)) / 2
        assert_close(exact(batch, classify, middle), mean, atol=1e-10)


def test_gmt_2_at_zeros_and_ones_the_extension_is_the_classifier_and_so_is_soft_message_passing():
    batch, classify = classifier(one_graph(PATH, 4))
    net, head = small_net()
    for kept in product((0.0, 1.0), repeat=4):
        corner = torch.tensor(kept, dtype=torch.double)
        without = head(net(batch.replace(edge_index=batch.edge_index[:, corner > 0]))).softmax(-1)
        assert_close(exact(batch, classify, corner), without, atol=1e-10)
        assert_close(classify(corner.unsqueeze(1)).softmax(-1).squeeze(1), without, atol=1e-10)


def test_gmt_3_the_gradient_is_the_mean_difference_that_an_edge_makes():
    batch, classify = classifier(one_graph(PATH, 4))
    probs = chances(4).requires_grad_()
    (gradient,) = torch.autograd.grad(exact(batch, classify, probs)[0, 1], probs)
    probs = probs.detach()
    for edge in range(4):
        with_edge, without = probs.clone(), probs.clone()
        with_edge[edge], without[edge] = 1.0, 0.0
        difference = exact(batch, classify, with_edge) - exact(batch, classify, without)
        assert float(gradient[edge]) == pytest.approx(float(difference[0, 1]), abs=1e-8)


def walks(x: Tensor, edge_index: Tensor, power: int):
    """`1ᵀ A^k x` as a function of the weights of the edges, `[E, t] -> [1, t]`."""
    conv = WeightedSGCConv(1, 1).double().requires_grad_(False)
    conv.linear.weight.fill_(1.0)

    def of(weight: Tensor, layers: range | None = None) -> Tensor:
        h = x.unsqueeze(1)
        for layer in range(power):
            h = conv(h, edge_index, weight if layers is None or layer in layers else None)
        h = h if h.dim() == 3 else h.unsqueeze(1).expand(-1, weight.shape[1], -1)
        return h.sum(0).transpose(0, 1)

    return of


def gap_of(of, probs: Tensor, tie: Tensor | None = None) -> float:
    """`F(α) - f(Â)` over all subgraphs; `tie[e]` is the variable of edge `e`."""
    tie = torch.arange(len(probs)) if tie is None else tie
    count = int(tie.max()) + 1
    free = torch.zeros(count, dtype=probs.dtype).index_copy_(0, tie, probs)
    patterns = torch.tensor(list(product((0.0, 1.0), repeat=count)), dtype=probs.dtype).t()
    likely = torch.where(patterns > 0, free.unsqueeze(1), 1 - free.unsqueeze(1)).prod(0)
    mean = (likely * of(patterns[tie])).sum()
    return float(mean - of(probs.unsqueeze(1)).squeeze())


def both_ways() -> tuple[Tensor, Tensor, Tensor]:
    one_way = torch.tensor(PATH).t()
    edge_index = torch.cat([one_way, one_way.flip(0)], 1)
    return edge_index, torch.arange(4).repeat(2), torch.rand(4, generator=seeded(2), dtype=torch.double) + 0.2


def test_gmt_4_the_gap_of_two_steps_with_shared_variables_has_a_closed_form():
    edge_index, tie, x = both_ways()
    alpha = chances(4)
    expected = sum(float(alpha[e] * (1 - alpha[e]) * (x[u] + x[v])) for e, (u, v) in enumerate(PATH))
    assert gap_of(walks(x, edge_index, 2), alpha[tie], tie) == pytest.approx(expected, abs=1e-10)


def test_gmt_5_no_gap_where_no_walk_uses_a_variable_twice():
    edge_index, tie, x = both_ways()
    alpha = chances(8)
    assert abs(gap_of(walks(x, edge_index, 1), alpha[:4][tie], tie)) < 1e-10
    assert abs(gap_of(walks(x, edge_index, 2), alpha)) < 1e-10
    one_way = torch.tensor(PATH).t()
    for power in (1, 2, 3, 4):
        assert abs(gap_of(walks(x, one_way, power), alpha[:4])) < 1e-10
    assert gap_of(walks(x, edge_index, 3), alpha) > 1e-3


def test_gmt_6_weights_in_one_layer_of_a_linear_stack_are_exact_and_in_two_are_not():
    edge_index, tie, x = both_ways()
    of = walks(x, edge_index, 3)
    alpha = chances(4)[tie]
    for layer in range(3):
        assert abs(gap_of(lambda w, layer=layer: of(w, range(layer, layer + 1)), alpha, tie)) < 1e-10
    assert abs(gap_of(lambda w: of(w, range(2)), alpha, tie)) > 1e-3


def test_gmt_7_a_gin_has_a_gap_and_samples_find_the_extension():
    batch, classify = classifier(one_graph([*PATH, (1, 3), (3, 1), (2, 0), (3, 2)], 4))
    probs = torch.full((8,), 0.5, dtype=torch.double)
    options = {"edge_batch": batch.edge_batch, "num_graphs": 1}
    found = exact(batch, classify, probs)
    assert float(multilinear_gap(classify, probs, **options)) > 1e-3
    draws = 20_000
    weight = (torch.rand(8, draws, generator=seeded(3)) < 0.5).double()
    values = in_chunks(classify, weight, 5000).softmax(-1).squeeze(0)
    error = values.std(0) / math.sqrt(draws)
    assert bool(((values.mean(0) - found.squeeze(0)).abs() < 4 * error).all())
    sampled = multilinear_extension(classify, probs, **options, method="monte_carlo", weight=weight)
    assert_close(sampled.squeeze(0), values.mean(0), atol=1e-10)


@pytest.mark.parametrize("classes", [3, 1])
def test_gmt_8_the_mean_of_probabilities_is_unbiased_for_probabilities_and_of_logits_for_logits(classes):
    net, head = small_net(classes=classes)
    batch, binary = one_graph(PATH, 4).whole(), classes == 1
    half = torch.full((4,), 0.5, dtype=torch.double)  # all subgraphs are equally likely: their plain mean is the truth
    even = head(net(batch, half.unsqueeze(1)))

    def classify(weight: Tensor) -> Tensor:
        logits = 20 * (head(net(batch, weight)) - even)  # far enough apart for the two means to differ
        return logits.squeeze(-1) if binary else logits

    patterns = torch.tensor(list(product((0.0, 1.0), repeat=4)), dtype=torch.double).t()
    found = {}
    for aggregate in ("logits", "probs"):
        truth = exact(batch, classify, half, aggregate=aggregate, binary=binary)
        mean = mean_of_samples(classify(patterns), aggregate, binary)
        found[aggregate] = distribution(mean, binary)
        assert_close(mean if aggregate == "logits" else found[aggregate], truth, atol=1e-10)
    assert float((found["logits"] - found["probs"]).abs().max()) > 1e-4


@pytest.mark.parametrize("alpha", [0.9, 0.7, 0.1, 0.5])
def test_gmt_9_noise_on_noise_moves_the_chance_of_an_edge_and_the_unbiased_samplers_do_not(alpha):
    edges = 2000
    ends = torch.stack([torch.arange(edges), torch.arange(edges) + 1])
    found = BernoulliSubgraph(torch.full((edges,), math.log(alpha / (1 - alpha))), ends, edges + 1)
    odds = alpha / (1 - alpha)
    doubled = 0.5 if alpha == 0.5 else odds / (odds - 1) - odds * math.log(odds) / (odds - 1) ** 2
    assert doubled == pytest.approx({0.9: 0.8160, 0.7: 0.6379, 0.1: 0.1840, 0.5: 0.5}[alpha], abs=1e-4)
    for sampler, expected in (("concrete_bernoulli", doubled), ("bernoulli", alpha), ("hard_concrete_st", alpha)):
        drawn = found.sample(500, sampler, seeded(0))
        assert float(drawn.mean()) == pytest.approx(expected, abs=0.003), sampler


def test_gmt_10_draws_are_exactly_zero_or_one_and_carry_the_gradient_of_their_soft_form():
    soft = torch.rand(50, generator=seeded(0)).requires_grad_()
    through = straight_through((soft > 0.3).float().detach(), soft)
    assert set(through.unique().tolist()) == {0.0, 1.0}
    (gradient,) = torch.autograd.grad(through.sum(), soft)
    assert torch.equal(gradient, torch.ones_like(soft))
    ends = torch.stack([torch.arange(30), torch.arange(30) + 1])
    logits = torch.randn(30, generator=seeded(1)).requires_grad_()
    for sampler in ("concrete_bernoulli", "bernoulli", "hard_concrete_st"):
        drawn = BernoulliSubgraph(logits, ends, 31).sample(9, sampler)
        assert set(drawn.unique().tolist()) == {0.0, 1.0}
        (gradient,) = torch.autograd.grad(drawn.sum(), logits)
        assert bool((gradient > 0).all())
    with pytest.raises(ShiftproofError, match="did you mean 'bernoulli'"):
        BernoulliSubgraph(logits, ends, 31).sample(1, "bernouli")
    with pytest.raises(ShiftproofError, match="attention over nodes takes 31 logits"):
        BernoulliSubgraph(logits, ends, 31, mode="node")


@pytest.mark.parametrize(("draws", "left"), [("antithetic", 0.85), ("stratified", 0.5)])
def test_draws_that_are_spread_out_keep_the_mean_and_vary_less(draws, left):
    batch, classify = classifier(one_graph(PATH, 4))
    probs = chances(4)
    truth = exact(batch, classify, probs)

    def means(how: str) -> Tensor:
        options = {"method": "monte_carlo", "samples": 20, "draws": how}
        found = [
            multilinear_extension(classify, probs, batch.edge_batch, 1, generator=seeded(i), **options)
            for i in range(400)
        ]
        return torch.cat(found)

    spread, apart = means(draws), means("independent")
    assert bool(((spread.mean(0) - truth).abs() < 4 * spread.std(0) / 20).all())
    assert bool((spread.var(0) < left * apart.var(0)).all())


def test_spread_out_numbers_are_uniform_each_and_never_one():
    for draws, samples in (("independent", 6), ("antithetic", 7), ("antithetic", 1), ("stratified", 8)):
        found = uniform_draws(torch.zeros(20_000, samples), draws, seeded(3))
        assert found.shape == (20_000, samples)
        assert 0 <= float(found.min()) <= float(found.max()) < 1
        assert_close(found.mean(0), torch.full((samples,), 0.5), 0.01)
        assert_close((found < 0.3).float().mean(0), torch.full((samples,), 0.3), 0.02)
    assert torch.equal((found * 8).floor().sort(1).values, torch.arange(8.0).expand(20_000, 8))
    pairs = uniform_draws(torch.zeros(5, 6), "antithetic", seeded(0))
    assert_close(pairs[:, :3] + pairs[:, 3:], torch.ones(5, 3), 1e-6)
    sure = BernoulliSubgraph(torch.full((4,), 40.0), torch.tensor(PATH).t(), 4)
    for draws in ("antithetic", "stratified"):
        assert bool((sure.sample(5000, "bernoulli", seeded(1), draws) == 1).all())
    with pytest.raises(ShiftproofError, match="unknown way of drawing 'sobol'"):
        uniform_draws(torch.zeros(2, 2), "sobol")


@pytest.mark.parametrize("tied", [False, True])
def test_the_score_gradient_is_that_of_the_extension_without_bias(tied):
    both = [(0, 1), (1, 0), (1, 2), (2, 1)]
    batch, classify = classifier(one_graph(both, 3))
    logits = torch.logit(chances(4)).requires_grad_()
    subgraph = BernoulliSubgraph(logits, batch.edge_index, 3, tie_directions=tied)
    expected = torch.zeros(3, dtype=torch.double)
    for kept in product((0.0, 1.0), repeat=4):
        weight = torch.tensor(kept, dtype=torch.double).unsqueeze(1)
        if not tied or (kept[0] == kept[1] and kept[2] == kept[3]):
            likely = subgraph.log_chance(weight, batch.edge_batch, 1).exp().squeeze()
            expected = expected + likely * classify(weight).squeeze()
    (truth,) = torch.autograd.grad(expected[0], logits, retain_graph=True)
    found = []
    for i in range(300):
        weight = subgraph.sample(40, "score", seeded(i))
        assert not weight.requires_grad
        values = score_gradient(classify(weight), subgraph.log_chance(weight, batch.edge_batch, 1))
        assert torch.equal(values.detach(), classify(weight))
        found.append(torch.autograd.grad(values.mean(1)[0, 0], logits, retain_graph=True)[0])
    every = torch.stack(found)
    assert bool(((every.mean(0) - truth).abs() < 4 * every.std(0) / 300**0.5 + 1e-12).all())
    assert float((every.mean(0) - truth).abs().max()) < 0.3 * float(truth.abs().max())
    with pytest.raises(ShiftproofError, match="at least two, not 1"):
        score_gradient(torch.zeros(1, 1), torch.zeros(1, 1))


def test_directions_are_drawn_apart_unless_they_are_tied():
    batch = random_graphs(seed=6, count=6, undirected=True).whole()
    logits = torch.randn(batch.num_edges, generator=seeded(0))
    for sampler in ("concrete_bernoulli", "bernoulli", "hard_concrete_st"):
        apart = BernoulliSubgraph(logits, batch.edge_index, batch.num_nodes)
        drawn = apart.sample(20, sampler)
        assert not torch.equal(drawn, drawn[apart.reverse])
        tied = BernoulliSubgraph(logits, batch.edge_index, batch.num_nodes, tie_directions=True).sample(20, sampler)
        assert torch.equal(tied, tied[apart.reverse])
        assert 0 < float(tied.mean()) < 1


def test_gmt_16_close_predictions_of_distant_truths_stay_apart():
    g = seeded(0)
    p, q = (torch.rand(10_000, 4, generator=g, dtype=torch.double) for _ in range(2))
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)

    def tv(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).abs().sum(1) / 2

    def near(of: Tensor, epsilon: Tensor) -> Tensor:
        other = torch.rand(of.shape, generator=g, dtype=torch.double)
        other = other / other.sum(1, keepdim=True)
        return of + (epsilon / tv(of, other)).clamp(max=1).unsqueeze(1) * (other - of)

    epsilon = 0.2 * torch.rand(10_000, generator=g, dtype=torch.double)
    predicted_p, predicted_q = near(p, epsilon), near(q, epsilon)
    assert bool((tv(p, predicted_p) <= epsilon + 1e-12).all())
    assert bool((tv(predicted_p, predicted_q) >= tv(p, q) - 2 * epsilon - 1e-12).all())


def test_gmt_17_the_mean_over_draws_concentrates_as_hoeffding_says():
    batch, classify = classifier(one_graph(PATH, 4))
    probs = chances(4)
    truth = exact(batch, classify, probs).squeeze(0)
    repetitions, draws, epsilon = 2000, 100, 0.15
    drawn = torch.rand(4, repetitions * draws, generator=seeded(0), dtype=torch.double) < probs.unsqueeze(1)
    # sixteen subgraphs are all there are: look their values up
    patterns = torch.tensor(list(product((0.0, 1.0), repeat=4)), dtype=torch.double).t()
    values = classify(patterns).softmax(-1).squeeze(0)
    number = (drawn.long() * torch.tensor([8, 4, 2, 1]).unsqueeze(1)).sum(0)
    means = values[number].view(repetitions, draws, -1).mean(1)
    bound = 2 * math.exp(-2 * draws * epsilon**2)
    assert bound == pytest.approx(0.022, abs=1e-3)
    assert bool((((means - truth).abs() > epsilon).double().mean(0) <= bound).all())
    assert float((means - truth).abs().max()) > 1e-3  # the draws do vary


def test_gmt_19_decoders_keep_the_share_and_do_nothing_at_its_ends():
    batch = random_graphs(seed=3, undirected=True).whole()
    weight = torch.rand(batch.num_edges, generator=seeded(0)).round(decimals=1) * 0.8 + 0.1  # with ties, inside (0, 1)
    sizes = batch.edge_batch, batch.num_graphs
    assert torch.equal(decode(weight, *sizes, "min0", 1.0), weight)
    assert torch.equal(decode(weight, *sizes, "max1", 0.0), weight)
    assert torch.equal(decode(weight, *sizes, "normal", 0.3), weight)
    counts = torch.bincount(batch.edge_batch, minlength=batch.num_graphs)
    for ratio in (0.3, 0.5, 0.8):
        low, high = decode(weight, *sizes, "min0", ratio), decode(weight, *sizes, "max1", ratio)
        hard = decode(weight, *sizes, "min0max1", ratio)
        kept = torch.tensor([math.ceil(round(ratio * int(m), 9)) for m in counts])
        for found in (low > 0, high == 1, hard == 1):
            assert torch.equal(torch.bincount(batch.edge_batch[found], minlength=batch.num_graphs), kept)
        assert set(hard.unique().tolist()) == {0.0, 1.0}
        for how, found in (("min0", low), ("max1", high), ("min0max1", hard)):
            assert torch.equal(decode(found, *sizes, how, ratio), found)
            for number in range(batch.num_graphs):
                own = batch.edge_batch == number
                alone = decode(weight[own], torch.zeros(int(own.sum())).long(), 1, how, ratio)
                assert torch.equal(alone, found[own])
    with pytest.raises(ShiftproofError, match="unknown decoding 'max0'"):
        decode(weight, *sizes, "max0")


def test_gmt_23_attention_to_nodes_is_lifted_to_edges_as_a_product():
    batch = random_graphs(seed=4).whole()
    logits = torch.randn(batch.num_nodes, generator=seeded(0))
    found = BernoulliSubgraph(logits, batch.edge_index, batch.num_nodes, mode="node")
    u, v = batch.edge_index
    assert torch.equal(found.probs, logits.sigmoid()[u] * logits.sigmoid()[v])
    drawn = found.relaxed(5, seeded(1))
    assert torch.equal(drawn, lift_to_edges(found.noisy(5, seeded(1)), batch.edge_index))


@pytest.mark.parametrize("conv", ["gin", "pna"])
@pytest.mark.parametrize("chunk", [1, 3, 5, 7, 50])
def test_gmt_30_chunks_of_any_size_give_the_same_mean_and_gradients(conv, chunk):
    net, head = small_net(conv=conv)
    parameters = [p.requires_grad_() for p in (*net.parameters(), *head.parameters())]
    graphs = random_graphs(seed=2)
    batch = graphs.whole().replace(x=graphs.x.double())
    noise = torch.rand(batch.num_edges, 7, generator=seeded(0), dtype=torch.double)

    def mean(size: int | None) -> tuple[Tensor, ...]:
        logits = torch.zeros(batch.num_edges, dtype=torch.double, requires_grad=True)
        soft = logits.sigmoid().unsqueeze(1)
        weight = straight_through((noise < soft).double(), soft)
        found = in_chunks(lambda w: head(net(batch, w)), weight, size, net).mean(1)
        return found, *torch.autograd.grad(found.square().sum(), [logits, *parameters])

    for one, other in zip(mean(None), mean(chunk), strict=True):
        assert_close(one, other, atol=1e-6)


def test_gmt_30_running_statistics_move_once_for_each_sample_however_they_are_cut():
    """In training with batch norm and dropout: the recomputation of a chunk moves nothing and drops the same rows."""
    batch = random_graphs(seed=2, count=8).whole()
    weight = (torch.rand(batch.num_edges, 6, generator=seeded(0)) < 0.6).float()
    states, gradients = [], []
    for size in (None, 1, 4):
        torch.manual_seed(0)
        net = GraphFeaturizer(GNNEncoder(3, 8, 2, "gin", style="gmt"), "sum")
        in_chunks(lambda w, net=net: net(batch, w), weight, size, net).square().mean().backward()
        states.append(torch.cat([b.flatten().float() for b in net.buffers()]))
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    for state, gradient in zip(states[1:], gradients[1:], strict=True):
        assert_close(state, states[0])
        assert_close(gradient, gradients[0], atol=1e-3)
    net.encoder.dropout = 0.5
    scale = torch.ones((), requires_grad=True)
    torch.manual_seed(1)
    out = in_chunks(lambda w: net(batch, w) * scale, weight, 2, net)
    (slope,) = torch.autograd.grad(out.sum(), scale)
    assert float(slope) == pytest.approx(out.sum().item(), rel=1e-4)  # the recomputed rows are the first ones


def test_a_loop_over_the_samples_is_the_same_classifier():
    batch, classify = classifier(one_graph(PATH, 4))
    net, head = small_net()
    weight = (torch.rand(4, 5, generator=seeded(0)) < 0.5).double()
    assert_close(one_by_one(lambda w: head(net(batch, w)))(weight), classify(weight), atol=1e-10)


def test_mistakes_are_one_sentence():
    batch, classify = classifier(one_graph([(0, 1)] * 17, 2))
    with pytest.raises(ShiftproofError, match="2\\^17 subgraphs; the exact extension takes at most 16"):
        exact(batch, classify, torch.full((17,), 0.5))
    with pytest.raises(ShiftproofError, match="unknown aggregate"):
        exact(batch, classify, torch.full((17,), 0.5), aggregate="mean")
    with pytest.raises(ShiftproofError, match="at least one sample"):
        in_chunks(classify, torch.ones(17, 3), 0)
