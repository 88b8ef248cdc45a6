"""Losses compiled for padded batches are the losses of the batch, padding and all left out."""

import pytest
import torch

import shiftproof as sp
from shiftproof.data.padding import pad_batches
from shiftproof.methods import ERM, DataShape, Network
from shiftproof.training.balance import Weighted
from shiftproof.training.optimizers import LeanAdam
from shiftproof.training.steps import FusedStepper, fused_losses


@pytest.mark.slow
def test_fused_losses_of_a_padded_batch_are_those_of_the_plain_one() -> None:
    data = sp.load("two-piece", train_per_class=8, val_per_class=1, test_per_class=1)
    torch.manual_seed(0)
    method = ERM(DataShape.of(data), network=Network("gin", hidden=8, layers=2)).double()
    padded = pad_batches(data.train, 24, 1024, 2048)
    buffer = padded.buffer()
    for name, field in zip(padded.names, padded.slot(0), strict=True):
        getattr(buffer, name).copy_(field)

    def loss_and_gradients(loss: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        return loss.detach(), torch.autograd.grad(loss, list(method.parameters()))

    # in double precision: the features are constant, so batch norm divides by little
    plain, fused = (batch.replace(x=batch.x.double()) for batch in (padded.plain(0), buffer))
    loss, wanted = loss_and_gradients(method.losses(plain)["task"])
    again, found = loss_and_gradients(fused_losses(method)(fused)["task"])
    assert torch.isclose(again, loss)
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one, other, atol=1e-8)


def test_a_step_that_cannot_be_fused_is_captured_as_it_is_and_not_tried_again(monkeypatch) -> None:
    method = ERM(DataShape.of(sp.load("two-bit:per_env=8")), network=Network(widths=(4,)))
    stepper = FusedStepper(method, LeanAdam(method.parameters(), lr=1e-3), Weighted())
    tried = []

    def capture(step, losses):
        tried.append("plain" if losses == stepper.losses else "fused")
        return "no compiler" if tried[-1] == "fused" else None

    monkeypatch.setattr(stepper, "_capture_once", capture)
    with pytest.warns(UserWarning, match="cannot be fused \\(no compiler\\)"):
        stepper._capture(0)
    stepper._capture(1)
    assert tried == ["fused", "plain", "plain"]
    assert stepper.usable
