"""Losses compiled for padded batches are the losses of the batch, padding and all left out."""

import pytest
import torch

import shiftproof as sp
from shiftproof.data.padding import pad_batches
from shiftproof.methods import ERM, DataShape, Network
from shiftproof.training.steps import fused_losses


@pytest.mark.slow
def test_fused_losses_of_a_padded_batch_are_those_of_the_plain_one() -> None:
    data = sp.load("two-piece", train_per_class=8, val_per_class=1, test_per_class=1)
    torch.manual_seed(0)
    method = ERM(DataShape.of(data), network=Network(conv="gin", hidden=8, layers=2)).double()
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
