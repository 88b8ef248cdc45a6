"""What torch does not promise is still there and still means what is believed; and nothing else private is used."""

import re
import sys
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from shiftproof.runtime import torch_internals

SOURCE = Path(__file__).parents[2] / "src" / "shiftproof"
PRIVATE = re.compile(r"\btorch\._(?!foreach_|_version)\w+|\bforward_ad\._\w+|from torch\._\w+|numba\.(core|np)\b")
HOMES = {"runtime/torch_internals.py", "nn/kernels/cpu/loops.py"}


def test_private_names_of_torch_and_numba_have_one_home_each():
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).as_posix() not in HOMES
        for line in path.read_text().splitlines()
        if PRIVATE.search(line) and "`torch._compile`" not in line
    }
    assert not found, "; ".join(sorted(found))


def test_layers_of_pyg_are_imported_in_one_place():
    layers = re.compile(r"torch_geometric(\.nn|\.utils|\.explain\.algorithm\.utils| import nn)")
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(layers.search(line) for line in path.read_text().splitlines() if "import" in line)
    ]
    assert found == ["nn/pyg_layers.py"]


def test_transforms_and_modes_are_seen():
    seen = []

    def look(x):
        seen.append((torch_internals.is_transformed(), torch_internals.is_watched()))
        return x

    look(torch.ones(1))
    torch.func.vmap(look)(torch.ones(2, 1))
    with torch.autograd.forward_ad.dual_level():
        look(torch.ones(1))

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Watching():
        look(torch.ones(1))
    assert seen == [(False, False), (True, False), (True, False), (False, True)]


def test_many_gradients_at_once_are_seen():
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, grad):
            seen.append(torch_internals.is_batched_gradient(grad))
            return 2 * ctx.saved_tensors[0] * grad

    x = torch.ones(3, requires_grad=True)
    torch.autograd.grad(Square.apply(x), x, torch.ones(3))
    torch.autograd.grad(Square.apply(x), x, torch.eye(3), is_grads_batched=True)
    assert seen == [False, True]


def test_the_fused_step_is_that_of_torchs_adam():
    plain, fused = (torch.nn.Parameter(torch.arange(3.0)) for _ in range(2))
    plain.grad = torch.tensor([1.0, -2.0, 0.5])
    torch.optim.Adam([plain], lr=0.1).step()
    averages, squares, steps = [torch.zeros(3)], [torch.zeros(3)], [torch.ones(())]
    with torch.no_grad():
        torch_internals.fused_adam(
            [fused], [plain.grad], averages, squares, [], steps,
            lr=0.1, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
    torch.testing.assert_close(fused, plain)


def test_the_wrapper_of_the_compiler_is_taken_off_and_no_other():
    taken = torch_internals.without_compiler(torch.optim.Adam.zero_grad)
    assert taken.__globals__["__name__"] != "torch._compile"

    def mine():
        return "mine"

    assert torch_internals.without_compiler(mine) is mine


def test_recomputing_more_is_a_setting_that_is_put_back():
    with torch_internals.recomputing_more():
        config = sys.modules["torch._functorch.config"]
        assert config.aggressive_recomputation
    assert not config.aggressive_recomputation
