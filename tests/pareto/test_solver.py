"""The solver where things go wrong or are special, and the balancers beside it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from shiftproof.data.generated.two_bit import TwoBit
from shiftproof.errors import ShiftproofError
from shiftproof.pareto import FixedWeights, MinNorm, PreferenceSolver, SmoothedSolver, dominates, front, nonuniformity
from tests.pareto.programmes import instance

seeds = st.integers(0, 10_000)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, count=st.integers(2, 6))
def test_min_norm_finds_the_shortest_vector(seed, count):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(count, rng.integers(1, 8)))
    found = MinNorm().weights(np.ones(count), gradients @ gradients.T)
    alpha = found.weights
    assert alpha.min() >= 0
    assert alpha.sum() == pytest.approx(1)
    direction = alpha @ gradients
    # optimality: every gradient has at least the squared length along the shortest vector
    assert (gradients @ direction >= direction @ direction - 1e-8 * np.square(gradients).sum(1).max()).all()
    assert found.mode == "min-norm"


def test_min_norm_of_two_is_the_closed_form():
    gramian = np.array([[4.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(MinNorm().weights((1, 1), gramian).weights, (2 / 7, 5 / 7))
    np.testing.assert_allclose(MinNorm().weights((1, 1), np.array([[1.0, 2.0], [2.0, 9.0]])).weights, (1, 0))
    np.testing.assert_allclose(MinNorm().weights((1, 1), np.zeros((2, 2))).weights, (0.5, 0.5))


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_min_norm_agrees_with_a_general_solver(seed):
    _, gramian, _ = instance(np.random.default_rng(seed), 4, "plain")
    alpha = MinNorm().weights(np.ones(4), gramian).weights
    sum_one = {"type": "eq", "fun": lambda a: a.sum() - 1}
    other = minimize(lambda a: a @ gramian @ a, np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=[sum_one], tol=1e-12)
    assert alpha @ gramian @ alpha <= other.fun + 1e-7 * np.abs(gramian).max()


def test_all_balancers_say_what_is_wrong():
    assert MinNorm().weights((1, 1), np.full((2, 2), np.nan)).fallback
    with pytest.raises(ShiftproofError, match="a positive finite number for each objective"):
        PreferenceSolver((1, -1))
    with pytest.raises(ShiftproofError, match="needs 2 losses and their Gram matrix"):
        PreferenceSolver((1, 1)).weights((1, 1, 1), np.eye(3))
    with pytest.raises(ShiftproofError, match="unknown compat 'released'"):
        PreferenceSolver((1, 1), compat="released")
    with pytest.raises(ShiftproofError, match="one finite number an objective"):
        FixedWeights([1, np.inf])


def test_losses_that_are_all_zero_are_balanced():
    found = PreferenceSolver((1, 1e6)).weights((0, 0), np.eye(2))
    assert (found.mode, found.nonuniformity) == ("dominance", 0.0)


def test_gradients_that_are_all_zero_leave_any_weights_of_the_simplex():
    found = PreferenceSolver((1, 2, 3)).weights((1, 2, 1), np.zeros((3, 3)))
    assert found.mode == "balance"
    assert found.weights.sum() == pytest.approx(1)


def stuck():
    """The minimum of the risk on the two-bit problem, where it is still far from the preference.

    Source: docs/papers/pair.md#solver-on-the-two-bits.
    """
    x = torch.tensor(TwoBit(0.1, (0.255,)).pareto_set(1)[0], requires_grad=True)
    problem = TwoBit(0.1, (0.11, 0.4))
    risks, dummies = problem.risks(x[0], x[1]), problem.dummy_gradients(x[0], x[1])
    terms = (risks.mean(), dummies.square().mean(), risks.var())
    gradients = torch.stack([torch.autograd.grad(term, x, retain_graph=True)[0] for term in terms])
    gradients[0] = 0
    return [term.item() for term in terms], (gradients @ gradients.T).numpy(), (1, 1e2, 1e2)


def test_the_guard_gets_an_iteration_going_that_would_stand_still():
    losses, gramian, preference = stuck()
    plain = PreferenceSolver(preference).weights(losses, gramian)
    np.testing.assert_allclose(plain.weights, (1, 0, 0))
    guarded = PreferenceSolver(preference, guard=True).weights(losses, gramian)
    assert guarded.weights[0] == 0
    assert guarded.weights @ gramian @ guarded.weights > 1e-3 * np.diag(gramian).max()


def test_the_released_tolerance_lets_small_rows_be_violated_and_ours_does_not():
    gradients = 1e-4 * np.array([[1.0, 0.0], [-1.0, 0.2]])
    gramian, losses = gradients @ gradients.T, (0.1, 0.9)
    ours = PreferenceSolver((0.5, 0.5)).weights(losses, gramian).weights
    released = PreferenceSolver((0.5, 0.5), compat="reference").weights(losses, gramian).weights
    np.testing.assert_allclose(ours, PreferenceSolver((0.5, 0.5)).weights(losses, 1e8 * gramian).weights, atol=1e-9)
    assert np.allclose(released, PreferenceSolver((0.5, 0.5), compat="reference").weights(losses, gramian).weights)
    three = 1e-4 * np.array([[1.0, 0.0, 0.5], [-0.5, 1.0, 0.0], [0.0, -0.5, 1.0]])
    gramian = three @ three.T
    strict, loose = (
        PreferenceSolver((1, 2, 4), compat=c).weights((0.5, 0.25, 0.25), gramian) for c in (None, "reference")
    )
    np.testing.assert_allclose(strict.weights, (0, 0.1725474, 0.8274526), atol=1e-6)
    np.testing.assert_allclose(loose.weights, (0, 0, 1), atol=1e-9)


def test_the_smoothed_solver_restarts_its_preference_once_it_is_met():
    solver = SmoothedSolver((0.5, 0.25, 0.25))
    losses = 1 / np.array([0.5, 0.25, 0.25])
    first = solver.weights(losses, np.eye(3))
    assert solver.restarts == 1
    assert solver.preference[0] == pytest.approx(0.5 / 1e4 / (0.5 / 1e4 + 0.5))
    assert first.mode == "balance"
    other = SmoothedSolver((0.5, 0.25, 0.25))
    other.load_state_dict(solver.state_dict())
    np.testing.assert_array_equal(other.weights(losses, np.eye(3)).weights, solver.weights(losses, np.eye(3)).weights)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_the_smoothed_solver_looks_at_directions_only(seed):
    losses, gramian, preference = instance(np.random.default_rng(seed), 3, "plain")
    size = np.array([1.0, 1e-3, 50.0])
    one, other = (SmoothedSolver(preference).weights(losses, g) for g in (gramian, gramian * np.outer(size, size)))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-7)


def test_dominance_is_strict_somewhere_and_nowhere_worse():
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((1, 4), (2, 3))
    with pytest.raises(ShiftproofError, match="have one length"):
        dominates((1, 2), (1, 2, 3))


@settings(max_examples=30, deadline=None)
@given(seed=seeds, count=st.integers(1, 40), objectives=st.integers(1, 4))
def test_the_front_is_what_nobody_dominates(seed, count, objectives):
    points = np.random.default_rng(seed).integers(0, 5, (count, objectives)).astype(float)  # ties on purpose
    wanted = [n for n in range(count) if not any(dominates(other, points[n]) for other in points)]
    assert front(points).tolist() == wanted


def test_a_more_even_vector_is_closer_to_the_preference():
    assert nonuniformity((1, 1, 1.1), (1, 1, 1)) < nonuniformity((1, 1, 2), (1, 1, 1))
