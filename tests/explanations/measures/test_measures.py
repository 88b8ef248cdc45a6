"""Measures of explanations: known answers, intervals, and any model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

import shiftproof as sp
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import (
    counterfactual_fidelity,
    expected_prediction,
    explanation_auc,
    extension_gap,
    fidelity_minus,
    fidelity_plus,
    precision_at_k,
    rank_correlation,
    sparsity,
    stability,
    to_pyg,
    unfaithfulness,
)
from shiftproof.explanations.elements import average_rank
from shiftproof.methods import Explanation
from shiftproof.methods.weighted import as_weighted, without_edges
from shiftproof.statistics.estimates import mean_of
from tests.explanations.own_models import OwnGCN, OwnGIN, counting, random_graphs


def scored(graphs=None, seed: int = 1, decimals: int = 1) -> Explanation:
    """Random scores with many ties."""
    batch = (random_graphs() if graphs is None else graphs).whole()
    scores = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(seed)).round(decimals=decimals)
    return Explanation(batch, edge_scores=scores)


def test_pooled_auc_is_that_of_all_edges_together_and_lies_in_its_interval():
    found = scored()
    estimate = explanation_auc(found, seed=3)
    expected = roc_auc_score(found.batch.edge_truth.numpy(), found.edge_scores.numpy())
    assert estimate.value == pytest.approx(expected)
    assert estimate.low <= estimate.value <= estimate.high
    assert (estimate.low, estimate.high) == (explanation_auc(found, seed=3).low, explanation_auc(found, seed=3).high)
    assert estimate.low != explanation_auc(found, seed=4).low


def test_auc_graph_by_graph_is_the_mean_over_graphs_with_both_kinds():
    found = scored()
    batch, values = found.batch, []
    for i in range(batch.num_graphs):
        own = batch.edge_batch == i
        truth = batch.edge_truth[own].numpy()
        if 0 < truth.sum() < len(truth):
            values.append(roc_auc_score(truth, found.edge_scores[own].numpy()))
    estimate = explanation_auc(found, over="graphs")
    assert estimate.value == pytest.approx(np.mean(values))
    assert estimate.graphs == len(values)


def test_a_pooled_interval_is_the_one_of_resampling_graphs_one_by_one():
    found = scored()
    batch = found.batch
    truth, scores, owner = batch.edge_truth.numpy(), found.edge_scores.numpy(), batch.edge_batch.numpy()
    estimate = explanation_auc(found, resamples=50, seed=5)
    from shiftproof.statistics.estimates import resampled

    drawn = torch.cat(list(resampled(batch.num_graphs, 50, 5)))
    slow = [roc_auc_score(truth, scores, sample_weight=counts.numpy()[owner]) for counts in drawn]
    tail = norm.cdf(math.sqrt(6 / 5) * student.ppf(0.025, 5))  # of six graphs; of many it is 0.025
    assert [estimate.low, estimate.high] == pytest.approx(np.quantile(slow, [tail, 1 - tail]))


def test_marked_graphs_alone_are_compared_where_asked():
    graphs = random_graphs()
    graphs.node_truth[: int(graphs.sizes[0])] = False
    found = Explanation(graphs.whole(), node_scores=torch.rand(graphs.num_nodes))
    assert explanation_auc(found, of="nodes", among="marked").graphs == len(graphs) - 1
    assert explanation_auc(found, of="nodes").graphs == len(graphs)


def test_precision_counts_against_k_even_in_smaller_graphs():
    graphs = random_graphs(count=2, nodes=3)
    batch = graphs.whole()
    batch.edge_truth[:] = True
    found = Explanation(batch, edge_scores=torch.rand(batch.num_edges))
    counts = torch.bincount(batch.edge_batch)
    k = int(counts.max()) + 2
    assert precision_at_k(found, k).value == pytest.approx(float((counts / k).mean()))
    assert precision_at_k(found, None).value == 1.0
    batch.edge_truth[:] = False
    assert math.isnan(precision_at_k(found, None).value)


def test_sparsity_is_the_share_that_is_left_out():
    graphs = random_graphs(count=3)
    batch = graphs.whole()
    scores = (batch.edge_index[0] % 2).float()
    share = [float((scores[batch.edge_batch == i] <= 0.5).float().mean()) for i in range(3)]
    assert sparsity(Explanation(batch, edge_scores=scores)).value == pytest.approx(np.mean(share))


def test_scores_of_nodes_and_edges_stand_in_for_each_other():
    batch = random_graphs().whole()
    nodes = torch.rand(batch.num_nodes)
    ends = nodes[batch.edge_index]
    by_nodes = explanation_auc(Explanation(batch, node_scores=nodes))
    assert by_nodes.value == explanation_auc(Explanation(batch, edge_scores=ends[0] * ends[1])).value
    constant = Explanation(batch, edge_scores=torch.full((batch.num_edges,), 0.3))
    assert explanation_auc(constant, of="nodes").value == pytest.approx(0.5)
    with pytest.raises(ShiftproofError, match="neither edges nor nodes"):
        explanation_auc(Explanation(batch))


def test_rank_correlation_knows_order_alone():
    batch = random_graphs().whole()
    values = torch.rand(batch.num_nodes)
    found = Explanation(batch, node_scores=values**3)
    assert rank_correlation(found, values).value == pytest.approx(1.0)
    assert rank_correlation(found, -values).value == pytest.approx(-1.0)


def test_average_ranks_are_those_of_scipy():
    from scipy.stats import rankdata

    scores = torch.tensor([3.0, 1.0, 1.0, 2.0, 5.0, 5.0, 5.0, 1.0]).double()
    graph = torch.tensor([0, 0, 1, 1, 0, 0, 1, 0])
    ranks = average_rank(scores, graph, 2)
    for g in (0, 1):
        assert ranks[graph == g].tolist() == rankdata(scores[graph == g].numpy()).tolist()


@pytest.mark.parametrize("graphs", [8, 60])  # without widening, 8 graphs would be covered 163 times
def test_an_interval_covers_the_truth_about_as_often_as_it_says(graphs):
    generator = torch.Generator().manual_seed(0)
    covered = sum(
        (e := mean_of(torch.randn(graphs, generator=generator), resamples=300, level=0.9, seed=i)).low < 0 < e.high
        for i in range(200)
    )
    assert 170 <= covered <= 190


def test_one_graph_alone_has_a_value_and_no_interval():
    graphs = random_graphs(count=1)
    found = scored(graphs)
    agreement = stability([found, found])
    for estimate in (
        explanation_auc(found),
        explanation_auc(found, over="graphs"),
        precision_at_k(found),
        sparsity(found),
        fidelity_plus(OwnGCN(), found),
        counterfactual_fidelity(OwnGCN(), found, draws=2)["tv"],
        agreement.correlation,
    ):
        assert math.isfinite(estimate.value)
        assert math.isnan(estimate.low)
        assert math.isnan(estimate.high)
        assert estimate.to_json()["low"] is None
    bare = random_graphs(count=3)  # a graph without edges adds nothing to what is known of the others
    batch = bare.whole()
    lonely = without_edges(batch, batch.edge_batch == 0)
    one = Explanation(lonely, edge_scores=torch.rand(lonely.num_edges))
    assert math.isnan(explanation_auc(one).low)


MEASURES = {
    "auc": explanation_auc,
    "auc of nodes": lambda found: explanation_auc(found, of="nodes"),
    "precision": precision_at_k,
    "sparsity": sparsity,
    "correlation": lambda found: rank_correlation(found, torch.rand(found.batch.num_nodes)),
    "fidelity+": lambda found: fidelity_plus(OwnGCN(), found),
    "fidelity-": lambda found: fidelity_minus(OwnGCN(), found, removal="weights"),
    "unfaithfulness": lambda found: unfaithfulness(OwnGCN(), found),
    "counterfactual": lambda found: counterfactual_fidelity(OwnGCN(), found, draws=2),
    "stability": lambda found: stability([found, found]),
    "mean prediction": lambda found: expected_prediction(OwnGCN(), found, samples=2),
    "gap": lambda found: extension_gap(OwnGCN(), found, samples=2),
    "to PyG": to_pyg,
}


@pytest.mark.parametrize("name", MEASURES)
def test_scores_that_are_missing_or_no_numbers_are_not_measured(name):
    batch = random_graphs().whole()
    good = torch.rand(batch.num_edges)
    holed = good.clone()
    holed[3] = math.nan
    for found, said in (
        (Explanation(batch, edge_scores=holed), f"1 of {batch.num_edges} edge scores are NaN"),
        (Explanation(batch, edge_scores=good[:5]), rf"each of {batch.num_edges} edges, not scores of shape \(5,\)"),
        (Explanation(batch, edge_scores=good.unsqueeze(1)), r"not scores of shape \(\d+, 1\)"),
        (Explanation(batch, node_scores=good[:4]), rf"each of {batch.num_nodes} nodes"),
        (Explanation(batch, node_scores=good[: batch.num_nodes] * math.inf), "node scores are NaN or infinite"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            MEASURES[name](found)


def test_what_is_no_explanation_of_ours_is_said():
    theirs = to_pyg(scored())[0]
    for measure in (explanation_auc, sparsity, lambda found: fidelity_plus(OwnGCN(), found), to_pyg):
        with pytest.raises(ShiftproofError, match="from_pyg makes one"):
            measure(theirs)
    with pytest.raises(ShiftproofError, match="a list of explanations, not int"):
        stability(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("over", ["pooled", "graphs"])
@pytest.mark.parametrize("options", [{"level": 2}, {"level": math.nan}, {"resamples": 0}, {"resamples": 1.5}])
def test_an_interval_that_cannot_be_is_one_sentence(over, options):
    with pytest.raises(ShiftproofError, match="an interval takes at least one resample"):
        explanation_auc(scored(), over=over, **options)


def test_shares_and_counts_that_cannot_be_are_one_sentence():
    found = scored()
    for k in (0, 2.5, "3"):
        with pytest.raises(ShiftproofError, match="a whole number of elements"):
            precision_at_k(found, k)  # type: ignore[arg-type]
    with pytest.raises(ShiftproofError, match="at least 0"):
        fidelity_plus(OwnGCN(), found, ratio=-0.1)
    with pytest.raises(ShiftproofError, match="importances are NaN"):
        rank_correlation(found, torch.full((found.batch.num_nodes,), math.nan))
    with pytest.raises(ShiftproofError, match="at least one sample, not -1"):
        expected_prediction(OwnGCN(), found, samples=-1)


MODELS = {"gcn": OwnGCN, "gin": OwnGIN, "function": lambda: counting}


@pytest.mark.parametrize("name", MODELS)
def test_fidelity_of_any_model_by_taking_edges_away(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    found = scored()
    batch = found.batch
    asked = as_weighted(model)
    with torch.no_grad(), asked.frozen():
        logits = asked(batch)
        chance = logits.softmax(-1) if logits.dim() == 2 else torch.stack([1 - logits.sigmoid(), logits.sigmoid()], 1)
        said = chance.argmax(1, keepdim=True)
        changes = []
        for i in range(batch.num_graphs):
            links = {}  # both directions of an edge, in the order in which the first one is stored
            for edge in (batch.edge_batch == i).nonzero().squeeze(1).tolist():
                links.setdefault(frozenset(batch.edge_index[:, edge].tolist()), []).append(edge)
            worth = [float(found.edge_scores[link].mean()) for link in links.values()]
            order = sorted(range(len(worth)), key=lambda link: -worth[link])
            keep = torch.ones(batch.num_edges, dtype=torch.bool)
            for link in order[: math.ceil(round(0.4 * len(worth), 9))]:
                keep[list(links.values())[link]] = False
            after = asked(without_edges(batch, keep))
            after = after.softmax(-1) if after.dim() == 2 else torch.stack([1 - after.sigmoid(), after.sigmoid()], 1)
            changes.append(float(chance[i, said[i]] - after[i, said[i]]))
    estimate = fidelity_plus(model, found, ratio=0.4)
    assert estimate.per_graph.tolist() == pytest.approx(changes, abs=1e-6)
    assert estimate.low <= estimate.value <= estimate.high
    everything = Explanation(batch, edge_scores=torch.ones(batch.num_edges))
    assert fidelity_minus(model, everything, ratio=1.0).value == pytest.approx(0, abs=1e-6)
    assert unfaithfulness(model, everything, ratio=1.0).value == pytest.approx(0, abs=1e-6)
    assert fidelity_plus(model, everything, ratio=0.0).value == pytest.approx(0, abs=1e-6)
    assert 0 <= fidelity_plus(model, found, judged="label").value <= 1


def test_both_directions_of_an_edge_are_taken_away_together_and_one_way_edges_alone():
    pairs = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 3], [1, 0, 2, 1, 3, 2, 3, 0]])  # a path, a loop and 3 -> 0
    graphs = GraphSet.from_parts(
        torch.tensor([4]), torch.tensor([8]), pairs, x=torch.eye(4), y=torch.zeros(1, dtype=torch.long)
    )
    taken = []

    def model(x, edge_index, edge_weight, batch, edge_attr):
        taken.append({tuple(edge) for edge in edge_index.T.tolist()})
        return torch.zeros(1, 2)

    def left(count, scores):
        part = graphs.whole()
        part = without_edges(part, torch.arange(8) < count)
        fidelity_plus(model, Explanation(part, edge_scores=torch.tensor(scores[:count])), ratio=0.5)
        return {tuple(edge) for edge in part.edge_index.T.tolist()} - taken[-1]

    scores = [0.9, 0.1, 0.6, 0.6, 0.3, 0.0, 0.8, 0.2]
    assert left(6, scores) == {(0, 1), (1, 0), (1, 2), (2, 1)}  # two of three, as half of three is
    assert left(7, scores) == {(3, 3), (1, 2), (2, 1)}  # the loop is an edge of its own
    assert left(8, scores) == {(0, 1), (3, 3), (1, 2), (2, 1)}  # one edge has no opposite: each for itself


def test_a_weight_of_zero_and_a_deleted_edge_are_one_for_models_that_add_messages_up():
    torch.manual_seed(0)
    model, batch = as_weighted(OwnGIN()), random_graphs().whole()
    keep = torch.rand(batch.num_edges) < 0.5
    with torch.no_grad():
        torch.testing.assert_close(model(batch, keep.float()), model(without_edges(batch, keep)))
        assert not torch.equal(model(batch), model(batch, keep.float()))


def test_a_model_is_left_as_it_was():
    model = OwnGIN().train()
    with as_weighted(model).frozen() as asked:
        assert not model.training
        assert not any(p.requires_grad for p in model.parameters())
        asked(random_graphs().whole())
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert all(layer._edge_mask is None for layer in (model.first, model.second))


def test_what_cannot_be_asked_is_one_sentence():
    batch = random_graphs().whole()
    with pytest.raises(ShiftproofError, match="takes no edge weights"):
        as_weighted(counting)(batch, torch.ones(batch.num_edges))
    with pytest.raises(ShiftproofError, match="needs 'positions' too"):
        as_weighted(lambda x, positions: x)
    with pytest.raises(ShiftproofError, match="a model is a run, a method, a module or a function, not 3"):
        as_weighted(3)
    with pytest.raises(ShiftproofError, match="no ground truth of their edges"):
        explanation_auc(scored(random_graphs(marked=False)))
    with pytest.raises(ShiftproofError, match="pass an Explanation"):
        counterfactual_fidelity(OwnGCN(), random_graphs())
    with pytest.raises(ShiftproofError, match="one row of logits for each of 6 graphs"):
        as_weighted(lambda x, edge_index: x)(batch)
    with pytest.raises(ShiftproofError, match="gives tuple"):
        as_weighted(lambda x, batch: (x, batch))(batch)
    with pytest.raises(ShiftproofError, match="unknown task 'clases'"):
        as_weighted(counting, "clases")  # type: ignore[arg-type]
    with pytest.raises(ShiftproofError, match="at most 1"):
        fidelity_plus(OwnGCN(), scored(), ratio=float("nan"))


def test_a_model_that_takes_the_whole_batch():
    def ends(data):
        return torch.bincount(data.batch[data.edge_index[0]], minlength=data.num_graphs).float()

    batch = random_graphs().whole()
    assert as_weighted(ends)(batch).tolist() == torch.bincount(batch.edge_batch).tolist()


def test_agreement_of_seeds():
    batch = random_graphs().whole()
    one, two = (torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    same = stability([Explanation(batch, edge_scores=s) for s in (one, one**2, one * 0.1)])
    assert same.correlation.value == pytest.approx(1.0)
    assert same.overlap.value == pytest.approx(1.0)
    other = stability([Explanation(batch, edge_scores=s) for s in (one, two)])
    assert other.correlation.value < 0.7
    assert other.overlap.value < 0.7
    assert stability([Explanation(batch, edge_scores=s) for s in (one, -one)]).correlation.value == pytest.approx(-1.0)
    bare = without_edges(batch, batch.edge_batch > 0)  # a graph without edges has nothing to agree about
    few = Explanation(bare, edge_scores=one[batch.edge_batch > 0])
    assert stability([few, few]).overlap.value == pytest.approx(1.0)
    assert stability([few, few]).overlap.graphs == bare.num_graphs - 1
    with pytest.raises(ShiftproofError, match="at least two"):
        stability([Explanation(batch, edge_scores=one)])
    with pytest.raises(ShiftproofError, match="a list of explanations"):
        stability(Explanation(batch, edge_scores=one))
    with pytest.raises(ShiftproofError, match="same graphs"):
        stability([Explanation(batch, edge_scores=one), scored(random_graphs(count=5))])
    turned = batch.replace(edge_index=batch.edge_index.flip(0))  # as many edges, but others
    with pytest.raises(ShiftproofError, match="same graphs"):
        stability([Explanation(batch, edge_scores=one), Explanation(turned, edge_scores=one)])


def test_a_single_class_is_always_predicted_and_nothing_changes_that():
    small = sp.load("spmotif-struc:train_per_class=4,val_per_class=2,test_per_class=2")
    splits = {name: replace(split, y=torch.zeros_like(split.y)) for name, split in small.splits.items()}
    one = sp.data.Dataset(splits, "one-class", num_classes=1)
    run = sp.fit("gsat", one, epochs=1, hidden=4, layers=1, candidates="all")
    for by in ("own", "gradient", "occlusion"):
        found = sp.explain(run, one.test, by=by)
        for measure in (fidelity_plus, fidelity_minus, unfaithfulness):
            assert measure(run, found, resamples=5).value == 0
        assert counterfactual_fidelity(run, found, draws=2, resamples=5)["tv"].value == 0


def test_scores_that_are_no_weights_are_one_sentence():
    one = scored()
    wide = Explanation(one.batch, edge_scores=2 * one.edge_scores)
    for measure in (
        lambda: counterfactual_fidelity(OwnGCN(), wide, draws=2),
        lambda: fidelity_plus(OwnGCN(), wide, removal="weights"),
        lambda: extension_gap(OwnGCN(), wide, samples=2),
    ):
        with pytest.raises(ShiftproofError, match="between 0 and 1"):
            measure()
    assert fidelity_plus(OwnGCN(), wide).graphs == 6  # the best edges are the best on any scale


def test_the_mean_over_subgraphs_is_not_taken_of_values_and_of_several_questions():
    for model, task in ((OwnGIN(), "regression"), (OwnGCN(), "multilabel")):
        for measure in (expected_prediction, extension_gap):
            with pytest.raises(ShiftproofError, match=f"not of a {task} task"):
                measure(model, scored(), samples=2, task=task)


def test_counterfactual_fidelity_of_a_model_from_outside_and_of_a_method_that_cuts():
    torch.manual_seed(0)
    found = counterfactual_fidelity(OwnGCN(), scored(), draws=3, resamples=20)
    assert set(found) == {"tv", "kl", "jsd"}
    assert found["tv"].value > 0
    small = "spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3"
    run = sp.fit("ciga-v1", small, epochs=1, hidden=8, layers=2)
    graphs = sp.load(small).test
    moved = counterfactual_fidelity(run, graphs, draws=2, resamples=20)["tv"].value
    assert moved > 0
    assert counterfactual_fidelity(run, graphs.to_pyg(), draws=2, resamples=20)["tv"].value == pytest.approx(moved)
    with pytest.raises(ShiftproofError, match="'noise' is a tensor, not list"):
        counterfactual_fidelity(run, graphs, noise=[0.0])  # type: ignore[arg-type]
