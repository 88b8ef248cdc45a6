"""Batches padded to a fixed size train exactly as the plain ones do."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shiftproof as sp
from shiftproof.data import GraphSet
from shiftproof.data.padding import pad_batches, room_for
from shiftproof.methods import ERM, DataShape, Network


def random_graphs(count: int, seed: int, *, edge_dim: int | None = None) -> GraphSet:
    g = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 9, (count,), generator=g)
    counts = torch.randint(0, 12, (count,), generator=g)
    owner = torch.repeat_interleave(torch.arange(count), counts)
    edges = (torch.rand(2, int(counts.sum()), generator=g) * sizes[owner]).long()
    edge_attr = None if edge_dim is None else torch.randn(edges.shape[1], edge_dim, generator=g)
    y, env = torch.randint(3, (count,), generator=g), torch.randint(2, (count,), generator=g)
    x = torch.randn(int(sizes.sum()), 4, generator=g)
    return GraphSet.from_parts(sizes, counts, edges, x=x, y=y, env=env, edge_attr=edge_attr)


def filled(padded, number: int):
    """The buffer of a captured step with one slot copied into it."""
    buffer = padded.buffer()
    for name, value in zip(padded.names, padded.slot(number), strict=True):
        getattr(buffer, name).copy_(value)
    return buffer


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("virtual_node", [False, True])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_padding_changes_neither_loss_nor_gradient_nor_running_statistics(conv, virtual_node, edge_dim):
    graphs = random_graphs(12, 0, edge_dim=edge_dim)
    padded = pad_batches(graphs, 6, nodes=70, edges=90)
    assert padded.fits == (True, True)
    torch.manual_seed(0)
    shape = DataShape("graphs", "multiclass", 3, (4,), edge_dim, 2, 12)
    plain = ERM(shape, network=Network(conv, hidden=8, layers=2, virtual_node=virtual_node)).double()
    captured = copy.deepcopy(plain)
    for number in range(2):
        losses = []
        for method, batch in ((plain, padded.plain(number)), (captured, filled(padded, number))):
            floats = {"x": batch.x.double()} | ({} if edge_dim is None else {"edge_attr": batch.edge_attr.double()})
            loss = method.losses(batch.replace(**floats))["task"]
            loss.backward()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-10, atol=1e-12)
    for (name, ours), theirs in zip(captured.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10, msg=name)
    buffers = dict(plain.named_buffers())
    assert any("running_var" in name for name in buffers)
    for name, ours in captured.named_buffers():
        torch.testing.assert_close(ours, buffers[name], rtol=1e-10, atol=1e-12, msg=name)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), size=st.integers(1, 6), nodes=st.integers(2, 40), edges=st.integers(0, 40))
def test_a_slot_holds_its_batch_or_says_that_there_was_no_room(seed, size, nodes, edges):
    graphs = random_graphs(11, seed)
    padded = pad_batches(graphs, size, nodes, edges)
    batches = list(graphs.batches(size))
    assert len(padded) == len(batches)
    for number, batch in enumerate(batches):
        room = batch.num_nodes < nodes and batch.num_edges <= edges and len(batch) == size
        assert padded.fits[number] == room
        plain = padded.plain(number)
        assert torch.equal(plain.x, batch.x)
        assert torch.equal(plain.edge_index, batch.edge_index)
        if not room:
            continue
        slot = filled(padded, number)
        n, m = batch.num_nodes, batch.num_edges
        assert (slot.num_nodes, slot.num_edges, slot.num_graphs) == (nodes, edges, size)
        assert slot.node_mask.tolist() == [True] * n + [False] * (nodes - n)
        for name in ("x", "batch"):
            assert torch.equal(getattr(slot, name)[:n], getattr(batch, name)), name
        for name in ("y", "env", "index", "ptr"):
            assert torch.equal(getattr(slot, name), getattr(batch, name)), name
        assert torch.equal(slot.edge_index[:, :m], batch.edge_index)
        assert (slot.batch[n:] == size).all()
        assert (slot.edge_index[:, m:] == nodes - 1).all()


def test_slots_hold_the_batches_of_every_epoch_and_not_much_more():
    graphs = sp.load("spmotif-struc", train_per_class=300, val_per_class=2, test_per_class=2).train
    nodes, edges = room_for(graphs, 32)
    order = torch.Generator().manual_seed(0)
    for _ in range(30):
        shuffled = graphs.shuffled(order)
        assert max(int(part.sum()) for part in shuffled.sizes.split(32)) <= nodes
        assert max(int(part.sum()) for part in shuffled.edge_counts.split(32)) <= edges
    assert nodes < 1.35 * 32 * float(graphs.sizes.double().mean())


def sized(sizes: torch.Tensor) -> GraphSet:
    """Graphs without edges."""
    nothing = torch.zeros(len(sizes), dtype=torch.long)
    return GraphSet.from_parts(sizes, nothing, torch.zeros(2, 0), x=torch.ones(int(sizes.sum()), 1))


def test_slots_hold_a_graph_that_is_larger_than_all_others():
    drawn = torch.randint(10, 40, (2000,), generator=torch.Generator().manual_seed(0))
    graphs = sized(torch.cat([drawn, torch.tensor([100_000])]))
    nodes, edges = room_for(graphs, 32)
    assert 100_600 < nodes < 101_200
    assert edges == 0
    order = torch.Generator().manual_seed(1)
    assert all(max(int(p.sum()) for p in graphs.shuffled(order).sizes.split(32)) <= nodes for _ in range(50))


def test_slots_for_all_graphs_at_once_for_one_and_for_none():
    sizes = torch.randint(1, 60, (133,), generator=torch.Generator().manual_seed(0))
    for size in (133, 1000):  # nothing is random
        assert room_for(sized(sizes), size) == (int(sizes.sum()), 0)
    assert room_for(sized(torch.tensor([7])), 3) == (7, 0)
    assert room_for(sized(torch.zeros(0, dtype=torch.long)), 3) == (0, 0)


def test_slots_of_batches_from_groups_follow_the_groups():
    """A group that is hardly longer than a batch says little of the other, which is long."""
    sizes = torch.randint(10, 40, (1200,), generator=torch.Generator().manual_seed(0))
    groups = [torch.arange(1160), torch.arange(1160, 1200)]
    nodes, _ = room_for(sized(sizes), 32, groups)
    order = torch.Generator().manual_seed(1)
    for _ in range(300):
        drawn = [group[torch.randperm(len(group), generator=order)[:32]] for group in groups]
        assert int(sizes[torch.cat(drawn)].sum()) <= nodes
    assert nodes < 1.35 * 64 * float(sizes.double().mean())
