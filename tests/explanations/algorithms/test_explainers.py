"""Explainers from outside: batches equal single graphs, PyG's agree, known culprits are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import explanation_auc, fidelity_minus, fidelity_plus, from_pyg, pyg_explainer, to_pyg
from shiftproof.explanations.algorithms.amortised import hard_concrete
from shiftproof.explanations.algorithms.masks import gnnexplainer, occlusion, predicted, repeat_graphs
from shiftproof.methods import Explanation
from shiftproof.methods.weighted import as_weighted
from shiftproof.nn import reverse_edges
from tests.explanations.own_models import (
    OwnGCN,
    OwnGIN,
    bright_neighbours,
    counting,
    graphs_with_culprits,
    random_graphs,
    seeded,
)

SMALL = "spmotif-struc:train_per_class=8,val_per_class=3,test_per_class=4"


@pytest.mark.parametrize("by", ["gnnexplainer", "gradient", "occlusion", "influence"])
def test_a_known_culprit_is_found(by):
    found = sp.explain(bright_neighbours, graphs_with_culprits(), by=by)
    assert explanation_auc(found, over="graphs").value > 0.95
    assert float(found.edge_scores.min()) >= 0
    assert float(found.edge_scores.max()) <= 1


@pytest.mark.parametrize("make", [OwnGCN, OwnGIN])
def test_a_mask_over_a_batch_is_the_masks_of_its_graphs(make):
    model, graphs = as_weighted(seeded(make)), random_graphs()
    noise = torch.randn(graphs.num_edges, generator=torch.Generator().manual_seed(0))
    together = gnnexplainer(model, graphs.whole(), steps=30, noise=noise)
    parts = noise.split(graphs.edge_counts.tolist())
    alone = [gnnexplainer(model, graphs[i].whole(), steps=30, noise=parts[i]) for i in range(len(graphs))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=0)


def test_gnnexplainer_is_pygs_where_both_start_alike():
    """PyG's own algorithm on one graph, from the same mask and with the same weights, ends at the same scores, up to
    its first step, which it takes without the terms of size and entropy."""
    from torch_geometric.explain.algorithm import GNNExplainer

    graphs = random_graphs(count=1)
    batch, model = graphs.whole(), seeded(OwnGIN)
    noise = torch.randn(graphs.num_edges, generator=torch.Generator().manual_seed(0))

    class FromThere(GNNExplainer):
        def _initialize_masks(self, x, edge_index):
            super()._initialize_masks(x, edge_index)
            self.edge_mask = torch.nn.Parameter(1 + noise * (2 / len(x)) ** 0.5)

    theirs = FromThere(epochs=40, lr=0.1, edge_size=0.01, edge_ent=1.0)
    found = pyg_explainer(model, theirs, task="binary")(batch.x, batch.edge_index, batch=batch.batch)
    ours = gnnexplainer(as_weighted(model, "binary"), batch, steps=40, lr=0.1, size=0.01, entropy=1.0, noise=noise)
    reverse = [
        next(j for j, pair in enumerate(batch.edge_index.T.tolist()) if pair == [v, u])
        for u, v in batch.edge_index.T.tolist()
    ]
    symmetric = (found.edge_mask + found.edge_mask[reverse]) / 2
    torch.testing.assert_close(ours, symmetric, atol=2e-2, rtol=0)


def test_occlusion_asks_about_every_edge_however_it_is_cut_into_pieces():
    graphs = random_graphs()
    whole = occlusion(as_weighted(counting), graphs.whole())
    torch.testing.assert_close(whole, occlusion(as_weighted(counting), graphs.whole(), most_edges=1))
    model = as_weighted(seeded(OwnGIN))
    batch = graphs.whole()
    scores = occlusion(model, batch)
    edge = 3
    pair = set(batch.edge_index[:, edge].tolist())
    same = [i for i, ends in enumerate(batch.edge_index.T.tolist()) if set(ends) == pair]
    assert scores[same[0]] == scores[same[1]]
    assert float(scores.max()) == 1.0


def test_copies_of_graphs_are_the_graphs():
    batch = random_graphs().whole()
    copies, source = repeat_graphs(batch, torch.tensor([2, 0, 2]))
    model = as_weighted(seeded(OwnGIN))
    with torch.no_grad():
        torch.testing.assert_close(model(copies), model(batch)[[2, 0, 2]])
    assert batch.edge_batch[source].tolist() == torch.tensor([2, 0, 2])[copies.edge_batch].tolist()


@pytest.mark.parametrize("by", ["pgexplainer", "graphmask"])
def test_mask_networks_learn_what_keeps_the_prediction(by):
    run = sp.fit("erm", "ba-2motifs:graphs=60", epochs=5, hidden=16, layers=2)
    graphs = sp.load("ba-2motifs:graphs=60").test
    found = sp.explain(run, graphs, by=by, epochs=3, train=sp.load("ba-2motifs:graphs=60").train)
    again = sp.explain(run, graphs, by=by, epochs=3, train=sp.load("ba-2motifs:graphs=60").train)
    assert torch.equal(found.edge_scores, again.edge_scores)
    assert float(found.edge_scores.std()) > 0
    fit = sp.explain(run, graphs, by=by, epochs=1)
    assert not torch.equal(found.edge_scores, fit.edge_scores)


def test_mask_networks_lower_their_loss():
    from shiftproof.explanations.algorithms.amortised import MaskNetwork

    graphs = graphs_with_culprits()
    model = as_weighted(seeded(OwnGIN))
    for kind in ("pgexplainer", "graphmask"):
        torch.manual_seed(0)
        network = MaskNetwork(8, kind, size=0.1)

        def cost(network=network):
            torch.manual_seed(1)
            with torch.no_grad():
                return float(network.eval().loss(model, graphs.whole()))

        before = cost()
        network.fit(model, graphs, epochs=60, lr=1e-2)
        assert cost() < before


@pytest.mark.parametrize("kind", ["pgexplainer", "graphmask"])
def test_a_mask_network_weighs_both_directions_of_an_edge_alike(kind):
    from shiftproof.explanations.algorithms.amortised import MaskNetwork

    batch, seen = random_graphs().whole(), []
    plain = as_weighted(seeded(OwnGIN))

    def predict(graphs, weight):
        seen.append(weight)
        return plain.predict(graphs, weight)

    network = MaskNetwork(plain.nodes(batch).shape[1], kind).train()
    network.loss(replace(plain, predict=predict), batch)
    (weight,) = [one for one in seen if one is not None]
    reverse = reverse_edges(batch.edge_index, batch.num_nodes)
    assert bool((reverse != torch.arange(len(reverse))).any())
    assert torch.equal(weight, weight[reverse])


def test_a_mask_network_can_be_trained_on_labels_instead_of_predictions():
    from shiftproof.explanations.algorithms.amortised import MaskNetwork

    graphs = graphs_with_culprits()
    model = as_weighted(seeded(OwnGIN))
    batch = graphs.whole()
    with torch.no_grad():
        said = predicted(model(batch), model.task_of(model(batch)))

    def cost(target, labels):
        torch.manual_seed(0)
        network = MaskNetwork(8, target=target).eval()
        return float(network.loss(model, replace(batch, y=labels)).detach())

    assert cost("label", said) == cost("prediction", said) == cost("prediction", 1 - said)
    assert cost("label", 1 - said) != cost("label", said)
    with pytest.raises(ShiftproofError, match="graphs with labels"):
        cost("label", None)


@pytest.mark.parametrize(("method", "splits"), [("gnnexplainer", {"test"}), ("pgexplainer", {"train", "val", "test"})])
def test_explanations_that_are_searched_for_are_not_measured_where_the_model_was_trained(method, splits):
    data = sp.load("ba-2motifs:graphs=40")
    options = {"steps": 1} if method == "gnnexplainer" else {"explainer_epochs": 1}
    run = sp.fit(method, data, epochs=1, **options)
    assert {name for name, found in run.metrics.items() if "edge_auc" in found} == splits


def test_hard_gates_are_shut_or_open_and_open_as_often_as_they_say():
    logits = torch.full((200_000,), -3.5).requires_grad_()
    torch.manual_seed(0)
    gate, open_ = hard_concrete(logits)
    assert set(gate.detach().unique().tolist()) <= {0.0, 1.0}
    assert torch.autograd.grad(gate.sum(), [logits])[0].abs().sum() > 0
    from shiftproof.nn import sample_concrete

    soft = sample_concrete(torch.full((200_000,), -0.5), 1 / 3) * 1.2 - 0.2
    assert float(open_[0]) == pytest.approx(float((soft > 0).float().mean()), abs=0.005)


def test_conversion_there_and_back_changes_nothing():
    graphs = random_graphs()
    batch = graphs.whole()
    found = Explanation(batch, torch.rand(batch.num_edges), torch.rand(batch.num_nodes), torch.randn(6, 2))
    theirs = to_pyg(found)
    assert len(theirs) == len(graphs)
    assert all(one.validate() for one in theirs)
    back = from_pyg(theirs)
    for ours, again in (
        (found.edge_scores, back.edge_scores),
        (found.node_scores, back.node_scores),
        (found.logits, back.logits),
        (batch.edge_truth, back.batch.edge_truth),
        (batch.edge_index, back.batch.edge_index),
        (batch.x, back.batch.x),
        (batch.y, back.batch.y),
    ):
        assert torch.equal(ours, again)
    assert explanation_auc(back).value == explanation_auc(found).value
    theirs[2].edge_mask = theirs[2].node_mask = None
    with pytest.raises(ShiftproofError, match="explanation 2 has neither an edge_mask nor a node_mask"):
        from_pyg(theirs)


def test_pygs_metrics_and_drawings_work_on_ours(tmp_path):
    from torch_geometric.explain.algorithm import GNNExplainer
    from torch_geometric.explain.metric import fidelity
    from torch_geometric.explain.metric import unfaithfulness as theirs_unfaithful

    model, graphs = seeded(OwnGIN), random_graphs()
    found = sp.explain(model, graphs, by="gradient")
    hard = Explanation(found.batch, (found.edge_scores > 0.3).float(), logits=found.logits)
    explainer = pyg_explainer(model, GNNExplainer(epochs=2), task="binary")
    batch = found.batch
    theirs = explainer(batch.x, batch.edge_index, batch=batch.batch)
    theirs.edge_mask = hard.edge_scores
    plus, minus = fidelity(explainer, theirs)
    ours = [f(model, hard, removal="weights", judged="label").value for f in (fidelity_plus, fidelity_minus)]
    assert [plus, minus] == pytest.approx(ours)
    assert 0 <= theirs_unfaithful(explainer, theirs) <= 1
    one = to_pyg(hard)[0]
    one.visualize_graph(str(tmp_path / "theirs.png"), backend="networkx")
    assert (tmp_path / "theirs.png").exists()


def test_any_pyg_explainer_is_judged_by_ours():
    from torch_geometric.explain.algorithm import GNNExplainer, PGExplainer

    run = sp.fit("erm", SMALL, epochs=1, hidden=8, layers=2)
    graphs = sp.load(SMALL).test
    for algorithm in (GNNExplainer(epochs=5), PGExplainer(epochs=3)):
        found = sp.explain(run, graphs, by=algorithm)
        assert found.edge_scores.shape == (graphs.num_edges,)
        assert float(found.edge_scores.std()) > 0
        assert 0 <= explanation_auc(found).value <= 1
    with pytest.raises(ShiftproofError, match="an explainer of PyG takes 'epochs' where it is made"):
        sp.explain(run, graphs, by=GNNExplainer(epochs=5), epochs=3)
    with pytest.raises(ShiftproofError, match="not int"):
        sp.explain(run, graphs, by=3)


@pytest.mark.parametrize("method", ["ciga-v2", "gsat", "gmt-lin", "gmt-sam", "wl-kernel", "gnnexplainer", "asap"])
def test_runs_of_every_kind_are_explained_from_outside(method):
    small = {"epochs": 1, "samples": 2, "hidden": 8, "layers": 2, "steps": 2, "reference_epochs": 1}
    from shiftproof.api.fitting import accepted_settings
    from shiftproof.registry import methods

    known = {name for group in accepted_settings(methods[method].make, network="gcn").values() for name in group}
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = sp.fit(method, SMALL, **{k: v for k, v in small.items() if k in known})
    graphs = sp.load(SMALL).test[:3]
    by = "gradient" if as_weighted(run).takes_weights else None
    found = sp.explain(run, graphs, by=by)
    assert found.edge_scores.shape == (graphs.num_edges,)
    assert bool(found.edge_scores.isfinite().all())
    assert fidelity_plus(run, found, resamples=5).graphs == 3


def test_lists_of_pyg_graphs_and_tasks_are_taken():
    graphs = random_graphs()
    found = sp.explain(seeded(OwnGCN), graphs.to_pyg(), by="gradient")
    assert torch.equal(found.edge_scores, sp.explain(seeded(OwnGCN), graphs, by="gradient").edge_scores)
    regression = sp.explain(seeded(OwnGIN), graphs, by="gnnexplainer", task="regression", steps=3)
    assert bool(regression.edge_scores.isfinite().all())


def test_what_pyg_cannot_explain_or_holds_wrongly_is_one_sentence():
    from torch_geometric.explain import AttentionExplainer

    graphs = random_graphs()
    with pytest.raises(ShiftproofError, match="AttentionExplainer"):
        sp.explain(OwnGCN(), graphs, by=AttentionExplainer())
    one = to_pyg(sp.explain(OwnGCN(), graphs, by="gradient"))[0]
    one.edge_mask = one.edge_mask[:3]
    with pytest.raises(ShiftproofError, match=r"edge_mask of explanation 0 is \(3,\)"):
        from_pyg(one)


def test_columns_survive_the_way_to_pyg_and_back(tmp_path):
    graphs = random_graphs()
    batch = graphs.whole().replace(
        columns={"image": torch.arange(6)},
        node_columns={"pos": torch.rand(graphs.num_nodes, 3)},
        edge_columns={"kind": torch.arange(graphs.num_edges)},
    )
    back = from_pyg(to_pyg(Explanation(batch, node_scores=torch.rand(graphs.num_nodes)))).batch
    assert torch.equal(back.columns["image"], batch.columns["image"])
    assert torch.equal(back.node_columns["pos"], batch.node_columns["pos"])
    assert torch.equal(back.edge_columns["kind"], batch.edge_columns["kind"])
    odd = to_pyg(Explanation(batch, node_scores=torch.rand(graphs.num_nodes)))
    for one in odd:
        one.temperature = torch.rand(2)  # neither of a graph nor of its nodes or edges
    assert "temperature" not in from_pyg(odd).batch.columns


def test_masks_that_fit_no_graph_are_one_sentence():
    batch = random_graphs(count=2).whole()
    edges = Explanation(batch, edge_scores=torch.rand(batch.num_edges), logits=torch.randn(2, 3))
    nodes = Explanation(batch, node_scores=torch.rand(batch.num_nodes))

    def changed(**fields):
        one = to_pyg(edges)[0]
        for name, value in fields.items():
            one[name] = value
        return one

    for wrong, said in (
        (changed(node_mask=torch.rand(7)), r"node_mask of explanation 0 is \(7,\)"),
        (changed(node_mask=torch.rand(4, 3)), r"node_mask of explanation 0 is \(4, 3\); it has a row for each of 7"),
        ([to_pyg(edges)[0], to_pyg(nodes)[1]], "convert them apart"),
        ([changed(prediction=torch.rand(1, 2)), to_pyg(edges)[1]], "not of one model"),
        (changed(batch=torch.tensor([0, 1, 0, 1, 0, 1, 0])), "one graph after the other"),
        (3, "takes explanations of PyG, one or a list, not int"),
        ([3], "explanation 0 is a int"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            from_pyg(wrong)  # type: ignore[arg-type]
    of_features = from_pyg(changed(node_mask=torch.tensor([[0.2, 0.4, 0.6]])))  # one mask for all nodes
    assert of_features.node_scores.tolist() == pytest.approx([0.4] * 7)


@pytest.mark.parametrize("by", ["gnnexplainer", "gradient", "pgexplainer"])
def test_a_model_that_pyg_explained_before_is_explained_as_if_it_had_not(by):
    from torch_geometric.explain import Explainer
    from torch_geometric.explain.algorithm import GNNExplainer

    model, graphs = seeded(OwnGIN), random_graphs()
    options = {"gnnexplainer": {"steps": 20, "size": 0.0, "entropy": 0.0}, "pgexplainer": {"epochs": 3}}.get(by, {})
    before = sp.explain(model, graphs, by=by, **options).edge_scores
    config = {"mode": "binary_classification", "task_level": "graph", "return_type": "raw"}
    theirs = Explainer(model, GNNExplainer(epochs=2), "model", config, edge_mask_type="object")
    batch = graphs.whole()
    theirs(batch.x, batch.edge_index, batch=batch.batch)
    after = sp.explain(model, graphs, by=by, **options).edge_scores
    assert torch.equal(after, before)


def test_explainers_of_pyg_that_cannot_look_from_outside_are_one_sentence():
    from torch_geometric.explain import GNNExplainer, GraphMaskExplainer

    graphs = random_graphs()
    with pytest.raises(ShiftproofError, match="or take by='graphmask'"):
        sp.explain(OwnGCN(), graphs, by=GraphMaskExplainer(2, epochs=1, log=False))
    with pytest.raises(ShiftproofError, match=r"^PyG's explainers take no multilabel task$"):
        sp.explain(OwnGCN(), graphs, by=GNNExplainer(epochs=1), task="multilabel")
    with pytest.raises(ShiftproofError, match="no graph to explain"):
        sp.explain(OwnGCN(), graphs[:0], by=GNNExplainer(epochs=1))


def test_masks_are_learned_from_pyg_graphs_too():
    graphs = random_graphs()
    model = seeded(OwnGCN)
    ours = sp.explain(model, graphs[:2], by="pgexplainer", epochs=2, train=graphs).edge_scores
    theirs = sp.explain(model, graphs[:2], by="pgexplainer", epochs=2, train=graphs.to_pyg()).edge_scores
    assert torch.equal(ours, theirs)
    for train in (graphs[:0], [], 3):
        with pytest.raises(ShiftproofError, match="'train' holds the graphs to learn masks from"):
            sp.explain(model, graphs, by="pgexplainer", epochs=1, train=train)


def test_a_data_set_of_pyg_is_explained_as_its_graphs():
    from torch_geometric.data import InMemoryDataset

    class Stored(InMemoryDataset):
        def __init__(self, graphs):
            super().__init__(None)
            self.data, self.slices = self.collate(graphs)

    graphs = random_graphs()
    model = seeded(OwnGCN)
    found = sp.explain(model, Stored(graphs.to_pyg())[2:], by="gradient")
    assert torch.equal(found.edge_scores, sp.explain(model, graphs[2:], by="gradient").edge_scores)
