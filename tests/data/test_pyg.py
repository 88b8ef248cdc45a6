"""PyG graphs in and out."""

import pytest
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset

from shiftproof.data import GraphSet, load
from shiftproof.errors import ShiftproofError
from tests.data.looks_at_graphs import assert_same_split


def some_graphs(count: int = 6, **changed) -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(count):
        nodes, edges = 3 + number % 4, 5 + number
        part = {
            "x": torch.rand(nodes, 2, generator=generator),
            "edge_index": torch.randint(nodes, (2, edges), generator=generator),
            "edge_attr": torch.rand(edges, 3, generator=generator),
            "y": torch.tensor([number % 2]),
            "env": torch.tensor([number % 3]),
            "edge_truth": torch.rand(edges, generator=generator) > 0.5,
            "node_truth": torch.rand(nodes, generator=generator) > 0.5,
            "pos": torch.rand(nodes, 3, generator=generator),
            "length": torch.rand(edges, generator=generator),
            "energy": torch.rand(1, 4, generator=generator),
        }
        part.update({name: make(number, nodes, edges) for name, make in changed.items()})
        graphs.append(Data(**{name: value for name, value in part.items() if value is not None}))
    return graphs


def test_a_round_trip_changes_nothing() -> None:
    graphs = some_graphs()
    packed = GraphSet.from_pyg(graphs)
    assert set(packed.columns) == {"energy"}
    assert set(packed.node_columns) == {"pos"}
    assert set(packed.edge_columns) == {"length"}
    for before, after in zip(graphs, packed.to_pyg(), strict=True):
        assert set(before.keys()) == set(after.keys())
        for name in before.keys():  # noqa: SIM118
            assert before[name].dtype == after[name].dtype
            assert torch.equal(before[name], after[name]), name
    assert_same_split(GraphSet.from_pyg(packed.to_pyg()), packed)


@pytest.mark.parametrize(
    ("label", "shape"),
    [(torch.tensor([1]), (6,)), (torch.tensor(1), (6,)), (torch.tensor([[0.0, 1.0]]), (6, 2)), (1, (6,))],
)
def test_labels_come_in_every_usual_shape(label, shape) -> None:
    assert tuple(GraphSet.from_pyg(some_graphs(y=lambda *_: label)).y.shape) == shape


def test_graphs_without_features_get_a_constant_and_isolated_nodes_stay() -> None:
    graphs = some_graphs(x=lambda *_: None)
    for graph in graphs:
        graph.num_nodes = graph.node_truth.shape[0]
    packed = GraphSet.from_pyg(graphs)
    assert bool((packed.x == 1).all())
    assert packed.sizes.tolist() == [3, 4, 5, 6, 3, 4]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"edge_attr": lambda i, n, m: None if i == 3 else torch.rand(m, 3)},
            "graph 0 has 'edge_attr' and graph 3 does not",
        ),
        ({"x": lambda i, n, m: torch.rand(n, 2 + (i == 4))}, r"'x' of graph 4 is float32 with rows of shape \[3\]"),
        ({"x": lambda i, n, m: torch.rand(n, 2, dtype=torch.float64 if i == 2 else None)}, "'x' of graph 2 is float64"),
        ({"y": lambda i, n, m: torch.zeros(2 if i == 5 else 1)}, "'y' of graph 5 has 2 rows, but needs one row"),
        ({"edge_truth": lambda i, n, m: torch.ones(m + (i == 1)) > 0}, "'edge_truth' of graph 1 has 7 rows"),
        ({"odd": lambda i, n, m: torch.rand(n + m + 1)}, "attribute 'odd'"),
        ({"edge_index": lambda i, n, m: None}, "needs an 'edge_index'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changed, said: str) -> None:
    with pytest.raises(ShiftproofError, match=f"mine: .*{said}"):
        GraphSet.from_pyg(some_graphs(**changed), where="mine")


def test_one_graph_or_other_things_where_a_list_of_graphs_belongs_are_one_sentence() -> None:
    graphs = some_graphs()
    with pytest.raises(ShiftproofError, match=r"not one Data; give \[graph\]"):
        GraphSet.from_pyg(graphs[0])
    assert sum(map(len, load(Batch.from_data_list(graphs)).splits.values())) == len(graphs)
    with pytest.raises(ShiftproofError, match="not tuple"):
        GraphSet.from_pyg([*graphs, (1, 2)])


class Stored(InMemoryDataset):
    def __init__(self, graphs: list[Data], transform=None) -> None:
        super().__init__(None, transform)
        self._data, self.slices = self.collate(graphs)


def test_a_stored_pyg_data_set_is_taken_without_looking_at_single_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored(some_graphs())
    assert_same_split(GraphSet.from_pyg(stored[[4, 1]]), GraphSet.from_pyg(list(stored[[4, 1]])))
    slow = GraphSet.from_pyg(list(stored))
    monkeypatch.setattr(Stored, "get", lambda *_: pytest.fail("a single graph was built"))
    assert_same_split(GraphSet.from_pyg(stored), slow)


def test_a_transform_is_not_skipped() -> None:
    def louder(graph: Data) -> Data:
        graph.x = graph.x + 10
        return graph

    assert float(GraphSet.from_pyg(Stored(some_graphs(), louder)).x.min()) >= 10


def test_lists_are_split_at_random_and_the_task_is_read_off_the_labels() -> None:
    graphs = some_graphs(40)
    data = load(graphs)
    assert (len(data.train), len(data.val), len(data.test)) == (32, 4, 4)
    assert (data.task, data.num_classes, data.metric) == ("multiclass", 2, "accuracy")
    every = torch.cat([split.index for split in data.splits.values()])
    assert sorted(every.tolist()) == list(range(40))
    assert_same_split(load(graphs, seed=0).test, data.test)
    assert load(graphs, seed=1).test.index.tolist() != data.test.index.tolist()
    assert load(graphs, split=(0.5, 0.25, 0.25)).val.num_nodes > data.val.num_nodes
    kinds = {
        "binary": lambda i, n, m: torch.tensor([[float(i % 2)]]),
        "regression": lambda i, n, m: torch.tensor([i / 3]),
        "multilabel": lambda i, n, m: torch.tensor([[1.0, float("nan")], [0.0, 1.0]])[[i % 2]],
    }
    for task, make in kinds.items():
        assert load(some_graphs(40, y=make)).task == task
    assert load(some_graphs(40, y=kinds["binary"])).train.y.shape == (32,)
    assert load(graphs, task="binary").train.y.dtype == torch.float32


def test_a_dict_gives_the_splits_and_group_names_the_environment() -> None:
    graphs = some_graphs(20, site=lambda i, n, m: torch.tensor([i % 4]))
    data = load({"train": graphs[:10], "ood_test": graphs[10:]}, group="site", num_classes=3)
    assert set(data.splits) == {"train", "ood_test"}
    assert data.train.num_envs == 4
    assert data.environment == "site"
    assert data.num_classes == 3
