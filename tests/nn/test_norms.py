import pytest
import torch

from shiftproof.errors import ShiftproofError
from shiftproof.nn import GraphInstanceNorm, NodeBatchNorm
from tests.nn.families import assert_close, assert_gradients_match_finite_differences, seeded


def twins(channels: int = 4, **options) -> tuple[NodeBatchNorm, NodeBatchNorm]:
    pair = NodeBatchNorm(channels, **options), NodeBatchNorm(channels, **options)
    for norm in pair:
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 2, channels))
            norm.bias.copy_(torch.linspace(-1, 1, channels))
    return pair


def assert_same_buffers(a: torch.nn.Module, b: torch.nn.Module) -> None:
    for name, value in a.named_buffers():
        assert_close(value.double(), b.get_buffer(name).double())


def test_without_a_mask_it_is_torch_batch_norm():
    ours, _ = twins()
    theirs = torch.nn.BatchNorm1d(4)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(7, 4, generator=seeded(0))
    for _ in range(3):
        assert torch.equal(ours(x), theirs(x))
    assert_same_buffers(ours, theirs)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("parallel", [None, 3])
@pytest.mark.parametrize("samples", ["per_sample", "pooled"])
def test_padding_rows_move_neither_outputs_nor_statistics_nor_gradients(parallel, samples):
    plain, masked = twins(samples=samples)
    shape = (6, 4) if parallel is None else (6, parallel, 4)
    x = torch.randn(shape, generator=seeded(0)).requires_grad_()
    junk = torch.cat([x.detach()[:2], torch.full((3, *shape[1:]), 50.0), x.detach()[2:]]).requires_grad_()
    mask = torch.tensor([1, 1, 0, 0, 0, 1, 1, 1, 1], dtype=torch.bool)
    expected, found = plain(x), masked(junk, mask)[mask]
    assert_close(found, expected)
    assert_same_buffers(masked, plain)
    (expected**3).sum().backward()
    (found**3).sum().backward()
    assert_close(junk.grad[mask], x.grad, atol=1e-4)
    assert torch.equal(junk.grad[~mask], torch.zeros_like(junk.grad[~mask]))
    assert_close(masked.weight.grad, plain.weight.grad, atol=1e-4)
    assert_close(masked.eval()(junk, mask)[mask], plain.eval()(x))


def test_parallel_samples_equal_a_loop_over_the_samples():
    together, looped = twins()
    x = torch.randn(5, 3, 4, generator=seeded(0))
    expected = torch.stack([looped(x[:, i]) for i in range(3)], 1)
    assert_close(together(x), expected)
    assert_same_buffers(together, looped)


def test_pooled_samples_equal_one_long_batch():
    together, flat = twins(samples="pooled")
    x = torch.randn(5, 3, 4, generator=seeded(0))
    assert_close(together(x), flat(x.reshape(15, 4)).view(5, 3, 4))
    assert_same_buffers(together, flat)


def test_a_single_row_has_no_spread_and_no_row_changes_nothing():
    norm, _ = twins()
    x = torch.randn(1, 4, generator=seeded(0)).requires_grad_()
    out = norm(x)
    assert_close(out, norm.bias.unsqueeze(0))
    out.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    assert_close(norm.running_mean, 0.1 * x.detach()[0])
    assert_close(norm.running_var, torch.full((4,), 0.9))
    before = norm.running_mean.clone()
    assert norm(torch.zeros(0, 4)).shape == (0, 4)
    assert norm(torch.zeros(0, 2, 4)).shape == (0, 2, 4)
    assert torch.equal(norm.running_mean, before)
    assert norm.eval()(torch.zeros(0, 4)).shape == (0, 4)


def test_gradients_of_the_masked_norm():
    norm = NodeBatchNorm(2).double()
    mask = torch.tensor([True, False, True, True])
    x = torch.randn(4, 2, generator=seeded(0))
    assert_gradients_match_finite_differences(lambda v: norm(v, mask)[mask], x)


def test_instance_norm_equals_a_loop_over_the_graphs():
    group = torch.tensor([0, 2, 0, 2, 2, 3])
    x = torch.randn(6, 4, generator=seeded(0))
    out = GraphInstanceNorm(4)(x, group, 5)
    for g in (0, 2):
        rows = x[group == g]
        assert_close(out[group == g], (rows - rows.mean(0)) / (rows.var(0, unbiased=False) + 1e-5).sqrt())
    assert torch.equal(out[5], torch.zeros(4))


def test_instance_norm_can_scale_and_shift_and_has_gradients():
    norm = GraphInstanceNorm(2, affine=True).double()
    group = torch.tensor([0, 0, 1, 0])
    assert_gradients_match_finite_differences(lambda v: norm(v, group, 2), torch.randn(4, 2, generator=seeded(0)))
    assert [n for n, _ in norm.named_parameters()] == ["weight", "bias"]


def test_unknown_statistics_are_named():
    with pytest.raises(ShiftproofError, match="did you mean 'pooled'"):
        NodeBatchNorm(4, samples="pool")


@pytest.mark.parametrize("shape", [(9, 3), (9, 2, 3)])
def test_instance_norm_is_differentiated_once_and_twice_like_its_formula(shape):
    group = torch.tensor([0, 0, 0, 2, 2, 3, 2, 0, 2])  # in any order, group 1 empty, group 3 of one row
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    norm = GraphInstanceNorm(3)

    def several(rows):
        return norm(rows, group, 5) * torch.arange(3, dtype=torch.float64)

    assert torch.autograd.gradcheck(several, x)
    assert torch.autograd.gradgradcheck(several, x)


def test_the_norm_of_padded_rows_refuses_second_derivatives_instead_of_giving_wrong_ones():
    norm, x = NodeBatchNorm(3).train(), torch.randn(6, 3, requires_grad=True)
    real = torch.arange(6) < 5
    (slope,) = torch.autograd.grad(norm(x, real)[:5].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()
