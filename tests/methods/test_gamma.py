"""Γ methods see a graph as shares of its graphlets, whatever its size, numbering or company."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods import GammaGIN, GammaOneHot, GammaRPGIN
from shiftproof.methods.base import DataShape
from shiftproof.methods.gamma import Gamma
from shiftproof.methods.graphlets import graphlet_table
from shiftproof.training import Trainer
from shiftproof.training.run import Run
from tests.methods.labelled import labelled_graphs, largest_graph, motif_data, renumbered, with_padding

METHODS = {"gamma-1hot": GammaOneHot, "gamma-gin": GammaGIN, "gamma-rpgin": GammaRPGIN}


def prepared(kind: type[Gamma], graphs: GraphSet, **options) -> Gamma:
    torch.manual_seed(0)
    data = Dataset({"train": graphs}, name="labelled")
    method = kind(DataShape.of(data), **options)
    method.prepare(data, Trainer())
    return method.eval()


@pytest.mark.parametrize("name", METHODS)
def test_the_shapes_are_learned_and_the_run_survives_a_file(name: str, tmp_path: Path) -> None:
    data = motif_data(classes=3)
    run = sp.fit(name, data, epochs=60, batch_size=16, lr=1e-2, out=tmp_path / "run", patience=None)
    assert run.metrics["val"]["mcc"] > 0.9
    assert run.metrics["test"]["mcc"] > 0.6
    again = Run.load(tmp_path / "run")
    assert torch.equal(again.logits(data.test), run.logits(data.test))


@pytest.mark.parametrize("name", METHODS)
def test_a_killed_run_goes_on_to_the_same_result(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = motif_data()
    settings = {"epochs": 6, "lr": 1e-2, "patience": None}
    whole = sp.fit(name, data, **settings)
    counted = METHODS[name].start_epoch

    def stop_at_four(self: Gamma, epoch: int) -> None:
        counted(self, epoch)
        if epoch == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(METHODS[name], "start_epoch", stop_at_four)
        with pytest.raises(KeyboardInterrupt):
            Trainer(out=tmp_path, checkpoint_seconds=0.0, **settings).fit(*_as_fitted(name, data))
    resumed = Trainer(out=tmp_path, resume=True, checkpoint_seconds=0.0, **settings).fit(*_as_fitted(name, data))
    assert [record["losses"] for record in resumed.history] == [record["losses"] for record in whole.history]
    assert torch.equal(resumed.logits(data.test), whole.logits(data.test))


def _as_fitted(name: str, data: Dataset) -> tuple[Gamma, Dataset]:
    torch.manual_seed(0)
    return METHODS[name](DataShape.of(data)), data


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_numbering_company_and_padding_do_not_move_a_prediction(kind: type[Gamma]) -> None:
    graphs = labelled_graphs(0, density=2.0)
    method = prepared(kind, graphs)
    together = method(graphs.whole())
    torch.testing.assert_close(method(renumbered(graphs.whole())), together)
    torch.testing.assert_close(method(with_padding(graphs.whole())), together)
    alone = torch.cat([method(graphs.batch(i)) for i in range(len(graphs))])
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_a_graph_written_twice_is_the_same_to_the_shares(kind: type[Gamma]) -> None:
    """Two copies side by side have the same shares as one: size alone does not move the representation."""
    one = largest_graph(8)
    twice = GraphSet.from_parts(
        one.sizes * 2,
        one.edge_counts * 2,
        torch.cat([one.edge_index, one.edge_index + one.num_nodes], 1),
        x=one.x.repeat(2, 1),
        y=one.y,
    )
    assert len(graphlet_table(one.whole(), 4).types) > 0
    method = prepared(kind, one)
    torch.testing.assert_close(method(twice.whole()), method(one.whole()), atol=1e-3, rtol=1e-3)


def test_the_one_hot_vector_is_the_share_of_each_type() -> None:
    graphs = labelled_graphs(1, density=2.0)
    method = prepared(GammaOneHot, graphs)
    types = len(method.types)
    method.columns.data = torch.eye(types)
    counts = graphlet_table(graphs.whole(), 4).counts
    dense = torch.zeros(len(graphs), types)
    dense[counts.graph, torch.searchsorted(method.types, counts.key)] = counts.count.float()
    expected = dense / (dense.sum(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(method.represent(graphs.whole()), expected)


def test_types_not_seen_often_enough_in_training_do_not_count() -> None:
    graphs = labelled_graphs(2, count=10, density=2.0)
    table = graphlet_table(graphs.whole(), 4)
    holders = torch.tensor([int((table.counts.key == kind).sum()) for kind in table.types])
    method = prepared(GammaOneHot, graphs, min_graphs=2)
    assert torch.equal(method.types, table.types[holders >= 2])
    strange = graphs.whole().replace(x=10 + graphs.x)
    assert (method.represent(strange) == 0).all()


def test_examples_of_types_are_isomorphic_to_what_they_stand_for() -> None:
    graphs = labelled_graphs(3, density=2.0)
    method = prepared(GammaGIN, graphs)
    size, count = method.size, len(method.types)
    pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
    edges = [torch.tensor([p for p in pairs if int(code) >> int(method.pair_bits[p]) & 1]).t() for code in method.code]
    examples = GraphSet.from_parts(
        torch.full((count,), size),
        torch.tensor([e.shape[1] for e in edges]),
        torch.cat(edges, 1),
        x=method.rows[method.members].flatten(0, 1),
    )
    counted = graphlet_table(examples.whole(), size).counts
    assert torch.equal(counted.key, method.types)
    assert (counted.count == 1).all()


def test_gin_vectors_of_a_graph_that_is_one_graphlet_are_its_sum_over_nodes() -> None:
    square = GraphSet.from_parts(
        torch.tensor([4]),
        torch.tensor([4]),
        torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]),
        x=torch.eye(4),
        y=torch.tensor([0]),
    )
    method = prepared(GammaGIN, square)
    both = torch.cat([square.edge_index, square.edge_index.flip(0)], 1)
    expected = method.encoder(square.x, both).sum(0, keepdim=True) / (1 + 1e-4)
    torch.testing.assert_close(method.represent(square.whole()), expected)


def test_numbers_of_nodes_are_permutations_new_while_training_and_fixed_after() -> None:
    method = prepared(GammaRPGIN, labelled_graphs(4, density=2.0))
    assert torch.equal(method._numbering(5), method._numbering(5))
    method.train()
    drawn = method._numbering(50)
    assert drawn.shape == (50, 3, 4)
    assert torch.equal(drawn.sort(-1).values, torch.arange(4).expand(50, 3, 4))
    assert not torch.equal(drawn, method._numbering(50))


def test_classes_weigh_the_same_in_the_loss() -> None:
    data = motif_data(train=40)
    few = data.with_splits(train=data.train[[i for i in range(40) if i % 2 == 0 or i < 10]])
    method = GammaOneHot(DataShape.of(few))
    method.prepare(few, Trainer())
    weight = method.class_weight[few.train.y]
    torch.testing.assert_close(weight[few.train.y == 0].sum(), weight[few.train.y == 1].sum())
    plain = GammaOneHot(DataShape.of(few), class_weights=False)
    plain.prepare(few, Trainer())
    assert (plain.class_weight == 1).all()


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
def test_graphs_without_any_graphlet_have_a_prediction_and_a_gradient(kind: type[Gamma]) -> None:
    small = GraphSet.from_parts(
        torch.tensor([1, 2]), torch.tensor([0, 1]), torch.tensor([[0], [1]]), x=torch.ones(3, 2), y=torch.tensor([0, 1])
    )
    method = prepared(kind, small).train()
    loss = method.losses(small.whole())["task"]
    loss.backward()
    assert loss.isfinite()


def test_options_that_cannot_be_are_one_sentence() -> None:
    with pytest.raises(ShiftproofError, match="a whole number from 3 to 5, not 7"):
        sp.fit("gamma-1hot", motif_data(), size=7)
    with pytest.raises(ShiftproofError, match="permutations"):
        sp.fit("gamma-rpgin", motif_data(), permutations=-1)
