import pytest
import torch

from shiftproof.errors import ShiftproofError
from shiftproof.nn import pool, readout
from tests.nn.families import assert_close, awkward_graphs, padded, random_graphs, seeded


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
@pytest.mark.parametrize("parallel", [(), (2,)])
def test_readout_equals_a_loop_over_the_graphs(how, parallel):
    for graphs in (random_graphs(), awkward_graphs()):
        batch = graphs.whole()
        x = torch.randn(batch.num_nodes, *parallel, 5, generator=seeded(0))
        found = readout(x, batch, how)
        for i in range(len(graphs)):
            rows = x[batch.ptr[i] : batch.ptr[i + 1]]
            assert_close(found[i], rows.amax(0) if how == "max" else getattr(rows, how)(0))


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_graphs_without_nodes_give_zeros_also_at_the_end(how):
    x = -torch.ones(2, 3)
    assert_close(pool(x, torch.tensor([1, 1]), 4, how)[[0, 2, 3]], torch.zeros(3, 3))
    assert_close(pool(x[:0], torch.zeros(0, dtype=torch.long), 2, how), torch.zeros(2, 3))


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_padding_is_cut_off(how):
    batch = random_graphs().whole()
    more = padded(batch)
    assert_close(readout(more.x, more, how), readout(batch.x, batch, how))


def test_unknown_readout_is_named():
    with pytest.raises(ShiftproofError, match="unknown readout 'meen'; did you mean 'mean'"):
        pool(torch.ones(1, 1), torch.zeros(1, dtype=torch.long), 1, "meen")
