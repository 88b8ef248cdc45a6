"""Steps through fixed buffers, as a captured step sees them, are the steps as written."""

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.features import Bonsai, IFeAT, one_round, steps
from shiftproof.methods.base import DataShape, Network
from shiftproof.methods.erm import ERM
from shiftproof.nn import MLPFeaturizer


@pytest.fixture
def through_buffers(monkeypatch):
    """Rounds take the path of a GPU without capturing; yields how many steps went through the buffers."""
    used = []

    class Counted(steps.ReplayedSteps):
        def __init__(self, *given):
            super().__init__(*given, captured=False)

        def _replay(self):
            used.append(type(self.draws.data).__name__)
            return super()._replay()

    def switch() -> list[str]:
        monkeypatch.setattr(one_round, "RoundSteps", Counted)
        return used

    return switch


def trained(learner, network, data) -> list[torch.Tensor]:
    torch.manual_seed(0)
    featurizer, head = network()
    learner.fit(featurizer, head, data, inputs="batch")
    return [parameter.detach() for module in (featurizer, head) for parameter in module.parameters()]


def mlp() -> tuple[nn.Module, nn.Module]:
    return MLPFeaturizer(128, (16, 16)), nn.Linear(16, 1)


def gnn() -> tuple[nn.Module, nn.Module]:
    method = ERM(DataShape.of(GRAPHS), network=Network("gin", hidden=8, layers=2, dropout=0.0))
    return method.featurizer, method.head


DIGITS = sp.load("colored-digits").train[:300]
GRAPHS = sp.load("spmotif-struc", bias=0.9, train_per_class=30, val_per_class=3, test_per_class=3)
QUICK = {"lr": 1e-2, "l2": 1e-3, "steps": 25}


@pytest.mark.parametrize("learner", [IFeAT, Bonsai])
@pytest.mark.parametrize("size", [None, 16])
def test_tensors(learner, size, through_buffers):
    own = {"synthesis_steps": 10} if learner is Bonsai else {}
    plain = trained(learner(**QUICK, **own, batch_size=size), mlp, DIGITS)
    used = through_buffers()
    buffered = trained(learner(**QUICK, **own, batch_size=size), mlp, DIGITS)
    assert len(used) >= (50 if size is None else 40)
    for a, b in zip(plain, buffered, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("size", [None, 8])
def test_graphs_are_padded_without_a_trace(size, through_buffers):
    # not Adam: a bias before batch norm has no gradient but rounding, which Adam would blow up to full steps
    chosen = {"steps": 30, "lr": 1e-2, "batch_size": size, "rounds": 2, "optimizer": "sgd"}
    plain = trained(IFeAT(**chosen), gnn, GRAPHS.train)
    used = through_buffers()
    buffered = trained(IFeAT(**chosen), gnn, GRAPHS.train)
    assert used.count("GraphSet") >= 40
    for a, b in zip(plain, buffered, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_group_smaller_than_a_batch_is_trained_as_written(through_buffers):
    few = GRAPHS.train[:20]
    plain = trained(IFeAT(steps=5, batch_size=18, rounds=2, optimizer="sgd"), gnn, few)
    used = through_buffers()
    for a, b in zip(plain, trained(IFeAT(steps=5, batch_size=18, rounds=2, optimizer="sgd"), gnn, few), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(used) < 10
