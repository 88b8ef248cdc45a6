"""Packed graphs: every batch equals the one PyG makes of the same graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from shiftproof.data import GraphSet
from shiftproof.errors import ShiftproofError

NODE_FIELDS = ("x", "node_truth", "charge")
EDGE_FIELDS = ("edge_attr", "edge_truth", "order")
GRAPH_FIELDS = ("y", "env", "scaffold")


@st.composite
def graph_lists(draw, least: int = 1):
    """Graphs of every awkward kind: no node, one node, no edge, self-loops, isolated nodes, repeated edges."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7]), min_size=least, max_size=9))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    return [random_graph(n, i, g) for i, n in enumerate(sizes)]


def random_graph(n: int, number: int, g: torch.Generator) -> Data:
    m = int(torch.randint(0, 6, (), generator=g)) if n else 0
    return Data(
        x=torch.randn(n, 3, generator=g),
        edge_index=torch.randint(max(n, 1), (2, m), generator=g),
        edge_attr=torch.randn(m, 2, generator=g),
        y=torch.randint(3, (1,), generator=g),
        env=torch.tensor([number % 4]),
        scaffold=torch.tensor([number // 2]),
        node_truth=torch.rand(n, generator=g) < 0.5,
        edge_truth=torch.rand(m, generator=g) < 0.5,
        charge=torch.randn(n, generator=g),
        order=torch.randn(m, generator=g),
    )


def awkward() -> list[Data]:
    """No node; one node with a self-loop; an isolated node beside an edge; a triangle; four nodes and no edge."""
    edges = [[], [(0, 0)], [(0, 1)], [(0, 1), (1, 2), (2, 0)], []]
    graphs = []
    for number, (n, pairs) in enumerate(zip([0, 1, 3, 3, 4], edges, strict=True)):
        graph = random_graph(n, number, torch.Generator().manual_seed(number))
        m = len(pairs)
        graph.edge_index = torch.tensor(pairs, dtype=torch.long).reshape(m, 2).t().contiguous()
        graph.edge_attr, graph.edge_truth, graph.order = torch.ones(m, 2), torch.ones(m) > 0, torch.arange(m) / 2
        graphs.append(graph)
    return graphs


def packed(graphs: list[Data]) -> GraphSet:
    """The graphs packed, with the columns where the names say (PyG lists alone cannot always tell)."""
    flat = Batch.from_data_list(graphs)
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    counts = torch.tensor([graph.num_edges for graph in graphs])
    local = torch.cat([graph.edge_index for graph in graphs], 1)
    known = {name: flat[name] for name in ("y", "edge_attr", "env", "node_truth", "edge_truth")}
    groups = {"columns": {"scaffold": flat.scaffold}, "node_columns": {"charge": flat.charge}}
    return GraphSet.from_parts(sizes, counts, local, x=flat.x, **known, **groups, edge_columns={"order": flat.order})


def assert_equals_pyg(ours, chosen: list[Data], numbers: list[int]) -> None:
    """Every field of the batch, bit for bit, and each graph's number."""
    theirs = Batch.from_data_list(chosen)
    columns = {**ours.columns, **ours.node_columns, **ours.edge_columns}
    for name in ("x", "edge_index", "batch", "ptr", *NODE_FIELDS, *EDGE_FIELDS, *GRAPH_FIELDS):
        mine = columns[name] if name in columns else getattr(ours, name)
        assert mine.dtype == theirs[name].dtype, name
        assert torch.equal(mine, theirs[name]), name
    assert ours.num_graphs == len(ours) == theirs.num_graphs
    assert (ours.num_nodes, ours.num_edges) == (theirs.num_nodes, theirs.num_edges)
    assert ours.index.tolist() == numbers
    assert torch.equal(ours.edge_batch, theirs.batch[theirs.edge_index[0]])


@settings(max_examples=40, deadline=None)
@given(graphs=graph_lists(), data=st.data())
def test_a_batch_of_any_graphs_in_any_order_is_that_of_pyg(graphs, data):
    order = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=12))
    assert_equals_pyg(packed(graphs).batch(order), [graphs[i] for i in order], order)


@settings(max_examples=40, deadline=None)
@given(graphs=graph_lists(), size=st.integers(1, 10))
def test_the_batches_of_an_epoch_are_those_of_pyg_and_the_last_may_be_smaller(graphs, size):
    starts = range(0, len(graphs), size)
    batches = list(packed(graphs).batches(size))
    assert len(batches) == len(starts)
    for start, batch in zip(starts, batches, strict=True):
        end = min(start + size, len(graphs))
        assert_equals_pyg(batch, graphs[start:end], list(range(start, end)))


@settings(max_examples=25, deadline=None)
@given(graphs=graph_lists(), size=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_shuffled_epoch_has_every_graph_once_with_its_own_nodes_and_edges(graphs, size, seed):
    g = torch.Generator().manual_seed(seed)
    seen = []
    for batch in packed(graphs).batches(size, shuffle=True, generator=g):
        numbers = batch.index.tolist()
        assert_equals_pyg(batch, [graphs[i] for i in numbers], numbers)
        seen += numbers
    assert sorted(seen) == list(range(len(graphs)))


def test_shuffling_follows_the_generator_and_nothing_else():
    graphs = packed([random_graph(2, i, torch.Generator().manual_seed(i)) for i in range(30)])

    def order(seed: int) -> list[int]:
        return graphs.shuffled(torch.Generator().manual_seed(seed)).index.tolist()

    torch.manual_seed(1)
    first = order(0)
    torch.manual_seed(2)
    assert order(0) == first
    assert order(1) != first


@pytest.mark.parametrize("size", [1, 2, 5, 100, None])
def test_awkward_graphs_are_batched_like_any_other(size):
    graphs, seen = awkward(), 0
    for batch in packed(graphs).batches(size):
        assert_equals_pyg(batch, graphs[seen : seen + len(batch)], list(range(seen, seen + len(batch))))
        seen += len(batch)
    assert seen == len(graphs)


@settings(max_examples=25, deadline=None)
@given(graphs=graph_lists())
def test_the_whole_set_as_one_batch_copies_no_node(graphs):
    ours = packed(graphs)
    assert_equals_pyg(ours.whole(), graphs, list(range(len(graphs))))
    assert ours.whole().x.data_ptr() == ours.x.data_ptr()
    assert ours.whole().edge_index.data_ptr() == ours.edge_index.data_ptr()


@settings(max_examples=25, deadline=None)
@given(graphs=graph_lists())
def test_a_round_trip_through_pyg_keeps_every_graph(graphs):
    for mine, theirs in zip(packed(graphs).to_pyg(), graphs, strict=True):
        for name in ("edge_index", *NODE_FIELDS, *EDGE_FIELDS, *GRAPH_FIELDS):
            assert torch.equal(mine[name], theirs[name]), name


CHOICES = {
    "slice": (slice(1, 4), [1, 2, 3]),
    "backwards": (slice(None, None, -1), [4, 3, 2, 1, 0]),
    "number": (3, [3]),
    "from the end": (-1, [4]),
    "list": ([2, -5, 2], [2, 0, 2]),
    "range": (range(2, 5), [2, 3, 4]),
    "positions": (torch.tensor([4, 0]), [4, 0]),
    "small positions": (torch.tensor([4, 0], dtype=torch.int32), [4, 0]),
    "one position": (torch.tensor(2), [2]),
    "mask": (torch.tensor([True, False, True, False, False]), [0, 2]),
    "mask as a list": ([True, False, True, False, False], [0, 2]),
    "mask of numpy": (torch.tensor([True, False, True, False, False]).numpy(), [0, 2]),
}


@pytest.mark.parametrize("how", CHOICES)
def test_every_way_of_choosing_names_the_same_graphs(how):
    index, numbers = CHOICES[how]
    graphs = awkward()
    ours = packed(graphs)
    assert_equals_pyg(ours.batch(index), [graphs[i] for i in numbers], numbers)
    chosen = ours[index]
    assert_equals_pyg(chosen.whole(), [graphs[i] for i in numbers], numbers)


def test_the_number_of_a_graph_survives_selection_upon_selection():
    ours = packed(awkward())[[4, 2, 1]][1:]
    assert ours.index.tolist() == [2, 1]
    assert ours.batch([1, 0]).index.tolist() == [1, 2]


def test_choosing_nothing_gives_an_empty_set_and_an_empty_batch():
    nothing = packed(awkward())[[]]
    assert (len(nothing), nothing.num_nodes, nothing.num_edges, nothing.num_envs) == (0, 0, 0, 0)
    assert nothing.whole().num_graphs == 0
    assert packed(awkward()).batch([]).ptr.tolist() == [0]


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ([0, 5], "position 5 is outside a set of 5 samples"),
        (-6, "position -6 is outside a set of 5 samples"),
        ((slice(None), 1), "samples are chosen by a number, a slice, a list of numbers or a mask"),
        ("first", "samples are chosen by a number, a slice, a list of numbers or a mask"),
        (torch.ones(4, dtype=torch.bool), r"a mask over 5 samples has that many entries, not \(4,\)"),
        ([True, False], r"a mask over 5 samples has that many entries, not \(2,\)"),
        (torch.zeros(2, 2, dtype=torch.long), "flat list of positions"),
        ([0.5], "whole numbers"),
    ],
)
def test_a_choice_outside_the_set_is_one_sentence(index, said):
    with pytest.raises(ShiftproofError, match=said):
        packed(awkward()).batch(index)


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_needs_room_for_a_graph(size):
    with pytest.raises(ShiftproofError, match=f"at least one graph, not {size}"):
        packed(awkward()).batches(size)


def test_a_column_becomes_the_environment_by_name():
    ours = packed(awkward())
    grouped = ours.group_by("scaffold")
    assert grouped.env.tolist() == [0, 0, 1, 1, 2]
    assert grouped.num_envs == 3
    assert ours.env.tolist() == [0, 1, 2, 3, 0]
    with pytest.raises(ShiftproofError, match="unknown environment column 'scafold'; did you mean 'scaffold'"):
        ours.group_by("scafold")


def test_moving_a_batch_moves_every_tensor():
    moved = packed(awkward()).whole().to("meta")
    everything = [getattr(moved, name) for name in ("x", "edge_index", "batch", "ptr", "y", "edge_attr", "env")]
    everything += [moved.index, moved.node_truth, moved.edge_truth]
    everything += [*moved.columns.values(), *moved.node_columns.values(), *moved.edge_columns.values()]
    assert {tensor.device.type for tensor in everything} == {"meta"}


def test_moving_to_where_a_set_already_is_costs_nothing():
    ours = packed(awkward())
    assert ours.to("cpu") is ours
    batch = ours.whole()
    assert batch.to("cpu").x is batch.x


def test_the_description_counts_graphs_nodes_edges_and_environments():
    assert repr(packed(awkward())) == "GraphSet(5 graphs, 11 nodes, 5 edges, 3 features, environments=4)"


def test_a_feature_that_is_no_number_is_named_by_graph_and_row():
    ours = packed(awkward())
    ours.x[5, 1] = float("nan")
    said = r"^toy: node features hold NaN or infinity \(graph 3, row 1\); every value must be a finite number$"
    with pytest.raises(ShiftproofError, match=said):
        ours.check("toy")


def test_an_infinite_edge_feature_is_named_by_graph_and_row():
    ours = packed(awkward())
    ours.edge_attr[4, 0] = float("inf")
    with pytest.raises(ShiftproofError, match=r"toy: edge features hold NaN or infinity \(graph 3, row 2\)"):
        ours.check("toy")


@pytest.mark.parametrize(("value", "pair"), [(11, "0->7"), (3, "0->-1"), (-1, "0->-5")])
def test_an_edge_to_a_node_of_another_graph_or_of_none_is_named(value, pair):
    ours = packed(awkward())
    ours.edge_index[1, 2] = value
    said = f"toy: edge {pair} of graph 3 points to a node that does not exist; the graph has nodes 0 to 2"
    with pytest.raises(ShiftproofError, match=said):
        ours.check("toy")


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_the_classes_is_named(label):
    ours = packed(awkward())
    ours.y[2] = label
    with pytest.raises(ShiftproofError, match=f"toy: labels must be 0 to 2, but graph 2 has {label}"):
        ours.check("toy", num_classes=3)
    ours.check("toy")


def test_a_negative_environment_is_named():
    ours = packed(awkward())
    ours.env[4] = -1
    with pytest.raises(ShiftproofError, match="toy: environments are numbered from 0, but graph 4 has -1"):
        ours.check("toy")


@settings(max_examples=20, deadline=None)
@given(graphs=graph_lists())
def test_whole_graphs_pass_the_check(graphs):
    packed(graphs).check("toy", num_classes=3)


def test_large_finite_features_whose_sum_overflows_are_no_mistake():
    ours = packed(awkward())
    ours.x[:] = 3e38
    ours.check("toy")
