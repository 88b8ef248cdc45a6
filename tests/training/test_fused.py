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
    method = ERM(DataShape.of(data), network=Network(conv="gin", hidden=8, layers=2))
    padded = pad_batches(data.train, 24, 1024, 2048)
    buffer = padded.buffer()
    for name, field in zip(padded.names, padded.slot(0), strict=True):
        getattr(buffer, name).copy_(field)

    def loss_and_gradients(loss: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        return loss.detach(), torch.autograd.grad(loss, list(method.parameters()))

    plain, wanted = loss_and_gradients(method.losses(padded.plain(0))["task"])
    fused, found = loss_and_gradients(fused_losses(method)(buffer)["task"])
    assert torch.isclose(fused, plain, rtol=1e-5)
    largest = max(float(grad.abs().max()) for grad in wanted)
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one, other, atol=1e-4 * largest)
