"""Training a defence: the protocol, the selection, and equal seeds giving equal models."""

from __future__ import annotations

import math

import pytest
import torch

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.robustness import (
    FLAG,
    Adjacency,
    Perturbation,
    accuracy,
    adversarial_train,
    build_defence,
    predict,
    train_defence,
)
from shiftproof.robustness.defences import GCN


def communities(nodes: int = 120, features: int = 16, seed: int = 0) -> NodeGraph:
    """Three groups with features of their own, mostly linked inside."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    centre = torch.randn(3, features, generator=draw)
    x = centre[y] + torch.randn(nodes, features, generator=draw)
    ends = torch.randint(nodes // 3, (2, 3 * nodes), generator=draw) * 3
    group = torch.randint(3, (3 * nodes,), generator=draw)
    stray = torch.where(torch.rand(3 * nodes, generator=draw) < 0.1, 1, 0)
    pairs = torch.stack([ends[0] + group, ends[1] + (group + stray) % 3])
    order = torch.randperm(nodes, generator=draw)
    return NodeGraph.from_edges(x, pairs, y, train=order[:60], val=order[60:80], test=order[80:], name="communities")


def test_training_learns_and_selects_the_first_best_epoch_of_the_second_half() -> None:
    graph = communities()
    trained = train_defence("gcn", graph, epochs=30, seed=0)
    assert trained.accuracies["test"] > 0.85
    val = trained.history["val"]
    assert all(math.isnan(score) for score in val[:15])
    judged = val[15:]
    assert trained.best_epoch == 15 + judged.index(max(judged))
    assert trained.accuracies["val"] == max(judged)
    assert trained.history["loss"][-1] < trained.history["loss"][0]
    assert trained.accuracies["test"] == accuracy(trained.model, graph)


@pytest.mark.parametrize("flag", [None, FLAG(steps=2)])
def test_equal_seeds_give_equal_models_whatever_the_global_stream(flag: FLAG | None) -> None:
    graph = communities()
    torch.manual_seed(11)
    first = train_defence("eguard", graph, epochs=6, seed=3, flag=flag)
    torch.manual_seed(12)
    state = torch.get_rng_state()
    second = train_defence("eguard", graph, epochs=6, seed=3, flag=flag)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.history["loss"] == second.history["loss"]
    assert torch.equal(predict(first.model, graph), predict(second.model, graph))
    other = train_defence("eguard", graph, epochs=6, seed=4, flag=flag)
    assert not torch.equal(predict(first.model, graph), predict(other.model, graph))


def test_inductive_training_does_not_depend_on_test_nodes() -> None:
    graph = communities()
    moved = graph.x.clone()
    moved[graph.test] += 5
    touched = graph.subgraph(torch.cat([graph.train, graph.val]))
    other = NodeGraph(moved, graph.edge_index, graph.y, graph.train, graph.val, graph.test)
    ours, theirs = (train_defence("gcn", each, epochs=4, seed=0) for each in (graph, other))
    assert ours.history["loss"] == theirs.history["loss"]
    assert torch.equal(predict(ours.model, touched), predict(theirs.model, touched))
    free = [train_defence("gcn", each, epochs=4, seed=0, protocol="transductive") for each in (graph, other)]
    assert free[0].history["loss"] != free[1].history["loss"]


def test_patience_ends_training() -> None:
    trained = train_defence("gcn", communities(), epochs=200, patience=5, evaluate_from=0.0, seed=0)
    assert len(trained.history["loss"]) == trained.best_epoch + 1 + 6
    assert len(trained.history["loss"]) < 200


def test_predicting_leaves_the_models_mode_alone() -> None:
    graph = communities()
    model = GCN(16, 3).train()
    first = predict(model, graph)
    assert model.training
    assert torch.equal(first, predict(model, graph))  # no dropout
    assert not first.requires_grad


def test_a_defence_takes_options_by_name() -> None:
    model = build_defence("eguard:threshold=0.2,hidden=8", communities())
    assert model.threshold == 0.2
    assert model.convs[0].weight.shape == (8, 16)  # type: ignore[index, union-attr]


def test_a_loss_that_is_not_finite_is_said() -> None:
    graph = communities()
    model = build_defence("gcn", graph)
    with torch.no_grad():
        model.convs[0].weight.fill_(float("nan"))  # type: ignore[index, operator, union-attr]
    with pytest.raises(TrainingDiverged, match=r"GCN: loss term 'task' became nan at step 0 \(epoch 0\)"):
        train_defence(model, graph, epochs=3)


class Killed(Exception):
    """Stands for the end of the process."""


def attack_at_random(model, graph: NodeGraph, targets: torch.Tensor, seed: int) -> Perturbation:
    drawn = torch.Generator().manual_seed(seed)
    rows = torch.randint(graph.num_nodes, (3,), generator=drawn)
    ends = targets[torch.randint(len(targets), (3,), generator=drawn)]
    return Perturbation(graph.x[rows], torch.stack([torch.arange(3), ends]))


TRAININGS = {
    "plain": lambda graph, **more: train_defence("gcn:dropout=0.5", graph, epochs=8, seed=1, **more),
    "flag": lambda graph, **more: train_defence("gcn", graph, epochs=8, flag=FLAG(2, 0.01), **more),
    "adversarial": lambda graph, **more: adversarial_train(
        "gcn", graph, attack_at_random, epochs=8, refresh=3, clean_weight=0.3, **more
    ),
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_killed_training_goes_on_to_the_same_bits(kind: str, tmp_path) -> None:
    train, graph = TRAININGS[kind], communities()
    whole = train(graph)

    def kill(training) -> None:
        if training.epoch == 5:
            raise Killed

    with pytest.raises(Killed):
        train(graph, out=tmp_path, checkpoint_seconds=0.0, callbacks=[kill])
    torch.rand(3)
    again = train(graph, out=tmp_path, checkpoint_seconds=0.0, resume=True)
    assert again.history["loss"] == whole.history["loss"]
    torch.testing.assert_close(
        torch.tensor(again.history["val"]), torch.tensor(whole.history["val"]), rtol=0, atol=0, equal_nan=True
    )
    assert again.best_epoch == whole.best_epoch
    for one, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ShiftproofError, match="already holds a training"):
        train(graph, out=tmp_path)
    with pytest.raises(ShiftproofError, match="belongs to another run: 'data'"):
        train(communities(seed=1), out=tmp_path, resume=True)


def test_callbacks_see_the_training_of_a_defence_and_stop_it() -> None:
    seen = []

    def watch(training) -> None:
        seen.append((training.epoch, training.record["losses"]["task"], training.record["val"]["accuracy"]))
        if training.epoch == 4:
            training.stop("enough")

    trained = train_defence("gcn", communities(), epochs=50, evaluate_from=0.0, callbacks=[watch])
    assert [epoch for epoch, _, _ in seen] == [1, 2, 3, 4]
    assert [loss for _, loss, _ in seen] == trained.history["loss"]
    assert [value for _, _, value in seen] == trained.history["val"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "'epochs' of train_defence is a whole number from 1, not 0"),
        ({"evaluate_from": 2.0}, "'evaluate_from' of train_defence is a number from 0 to 1, not 2"),
        ({"protocol": "both"}, "'inductive' or 'transductive'"),
    ],
)
def test_wrong_settings_are_one_sentence(options: dict, words: str) -> None:
    with pytest.raises(ShiftproofError, match=words):
        train_defence("gcn", communities(), **options)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0, 0.1), "option 'steps' of FLAG is a whole number from 1, not 0"),
        ((1, -0.1), "option 'step_size' of FLAG is a number from 0, not -0.1"),
    ],
)
def test_flag_takes_at_least_one_step_of_a_size_from_zero(values: tuple, said: str) -> None:
    with pytest.raises(ShiftproofError, match=said):
        FLAG(*values)
    assert FLAG(1, 0.0) == FLAG(steps=1, step_size=0.0)


def test_a_graph_without_a_split_says_so() -> None:
    graph = communities()
    bare = NodeGraph(graph.x, graph.edge_index, graph.y)
    with pytest.raises(ShiftproofError, match="no training nodes"):
        train_defence("gcn", bare)
    with pytest.raises(ShiftproofError, match="no nodes of graph to score"):
        accuracy(GCN(16, 3), bare)


def test_clean_cora_is_classified_as_well_as_published(real_data) -> None:
    import shiftproof as sp

    graph = sp.load("cora")
    trained = train_defence("gcn", graph, epochs=60, seed=0)
    assert 0.80 < trained.accuracies["test"] < 0.92
    assert Adjacency(graph.edge_index, graph.num_nodes).num_nodes == graph.num_nodes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recorded steps are those of a GPU")
@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "eguard", "rgat"])
def test_recorded_steps_of_flag_are_the_steps_one_by_one(name: str) -> None:
    from torch.nn import functional as F

    from shiftproof.robustness.flag import RecordedFLAG, flag_backward

    graph = communities().to("cuda")
    adjacency = Adjacency(graph.edge_index, graph.num_nodes)
    model = build_defence(name, graph, dropout=0.0).train()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x, adjacency), graph.y)

    flag = FLAG(steps=5, step_size=0.0)  # without noise, so that both ways start at the same features
    value = flag_backward(loss, graph.x, flag)
    ours = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    recorded = RecordedFLAG(loss, graph.x, flag, list(model.parameters()))
    model.zero_grad(set_to_none=False)
    assert float(recorded()) == pytest.approx(float(value), rel=1e-4)
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-3, atol=1e-5)
