"""A captured step leaves everything as it was before the warm-up; the GPU is a stand-in that runs what it is given."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from shiftproof.training import capture as capturing
from shiftproof.training.capture import CannotCapture, capture, capture_if_possible


class Graph:
    """Does nothing on replay."""

    def replay(self) -> None:
        return None


class Stream:
    def __init__(self, device=None) -> None:
        pass

    def wait_stream(self, other) -> None:
        return None


@pytest.fixture(autouse=True)
def stand_in_for_a_gpu(monkeypatch):
    device = torch.device("cpu")
    for name, value in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "current_stream": lambda device=None: Stream(),
        "stream": lambda side: nullcontext(),
        "graph": lambda graph: nullcontext(),
        "synchronize": lambda device=None: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return device


def training(seed: int = 0) -> tuple[nn.Linear, torch.optim.Optimizer, list[int]]:
    torch.manual_seed(seed)
    module = nn.Linear(3, 1)
    return module, torch.optim.Adam(module.parameters(), lr=0.1), []


@pytest.mark.parametrize("before", [0, 2])
def test_weights_state_and_random_numbers_are_as_before(before):
    module, optimizer, calls = training()

    def step():
        calls.append(1)
        optimizer.zero_grad()
        loss = (module(torch.rand(5, 3)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(before):
        step()
    calls.clear()
    weights = [p.clone() for p in module.parameters()]
    averages = [s["exp_avg"].clone() for s in optimizer.state.values()]
    numbers = torch.get_rng_state()
    captured = capture(
        step, device=torch.device("cpu"), tensors=list(module.state_dict().values()), optimizer=optimizer
    )
    assert len(calls) == capturing.WARM_UPS + 1
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))
    assert torch.equal(numbers, torch.get_rng_state())
    now = [s["exp_avg"] for s in optimizer.state.values()]
    assert all(torch.equal(a, b) for a, b in zip(averages or [torch.zeros_like(n) for n in now], now, strict=True))
    assert torch.is_tensor(captured())


def test_a_step_that_cannot_be_captured_is_said_and_leaves_nothing_behind():
    module, optimizer, _ = training()
    weights = [p.clone() for p in module.parameters()]

    def step():
        with torch.no_grad():
            module.weight.add_(1)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    given = {"device": torch.device("cpu"), "tensors": list(module.state_dict().values()), "optimizer": optimizer}
    with pytest.raises(CannotCapture, match=r"^operation not permitted when stream is capturing$"):
        capture(step, **given)
    with pytest.warns(UserWarning, match=r"these heads cannot be captured \(operation not permitted"):
        assert capture_if_possible(step, "these heads", **given) is None
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))
