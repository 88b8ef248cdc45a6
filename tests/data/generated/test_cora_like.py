"""The generated stand-in for Cora: its statistics, its options, its size."""

import pytest
import torch

from shiftproof.data import load
from shiftproof.data.generated.cora_like import cora_like
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import edge_homophily, label_homophily, node_homophily


def test_cora_like_has_the_statistics_of_cora() -> None:
    graph = cora_like()
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2680, 5148, 302, 7)
    assert [len(part) for part in (graph.train, graph.val, graph.test)] == [1608, 268, 804]
    assert label_homophily(graph) == pytest.approx(0.806, abs=0.02)
    homophily, edges = node_homophily(graph), edge_homophily(graph)
    assert float(homophily.mean()) == pytest.approx(0.62, abs=0.05)
    assert float(homophily.std()) == pytest.approx(0.14, abs=0.03)
    assert float(edges.mean()) == pytest.approx(0.46, abs=0.06)
    assert float(edges.std()) == pytest.approx(0.18, abs=0.03)
    assert (float(graph.x.min()), float(graph.x.max())) == pytest.approx((-0.889, 0.896), abs=0.03)
    assert int(graph.degree.min()) >= 1
    assert 30 <= int(graph.degree.max()) <= 150


def test_cora_like_follows_its_seed_and_its_options() -> None:
    small = {"nodes": 500, "features": 8}
    one, again, other = cora_like(**small), cora_like(**small), cora_like(**small, seed=1)
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.edge_index, again.edge_index)
    assert torch.equal(one.test, again.test)
    assert not torch.equal(one.edge_index, other.edge_index)
    assert cora_like(nodes=500, edges=3000, features=8).num_edges == 3000
    assert label_homophily(cora_like(**small, homophily=0.2)) == pytest.approx(0.2, abs=0.05)
    assert label_homophily(cora_like(**small, homophily=1.0)) == 1
    assert cora_like(nodes=500, classes=3, features=8).num_classes == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("nodes=20", "10 nodes a class or more"),
        ("classes=1", "a whole number from 2, not 1"),
        ("homophily=1.5", "a number from 0 to 1, not 1.5"),
        ("nodes=100,edges=4000", "'edges' of cora-like is 1 to 1237, not 4000"),
        ("seed=-1", "a whole number from 0"),
    ],
)
def test_a_graph_that_cannot_be_generated_is_one_sentence(options, said) -> None:
    with pytest.raises(ShiftproofError, match=said):
        load(f"cora-like:{options}")


@pytest.mark.slow
def test_a_million_nodes_are_generated() -> None:
    graph = cora_like(nodes=1_000_000, edges=3_000_000, features=8)
    assert (graph.num_nodes, graph.num_edges) == (1_000_000, 3_000_000)
    assert label_homophily(graph) == pytest.approx(0.81, abs=0.01)
