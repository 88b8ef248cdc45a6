"""Where compiled loops serve, and how they are shared out."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
from types import ModuleType

import pytest
import torch

from shiftproof.nn import WeightedGCNConv, WeightedGINConv
from shiftproof.nn.edge_rows import EdgeRows
from shiftproof.nn.kernels import cpu
from shiftproof.nn.kernels import dispatch as sums
from shiftproof.nn.kernels.cpu import availability as on_cpu
from shiftproof.nn.kernels.cpu.availability import loops_serve, most_pieces, shared_out
from shiftproof.nn.stacking import stacking
from tests.nn.families import assert_close, random_graphs, seeded

pytest.importorskip("numba", reason="compiled loops need Numba")


def test_they_serve_numbers_of_one_precision():
    one, double = torch.zeros(2, 2), torch.zeros(2, dtype=torch.double)
    assert loops_serve(one, None, one)
    assert loops_serve(double)
    assert not loops_serve(one, double)
    assert not loops_serve(one.bfloat16())
    assert not loops_serve(one.to("meta"))


def test_somebody_who_stacks_transforms_or_watches_gets_operations_of_torch():
    seen = []

    def look(x):
        seen.append(loops_serve(torch.zeros(2)))
        return x

    torch.func.vmap(look)(torch.zeros(3))
    with stacking(2):
        look(None)
    with torch._subclasses.FakeTensorMode():
        look(None)
    with torch.autograd.forward_ad.dual_level():
        look(None)
    assert seen == [False] * 4
    assert loops_serve(torch.zeros(2))


@pytest.mark.parametrize("conv", [WeightedGINConv, WeightedGCNConv])
def test_derivatives_forwards_go_through_layers(conv):
    batch = random_graphs(seed=1).whole()
    layer = conv(3, 2).double().eval()
    x = torch.randn(batch.num_nodes, 3, generator=seeded(0), dtype=torch.double)
    along = torch.randn(x.shape, generator=seeded(1), dtype=torch.double)
    _, found = torch.func.jvp(lambda x: layer(x, batch.edge_index), (x,), (along,))
    step = 1e-6
    ahead, behind = layer(x + step * along, batch.edge_index), layer(x - step * along, batch.edge_index)
    assert_close(found, (ahead - behind) / (2 * step), atol=1e-4)


def test_the_environment_does_without(monkeypatch):
    module = "shiftproof.nn.kernels.cpu.availability"
    code = f"import torch; from {module} import loops_serve; print(loops_serve(torch.zeros(1)))"
    for value, served in (("0", "False"), ("1", "True")):
        monkeypatch.setenv("SHIFTPROOF_KERNELS", value)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == served


def test_without_numba_layers_do_the_same(monkeypatch):
    batch = random_graphs(seed=1).whole()
    layer, x = WeightedGINConv(3, 2), torch.randn(batch.num_nodes, 3, generator=seeded(0))
    monkeypatch.setattr(sums, "WORTH_A_LOOP", 0)
    found = layer(x, batch.edge_index)
    on_cpu._at_hand.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "shiftproof.nn.kernels.cpu.loops", raising=False)
    monkeypatch.delattr(cpu, "loops", raising=False)
    monkeypatch.setattr(sums, "loop_over_neighbours", None)
    try:
        assert_close(layer(x, batch.edge_index), found, atol=1e-5)
    finally:
        monkeypatch.undo()
        on_cpu._at_hand.cache_clear()


def test_a_numba_that_cannot_be_loaded_is_said_once_and_done_without(monkeypatch):
    on_cpu._at_hand.cache_clear()
    monkeypatch.delitem(sys.modules, "shiftproof.nn.kernels.cpu.loops", raising=False)
    monkeypatch.delattr(cpu, "loops", raising=False)
    monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))  # has nothing in it
    try:
        with pytest.warns(UserWarning, match="Numba cannot be used here"):
            assert not loops_serve(torch.zeros(2))
        assert not loops_serve(torch.zeros(2))
    finally:
        monkeypatch.undo()
        on_cpu._at_hand.cache_clear()


def test_not_inside_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert not loops_serve(torch.zeros(2))


def test_few_messages_are_not_worth_a_loop(monkeypatch):
    layer, loops = WeightedGINConv(64, 4), []
    loop = sums.loop_over_neighbours
    monkeypatch.setattr(sums, "loop_over_neighbours", lambda *given, **more: loops.append(1) or loop(*given, **more))
    for edges, several in ((100, False), (100, True), (5000, False)):
        index = torch.randint(0, 50, (2, edges), generator=seeded(0))
        layer(torch.zeros(50, *([60] if several else []), 64), index, torch.ones(edges, 60) if several else None)
    assert len(loops) == 2  # of many samples, and of many edges


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_threads_share_everything_and_meet_nowhere(monkeypatch, size):
    monkeypatch.setattr(on_cpu, "FEWEST", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    parts = []
    shared_out(lambda *part: parts.append(part), size, numbers=1000, pieces=most_pieces(size))
    assert sorted(number for _, first, last in parts for number in range(first, last)) == list(range(size))
    assert sorted(piece for piece, _, _ in parts) == list(range(len(parts)))
    assert len(parts) == min(max(size, 1), 3)


def test_an_error_of_any_thread_is_raised(monkeypatch):
    monkeypatch.setattr(on_cpu, "FEWEST", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)

    def fails(first, last):
        if last == 9:
            raise ValueError("the last part")

    with pytest.raises(ValueError, match="the last part"):
        shared_out(fails, 9, numbers=1000)


def test_all_parts_are_over_when_an_error_is_raised(monkeypatch):
    monkeypatch.setattr(on_cpu, "FEWEST", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    over, started = [], threading.Event()

    def loop(first, last):
        if first == 0:
            started.wait(10)
            raise ValueError("the first part")
        started.set()
        time.sleep(0.1)
        over.append(last)

    with pytest.raises(ValueError, match="the first part"):
        shared_out(loop, 9, numbers=1000)
    assert over == [9]


def _in_a_copy(found) -> None:
    done: list = []
    shared_out(lambda first, last: done.append(last - first), 9, numbers=1000)
    found.put(sum(done))


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be copied there")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_copy_of_the_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(on_cpu, "FEWEST", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    shared_out(lambda first, last: None, 9, numbers=1000)  # threads are there before it is copied
    copies = multiprocessing.get_context("fork")
    found = copies.Queue()
    child = copies.Process(target=_in_a_copy, args=(found,))
    child.start()
    assert found.get(timeout=60) == 9
    child.join()


@pytest.mark.parametrize("features", [2, 9], ids=["fewer features than columns", "more"])
def test_two_maps_of_edge_features_are_one(features):
    torch.manual_seed(0)
    edge = torch.randn(7, features, dtype=torch.double)
    first, second = torch.nn.Linear(features, 4).double(), torch.nn.Linear(4, 5).double()
    rows = EdgeRows.of(EdgeRows.of(edge, first), second)
    assert_close(rows.made(), second(first(edge)), atol=1e-12)
    left, right = rows.factors()
    assert right is not None
    assert_close(left @ right, rows.made(), atol=1e-12)
    assert rows.width == min(features, 4)


def test_where_nothing_can_be_kept_loops_are_compiled_anew(monkeypatch):
    from numba.core.caching import CacheImpl

    from shiftproof.nn.kernels.cpu import loops

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # as on a read-only disk

    @loops.compiled
    def twice(x):
        return 2 * x

    assert twice(3) == 6


def test_what_is_kept_of_a_loop_is_of_the_files_as_they_are(monkeypatch):
    from shiftproof.nn.kernels.cpu import loops

    def twice(x):
        return 2 * x

    first, same = loops._Kept(twice), loops._Kept(twice)
    monkeypatch.setattr(loops, "_STAMP", ((0.0, 0),))
    changed = loops._Kept(twice)
    assert first._cache_file._source_stamp == same._cache_file._source_stamp != changed._cache_file._source_stamp


def test_code_of_other_arguments_is_not_taken_and_a_full_disk_is_no_error(monkeypatch, tmp_path):
    from numba import int64, njit
    from numba.core.caching import FunctionCache

    from shiftproof.nn.kernels.cpu import loops

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def twice(x):
        return 2 * x

    kept, other = loops._Kept(twice), njit((int64,))(twice).overloads[(int64,)]
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: other)
    assert kept.load_overload((int64,), None) is other
    assert kept.load_overload((int64, int64), None) is None

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", full)
    kept.save_overload((int64,), other)
