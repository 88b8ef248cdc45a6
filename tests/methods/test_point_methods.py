"""Explainers of point clouds: what they compute, by hand, and that they find what decides."""

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.data.readers.points import Neighbours, moved, point_graphs, positions
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import explanation_auc
from shiftproof.explanations.algorithms.point_explainers import PointMask
from shiftproof.explanations.algorithms.point_masks import PointMaskNetwork, bernmask, gradcam, gradgeo, squashed
from shiftproof.methods import ERM, DataShape, LRIGaussian, Network
from shiftproof.methods.gsat import smoothed
from shiftproof.methods.lri import gaussian_information
from shiftproof.methods.weighted import as_weighted
from tests.nn.clouds import random_clouds
from tests.nn.families import assert_close, seeded

SHAPE = DataShape("graphs", "binary", 1, (3,), None, 0, 8)
EGNN = Network("egnn", layers=2, hidden=8, readout="sum", style="gmt")


def plain(seed=0):
    torch.manual_seed(seed)
    method = ERM(SHAPE, network=EGNN)
    method(random_clouds(seed=7, count=8).whole())
    return method.eval()


def marked_clouds(count=160, seed=0):
    """Clouds whose features say nothing: positive iff three points, the marked ones, lie close together."""
    g = seeded(seed)
    sizes = torch.randint(4, 13, (count,), generator=g)
    y = (torch.arange(count) % 2).float()
    owner = torch.repeat_interleave(torch.arange(count), sizes)
    first = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    close = (torch.arange(len(owner)) - first < 3) & (y[owner] > 0)
    pos = 2 * torch.randn(len(owner), 3, generator=g)
    pos = torch.where(close.unsqueeze(1), pos[first] + 0.2 * torch.randn(len(owner), 3, generator=g), pos)
    x = 0.1 * torch.randn(len(owner), 2, generator=g)
    graphs = point_graphs(pos, sizes, Neighbours(k=4), x=x, truth=close, y=y)
    part = {"train": graphs[: count // 2], "val": graphs[count // 2 :], "test": graphs[count // 2 :]}
    return sp.Dataset(part, "own-clouds", task="binary")


FAST = {"conv": "egnn", "hidden": 16, "layers": 2, "style": "gmt", "readout": "sum", "batch_size": 16, "lr": 5e-3}


LIN = {"attention": "node", "scorer_norm": "batch", "scorer_dropout": 0.2, "penalty": 0.1, "candidates": "all"}


@pytest.mark.parametrize(
    ("method", "options", "least"),
    [
        ("gradcam", {}, 0.7),
        ("lri-bernoulli", {"final_r": 0.5, "decay_interval": 4}, 0.9),
        ("lri-gaussian", {"neighbours": 4}, 0.9),
        ("gmt-lin", {**LIN, "final_r": 0.5, "decay_interval": 4}, 0.9),
    ],
)
def test_deciding_points_are_found(method, options, least):
    data = marked_clouds()
    run = sp.fit(method, data, epochs=30, patience=None, **FAST, **options)
    assert run.metrics["test"]["accuracy"] > 0.9
    found = explanation_auc(sp.explain(run, data.test), of="nodes", among="marked", resamples=1)
    assert found.value > least


def test_the_information_of_gaussian_noise_is_its_divergence_from_the_standard_normal():
    eye = torch.eye(3).expand(2, 3, 3)
    assert_close(gaussian_information(eye), torch.zeros(2), 1e-6)
    a = torch.randn(5, 3, 3, generator=seeded(0))
    sigma = a @ a.transpose(1, 2) + 0.3 * torch.eye(3)
    normal = torch.distributions.MultivariateNormal
    exact = torch.distributions.kl_divergence(normal(torch.zeros(5, 3), sigma), normal(torch.zeros(3), torch.eye(3)))
    assert_close(gaussian_information(sigma), exact, 1e-4)


def test_gaussian_noise_has_the_covariance_it_claims():
    torch.manual_seed(0)
    method = LRIGaussian(SHAPE, network=EGNN)
    batch = random_clouds(count=1).whole()
    with torch.no_grad():
        parts = method.eval().spread(batch)
        claimed = method.covariance(batch)
        shaken = torch.stack([positions(method._shaken(batch, *parts)) for _ in range(4000)])
    moved_by = shaken - positions(batch)
    seen = torch.einsum("snd,sne->nde", moved_by, moved_by) / len(moved_by)
    assert (seen - claimed).abs().max() < 0.12 * claimed.abs().max()


def test_gaussian_noise_acts_in_training_alone_and_joins_points_anew():
    torch.manual_seed(0)
    method, batch = LRIGaussian(SHAPE, network=EGNN, scale=2.0), random_clouds(count=5).whole()
    method.eval()
    assert torch.equal(method(batch), method(batch))
    assert_close(method(batch), method.classify(moved(batch, 2 * positions(batch))))
    shaken = method._shaken(batch, *method.spread(batch))
    assert torch.equal(shaken.edge_index, Neighbours(k=5).edges(positions(shaken), batch.ptr.diff())[0])
    method.train()
    assert not torch.equal(method(batch), method(batch))
    scores = method.explain(batch).node_scores
    volume = torch.linalg.det(method.eval().covariance(batch))
    assert_close(scores, 1 / (1 + volume))
    with pytest.raises(ShiftproofError, match="'dimensions' of 'lri-gaussian' is a whole number from 1"):
        LRIGaussian(SHAPE, dimensions=0)


def test_a_network_that_sees_no_places_has_its_features_shaken_and_judged():
    torch.manual_seed(0)
    gin, batch = Network("gin", layers=2, hidden=8), random_clouds(count=3).whole()
    method = LRIGaussian(SHAPE, network=gin)
    shaken = method._shaken(batch, *method.spread(batch))
    assert (shaken.x - batch.x).abs().min() > 0
    assert torch.equal(shaken.edge_index, batch.edge_index)
    slope = gradgeo(as_weighted(ERM(SHAPE, network=gin)), batch)
    assert float(slope.max()) > 0
    mask = torch.zeros(batch.num_nodes)
    unseen = PointMask(SHAPE, network=gin).eval()
    assert_close(unseen.classify(batch, mask), unseen.classify(batch.replace(x=0 * batch.x), mask + 1))


def test_shaken_points_are_joined_by_the_rule_that_was_given():
    torch.manual_seed(0)
    batch = random_clouds(count=3).whole()
    kept = LRIGaussian(SHAPE, network=EGNN, neighbours=None)
    assert torch.equal(kept._shaken(batch, *kept.spread(batch)).edge_index, batch.edge_index)
    within = LRIGaussian(SHAPE, network=EGNN, radius=0.7, scale=2.0)
    shaken = within._shaken(batch, *within.spread(batch))
    assert torch.equal(shaken.edge_index, Neighbours(None, 1.4).edges(positions(shaken), batch.ptr.diff())[0])
    with pytest.raises(ShiftproofError, match="'dimensions' is 2 and 'pos_dim' is 3"):
        LRIGaussian(SHAPE, network=EGNN, dimensions=2)


def test_gradcam_names_a_layer_the_model_does_not_pass():
    with pytest.raises(ShiftproofError, match="Linear is not one"):
        gradcam(as_weighted(plain()), random_clouds(count=2).whole(), torch.nn.Linear(2, 2))


def test_gradgeo_is_the_length_of_the_slope_in_space():
    model, batch = plain().double(), random_clouds(count=2).whole()
    batch = replace(batch, x=batch.x.double())
    pos = positions(batch).double()
    found = gradgeo(as_weighted(model), moved(batch, pos))
    step, slope = 1e-5, torch.zeros_like(pos)
    with torch.no_grad():
        for i in range(len(pos)):
            for d in range(3):
                to = torch.zeros_like(pos)
                to[i, d] = step
                ahead, behind = model(moved(batch, pos + to)).sum(), model(moved(batch, pos - to)).sum()
                slope[i, d] = (ahead - behind) / (2 * step)
    assert_close(found, squashed(slope.norm(dim=1)), 1e-5)


def test_gradcam_is_what_each_point_adds_where_the_rest_is_linear():
    """With a linear classifier of summed rows, activation times gradient adds up to the logit of the last layer."""
    model, batch = plain(), random_clouds(count=3).whole()
    weight = torch.randn(8, generator=seeded(0))
    model.head = torch.nn.Linear(8, 1, bias=False)
    model.head.weight.data = weight.view(1, 8)
    last = model.featurizer.encoder.convs[-1]
    seen = []
    handle = last.register_forward_hook(lambda _m, _i, out: seen.append(out))
    model(batch)
    handle.remove()
    found = gradcam(as_weighted(model), batch, last)
    assert_close(found, (1 + squashed(seen[0].detach() @ weight)) / 2)
    assert not last._forward_hooks


def test_a_mask_of_points_does_not_depend_on_the_other_clouds():
    model, graphs = as_weighted(plain()), random_clouds(count=3)
    noise = torch.randn(graphs.num_nodes, generator=seeded(0))
    together = bernmask(model, graphs.whole(), steps=5, noise=noise)
    starts = graphs.node_ptr.tolist()
    for i in range(3):
        part = slice(starts[i], starts[i + 1])
        assert_close(bernmask(model, graphs.batch(i), steps=5, noise=noise[part]), together[part], 1e-4)
    with pytest.raises(ShiftproofError, match="'steps' of bernmask is a whole number from 1"):
        bernmask(model, graphs.whole(), steps=0)


def test_a_price_on_points_makes_masks_smaller_and_the_model_is_left_alone():
    model, batch = plain(), random_clouds(count=3).whole()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cheap, dear = (bernmask(as_weighted(model), batch, steps=30, size=size, entropy=0.0) for size in (0.0, 5.0))
    assert float(dear.mean()) < float(cheap.mean()) - 0.2
    net = PointMaskNetwork(8, size=5.0).fit(as_weighted(model), random_clouds(count=6), epochs=30, lr=1e-2)
    free = PointMaskNetwork(8, size=0.0, entropy=0.0).fit(as_weighted(model), random_clouds(count=6), epochs=1)
    assert float(net.scores(as_weighted(model), batch).mean()) < float(free.scores(as_weighted(model), batch).mean())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_pointmask_masks_coordinates_and_charges_for_belief():
    torch.manual_seed(0)
    method, batch = PointMask(SHAPE, network=EGNN, threshold=0.2), random_clouds(count=4).whole()
    assert method.mask(torch.tensor([-9.0, 0.0, 9.0])).tolist() == pytest.approx([0.0, 0.3, 0.8], abs=1e-3)
    assert_close(method.eval().classify(batch, torch.full((batch.num_nodes,), 0.5)),
                 method.head(method.featurizer(moved(batch, positions(batch) / 2))).squeeze(-1))  # fmt: skip
    mean, log_variance = method.beliefs(batch)
    price = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, (log_variance / 2).exp()), torch.distributions.Normal(0.0, 1.0)
    )
    batch = batch.replace(y=batch.y.float())
    assert method.losses(batch)["information"].item() == pytest.approx(price.sum().item() / 4, rel=1e-4)
    scores = method.explain(batch).node_scores
    assert_close(scores, method.mask(mean))
    with pytest.raises(ShiftproofError, match="'threshold' of 'pointmask' is a number from 0 to below 1"):
        PointMask(SHAPE, threshold=1.0)


def test_smoothing_takes_the_least_logit_around():
    pos = torch.arange(5.0).view(5, 1)
    batch = point_graphs(pos, torch.tensor([5]), Neighbours(k=None, radius=1.0), y=torch.zeros(1)).whole()
    logits = torch.tensor([5.0, 1.0, 4.0, 3.0, 9.0])
    assert smoothed(logits, batch, 0).tolist() == logits.tolist()
    assert smoothed(logits, batch, 1).tolist() == [1.0, 1.0, 1.0, 3.0, 3.0]
    assert smoothed(logits, batch, 2).tolist() == [1.0, 1.0, 1.0, 1.0, 3.0]
    with pytest.raises(ShiftproofError, match="set attention='node'"):
        sp.methods.GSAT(SHAPE, smooth_min=1)


def test_attention_starts_from_a_plain_model_and_may_read_an_encoder_of_its_own(tmp_path):
    data = marked_clouds(60)
    settings = {**FAST, **LIN, "dropout": 0.0, "epochs": 0, "erm_epochs": 4, "own_encoder": True}
    run = sp.fit("lri-bernoulli", data, out=tmp_path / "run", **settings)
    first = sp.Run.load(tmp_path / "run" / "erm", method=sp.fit("erm", data, **FAST, dropout=0.0, epochs=0).method)
    assert len(first.history) == 4
    method, batch = run.method, data.test.whole()
    weights = first.method.featurizer.state_dict()
    for encoder in (method.featurizer, method.reader):
        assert all(torch.equal(tensor, weights[name]) for name, tensor in encoder.state_dict().items())
    before = method.attention_logits(batch)
    with torch.no_grad():
        method.featurizer.encoder.node_encoder.weight.zero_()
    assert torch.equal(method.attention_logits(batch), before)  # the classifier's encoder is not looked at
    trained = sp.fit("gsat-min0", data, **{**settings, "epochs": 2, "reference_epochs": 3}, out=tmp_path / "two")
    assert (tmp_path / "two" / "extractor" / "erm" / "metrics.json").exists()
    moved_away = trained.method.extractor
    one, two = (encoder.encoder.node_encoder.weight for encoder in (moved_away.featurizer, moved_away.reader))
    assert not torch.equal(one, two)
    with pytest.raises(ShiftproofError, match="'erm_epochs' of 'gsat' is a whole number from 0"):
        sp.fit("gsat", data, **{**settings, "erm_epochs": -1})


def test_subgraph_methods_keep_places_for_their_classifier():
    data = marked_clouds(20)
    run = sp.fit("ciga-v1", data, epochs=1, conv="egnn", hidden=8, layers=2, ratio=0.5)
    assert sp.explain(run, data.test).edge_scores.isfinite().all()


@pytest.mark.parametrize("by", ["occlusion", "gnnexplainer", "gradient", "pgexplainer"])
def test_a_plain_model_of_points_is_explained_by_its_edges_as_well(by, tmp_path):
    data = marked_clouds(20)
    run = sp.fit("erm", data, epochs=1, **FAST)
    options = {"gnnexplainer": {"steps": 2}, "pgexplainer": {"epochs": 1}}.get(by, {})
    found = sp.explain(run, data.test[:3], by=by, **options)
    assert found.edge_scores.shape == (data.test[:3].num_edges,)
    assert found.draw(tmp_path / "cloud.png").stat().st_size > 1000
