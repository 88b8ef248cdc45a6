"""Bad arguments are refused in one sentence; good functions compile into one graph."""

import doctest

import pytest
import torch

import shiftproof.objectives as objectives
from shiftproof.errors import ShiftproofError

Z, ONE = torch.randn(4, 3), torch.randn(4)
Y, ENV = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 0, 1, 1])

MISTAKES = {
    "did you mean 'multiclass'": lambda: objectives.sample_losses(Z, Y, "multi-class"),
    "known: binary, multiclass, multilabel, regression": lambda: objectives.dummy_gradients(Z, Y, "xyz"),
    r"'multiclass' needs logits \[n, C\]": lambda: objectives.sample_losses(ONE, Y, "multiclass"),
    "'binary' needs one logit": lambda: objectives.sample_losses(Z, Y, "binary"),
    "'regression' needs one logit": lambda: objectives.sample_losses(ONE, Z, "regression"),
    "'multilabel' needs logits and labels": lambda: objectives.sample_losses(Z, Y, "multilabel"),
    "did you mean 'halves'": lambda: objectives.irm_penalty(Z, Y, ENV, 2, "multiclass", "halve"),
    r"expected shape \(4,\)": lambda: objectives.irm_penalty(Z, Y, ENV[:3], 2, "multiclass"),
    "unknown mode": lambda: objectives.nonnegative(ONE, "clip"),
    "unknown reduction": lambda: objectives.mean_risk(ONE, reduction="max"),
    "mean_risk needs num_envs": lambda: objectives.mean_risk(ONE, ENV),
    "ib_penalty needs num_envs": lambda: objectives.ib_penalty(Z, ENV),
    "spectral_decoupling needs num_envs": lambda: objectives.spectral_decoupling(Z, ENV),
    "unknown variant": lambda: objectives.supervised_contrastive(Z, Y, variant="hard"),
    "did you mean 'negatives'": lambda: objectives.supervised_contrastive(Z, Y, denominator="negative"),
    "goes with variant 'mul'": lambda: objectives.supervised_contrastive(
        Z, Y, variant="single", denominator="negatives"
    ),
    "'cnc' needs predicted": lambda: objectives.supervised_contrastive(Z, Y, variant="cnc"),
    "one class a sample": lambda: objectives.supervised_contrastive(Z, Y[:2]),
    "unknown normalize": lambda: objectives.hinge(ONE, ONE, normalize="mean"),
    "unknown solver": lambda: objectives.infer_environments(Z, Y, "multiclass", solver="lbfgs"),
    "calibrates the task": lambda: objectives.clove_penalty(ONE, ONE, ENV, 2, "regression"),
    "width must be at least": lambda: objectives.mmce(ONE.sigmoid(), ONE > 0, width=0.0),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_is_answered_with_one_sentence(sentence):
    with pytest.raises(ShiftproofError, match=sentence):
        MISTAKES[sentence]()


def test_the_example_of_the_package_runs():
    outcome = doctest.testmod(objectives)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_the_table_of_contents_is_complete():
    assert all(hasattr(objectives, name) for name in objectives.__all__)
    public = {n for n, v in vars(objectives).items() if callable(v) and not n.startswith("_")}
    assert public == set(objectives.__all__)


HOT = {
    "sample_losses": lambda z, y, env: objectives.sample_losses(z, y, "multiclass").sum(),
    "env_risks": lambda z, y, env: objectives.env_risks(z[:, 0], env, 3)[0].sum(),
    "irm": lambda z, y, env: objectives.irm_penalty(z, y, env, 3, "multiclass"),
    "irm halves": lambda z, y, env: objectives.irm_penalty(z, y, env, 3, "multiclass", "halves"),
    "vrex": lambda z, y, env: objectives.vrex_penalty(*objectives.env_risks(z[:, 0], env, 3)),
    "ib": lambda z, y, env: objectives.ib_penalty(z, env, 3),
    "fishr": lambda z, y, env: objectives.fishr_penalty(z, z, y, env, 3, "multiclass"),
    "mul": lambda z, y, env: objectives.supervised_contrastive(z, y),
    "var": lambda z, y, env: objectives.supervised_contrastive(z, y, variant="var"),
    "negatives": lambda z, y, env: objectives.supervised_contrastive(z, y, denominator="negatives"),
    "cnc": lambda z, y, env: objectives.supervised_contrastive(z, y, variant="cnc", predicted=y.flip(0)),
    "hinge": lambda z, y, env: objectives.hinge(z[:, 0], z[:, 1]),
    "gce": lambda z, y, env: objectives.generalised_cross_entropy(z, y).sum(),
    "clove": lambda z, y, env: objectives.clove_penalty(z, y, env, 3, "multiclass"),
}


@pytest.mark.parametrize("name", HOT)
def test_compiled_into_one_graph_it_gives_the_same(name):
    """The eager backend traces without generating code: a host sync or a data-dependent shape would break the graph."""
    z = Z.clone().requires_grad_()
    compiled = torch.compile(HOT[name], fullgraph=True, backend="eager")
    actual, expected = compiled(z, Y, ENV), HOT[name](z, Y, ENV)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (actual, expected)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", HOT)
def test_on_cuda_it_gives_the_same_without_waiting_for_the_device(name):
    z = Z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(HOT[name](z, Y, ENV), z)
    on_device = [v.cuda() for v in (Z, Y, ENV)]
    on_device[0].requires_grad_()
    HOT[name](*on_device).backward()  # the first call may load kernels, which waits
    on_device[0].grad = None
    torch.cuda.set_sync_debug_mode("error")
    try:
        HOT[name](*on_device).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(on_device[0].grad.cpu(), expected)
