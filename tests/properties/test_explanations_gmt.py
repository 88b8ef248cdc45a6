"""Facts 16, 18 and 23 of docs/papers/gmt.md#checked-facts: what the measures of explanations must satisfy."""

from __future__ import annotations

import math

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import counterfactual_fidelity, explanation_auc
from shiftproof.explanations.measures import counterfactual as measured
from shiftproof.explanations.measures.counterfactual import perturbed
from shiftproof.explanations.measures.distances import jensen_shannon, kl_divergence, total_variation
from shiftproof.methods import Explanation
from shiftproof.methods.base import DataShape
from shiftproof.methods.gsat import GSAT
from tests.explanations.own_models import OwnGIN, random_graphs


def simplex(count: int, classes: int, generator: torch.Generator) -> torch.Tensor:
    drawn = -torch.rand(count, 1, classes, generator=generator, dtype=torch.double).log()
    return drawn / drawn.sum(-1, keepdim=True)


def test_gmt_16_a_close_approximation_keeps_distances():
    """TV(P, P_f), TV(Q, Q_f) <= eps implies TV(P_f, Q_f) >= TV(P, Q) - 2 eps."""
    generator = torch.Generator().manual_seed(0)
    p, q, pf, qf = (simplex(10_000, 4, generator) for _ in range(4))
    mix = torch.rand(10_000, 1, 1, generator=generator, dtype=torch.double)  # from close approximations to bad ones
    pf, qf = p + mix * (pf - p), q + mix * (qf - q)
    eps = torch.maximum(total_variation(p, pf), total_variation(q, qf))
    slack = total_variation(pf, qf) - (total_variation(p, q) - 2 * eps)
    assert float(slack.min()) >= -1e-12
    assert float(slack.min()) < 0.1  # the bound is nearly reached, so it is not tested in vain


def test_gmt_18_bounds_of_the_distances():
    generator = torch.Generator().manual_seed(1)
    p, q = simplex(5_000, 3, generator), simplex(5_000, 3, generator)
    p[0], q[0] = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
    tv, kl, jsd = total_variation(p, q), kl_divergence(p, q), jensen_shannon(p, q)
    assert float(tv.min()) >= 0
    assert float(tv.max()) == 1.0
    assert float(jsd.max()) <= math.log(2) + 1e-9
    assert float(jsd[0]) == pytest.approx(math.log(2))
    assert bool((kl >= 2 * tv**2 - 1e-9).all())  # Pinsker
    for distance in (total_variation, kl_divergence, jensen_shannon):
        assert float(distance(p, p).abs().max()) < 1e-12


@pytest.fixture(params=["edge", "node"])
def gsat(request) -> GSAT:
    torch.manual_seed(0)
    shape = DataShape("graphs", "binary", 1, (3,), None, 0, 6)
    method = GSAT(shape, network=sp.Network(hidden=8, layers=2, style="gmt", readout="sum"), attention=request.param)
    method(random_graphs().whole())  # batch statistics that are not the first ones
    return method.eval()


def test_gmt_18_the_measure_keeps_its_bounds(gsat):
    found = counterfactual_fidelity(gsat, random_graphs(count=20), draws=4, resamples=10)
    tv, kl, jsd = (found[name].per_graph for name in ("tv", "kl", "jsd"))
    assert float(tv.min()) >= 0
    assert 0 < float(tv.max()) <= 1
    assert float(jsd.max()) <= math.log(2)
    assert bool((kl >= 2 * tv**2 - 1e-9).all())  # Pinsker, which the mean over draws keeps: the square is convex


def test_gmt_18_no_reaction_is_zero():
    graphs = random_graphs()
    batch = graphs.whole()

    def deaf(x, edge_index, edge_weight=None, batch=None):
        return torch.zeros(int(batch.max()) + 1, 2).index_add(0, batch, x[:, :2])

    found = Explanation(batch, edge_scores=torch.rand(batch.num_edges))
    assert counterfactual_fidelity(deaf, found, resamples=5)["tv"].value == 0
    constant = Explanation(batch, edge_scores=torch.full((batch.num_edges,), 0.7))
    torch.manual_seed(0)
    assert counterfactual_fidelity(OwnGIN(), constant, resamples=5)["tv"].value == pytest.approx(0, abs=1e-6)
    assert counterfactual_fidelity(OwnGIN(), found, resamples=5)["tv"].value > 1e-4


def test_noise_of_another_shape_is_refused_in_one_sentence(gsat):
    graphs = random_graphs(count=3)
    rows = graphs.num_nodes if gsat.attention_to == "node" else graphs.num_edges
    for shape in ((rows,), (rows - 1, 2), (rows + 1, 2), (rows, 0)):
        with pytest.raises(ShiftproofError, match="'noise' has"):
            counterfactual_fidelity(gsat, graphs, noise=torch.zeros(shape), resamples=5)


def test_gmt_18_batches_do_not_matter_with_the_statistics_of_graphs(gsat, monkeypatch):
    graphs = random_graphs(count=12)
    rows = graphs.num_nodes if gsat.attention_to == "node" else graphs.num_edges
    noise = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    whole = counterfactual_fidelity(gsat, graphs, noise=noise, resamples=5)
    monkeypatch.setattr(measured, "GRAPHS_AT_ONCE", 5)
    cut = counterfactual_fidelity(gsat, graphs, noise=noise, resamples=5)
    for name in ("tv", "kl", "jsd"):
        torch.testing.assert_close(whole[name].per_graph, cut[name].per_graph, atol=1e-6, rtol=0)
    of_batches = [counterfactual_fidelity(gsat, graphs, noise=noise, statistics="batch", resamples=5) for _ in (1,)]
    monkeypatch.setattr(measured, "GRAPHS_AT_ONCE", 12)
    of_batches.append(counterfactual_fidelity(gsat, graphs, noise=noise, statistics="batch", resamples=5))
    assert not torch.allclose(of_batches[0]["tv"].per_graph, of_batches[1]["tv"].per_graph, atol=1e-6)


def test_gmt_18_redrawn_logits_have_the_mean_and_deviation_of_their_graph():
    owner = torch.tensor([0, 0, 1, 1, 1])
    logits = torch.tensor([1.0, 3.0, -1.0, -1.0, 5.0])
    noise = torch.randn(5, 100_000, generator=torch.Generator().manual_seed(0))
    drawn = perturbed(logits, noise, owner, 2, "graph")
    for graph, wanted in ((0, (2.0, 1.0)), (1, (1.0, 8**0.5))):
        own = drawn[owner == graph]
        assert float(own.mean()) == pytest.approx(wanted[0], abs=0.02)
        assert float(own.std()) == pytest.approx(wanted[1], abs=0.02)
    assert perturbed(logits[:2] * 0 + 4, noise[:2], owner[:2], 1, "graph").unique().tolist() == [4.0]


def test_gmt_23_auc_sees_order_alone_and_random_scores_are_a_coin():
    graphs = random_graphs(count=400)
    batch = graphs.whole()
    scores = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    plain = explanation_auc(Explanation(batch, edge_scores=scores), resamples=5).value
    for changed in (scores**3, scores.exp(), torch.logit(scores.clamp(1e-9, 1 - 1e-9)), 5 * scores - 2):
        assert explanation_auc(Explanation(batch, edge_scores=changed), resamples=5).value == pytest.approx(plain)
    assert abs(plain - 0.5) < 0.01
    tied = Explanation(batch, edge_scores=torch.ones(batch.num_edges))
    assert explanation_auc(tied, resamples=5).value == 0.5
    assert explanation_auc(tied, over="graphs", resamples=5).value == 0.5
