"""The lean optimiser takes exactly the steps of torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from shiftproof.training.optimizers import LeanAdam


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def take(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(5, 3, generator=generator)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch_bit_for_bit(weight_decay: float) -> None:
    ours, theirs = model(), model()
    take(ours, LeanAdam(ours.parameters(), lr=1e-2, weight_decay=weight_decay), 20)
    take(theirs, torch.optim.Adam(theirs.parameters(), lr=1e-2, weight_decay=weight_decay, fused=True), 20)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_survives_a_round_trip_and_goes_on_equally() -> None:
    whole, first = model(), model()
    straight = LeanAdam(whole.parameters(), lr=1e-2)
    take(whole, straight, 5, seed=1)
    take(whole, straight, 5, seed=2)
    before = LeanAdam(first.parameters(), lr=1e-2)
    take(first, before, 5, seed=1)
    after = LeanAdam(first.parameters(), lr=1e-2)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    take(first, after, 5, seed=2)
    for a, b in zip(whole.parameters(), first.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_forgotten_state_starts_anew() -> None:
    ours, theirs = model(), model()
    optimizer = LeanAdam(ours.parameters(), lr=1e-2)
    take(ours, optimizer, 3, seed=1)
    optimizer.state.clear()
    take(ours, optimizer, 3, seed=2)
    take(theirs, LeanAdam(theirs.parameters(), lr=1e-2), 3, seed=1)
    take(theirs, LeanAdam(theirs.parameters(), lr=1e-2), 3, seed=2)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_parameter_without_gradient_stays_and_may_join_later() -> None:
    net = model()
    optimizer = LeanAdam(net.parameters(), lr=1e-2)
    resting = net[2].weight.detach().clone()
    net[2].requires_grad_(False)
    take(net, optimizer, 2)
    assert torch.equal(net[2].weight, resting)
    net[2].requires_grad_(True)
    take(net, optimizer, 2)
    assert not torch.equal(net[2].weight, resting)
