"""The GPU kernels of batch norm, run by Triton's interpreter, give what torch's own operations give."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from shiftproof.nn import NodeBatchNorm, norms
from shiftproof.nn.kernels.gpu import sample_norm
from shiftproof.nn.kernels.gpu.sample_norm import norm_of_samples
from shiftproof.nn.stacking import stacking

pytest.importorskip("triton", reason="the kernels need Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NODES, SAMPLES, WIDTH = 150, 7, 5  # more than one block of rows and of columns, none of them full


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def masks() -> dict[str, torch.Tensor | None]:
    first = torch.arange(NODES, device=DEVICE)
    return {"all": None, "some": first < 110, "one": first == 3, "none": first < 0}


def trained(affine: bool = True) -> NodeBatchNorm:
    norm = NodeBatchNorm(WIDTH, affine=affine).to(DEVICE)
    if affine:
        with torch.no_grad():
            norm.weight.copy_(drawn(WIDTH, seed=1))
            norm.bias.copy_(drawn(WIDTH, seed=2))
    return norm


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setattr(norms, "FEWEST_COLUMNS", 1)

    def use(serves: bool) -> None:
        monkeypatch.setattr(norms, "kernel_serves", lambda x: serves)

    return use


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("rows", ["all", "some", "one", "none"])
def test_a_norm(kernels, rows, affine, relu):
    """Outcome, gradients and running statistics."""
    mask = masks()[rows]
    found = []
    for serves in (True, False):
        kernels(serves)
        norm = trained(affine)
        x = (3 + 2 * drawn(NODES, SAMPLES, WIDTH)).requires_grad_()
        out = norm(x, mask, relu=relu)
        into = drawn(*out.shape, seed=7)
        into = into if mask is None else into * mask.view(-1, 1, 1)
        grads = torch.autograd.grad((out * into).sum(), [x, *norm.parameters()])
        found.append([out, *grads, norm.running_mean, norm.running_var, norm.num_batches_tracked])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_few_columns_and_evaluation_are_not_the_kernels(monkeypatch):
    monkeypatch.setattr(norms, "kernel_serves", lambda x: True)
    monkeypatch.setattr(norms, "norm_of_samples", None)
    trained()(drawn(NODES, SAMPLES, WIDTH))
    trained().eval()(drawn(NODES, 300, WIDTH))
    NodeBatchNorm(WIDTH, samples="pooled").to(DEVICE)(drawn(NODES, 300, WIDTH))


def test_a_stack_has_the_norms_of_each_network():
    x, weight, bias = drawn(3, NODES, SAMPLES * WIDTH), drawn(3, WIDTH, seed=1), drawn(WIDTH, seed=2)
    mask = torch.stack([torch.arange(NODES, device=DEVICE) < real for real in (150, 100, 3)])
    x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()

    def one(x, weight, mask):
        return norm_of_samples(x, weight, bias, mask, 1e-5, relu=True)

    with stacking(3):
        stacked = torch.func.vmap(one)(x, weight, mask)
    each = [one(*given) for given in zip(x, weight, mask, strict=True)]
    alone = [torch.stack(values) for values in zip(*each, strict=True)]
    for ours, theirs in zip(stacked, alone, strict=True):
        assert_close(ours, theirs)
    into = drawn(*x.shape, seed=5) * mask.unsqueeze(-1)
    grads = (torch.autograd.grad((out * into).sum(), (x, weight, bias)) for out in (stacked[0], alone[0]))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("padded", [True, False])
def test_a_stack_of_single_samples_is_the_kernels_too(kernels, padded, monkeypatch):
    """Outcome, gradients and running statistics of networks whose rows are of one sample."""
    asked = []
    monkeypatch.setattr(norms, "norm_of_samples", lambda *a, **k: asked.append(a) or norm_of_samples(*a, **k))
    mask = torch.stack([torch.arange(NODES, device=DEVICE) < real for real in (150, 100, 0)])
    found = []
    for serves in (True, False):
        kernels(serves)
        norm = trained()
        whole = {name: torch.stack([value.detach()] * 3) for name, value in norm.state_dict().items()}
        x = (3 + 2 * drawn(3, NODES, WIDTH)).requires_grad_()
        weight = whole["weight"].requires_grad_()

        def one(tensors, x, mask, norm=norm):
            return torch.func.functional_call(norm, tensors, (x, mask if padded else None), {"relu": True})

        with stacking(3):
            out = torch.func.vmap(one)(whole, x, mask)
        into = drawn(*out.shape, seed=7) * mask.unsqueeze(-1)
        found.append([out, *torch.autograd.grad((out * into).sum(), (x, weight)), *whole.values()])
        assert len(asked) == 1  # by the first way alone
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_gradient_of_a_gradient(kernels):
    mask = masks()["some"]
    found = []
    for serves in (True, False):
        kernels(serves)
        norm, x = trained(), drawn(NODES, SAMPLES, WIDTH).double().float().requires_grad_()
        if serves:
            out = norm(x, mask, relu=True)
        else:
            given = [norm.weight.unsqueeze(0), norm.bias.unsqueeze(0), mask.unsqueeze(0)]
            out = sample_norm.plain_norm(x.flatten(1).unsqueeze(0), *given, norm.eps, True).view(x.shape)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *norm.parameters()]))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
