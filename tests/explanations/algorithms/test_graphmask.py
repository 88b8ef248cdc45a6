"""GraphMask layer by layer: shut gates send baselines, open ones change nothing, and what is found is not chance."""

from __future__ import annotations

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import explanation_auc
from shiftproof.explanations.algorithms.graphmask import divergence, layer_gates, watched
from shiftproof.methods import Explanation
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.erm import ERM
from shiftproof.methods.weighted import as_weighted
from shiftproof.nn.edge_structure import Wiring

SMALL = "ba-2motifs:graphs=60"
NETWORKS = {
    "gin": Network("gin", layers=2, hidden=8, style="gmt", readout="sum"),
    "gin-edges": Network("gin", layers=2, hidden=8, style="ciga", readout="mean"),
    "gcn": Network("gcn", layers=3, hidden=8, readout="mean"),
    "sgc": Network("sgc", layers=2, hidden=8, style="gmt", readout="sum"),
    "pna": Network("pna", layers=2, hidden=8, style="gmt", readout="mean"),
    "pna-delete": Network("pna", layers=2, hidden=8, style="gmt", readout="mean", zero_weight="delete"),
}


def plain_model(name: str):
    """An untrained network in evaluation mode, a batch for it, and untrained gates whose baselines are not zero."""
    torch.manual_seed(0)
    batch = sp.load(SMALL).test.whole()
    edge_dim = 3 if name == "gin-edges" else None
    if edge_dim is not None:
        batch = batch.replace(edge_attr=torch.randn(batch.num_edges, edge_dim))
    batch = batch.replace(x=torch.randn(batch.num_nodes, 4))
    shape = DataShape("graphs", "binary", 1, (4,), edge_dim, 1, 48)
    model = as_weighted(ERM(shape, network=NETWORKS[name]).eval())
    gates = layer_gates(model)
    for baseline in gates.baselines:
        torch.nn.init.normal_(baseline)
    return model, batch, gates


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_open_gates_leave_every_prediction_as_it_is(name):
    model, batch, gates = plain_model(name)
    open_ = {layer: torch.ones(batch.num_edges) for layer in range(len(gates.gates))}
    torch.testing.assert_close(model(batch, gates.replaced(open_)), model(batch))
    torch.testing.assert_close(model(batch, gates.replaced({})), model(batch))


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_shut_gates_send_the_baseline_of_their_layer(name):
    model, batch, gates = plain_model(name)
    shut = torch.zeros(batch.num_edges)
    wiring = Wiring(batch.edge_index, batch.num_nodes)
    for layer, messages in watched(model, batch)[0].messages.items():
        sent = gates.replaced({layer: shut}).at(layer, batch.x, wiring)(messages)
        assert sent.shape == messages.shape
        torch.testing.assert_close(sent, gates.baselines[layer].expand_as(messages))
    # nothing of a node reaches another any more: with messages all alike, its own row and its degree are what is left
    everywhere = gates.replaced(dict.fromkeys(range(len(gates.gates)), shut))
    moved = batch.replace(edge_index=rewired(batch))
    torch.testing.assert_close(model(moved, everywhere), model(batch, everywhere), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(model(moved), model(batch), rtol=1e-3, atol=1e-3)


def rewired(batch) -> torch.Tensor:
    """Edges whose sources have changed places inside each graph and kept how often they occur."""
    order = torch.arange(batch.num_edges)
    for graph in range(batch.num_graphs):
        own = (batch.edge_batch == graph).nonzero().squeeze(1)
        order[own] = own.roll(7)
    return torch.stack([batch.edge_index[0][order], batch.edge_index[1]])


@pytest.mark.parametrize("name", ["gin", "pna"])
def test_gates_and_scores_lie_between_shut_and_open(name):
    model, batch, gates = plain_model(name)
    with model.frozen():
        open_, moved = gates.terms(model, batch)
    assert 0 <= open_.item() <= len(gates.gates)
    assert moved.item() >= 0
    slopes = torch.autograd.grad(open_ + moved, list(gates.parameters()))
    assert all(float(slope.abs().sum()) > 0 for slope in slopes)
    for scores in (gates.layer_scores(model, batch), gates.scores(model, batch)):
        assert bool(((scores >= 0) & (scores <= 1)).all())
    torch.testing.assert_close(gates.scores(model, batch).mean(), gates.layer_scores(model, batch).mean())


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass", "regression"])
def test_a_prediction_that_stays_has_not_moved(task):
    torch.manual_seed(0)
    logits = torch.randn(5) if task in ("binary", "regression") else torch.randn(5, 3)
    torch.testing.assert_close(divergence(logits, logits, task), torch.zeros(5), atol=1e-6, rtol=0)
    assert bool((divergence(logits, logits + torch.randn_like(logits), task) > 0).all())
    if task == "multiclass":
        p, q = logits.softmax(-1), logits.flip(0).softmax(-1)
        torch.testing.assert_close(divergence(logits, logits.flip(0), task), (p * (p / q).log()).sum(-1))


def test_gates_of_a_trained_network_beat_chance():
    data = sp.load("ba-2motifs:graphs=250")
    run = sp.fit("erm", data, layers=3, hidden=32, epochs=40, lr=3e-3)
    assert run.metrics["test"]["accuracy"] > 0.9
    options = {"layerwise": True, "epochs": 15, "lr": 1e-2, "size": 0.1, "train": data.train}
    found = sp.explain(run, data.test, by="graphmask", **options)
    chance = Explanation(found.batch, torch.rand(found.batch.num_edges, generator=torch.Generator().manual_seed(0)))
    assert explanation_auc(found).low > explanation_auc(chance).high + 0.1


@pytest.mark.parametrize("network", [{"conv": "gin"}, {"conv": "pna"}])
def test_layerwise_gates_are_an_option_of_the_method(network, tmp_path):
    settings = {"layerwise": True, "explainer_epochs": 2, "epochs": 2, "hidden": 8, "layers": 2, **network}
    run = sp.fit("graphmask", SMALL, out=tmp_path, **settings)
    graphs = sp.load(SMALL).test
    scores = sp.explain(run, graphs).edge_scores
    assert scores is not None
    assert float(scores.std()) > 0
    again = sp.Run.load(tmp_path)
    torch.testing.assert_close(sp.explain(again, graphs).edge_scores, scores)


def test_what_cannot_be_gated_is_said():
    graphs = sp.load(SMALL).test
    run = sp.fit("gsat", SMALL, epochs=1, hidden=8, layers=2, candidates="all")
    with pytest.raises(ShiftproofError, match="gates in every layer need a plain model"):
        sp.explain(run, graphs, by="graphmask", layerwise=True)
    plain = sp.fit("erm", SMALL, epochs=1, hidden=8, layers=2)
    with pytest.raises(ShiftproofError, match="at least 2 epochs, not 1"):
        sp.explain(plain, graphs, by="graphmask", layerwise=True, epochs=1)
    with pytest.raises(ShiftproofError, match="no term of entropy"):
        sp.explain(plain, graphs, by="graphmask", layerwise=True, entropy=0.1)
