"""Every graph method on a padded batch: what a captured step sees must cost what the plain batch costs."""

from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.data.padding import pad_batches
from shiftproof.registry import methods
from tests.methods.test_every_method import quick, small

# noise over edges or nodes, or a shuffle
DRAWS = {"gsat", "lri-bernoulli", "gib", "gmt-lin", "gmt-sam"}
GRAPH_METHODS = [entry.name for entry in methods if not entry.tags or "graphs" in entry.tags]


def padded_and_plain(graphs):
    batches = pad_batches(graphs, len(graphs), graphs.num_nodes + 9, graphs.num_edges + 7)
    buffer = batches.buffer()
    for name, value in zip(batches.names, batches.slot(0), strict=True):
        getattr(buffer, name).copy_(value)
    return buffer, batches.plain(0)


@pytest.mark.parametrize("method", GRAPH_METHODS)
def test_padding_does_not_change_the_losses(method):
    data = small("spmotif-mixed")
    run = sp.fit(method, data, **quick(method, data))
    if not run.method.how_trained.capturable or not any(p.requires_grad for p in run.method.parameters()):
        pytest.skip("is never given padded batches")
    train = data.train
    padded, plain = padded_and_plain(replace(train, index=torch.arange(len(train))))
    run.method.train()
    start = {name: value.clone() for name, value in run.method.state_dict().items()}
    found = []
    for batch in (padded, plain):
        run.method.load_state_dict(start)  # running means move with every call
        torch.manual_seed(0)
        found.append({name: value.item() for name, value in run.method.losses(batch).items()})
    assert all(torch.isfinite(torch.tensor(v)) for v in found[0].values())
    if method not in DRAWS:
        assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-4)
