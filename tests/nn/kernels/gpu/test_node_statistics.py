"""The GPU kernels of message statistics, run by Triton's interpreter, give what torch's own operations give."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from shiftproof.errors import ShiftproofError
from shiftproof.nn import Wiring
from shiftproof.nn.convs import AGGREGATORS, WeightedPNAConv
from shiftproof.nn.kernels import dispatch as sums
from shiftproof.nn.kernels.gpu import node_statistics as statistics
from shiftproof.nn.kernels.gpu.node_statistics import kernel_serves, node_statistics
from shiftproof.nn.kernels.reference import ByNode
from shiftproof.nn.stacking import stacking
from tests.nn.ways import take

pytest.importorskip("triton", reason="the kernels need Triton")

WIDTH, OUT, SAMPLES = 5, 4, 7  # samples of two tiles, the second with a place left
# a hub, a chain, parallel edges, a loop, and nodes that nothing reaches
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EDGES = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 1, 1, 8], [0, 0, 0, 0, 1, 5, 6, 2, 2, 8]], device=DEVICE)
NODES, COUNT = 10, 10


@pytest.fixture
def kernels(monkeypatch):
    """Layers that take the kernels, as they would on a GPU."""
    take(monkeypatch, "kernels")


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return drawn(*shape, seed=seed).requires_grad_()


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def coins() -> torch.Tensor:
    return (drawn(COUNT, SAMPLES, seed=4) > 0).float()


def both_ways(monkeypatch, conv, x, weight, edge=None, mask=None):
    """Outcome and gradients with the kernels, and with torch's own operations in double precision."""
    found = []
    for way, dtype in (("kernels", torch.float32), ("torch", torch.float64)):
        take(monkeypatch, way)
        layer = deepcopy(conv).to(dtype)
        given = [None if value is None else value.detach().to(dtype) for value in (x, weight, edge)]
        for own, value in zip(given, (x, weight, edge), strict=True):
            if own is not None:
                own.requires_grad_(value.requires_grad)
        inputs = [value for value in (*given, *layer.parameters()) if value is not None and value.requires_grad]
        out = layer(given[0], Wiring(EDGES, NODES, mask), *given[1:])
        out = out if mask is None else out[mask]
        into = drawn(*out.shape, seed=7).to(dtype)
        slopes = torch.autograd.grad((out * into).sum(), inputs, allow_unused=True, materialize_grads=True)
        found.append((out.float(), [slope.float() for slope in slopes]))
    return found


def assert_same(found) -> None:
    (ours, our_grads), (theirs, their_grads) = found
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for own, other in zip(our_grads, their_grads, strict=True):
        assert_close(own, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("names", [AGGREGATORS, ("mean", "min", "max", "std"), ("sum",), ("std", "mean"), ("max",)])
@pytest.mark.parametrize("with_edges", [True, False], ids=["edge features", "no edge features"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "no weights"])
def test_one_weighting(kernels, monkeypatch, names, with_edges, weighted):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, 2 if with_edges else None, names).to(DEVICE)
    edge = numbers(COUNT, 2, seed=3) if with_edges else None
    weight = numbers(COUNT, seed=2) if weighted else None
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, WIDTH), weight, edge))


@pytest.mark.parametrize("zero", ["zero_message", "delete"])
@pytest.mark.parametrize("shared", [True, False], ids=["rows of all", "rows of each"])
def test_several_weightings_with_zeros(kernels, monkeypatch, shared, zero):
    torch.manual_seed(0)
    conv = WeightedPNAConv(WIDTH, OUT, 2, zero=zero).to(DEVICE)
    weight = (coins() * drawn(COUNT, SAMPLES, seed=2)).requires_grad_()
    x = numbers(NODES, *([] if shared else [SAMPLES]), WIDTH)
    assert_same(both_ways(monkeypatch, conv, x, weight, numbers(COUNT, 2, seed=3)))


def test_messages_that_tie_share_the_gradient_of_an_extreme(kernels, monkeypatch):
    """Weights of zero and one make ties. Without deviations, whose slope is anything where all messages are equal."""
    conv = WeightedPNAConv(WIDTH, OUT, 2, ("min", "max", "mean")).to(DEVICE)
    x = drawn(1, WIDTH, seed=0).repeat(NODES, 1).requires_grad_()
    assert_same(both_ways(monkeypatch, conv, x, coins().requires_grad_(), numbers(COUNT, 2, seed=3)))


def test_messages_that_are_nearly_equal_keep_the_slope_of_their_deviation(kernels, monkeypatch):
    """E[m²] - E[m]² would leave nothing of a variance that is a millionth of the square."""
    conv = WeightedPNAConv(WIDTH, OUT, None, ("std",)).to(DEVICE)
    x = (5 + drawn(NODES, WIDTH, seed=0) / 200).requires_grad_()
    assert_same(both_ways(monkeypatch, conv, x, None))


def test_rows_of_each_sample_without_weights_or_with_the_same_for_all(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT).to(DEVICE)
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, SAMPLES, WIDTH), None))
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, SAMPLES, WIDTH), numbers(COUNT, seed=1)))


def test_padding_gets_nothing_and_changes_nothing(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT, 2).to(DEVICE)
    mask = torch.arange(NODES, device=DEVICE) < 8  # the loop is at a node of the padding
    weight, edge = numbers(COUNT, seed=1), numbers(COUNT, 2, seed=3)
    assert_same(both_ways(monkeypatch, conv, numbers(NODES, WIDTH), weight, edge, mask))


def test_rows_that_do_not_lie_side_by_side(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT).to(DEVICE)
    x = drawn(WIDTH, NODES, seed=0).t().requires_grad_()
    assert_same(both_ways(monkeypatch, conv, x, numbers(COUNT, seed=1)))


def test_a_stack_has_the_statistics_of_each_network(kernels):
    """Graphs, weights and rows of three networks; the edge rows are the same in all."""
    edges = torch.stack([EDGES, EDGES.flip(0), (EDGES + 3) % NODES])
    x, weight, edge = numbers(3, NODES, WIDTH), numbers(3, COUNT, seed=1), numbers(COUNT, WIDTH, seed=2)

    def one(x, weight, edge_index):
        by_node = ByNode.of(edge_index[1], NODES)
        return node_statistics(x, weight, edge, edge_index[0], by_node, AGGREGATORS)

    with stacking(3):
        stacked = torch.func.vmap(one)(x, weight, edges)
    alone = torch.stack([one(*given) for given in zip(x, weight, edges, strict=True)])
    assert_close(stacked, alone)
    into = drawn(*alone.shape, seed=5)
    grads = (torch.autograd.grad((out * into).sum(), (x, weight, edge)) for out in (stacked, alone))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_gradient_of_a_gradient(kernels, monkeypatch):
    conv = WeightedPNAConv(WIDTH, OUT, 2).to(DEVICE)
    x, weight, edge = numbers(NODES, WIDTH), numbers(COUNT, seed=1), numbers(COUNT, 2, seed=3)
    found = []
    for serves in (True, False):
        monkeypatch.setattr(sums, "kernel_serves", lambda x, serves=serves: serves)
        out = conv(x, Wiring(EDGES, NODES), weight, edge)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, edge)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_what_a_pass_over_samples_holds(monkeypatch):
    assert not kernel_serves(torch.zeros(2, 2))
    for way, held in (("kernels", "statistics"), ("loops", "rows"), ("torch", "messages")):
        take(monkeypatch, way)
        assert WeightedPNAConv(WIDTH, OUT).held(torch.zeros(4, 3)) == held


ON_GPU = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)


def test_deterministic_algorithms_are_not_the_kernels(monkeypatch):
    """They add gradients up in the order in which programs come to it."""
    monkeypatch.setattr(statistics, "_works_on", lambda device: True)
    assert kernel_serves(ON_GPU)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert not kernel_serves(ON_GPU)


def test_where_triton_cannot_build_a_kernel_torch_does_it(monkeypatch):
    works_on = statistics._works_on.__wrapped__
    assert works_on(torch.device(DEVICE))
    assert torch.func.vmap(lambda x: x + works_on(x.device))(torch.zeros(2, device=DEVICE)).tolist() == [1, 1]
    monkeypatch.setenv("SHIFTPROOF_KERNELS", "0")
    assert not works_on(torch.device(DEVICE))
    monkeypatch.delenv("SHIFTPROOF_KERNELS")

    def forward(*_):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one")

    monkeypatch.setattr(statistics._NodeStatistics, "forward", forward)
    with pytest.warns(UserWarning, match="Failed to find C compiler"):
        assert not works_on(torch.device(DEVICE))


def test_kernels_run_on_the_device_of_their_rows(monkeypatch):
    """Triton starts them on the current one."""
    entered, plain = [], torch.cuda.device_of
    monkeypatch.setattr(torch.cuda, "device_of", lambda x: entered.append(x.shape) or plain(x))
    x = numbers(NODES, WIDTH)
    node_statistics(x, None, None, EDGES[0], ByNode.of(EDGES[1], NODES), AGGREGATORS).sum().backward()
    assert entered == [(NODES, 1, WIDTH)] * 2


def test_both_kernels_are_told_to_round_every_product(monkeypatch):
    told, plain = [], statistics._Launch.constants
    monkeypatch.setattr(statistics._Launch, "constants", lambda *a: told.append(plain(*a)) or told[-1])
    x = numbers(NODES, WIDTH)
    node_statistics(x, None, None, EDGES[0], ByNode.of(EDGES[1], NODES), AGGREGATORS).sum().backward()
    assert [one["enable_fp_fusion"] for one in told] == [False] * 4  # two parts, forwards and backwards


@pytest.mark.filterwarnings("ignore:invalid value")  # what the interpreter says of inf - inf
@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_lost(monkeypatch, name, value):
    conv = WeightedPNAConv(WIDTH, OUT, None, (name,)).to(DEVICE)
    x = drawn(NODES, WIDTH, seed=0)
    x[3, 2] = value
    found = []
    for serves in (True, False):
        monkeypatch.setattr(sums, "kernel_serves", lambda x, serves=serves: serves)
        found.append(conv(x, Wiring(EDGES, NODES)))
    assert_close(*found, equal_nan=True)


def test_a_mask_that_is_a_column_of_a_table():
    mask = torch.stack([torch.arange(NODES) < 8, torch.arange(NODES) % 2 == 0], 1).to(DEVICE)[:, 0]
    given = drawn(NODES, WIDTH, seed=0), None, None, EDGES[0], ByNode.of(EDGES[1], NODES), AGGREGATORS
    assert_close(node_statistics(*given, real=mask), node_statistics(*given, real=mask.contiguous()))


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU would need the memory")
def test_samples_far_apart_in_memory(tmp_path):
    """Their places are beyond what 32 bits count; the file between them is empty."""
    apart = 2**30 + 64
    rows = torch.from_file(str(tmp_path / "rows"), shared=True, size=2 * apart + NODES * WIDTH, dtype=torch.float32)
    x = rows.as_strided((NODES, 3, WIDTH), (WIDTH, apart, 1))
    x.copy_(drawn(NODES, 3, WIDTH, seed=0))
    given = None, None, EDGES[0], ByNode.of(EDGES[1], NODES), AGGREGATORS
    assert_close(node_statistics(x, *given), node_statistics(x.contiguous(), *given))


@pytest.mark.parametrize(("samples", "tile"), [(1, 1), (3, 1), (5, 2), (7, 2), (80, 2), (101, 2)])
def test_few_places_of_a_tile_stay_empty(samples, tile):
    assert statistics.tile_of(samples) == tile


def test_no_more_warps_than_a_gpu_has():
    rows = torch.zeros(1, 1, 5000)
    edge = torch.zeros(1, dtype=torch.long)
    work = statistics._Launch(rows, None, None, edge, (edge, edge, edge), None, ("sum",), False)
    assert work.constants(0)["num_warps"] == 32


def test_aggregators_are_different_ones():
    with pytest.raises(ShiftproofError, match="different ones"):
        WeightedPNAConv(WIDTH, OUT, None, ("mean", "max", "mean"))
