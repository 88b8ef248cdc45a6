"""Linear maps of a stack of networks: the values and gradients of each network alone, in fewer operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from shiftproof.nn.stacked_linear import WholeLinear

NETWORKS, ROWS, IN, OUT = 3, 11, 5, 7


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def ask(module: nn.Module, tensors: dict, x: torch.Tensor, shared: bool = False) -> torch.Tensor:
    def one(tensors, x):
        return torch.func.functional_call(module, tensors, (x,))

    return torch.func.vmap(one, in_dims=(0, None if shared else 0))(tensors, x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(NETWORKS, ROWS, IN), (NETWORKS, ROWS, 2, IN), (NETWORKS, IN), (NETWORKS, 0, IN)])
def test_values_and_gradients_of_both_orders(shape, bias):
    module, x = nn.Linear(IN, OUT, bias=bias).double(), drawn(*shape, seed=0)
    tensors = {"weight": drawn(NETWORKS, OUT, IN, seed=1)} | ({"bias": drawn(NETWORKS, OUT, seed=2)} if bias else {})
    asked = [x, *tensors.values()]
    plain = ask(module, tensors, x)
    with WholeLinear():
        whole = ask(module, tensors, x)
    assert_close(whole, plain)
    found = []
    for out in (plain, whole):
        first = torch.autograd.grad(out.square().sum(), asked, create_graph=True)
        second = torch.autograd.grad(sum(slope.square().sum() for slope in first), asked)
        found.append([*first, *second])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert_close(ours, theirs)


def test_what_the_networks_share():
    module, x = nn.Linear(IN, OUT).double(), drawn(ROWS, IN, seed=0)
    tensors = {"weight": drawn(NETWORKS, OUT, IN, seed=1)}
    with WholeLinear():
        whole = ask(module, tensors, x, shared=True)
        alone = F.linear(x, module.weight, bias=module.bias)
    assert_close(whole, ask(module, tensors, x, shared=True))
    assert_close(alone, module(x))
    assert_close(
        *(torch.autograd.grad(out.square().sum(), x)[0] for out in (whole, ask(module, tensors, x, shared=True)))
    )


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def test_nothing_is_multiplied_by_one_or_copied():
    module, x = nn.Linear(IN, OUT).double(), drawn(NETWORKS, ROWS, IN, seed=0)
    tensors = {"weight": drawn(NETWORKS, OUT, IN, seed=1), "bias": drawn(NETWORKS, OUT, seed=2)}
    with Counting() as counted, WholeLinear():
        ask(module, tensors, x).sum().backward()
    assert counted.seen.count("bmm") == 3
    assert not {"mul", "copy_", "clone"} & {*counted.seen}
