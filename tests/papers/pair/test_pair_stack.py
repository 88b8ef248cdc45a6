"""Many regressions at once are the same as each by itself, and their programme is the one of the solver."""

import numpy as np
import pytest
import torch

from shiftproof.data import load
from shiftproof.objectives import irm_penalty
from shiftproof.papers.pair.side_by_side import Member, Stack, solve_three
from shiftproof.pareto import PreferenceSolver
from tests.pareto.programmes import KINDS, instance, programme

DATA = load("extrapolation", train_size=400, val_size=10, test_size=10)
MEMBERS = (
    Member(0, 0),
    Member(0, 0, penalties=(1e-2, 1e-1), anneal=(1.0, 1.0)),
    Member(0, 1, preference=(1, 1e4, 1e12), anneal=(0.0, 1.0)),
)


def stack_of(*members: Member) -> Stack:
    return Stack(members, [DATA], lr=1e-3, eps=0.1, device=torch.device("cpu"))


@pytest.mark.parametrize("eps", [1e-4, 0.1, 10.0])
def test_three_objectives_are_solved_as_one_by_one(eps):
    rng = np.random.default_rng(0)
    drawn = [instance(rng, 3, KINDS[n % len(KINDS)]) for n in range(140)]
    losses, gramians, preference = (np.stack(column) for column in zip(*drawn, strict=True))
    preference /= preference.sum(1, keepdims=True)
    found, fell = solve_three(*(torch.from_numpy(a) for a in (losses, gramians, preference)), eps)
    assert fell.any() or eps < 0.1
    for alpha, back, loss, gramian, wanted in zip(found.numpy(), fell, losses, gramians, preference, strict=True):
        solver = PreferenceSolver(wanted, eps=eps)
        alone = solver.weights(loss, gramian)
        assert alone.fallback == bool(back)
        if back:
            np.testing.assert_allclose(alpha, wanted)
            continue
        objective = programme(solver, loss, gramian, alone.mode)[0]
        scale = max(np.abs(objective).max(), 1e-300)
        assert objective @ alpha / scale == pytest.approx(objective @ alone.weights / scale, abs=1e-7)


def test_losses_and_gradients_are_those_of_autograd():
    stack = stack_of(*MEMBERS)
    before = [w.clone().requires_grad_() for w in stack.weights]
    stack._step(stack.index[:, :, 0], True)  # all positions are zero: the first point of each environment
    x, y = stack.x[0, :, :1].expand(-1, stack.per, -1).flatten(0, 1), stack.y[0, :, :1].expand(-1, stack.per).flatten()
    env = torch.arange(2).repeat_interleave(stack.per)
    for number in range(len(MEMBERS)):
        w1, b1, w2, b2, w3, b3 = (w[number] for w in before)
        f = (torch.relu(torch.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3).squeeze(1)
        risks = torch.stack([(f - y)[env == e].square().mean() for e in (0, 1)])
        terms = torch.stack([risks.mean(), irm_penalty(f, y, env, 2, "regression"), risks.var()])
        np.testing.assert_allclose(stack.losses[number], terms.detach(), rtol=1e-4)
        gradients = torch.autograd.grad(terms @ stack.alpha[number].float(), before)
        for slot, gradient in zip(stack.first, gradients, strict=True):  # Adam's first average is a tenth of it
            np.testing.assert_allclose(slot[number], 0.1 * gradient[number], rtol=1e-3, atol=1e-7)


def test_a_member_is_trained_as_it_would_be_alone():
    together, alone = stack_of(*MEMBERS), stack_of(MEMBERS[2])
    for stack in (together, alone):
        for epoch in range(4):
            stack.train_epoch(balance=epoch >= 2)
    np.testing.assert_allclose(together.losses[2], alone.losses[0], rtol=1e-3)


def test_training_goes_on_from_its_state_and_refreshes_only_fixed_weights():
    stack, other = stack_of(*MEMBERS), stack_of(*MEMBERS)
    stack.train_epoch(balance=False)
    other.load(stack.state())
    for one in (stack, other):
        one.refresh()
        one.train_epoch(balance=True)
    assert all(torch.equal(a, b) for a, b in zip(stack.weights, other.weights, strict=True))
    assert stack.count.tolist() == [10, 10, 20]
    assert stack.epoch == other.epoch == 2
