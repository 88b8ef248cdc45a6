"""Graph kernels count what is there, no more and no less, and the machine on top survives a file."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods import kernel_svm
from shiftproof.methods.base import DataShape
from shiftproof.methods.counting import row_hashes
from shiftproof.methods.graphlets import (
    GraphletCounter,
    Graphlets,
    enumerate_graphlets,
    graphlet_table,
    graphlet_types,
    pair_bit,
)
from shiftproof.methods.wl_kernel import WLKernel, wl_counts
from shiftproof.training.run import Run
from tests.methods.labelled import (
    as_table,
    assert_same_counts,
    labelled_graphs,
    largest_graph,
    motif_data,
    renumbered,
    slow_graphlets,
    slow_wl,
    with_padding,
)

COUNTERS = {
    "wl": lambda batch: wl_counts(batch, 3),
    "graphlets": lambda batch: graphlet_table(batch, 4).counts,
    "graphlets by edges": lambda batch: graphlet_table(batch, 4, attributed=False, smaller=True).counts,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_wl_counts_are_those_of_spelled_out_subtrees(seed: int, iterations: int) -> None:
    graphs = labelled_graphs(seed)
    assert_same_counts(wl_counts(graphs.whole(), iterations), slow_wl(graphs, iterations))


def test_wl_tells_a_node_among_three_from_three_nodes_around_one() -> None:
    """A sum of hashes with a small factor would confuse `a` with neighbours `bbb` and `b` with neighbours `aaa`."""
    x = torch.eye(2)[[0, 1, 1, 1, 1, 0, 0, 0]]
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    graphs = GraphSet.from_parts(torch.tensor([4, 4]), torch.tensor([3, 3]), star.repeat(1, 2), x=x)
    assert_same_counts(wl_counts(graphs.whole(), 1), slow_wl(graphs, 1))
    assert not as_table(wl_counts(graphs.whole(), 1))[0].keys() >= as_table(wl_counts(graphs.whole(), 1))[1].keys()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("density", [1.2, 2.5])
def test_graphlet_counts_are_those_of_all_subsets(seed: int, size: int, density: float) -> None:
    graphs = labelled_graphs(seed, count=8, labels=2, largest=8, density=density)
    table = graphlet_table(graphs.whole(), size)
    assert_same_counts(table.counts, slow_graphlets(graphs, (size,), attributed=True))
    plain = graphlet_table(graphs.whole(), size, attributed=False, smaller=True)
    assert_same_counts(plain.counts, slow_graphlets(graphs, tuple(range(3, size + 1)), attributed=False))


@pytest.mark.parametrize(("size", "types"), [(3, 2), (4, 6), (5, 21)])
def test_there_are_as_many_connected_graphs_as_there_should_be(size: int, types: int) -> None:
    """2, 6 and 21 connected graphs on 3, 4 and 5 nodes; a dense random graph has them all."""
    g = torch.Generator().manual_seed(0)
    pairs = torch.tensor(list(itertools.combinations(range(30), 2))).t()
    kept = pairs[:, torch.rand(pairs.shape[1], generator=g) < 0.35]
    graph = GraphSet.from_parts(torch.tensor([30]), torch.tensor([kept.shape[1]]), kept, x=torch.ones(30, 1))
    assert len(graphlet_table(graph.whole(), size, attributed=False).types) == types


@pytest.mark.parametrize("size", [3, 4, 5])
def test_types_tell_all_labelled_graphs_apart(size: int) -> None:
    """Every graph on few nodes with every labelling by two labels: equal hashes exactly for isomorphic ones."""
    pairs = list(itertools.combinations(range(size), 2))
    labellings = list(itertools.combinations_with_replacement(range(2), size))
    codes = torch.arange(1 << len(pairs))
    spelled: dict[tuple, int] = {}
    for labelling in labellings:
        labels = row_hashes(torch.eye(2))[list(labelling)]
        nodes = torch.arange(size).expand(len(codes), size)
        hashes = graphlet_types(Graphlets(nodes, codes), labels).tolist()
        for code, value in zip(codes.tolist(), hashes, strict=True):
            joined = {frozenset(pair) for pair in pairs if code >> pair_bit(*pair) & 1}
            invariant = _smallest_spelling(joined, labelling, size)
            assert spelled.setdefault(invariant, value) == value
    assert len(set(spelled.values())) == len(spelled)


def _smallest_spelling(joined: set[frozenset], labelling: tuple[int, ...], size: int) -> tuple:
    orders = (o for o in itertools.permutations(range(size)) if tuple(labelling[v] for v in o) == labelling)
    return labelling, min(tuple(frozenset(p) in joined for p in itertools.combinations(o, 2)) for o in orders)


def test_each_set_of_nodes_comes_up_once_and_its_code_is_its_edges() -> None:
    graphs = labelled_graphs(3, largest=12, density=2.0)
    batch = graphs.whole()
    joined = {frozenset(e) for e in batch.edge_index.t().tolist()}
    for found in enumerate_graphlets(batch, 5):
        assert len({frozenset(row) for row in found.nodes.tolist()}) == len(found.nodes)
        for nodes, code in zip(found.nodes.tolist(), found.code.tolist(), strict=True):
            for a, b in itertools.combinations(range(found.size), 2):
                assert bool(code >> pair_bit(a, b) & 1) == (frozenset((nodes[a], nodes[b])) in joined)


def test_the_size_of_the_pieces_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = labelled_graphs(1, count=20, largest=15, density=2.0).whole()
    whole = graphlet_table(batch, 4)
    monkeypatch.setattr("shiftproof.methods.graphlets.AT_ONCE", 50)
    pieces = graphlet_table(batch, 4)
    assert as_table(pieces.counts) == as_table(whole.counts)
    assert torch.equal(pieces.types, whole.types)


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
def test_the_numbering_and_the_direction_of_edges_do_not_matter(counter) -> None:
    batch = labelled_graphs(2, density=2.0).whole()
    assert as_table(counter(renumbered(batch))) == as_table(counter(batch))


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
def test_other_graphs_and_padding_do_not_matter(counter) -> None:
    graphs = labelled_graphs(4, density=2.0)
    together = as_table(counter(graphs.whole()))
    assert [as_table(counter(graphs.batch(i)))[0] for i in range(len(graphs))] == together
    assert as_table(counter(with_padding(graphs.whole()))) == together


def test_a_graph_is_enumerated_once_and_recognised_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = labelled_graphs(5, count=20, density=2.0)
    counter = GraphletCounter(4)
    once = as_table(graphlet_table(graphs.whole(), 4).counts)
    assert as_table(counter(graphs.batch([0, 1, 2, 1]))) == [once[i] for i in (0, 1, 2, 1)]
    assert as_table(counter(graphs.whole())) == once
    monkeypatch.setattr("shiftproof.methods.graphlets.graphlet_table", None)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0)).tolist()
    assert as_table(counter(graphs.batch(order))) == [once[i] for i in order]
    assert as_table(counter(with_padding(graphs.whole()))) == once


def test_graphs_that_differ_in_one_label_or_edge_are_told_apart() -> None:
    graph = largest_graph(6)
    counter = GraphletCounter(3)
    before = as_table(counter(graph.whole()))
    assert before[0]
    other = graph.whole().replace(x=graph.x.flip(1))
    assert as_table(counter(other)) == as_table(graphlet_table(other, 3).counts)
    fewer = graph.whole().replace(edge_index=graph.edge_index[:, :-1])
    assert as_table(counter(fewer)) == as_table(graphlet_table(fewer, 3).counts)
    assert as_table(counter(graph.whole())) == before


def test_equal_rows_have_equal_hashes_and_zero_has_no_sign() -> None:
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [0.5, 0.0], [0.0, 0.0]])
    hashes = row_hashes(x).tolist()
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


@pytest.mark.parametrize("name", ["wl-kernel", "gc-kernel"])
@pytest.mark.parametrize(("task", "classes"), [("multiclass", 2), ("multiclass", 3), ("binary", 2)])
def test_a_kernel_machine_learns_and_survives_a_file(name: str, task: str, classes: int, tmp_path: Path) -> None:
    data = motif_data(classes=classes, task=task)
    run = sp.fit(name, data, out=tmp_path / "run")
    assert run.metrics["val"]["mcc"] > 0.8
    assert run.metrics["test"]["mcc"] > 0.5
    assert run.history == []
    again = Run.load(tmp_path / "run")
    assert torch.equal(again.logits(data.test), run.logits(data.test))
    assert len(again.method.vocabulary) == len(run.method.vocabulary) > 0
    logits = run.logits(data.test)
    assert logits.shape == ((30,) if task == "binary" else (30, classes))
    if task == "multiclass" and classes == 2:
        assert (logits[:, 0] == 0).all()


@pytest.mark.parametrize("normalise", ["cosine", "share", "none"])
def test_the_stored_machine_is_the_svm_on_the_kernel_matrix(normalise: str) -> None:
    """Margins from weights of structures equal those of scikit-learn's SVM on a kernel matrix built by hand."""
    from sklearn.svm import SVC

    data = motif_data(train=40)
    run = sp.fit("wl-kernel", data, iterations=2, normalise=normalise)
    tables = [slow_wl(part, 2) for part in (data.train, data.test)]
    keys = sorted({key for table in tables for counter in table for key in counter}, key=repr)
    rows = [np.array([[counter[k] for k in keys] for counter in table], dtype=float) for table in tables]
    if normalise == "cosine":
        rows = [r / np.linalg.norm(r, axis=1, keepdims=True) for r in rows]
    elif normalise == "share":
        rows = [r / r.sum(1, keepdims=True) for r in rows]
    train, test = rows
    svm = SVC(C=float(run.method.cost), kernel="precomputed").fit(train @ train.T, data.train.y)
    margins = svm.decision_function(test @ train.T)
    np.testing.assert_allclose(run.logits(data.test)[:, 1], margins, rtol=1e-4, atol=2e-3)


def test_many_graphs_are_fitted_without_a_kernel_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    data = motif_data()
    monkeypatch.setattr(kernel_svm, "MOST_IN_A_KERNEL", 10)
    run = sp.fit("gc-kernel", data)
    assert run.metrics["val"]["mcc"] > 0.9


def test_without_a_validation_split_the_cost_is_one() -> None:
    data = motif_data()
    alone = sp.data.Dataset({"train": data.train, "test": data.test}, name="motifs", metric="mcc")
    method = sp.fit("wl-kernel", alone).method
    assert (float(method.cost), int(method.setting)) == (1.0, 3)


def test_a_task_with_one_class_in_training_gives_that_class() -> None:
    data = motif_data()
    one = data.with_splits(train=data.train[data.train.y == 1])
    assert (sp.fit("wl-kernel", one).logits(data.test).argmax(1) == 1).all()


def test_unknown_labels_of_several_tasks_are_left_out() -> None:
    data = motif_data()

    def two_columns(graphs: GraphSet) -> GraphSet:
        y = torch.stack([graphs.y, 1 - graphs.y], 1).float()
        y[::5, 1] = torch.nan
        return GraphSet(graphs.x, graphs.edge_index, graphs.node_ptr, graphs.edge_ptr, y=y)

    splits = {name: two_columns(split) for name, split in data.splits.items()}
    both = sp.data.Dataset(splits, name="motifs", task="multilabel", metric="roc_auc", num_classes=2)
    run = sp.fit("gc-kernel", both)
    assert run.metrics["test"]["roc_auc"] > 0.9


def test_a_killed_run_is_finished_with_the_same_predictions(tmp_path: Path) -> None:
    data = motif_data()
    whole = sp.fit("wl-kernel", data, out=tmp_path / "a")
    sp.fit("wl-kernel", data, out=tmp_path / "b")
    for left in ("metrics.json", "weights.safetensors", "history.json", "timing.json"):
        (tmp_path / "b" / left).unlink()
    assert torch.equal(
        sp.fit("wl-kernel", data, out=tmp_path / "b", resume=True).logits(data.test), _logits(whole, data)
    )


def test_a_run_killed_after_the_machine_was_fitted_does_not_fit_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = motif_data()
    whole = sp.fit("wl-kernel", data)
    with monkeypatch.context() as patch:
        patch.setattr("shiftproof.training.loop.Loop.conclude", _killed)
        with pytest.raises(KeyboardInterrupt):
            sp.fit("wl-kernel", data, out=tmp_path)
    monkeypatch.setattr(WLKernel, "prepare", _killed)
    resumed = sp.fit("wl-kernel", data, out=tmp_path, resume=True)
    assert torch.equal(_logits(resumed, data), _logits(whole, data))


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def _logits(run: Run, data) -> torch.Tensor:
    return run.logits(data.test)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("wl-kernel", {"iterations": -1}, "a whole number from 0 or none, not -1"),
        ("gc-kernel", {"size": 6}, "a whole number from 3 to 5, not 6"),
        ("gc-kernel", {"size": 2}, "a whole number from 3 to 5, not 2"),
        ("wl-kernel", {"normalise": "length"}, "cosine"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(name: str, options: dict, sentence: str) -> None:
    with pytest.raises(ShiftproofError, match=sentence):
        sp.fit(name, motif_data(), **options)


def test_regression_is_refused() -> None:
    with pytest.raises(ShiftproofError, match="regression"):
        WLKernel(DataShape("graphs", "regression", 1, (3,), None, 0, 10))


def test_all_molecules_of_nci1_are_counted_in_seconds(real_data: Path) -> None:
    import time

    from shiftproof.data.readers.tu import read_tu

    graphs = read_tu(real_data / "tu" / "NCI1.zip", "NCI1")
    start = time.perf_counter()
    table = graphlet_table(graphs.whole(), 4)
    assert time.perf_counter() - start < 30
    assert len(table.counts.graph.unique()) > 4000
