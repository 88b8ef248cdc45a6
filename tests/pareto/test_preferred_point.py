"""PAIR as it comes reaches the preferred point of smooth convex losses, from every start and with every optimiser."""

import copy
import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import softplus

from shiftproof.errors import ShiftproofError
from shiftproof.pareto import PAIR, MinimaxSolver, PreferenceSolver
from shiftproof.pareto.quadratic import maximise_concave

A, B = torch.tensor([1.0, 0.0, 2.0]).double(), torch.tensor([-1.0, 0.5, 2.0]).double()
OPTIMISERS = {
    "sgd": lambda x, lr: torch.optim.SGD([x], lr=lr),
    "momentum": lambda x, lr: torch.optim.SGD([x], lr=lr, momentum=0.9),
    "nesterov": lambda x, lr: torch.optim.SGD([x], lr=lr, momentum=0.9, nesterov=True),
    "adam": lambda x, lr: torch.optim.Adam([x], lr=lr),
    "amsgrad": lambda x, lr: torch.optim.Adam([x], lr=lr, amsgrad=True),
    "adamw": lambda x, lr: torch.optim.AdamW([x], lr=lr, weight_decay=0.0),
    "rmsprop": lambda x, lr: torch.optim.RMSprop([x], lr=lr),
    "nadam": lambda x, lr: torch.optim.NAdam([x], lr=lr),
}


def trained(losses, preference, start, *, steps=300, lr=0.1, inner="sgd", **options):
    """Where PAIR leads from a start, with the largest weighted loss at every step."""
    x = torch.tensor(np.asarray(start, float), requires_grad=True)
    names = [f"loss {number}" for number in range(len(losses))]
    optimizer = PAIR(OPTIMISERS[inner](x, lr), dict(zip(names, map(float, preference), strict=True)), **options)
    worst = []
    for _ in range(steps):
        found = optimizer.step({name: loss(x) for name, loss in zip(names, losses, strict=True)})
        worst.append(max(p * value for p, value in zip(preference, found.losses.values(), strict=True)))
    return x.detach().numpy(), values(losses, x.detach().numpy()), worst


def values(losses, x):
    return np.array([float(loss(torch.tensor(x))) for loss in losses])


def quadratic(rng, size, floor=0.0):
    turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
    shape = torch.tensor(turned @ np.diag(rng.uniform(0.5, 4, size)) @ turned.T)
    centre = torch.tensor(2 * rng.normal(size=size))
    return (lambda x: (x - centre) @ shape @ (x - centre) / 2 + floor), centre.numpy()


def logistic(rng, size):
    x = torch.tensor(1.5 * rng.normal(size=(40, size)))
    signs = torch.tensor(np.where(x.numpy() @ rng.normal(size=size) + rng.logistic(size=40) > 0, 1.0, -1.0))

    def loss(theta):
        return softplus(-signs * (x @ theta)).mean() + 0.05 * theta @ theta

    found = minimize(lambda theta: float(loss(torch.tensor(theta))), np.zeros(size), tol=1e-12)
    return loss, found.x


def smallest_largest(losses, preference, starts):
    """The least of the largest weighted losses, by a general solver (SLSQP) that knows nothing of PAIR."""
    ray = np.min(preference) / np.asarray(preference)

    def slopes(x):
        rows = []
        for loss in losses:
            theta = torch.tensor(x, requires_grad=True)
            rows.append(torch.autograd.grad(loss(theta), theta)[0].numpy())
        return np.array(rows)

    best = np.inf
    for x in starts:
        for _ in range(5):  # each time in units of what was found
            unit = (values(losses, x) / ray).max() * ray
            rows = {
                "type": "ineq",
                "fun": lambda z, u=unit: z[-1] - values(losses, z[:-1]) / u,
                "jac": lambda z, u=unit: np.hstack([-slopes(z[:-1]) / u[:, None], np.ones((len(u), 1))]),
            }
            last = np.append(np.zeros(len(x)), 1.0)
            options = {"maxiter": 300, "ftol": 1e-15}
            found = minimize(
                lambda z: z[-1], np.append(x, 1.0), jac=lambda z, s=last: s, constraints=[rows], method="SLSQP",
                options=options,
            )  # fmt: skip
            x = found.x[:-1]
        best = min(best, (values(losses, x) / ray).max())
    return best * np.min(preference)


@pytest.mark.parametrize("start", [(3, -2, 0), (-3, 1, 4), (2, -1, 3), (1, 0, 2), (-1, 0.5, 2), (1, 1e-5, 2)], ids=str)
@pytest.mark.parametrize("preference", [(1, 1), (1, 4), (7, 1)], ids=str)
def test_two_quadratics_end_on_the_preferred_ray_and_on_the_front(preference, start):
    """Descent that no loss may rise in drives the nearer one to zero and stays there."""
    losses = [lambda x: (x - A).square().sum(), lambda x: (x - B).square().sum()]
    x, found, _ = trained(losses, preference, start, steps=120)
    far, near = np.sqrt(preference)  # distances to the optima are as the roots of the losses
    wanted = (far * A.numpy() + near * B.numpy()) / (far + near)
    np.testing.assert_allclose(x, wanted, atol=1e-6)
    np.testing.assert_allclose(found[0] * preference[0], found[1] * preference[1], rtol=1e-6)


@pytest.mark.parametrize("inner", OPTIMISERS)
@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_any_inner_optimiser_gets_there_from_beside_an_optimum(inner, lr):
    losses = [lambda x: (x - A).square().sum(), lambda x: (x - B).square().sum()]
    steps = 1200 if lr == 0.01 and inner not in ("momentum", "nesterov") else 300
    _, found, _ = trained(losses, (1, 4), A.numpy() + 1e-4, steps=steps, lr=lr, inner=inner)
    distance = float((A - B).norm())
    np.testing.assert_allclose(np.sqrt(found), [2 / 3 * distance, 1 / 3 * distance], rtol=0.02)


def random_problem(seed):
    """Two to four quadratics and logistic losses, and a preference over four orders of magnitude."""
    rng = np.random.default_rng(seed)
    count, size = 2 + seed % 3, int(rng.integers(2, 6))
    made = [
        logistic(rng, size) if (seed // 3 + number) % 3 == 2 else quadratic(rng, size, floor=0.1 * (seed % 2) * number)
        for number in range(count)
    ]
    losses, optima = zip(*made, strict=True)
    return rng, losses, optima, rng.permutation(10 ** np.linspace(-2, 2, count))


@pytest.mark.parametrize("seed", range(9))
def test_the_largest_weighted_loss_is_as_small_as_it_can_be_and_never_rises(seed):
    rng, losses, optima, preference = random_problem(seed)
    best = smallest_largest(losses, preference, optima)
    start = optima[seed % len(optima)] + 1e-3 * rng.normal(size=len(optima[0]))
    _, found, worst = trained(losses, preference, start)
    assert (preference * found).max() == pytest.approx(best, rel=2e-3)
    assert np.diff(worst).max() <= 1e-4 * best  # what trying out whether the others can fall for nothing may cost


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 39))
def test_the_largest_weighted_loss_is_as_small_as_it_can_be_from_everywhere(seed):
    rng, losses, optima, preference = random_problem(seed)
    best = smallest_largest(losses, preference, optima)
    starts = [*optima, *(x + 1e-3 * rng.normal(size=len(x)) for x in optima), 3 * rng.normal(size=len(optima[0]))]
    cases = itertools.product(
        starts, [("sgd", 0.1, 500), ("sgd", 0.01, 4000), ("momentum", 0.05, 500), ("adam", 0.1, 800)]
    )
    for start, (inner, lr, steps) in cases:
        _, found, _ = trained(losses, preference, start, steps=steps, lr=lr, inner=inner)
        assert (preference * found).max() == pytest.approx(best, rel=0.01), (start, inner, lr)


def test_where_the_ray_misses_the_pareto_set_the_losses_end_at_its_nearest_point():
    """The first loss is at its minimum, 1, and the second could only be raised to match it."""
    losses = [lambda x: (x - A).square().sum() + 1, lambda x: (x - B).square().sum()]
    x, _, _ = trained(losses, (100, 1), (0, 0, 0), steps=200)
    np.testing.assert_allclose(x, A.numpy(), atol=1e-3)


def test_losses_that_can_fall_for_nothing_fall_though_the_largest_cannot():
    """The largest weighted loss knows nothing of the last coordinate, or of any."""
    flat = lambda x: x[:2].square().sum() + 5  # noqa: E731
    other = lambda x: (x[2] - 1).square() + 0.1 * x[0].square()  # noqa: E731
    x, _, _ = trained([flat, other], (1, 1), (2, 1, -1), steps=400)
    np.testing.assert_allclose(x, [0, 0, 1], atol=1e-3)
    constant = lambda x: 0 * x.sum() + 5  # noqa: E731
    x, _, _ = trained([constant, *map(lambda c: lambda x: (x - c).square().sum(), (A, B))], (1, 1, 1), (3, -2, 0))
    np.testing.assert_allclose(x, (A + B).numpy() / 2, atol=1e-3)


def test_the_released_behaviour_is_kept_and_its_options_belong_to_it():
    losses = [lambda x: (x - A).square().sum(), lambda x: (x - B).square().sum()]
    _, found, _ = trained(losses, (1, 1), (3, -2, 0), compat="reference")
    assert found.min() < 1e-10
    assert found.max() > 1
    x = torch.zeros(3, requires_grad=True)
    inner = torch.optim.SGD([x], lr=0.1)
    assert isinstance(PAIR(inner, {"a": 1, "b": 2}, eps=0.1, compat="reference").balancer, PreferenceSolver)
    for option in ({"eps": 0.1}, {"guard": True}):
        with pytest.raises(ShiftproofError, match=r"belongs to the released solver, PAIR\(..., compat='reference'\)"):
            PAIR(inner, {"a": 1, "b": 2}, **option)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [{}, {"compat": "reference"}, {"descent_steps": 9}], ids=str)
def test_a_loss_that_is_not_finite_stops_before_anything_moves(bad, options):
    x = torch.ones(3, requires_grad=True)
    optimizer = PAIR(torch.optim.SGD([x], lr=0.1, momentum=0.9), {"erm": 1, "irm": 10}, **options)
    optimizer.step({"erm": x.square().sum(), "irm": (x - 1).square().sum()})
    before = x.detach().clone()
    with pytest.raises(ShiftproofError, match=f"loss 'irm' is {bad} at step 1, and no parameter was moved"):
        optimizer.step({"erm": x.square().sum(), "irm": bad * x.sum()})
    assert torch.equal(x, before)
    assert x.grad is None
    assert optimizer.steps == 1


def test_a_gradient_that_is_not_finite_stops_too():
    x = torch.zeros(3, requires_grad=True)
    optimizer = PAIR(torch.optim.SGD([x], lr=0.1), {"erm": 1, "irm": 10})
    with pytest.raises(ShiftproofError, match="the gradient of a loss is not finite at step 0"):
        optimizer.step({"erm": x.sum() + 1, "irm": x.sum().sqrt()})


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 10, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 30),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=30),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=3),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=5), torch.optim.lr_scheduler.StepLR(o, 5)], [5]
        ),
    ],
)
def test_it_is_an_optimiser_of_torch_that_schedulers_take(scheduler, recwarn):
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = PAIR(torch.optim.SGD([x], lr=0.1, momentum=0.5), {"a": 1, "b": 4})
    assert isinstance(optimizer, torch.optim.Optimizer)
    schedule = scheduler(optimizer)
    rates = []
    for _ in range(25):
        found = optimizer.step({"a": (x - A).square().sum(), "b": (x - B).square().sum()})
        plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
        schedule.step(*([found.loss + 100] if plateau else []))
        rates.append(optimizer.inner.param_groups[0]["lr"])
    assert len(set(rates)) > 1
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]


@pytest.mark.parametrize("inner", ["sgd", "momentum", "adam"])
def test_a_saved_state_goes_on_to_the_bit(inner, tmp_path):
    def made():
        x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        return x, PAIR(OPTIMISERS[inner](x, 0.05), {"a": 1, "b": 4, "flat": 100})

    def go(x, optimizer, steps):
        for _ in range(steps):
            losses = {"a": (x - A).square().sum(), "b": (x - B).square().sum(), "flat": 7 + 0 * x.sum()}
            optimizer.step(losses)

    x, optimizer = made()
    go(x, optimizer, 8)
    torch.save({"x": x.detach(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    twin_x, twin = copy.deepcopy((x, optimizer))
    go(x, optimizer, 20)
    go(twin_x, twin, 20)
    other, resumed = made()
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    other.data.copy_(state["x"])
    resumed.load_state_dict(state["optimizer"])
    assert resumed.param_groups is resumed.inner.param_groups
    assert resumed.state is resumed.inner.state
    go(other, resumed, 20)
    assert torch.equal(x, other)
    assert torch.equal(x, twin_x)
    assert resumed.steps == 28
    assert resumed.state_dict()["balancer"] == optimizer.state_dict()["balancer"]


def test_parameters_that_join_are_moved():
    x, y = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = PAIR(torch.optim.SGD([x], lr=0.1), {"a": 1, "b": 1})
    optimizer.add_param_group({"params": [y], "lr": 0.05})
    assert [group["lr"] for group in optimizer.inner.param_groups] == [0.1, 0.05]
    for _ in range(150):
        optimizer.step({"a": (x + y - A).square().sum(), "b": (x + y - B).square().sum()})
    np.testing.assert_allclose((x + y).detach(), (A + B) / 2, atol=1e-6)


def test_options_that_cannot_be_right_are_refused():
    x = torch.zeros(3, requires_grad=True)
    inner = torch.optim.SGD([x], lr=0.1)
    for options, said in (
        ({"descent_steps": -1}, "'descent_steps' of PAIR is a whole number from 0, not -1"),
        ({"descent_steps": 1.5}, "'descent_steps' of PAIR is a whole number from 0, not 1.5"),
        ({"negative_rate": float("nan")}, "'negative_rate' of PAIR is a number above 0, not nan"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            PAIR(inner, {"a": 1, "b": 1}, **options)
    with pytest.raises(ShiftproofError, match="maximize=True"):
        PAIR(torch.optim.SGD([x], lr=0.1, maximize=True), {"a": 1, "b": 1})


@pytest.mark.parametrize("seed", range(40))
def test_the_quadratic_programme_meets_its_optimality_conditions(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    gradients = rng.normal(size=(count, int(rng.integers(1, 10)))) * 10 ** rng.uniform(-3, 0, (count, 1))
    if seed % 3 == 0:
        gradients[0], gradients[-1] = 0, gradients[count // 2]
    gramian, linear = gradients @ gradients.T, rng.normal(size=count) * 10 ** rng.uniform(-3, 1)
    alpha = maximise_concave(linear, gramian)
    slope = linear - gramian @ alpha
    assert (alpha >= 0).all()
    assert abs(alpha.sum() - 1) < 1e-12
    assert slope.max() - alpha @ slope <= 1e-12 * (np.abs(linear).max() + gramian.max())


def test_scaling_the_preference_or_all_losses_changes_no_weight():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(3, 8))
    losses, matrix = rng.random(3), gradients @ gradients.T
    one = MinimaxSolver((1, 5, 20)).weights(losses, matrix).weights
    np.testing.assert_allclose(MinimaxSolver((3, 15, 60)).weights(losses, matrix).weights, one, atol=1e-12)
    np.testing.assert_allclose(MinimaxSolver((1, 5, 20)).weights(1e-6 * losses, 1e-6 * matrix).weights, one, atol=1e-9)
