"""What each edge does over random subgraphs: by enumeration, with intervals, for any model."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import edge_influence, explanation_auc
from shiftproof.explanations.algorithms.masks import predicted
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


def exact_influence(model, batch, chance):
    """The definition for one undirected graph: every subgraph of the other links, with the edge and without it."""
    reverse = reverse_edges(batch.edge_index, batch.num_nodes)
    links = [edge for edge in range(batch.num_edges) if edge < reverse[edge]]
    asked = as_weighted(model)
    seen, said = {}, int(predicted(asked(batch), asked.task_of(asked(batch))))
    for kept in product((0, 1), repeat=len(links)):
        weight = torch.zeros(batch.num_edges)
        for on, link in zip(kept, links, strict=True):
            weight[link] = weight[reverse[link]] = on
        logits = asked(batch, weight)
        chances = logits.softmax(-1) if logits.dim() == 2 else torch.stack([(-logits).sigmoid(), logits.sigmoid()], 1)
        seen[kept] = float(chances[0, said])
    found = torch.zeros(batch.num_edges)
    for place, link in enumerate(links):
        for kept, value in seen.items():
            likely = math.prod(
                float(chance[other]) if on else 1 - float(chance[other])
                for on, other in zip(kept, links, strict=True)
                if other != link
            )
            found[link] += (1 if kept[place] else -1) * likely * value
        found[reverse[link]] = found[link]
    return found


@pytest.mark.parametrize("make", [OwnGCN, OwnGIN])
def test_the_influence_of_an_edge_lies_in_its_interval(make):
    model, graphs = seeded(make).eval(), random_graphs(count=6, nodes=4)
    inside, total = 0, 0
    with torch.no_grad():
        for number in range(6):
            one = graphs[[number]]
            truth = exact_influence(model, one.whole(), torch.full((one.num_edges,), 0.5))
            found = edge_influence(model, one, samples=400, seed=number)
            reverse = reverse_edges(found.batch.edge_index, found.batch.num_nodes)
            assert torch.equal(found.value, found.value[reverse])
            inside += int(((found.low <= truth + 1e-6) & (truth - 1e-6 <= found.high)).sum())
            total += one.num_edges
            assert bool((found.low <= found.value).all())
            assert bool((found.value <= found.high).all())
    assert inside >= 0.85 * total  # 95 of 100 are expected; edges of a graph share their draws


def test_influence_at_the_chances_of_an_explanation_is_the_slope_of_the_extension():
    model, one = seeded(OwnGCN).eval(), random_graphs(count=1, nodes=4)
    reverse = reverse_edges(one.edge_index, one.num_nodes)
    chance = torch.rand(one.num_edges, generator=torch.Generator().manual_seed(2)) * 0.6 + 0.2
    chance = (chance + chance[reverse]) / 2
    with torch.no_grad():
        truth = exact_influence(model, one.whole(), chance)
    found = edge_influence(model, Explanation(one.whole(), edge_scores=chance), samples=3000)
    torch.testing.assert_close(found.value, truth, atol=5e-3, rtol=0.2)
    why = found.explanation()
    assert float(why.edge_scores.max()) == 1
    assert why.task == "multiclass"
    never = edge_influence(model, Explanation(one.whole(), edge_scores=torch.ones(one.num_edges)), samples=20)
    assert not never.sure.any()
    assert not never.value.any()
    assert (never.low == -1).all()
    assert (never.high == 1).all()


def test_influence_sees_edges_that_stand_in_for_one_another_and_occlusion_does_not():
    graphs = graphs_with_culprits()
    graphs = graphs[[i for i in range(len(graphs)) if 4 <= int(graphs[i].edge_truth.sum()) <= 6]]

    def any_of_them(x, edge_index, edge_weight=None, batch=None):
        return 8 * (bright_neighbours(x, edge_index, edge_weight, batch) + 1).clamp(max=1) - 4

    assert len(graphs) >= 1
    assert not sp.explain(any_of_them, graphs, by="occlusion").edge_scores.any()
    found = edge_influence(any_of_them, graphs, samples=400)
    assert explanation_auc(found.explanation(), over="graphs").value > 0.95
    assert bool(found.sure[graphs.edge_truth].all())


def test_influence_asks_any_model_and_names_mistakes():
    graphs = random_graphs()
    found = edge_influence(counting, graphs, samples=60)
    assert found.value.isfinite().all()
    value = edge_influence(OwnGIN(), graphs, samples=20, task="regression")
    assert value.task == "regression"
    for wrong, words in (
        ({"chance": 1.0}, "'chance' of edge_influence is a number above 0 to below 1"),
        ({"samples": 9}, "'samples' of edge_influence is a whole number from 10, not 9"),
        ({"level": 1.0}, "'level' of edge_influence is a number above 0 to below 1, not 1.0"),
    ):
        with pytest.raises(ShiftproofError, match=words):
            edge_influence(OwnGCN(), graphs, **wrong)
    with pytest.raises(ShiftproofError, match="two chances for one edge"):
        edge_influence(OwnGCN(), Explanation(graphs.whole(), edge_scores=torch.zeros(graphs.num_edges)), chance=0.5)
    with pytest.raises(ShiftproofError, match="'chance' of explainer 'influence' is a number above 0"):
        sp.explain(OwnGCN(), graphs, by="influence", chance=0.0)
