"""Facts 2, 14, 20, 21, 23, 27, 29 and 30 of docs/papers/gmt.md#checked-facts, on point clouds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.data.graphs import GraphSet
from shiftproof.methods import ERM, GSAT, DataShape, GMTLin, GMTSimulated, Network
from shiftproof.nn import (
    POINT_CONVS,
    BernoulliSubgraph,
    GraphFeaturizer,
    NodeScorer,
    PointEncoder,
    in_chunks,
    multilinear_extension,
)
from tests.nn.clouds import random_clouds, renumbered, shifted, turned
from tests.nn.families import assert_batching_equals_one_by_one, assert_close, seeded


def featurizer(conv: str, zero: str = "zero_message") -> GraphFeaturizer:
    torch.manual_seed(0)
    net = GraphFeaturizer(PointEncoder(3, 8, 3, conv, zero=zero), "sum")
    net(random_clouds(seed=7, count=8).whole())  # moves the running statistics off their start
    return net.eval()


def without(batch, keep):
    return batch.replace(edge_index=batch.edge_index[:, keep], edge_truth=None)


def clouds_shape() -> DataShape:
    return DataShape("graphs", "binary", 1, (3,), None, 0, 8)


NETWORK = Network("egnn", layers=2, hidden=8, readout="sum", style="gmt")


@pytest.mark.parametrize(
    ("conv", "zero", "deletes"),
    [
        ("egnn", "zero_message", True),
        ("dgcnn", "zero_message", False),
        ("dgcnn", "delete", True),
        ("point-transformer", "zero_message", False),  # its softmax is over all edges
    ],
)
def test_gmt_20_a_zero_weight_deletes_an_edge_where_messages_are_summed(conv, zero, deletes):
    batch, net = random_clouds().whole(), featurizer(conv, zero)
    keep = torch.rand(batch.num_edges, generator=seeded(0)) < 0.6
    weighted, cut = net(batch, keep.float()), net(without(batch, keep))
    if deletes:
        assert_close(weighted, cut)
    else:
        assert (weighted - cut).abs().max() > 1e-3


def test_gmt_2_at_the_vertices_the_extension_is_the_classifier_of_the_subgraph():
    """EGNN adds messages up: the soft prediction is then that of the subgraph as well."""
    graphs = random_clouds(seed=2, count=3)
    graphs = graphs[[i for i in range(3) if int(graphs.edge_counts[i]) <= 16] or [0]]
    batch, net = graphs.whole(), featurizer("egnn")
    keep = torch.rand(batch.num_edges, generator=seeded(1)) < 0.5
    chance = keep.float()
    extension = multilinear_extension(
        lambda w: net(batch, w), chance, batch.edge_batch, batch.num_graphs, samples=3, aggregate="logits"
    )
    assert_close(extension, net(without(batch, keep)))
    assert_close(net(batch, chance), net(without(batch, keep)))


def test_gmt_14_without_any_loss_every_method_is_plain_training():
    """Chances of one: LRI, GMT-lin and sampled subgraphs all say what the plain model says."""
    batch = random_clouds(seed=7, count=8).whole()
    torch.manual_seed(0)
    plain = ERM(clouds_shape(), network=NETWORK)
    plain(batch)
    plain.eval()
    for kind in (GSAT, GMTLin, GMTSimulated):
        more = {"samples": 3} if kind is GMTSimulated else {}
        method = kind(clouds_shape(), network=NETWORK, attention="node", scorer_norm="batch", **more).eval()
        method.featurizer.load_state_dict(plain.featurizer.state_dict())
        method.head.load_state_dict(plain.head.state_dict())
        sure = torch.full((batch.num_nodes,), 40.0)
        assert_close(method.predict_from(batch, sure), plain(batch))


@pytest.mark.parametrize("conv", POINT_CONVS)
def test_gmt_21_renumbering_points_moves_scores_along_and_leaves_predictions(conv):
    batch, net = random_clouds().whole(), featurizer(conv)
    again, nodes, edges = renumbered(batch)
    scorer = NodeScorer(8, norm="batch").eval()
    weight = torch.rand(batch.num_edges, generator=seeded(2))
    assert_close(net(again, weight[edges]), net(batch, weight))
    assert_close(scorer(net.nodes(again)), scorer(net.nodes(batch))[nodes])


@pytest.mark.parametrize("conv", POINT_CONVS)
def test_gmt_21_a_batch_of_clouds_is_its_clouds_one_by_one(conv):
    net = featurizer(conv)
    assert_batching_equals_one_by_one(net, random_clouds())


@pytest.mark.parametrize("method", ["lri-bernoulli", "gmt-lin", "gmt-simulated", "bernmask-p", "gradgeo", "gradcam"])
def test_gmt_21_scores_of_an_egnn_do_not_see_how_the_cloud_lies(method):
    """Predictions and scores of points stay when the cloud is turned, mirrored or moved, and follow a renumbering."""
    graphs = random_clouds(seed=5, count=12)
    parts = {"train": graphs, "val": graphs, "test": graphs}
    data = sp.Dataset({n: replace(g, y=(torch.arange(12) % 2).float()) for n, g in parts.items()}, "own", task="binary")
    own = {"gmt-lin": {"attention": "node"}, "gmt-simulated": {"attention": "node", "samples": 3}}.get(method, {})
    own |= {"explainer_epochs": 1} if method == "bernmask-p" else {}
    run = sp.fit(method, data, conv="egnn", hidden=8, layers=2, epochs=1, style="gmt", **own)
    batch = graphs.whole()
    before = run.method.explain(batch)
    for other in (turned(batch, 1), turned(batch, 2, mirror=True), shifted(batch)):
        after = run.method.explain(other)
        assert_close(after.logits, before.logits, 1e-4)
        assert_close(after.node_scores, before.node_scores, 1e-4)
    if method != "gmt-simulated":  # draws are numbered with the edges
        again, nodes, _ = renumbered(batch)
        assert_close(run.method.explain(again).node_scores, before.node_scores[nodes], 1e-4)


def test_gmt_23_an_edge_has_the_product_of_its_points_and_a_loop_the_square():
    batch = random_clouds().whole()
    logits = torch.randn(batch.num_nodes, generator=seeded(0))
    found = BernoulliSubgraph(logits, batch.edge_index, batch.num_nodes, mode="node").probs
    alpha = logits.sigmoid()
    src, dst = batch.edge_index
    assert_close(found, alpha[src] * alpha[dst])
    loop = src == dst
    assert int(loop.sum()) == batch.num_nodes
    assert_close(found[loop], alpha[src[loop]].square())


@pytest.mark.parametrize("conv", POINT_CONVS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layers", [None, (0,), (-1,)])
def test_gmt_29_samples_in_one_pass_are_samples_one_by_one(conv, training, layers):
    batch, net = random_clouds(seed=3, count=6).whole(), featurizer(conv)
    net.train(training)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    weight = (torch.rand(batch.num_edges, 4, generator=seeded(1)) < 0.6).float().requires_grad_()
    ways = (
        lambda: net(batch, weight, layers),
        lambda: torch.stack([net(batch, weight[:, i], layers) for i in range(4)], 1),
    )
    seen = []
    for forward in ways:
        net.load_state_dict(start)
        net.zero_grad()
        weight.grad = None
        out = forward()
        out.square().mean().backward()
        grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        seen.append((out.detach(), weight.grad.clone(), grads, {n: b.clone() for n, b in net.named_buffers()}))
    (a, a_weight, a_grads, a_buffers), (b, b_weight, b_grads, b_buffers) = seen
    assert_close(a, b)
    assert_close(a_weight, b_weight, 1e-4)
    for left, right in zip(a_grads, b_grads, strict=True):
        assert_close(left, right, 1e-4)
    if layers == (-1,):
        return  # what comes before the weights is computed once, and its statistics move once
    for name, buffer in a_buffers.items():
        assert_close(buffer.double(), b_buffers[name].double(), 1e-4)


@pytest.mark.parametrize("conv", POINT_CONVS)
def test_gmt_30_chunks_of_any_size_give_the_same_mean(conv):
    batch, net = random_clouds().whole(), featurizer(conv)
    weight = torch.rand(batch.num_edges, 5, generator=seeded(1))
    expected = net(batch, weight).mean(1)
    for chunk in (1, 2, 5):
        assert_close(in_chunks(lambda w: net(batch, w), weight, chunk, net).mean(1), expected, 1e-6)


def test_gmt_27_attention_that_says_nothing_about_points_is_noticed():
    graphs: GraphSet = random_clouds(count=6)
    method = GSAT(clouds_shape(), network=NETWORK, attention="node", scorer_norm="batch")
    torch.nn.init.zeros_(method.scorer.mlp.rest[-1].weight)
    with pytest.warns(UserWarning, match="explains nothing"):
        method.explain(graphs.whole())
