"""The 1-2-3-GNN hears exactly the sets it should, and sees what message passing on nodes cannot."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import GraphSet
from shiftproof.methods import KGNN
from shiftproof.methods.base import DataShape
from shiftproof.methods.counting import Adjacency
from shiftproof.methods.k_gnn import NodeSets, connected_triples, node_pairs
from shiftproof.training.run import Run
from tests.methods.labelled import connected, labelled_graphs, motif_data, neighbours, renumbered, with_padding

SHAPE = DataShape("graphs", "multiclass", 2, (3,), None, 0, 12)


def spelled_out(graphs: GraphSet, size: int) -> tuple[set[frozenset], set[tuple[frozenset, frozenset]]]:
    """All sets (of three nodes: the connected ones) and all links between them, by trying every pair of sets."""
    sets, links = set(), set()
    for number in range(len(graphs)):
        shift = int(graphs.node_ptr[number])
        _, around = neighbours(graphs, number)
        own = [frozenset(s) for s in combinations(around, size) if size == 2 or connected(s, around)]
        sets |= {frozenset(v + shift for v in s) for s in own}
        for a in own:
            for b in own:
                gone, new = a - b, b - a
                if len(gone) == len(new) == 1 and min(new) in around[min(gone)]:
                    links.add((frozenset(v + shift for v in a), frozenset(v + shift for v in b)))
    return sets, links


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("size", "build"), [(2, node_pairs), (3, connected_triples)])
def test_sets_and_links_are_those_found_by_trying_all(seed: int, size: int, build) -> None:
    graphs = labelled_graphs(seed, count=6, largest=7, density=1.5)
    batch = graphs.whole()
    found: NodeSets = build(batch, Adjacency.of(batch))
    sets, links = spelled_out(graphs, size)
    named = [frozenset(row) for row in found.nodes.tolist()]
    assert len(named) == len(set(named))
    assert set(named) == sets
    pairs = [(named[a], named[b]) for a, b in found.links.t().tolist()]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == links


def test_types_of_sets_are_their_edges() -> None:
    graphs = labelled_graphs(1, density=2.0)
    batch = graphs.whole()
    adjacency = Adjacency.of(batch)
    joined = {frozenset(e) for e in batch.edge_index.t().tolist() if e[0] != e[1]}
    pairs = node_pairs(batch, adjacency)
    assert [frozenset(p) in joined for p in pairs.nodes.tolist()] == pairs.kind[:, 1].bool().tolist()
    triples = connected_triples(batch, adjacency)
    assert {tuple(k) for k in triples.kind.tolist()} == {(1, 0), (0, 1)}
    for nodes, kind, middle in zip(triples.nodes.tolist(), triples.kind.tolist(), triples.middle.tolist(), strict=True):
        inside = [set(p) for p in combinations(nodes, 2) if frozenset(p) in joined]
        assert len(inside) == (3 if kind[1] else 2)
        assert middle == (-1 if kind[1] else min(inside[0] & inside[1]))


def test_numbering_company_and_padding_do_not_move_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    graphs, method = labelled_graphs(0, density=1.5), KGNN(SHAPE).eval()
    together = method(graphs.whole())
    torch.testing.assert_close(method(renumbered(graphs.whole())), together)
    torch.testing.assert_close(method(with_padding(graphs.whole())), together)
    torch.testing.assert_close(torch.cat([method(graphs.batch(i)) for i in range(len(graphs))]), together)
    monkeypatch.setattr("shiftproof.methods.k_gnn.MOST_PAIRS", 20)
    torch.testing.assert_close(method(graphs.whole()), together)


def test_two_triangles_and_a_hexagon_are_told_apart() -> None:
    """Message passing on nodes cannot do that."""
    torch.manual_seed(0)
    hexagon = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    triangles = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
    edges = torch.cat([hexagon, triangles], 1)
    graphs = GraphSet.from_parts(torch.tensor([6, 6]), torch.tensor([6, 6]), edges, x=torch.ones(12, 3))
    vectors = KGNN(SHAPE).eval().represent(graphs.whole())
    nodes, sets = vectors.split([64, 128], 1)
    torch.testing.assert_close(nodes[0], nodes[1])
    assert (sets[0] - sets[1]).abs().max() > 1e-3


def test_the_shapes_are_learned_and_the_run_survives_a_file(tmp_path: Path) -> None:
    data = motif_data(classes=2)
    run = sp.fit("k-gnn", data, epochs=30, batch_size=16, lr=5e-3, out=tmp_path / "run", patience=None)
    assert run.metrics["val"]["mcc"] > 0.9
    assert torch.equal(Run.load(tmp_path / "run").logits(data.test), run.logits(data.test))
