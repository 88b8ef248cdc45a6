"""Numbered facts about the generated vectors and the coloured images."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import fsolve

from shiftproof.data import TwoBit, load

FAILURE = TwoBit(0.1, (0.11, 0.4))
chances = st.floats(0.02, 0.98)


def enumerate_outcomes(problem: TwoBit, a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Risk and dummy gradient by adding up the four outcomes of the two signs."""
    risks, gradients = [], []
    for beta in problem.betas:
        risk = gradient = 0.0
        for s1, s2 in itertools.product((1, -1), repeat=2):
            mass = (1 - problem.alpha if s1 > 0 else problem.alpha) * (1 - beta if s2 > 0 else beta)
            margin = {(1, 1): a, (-1, -1): -a, (1, -1): b, (-1, 1): -b}[s1, s2]
            if problem.loss == "square":
                risk += mass * (margin - 1) ** 2 / 2
                gradient += mass * (margin - 1) * margin
            else:
                risk += mass * np.log1p(np.exp(-margin))
                gradient += mass * -margin / (1 + np.exp(margin))
        risks.append(risk)
        gradients.append(gradient)
    return np.array(risks), np.array(gradients)


@settings(max_examples=60, deadline=None)
@given(chances, chances, chances, st.floats(-3, 3), st.floats(-3, 3), st.sampled_from(["square", "logistic"]))
def test_pair_26_population_formulas_match_enumeration(alpha, beta1, beta2, a, b, loss) -> None:
    problem = TwoBit(alpha, (beta1, beta2), loss)
    risks, gradients = enumerate_outcomes(problem, a, b)
    assert np.allclose(problem.risks(a, b), risks, atol=1e-12)
    assert np.allclose(problem.dummy_gradients(a, b), gradients, atol=1e-12)


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_pair_26_population_formulas_match_samples_and_tensors(loss: str) -> None:
    problem, (a, b) = TwoBit(0.1, (0.11, 0.4), loss), (0.9, 0.3)
    train = load("two-bit", per_env=500_000).train
    same = train.x[:, 0] == train.x[:, 1]
    margin = train.columns["sign"] * train.x[:, 0] * torch.where(same, a, b)
    value = (margin - 1) ** 2 / 2 if loss == "square" else torch.nn.functional.softplus(-margin)
    sampled = torch.stack([value[train.env == env].mean() for env in range(2)])
    assert np.allclose(sampled, problem.risks(a, b), atol=5e-3)
    weights = torch.tensor([a, b], dtype=torch.float64, requires_grad=True)
    risks = problem.risks(weights[0], weights[1])
    assert np.allclose(risks.detach(), problem.risks(a, b), atol=1e-12)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    for env in range(2):
        slope = torch.autograd.grad(problem.risks(scale * weights[0], scale * weights[1])[env], scale)[0]
        assert slope.item() == pytest.approx(float(problem.dummy_gradients(a, b)[env]), abs=1e-12)
    grid = problem.risks(np.full((4, 3), a), np.full((4, 3), b))
    assert grid.shape == (4, 3, 2)


def test_pair_27_the_failure_case_has_the_published_numbers() -> None:
    _, irm, first, second = FAILURE.irm_s_solutions()
    optimum = FAILURE.pareto_set(3)[1]
    table = {
        (0.92672, 0.50987): (optimum, 0.135906, 0.187327, 0.161617, 8.141e-5, 1.3221e-3),
        (0.955719, 0.294281): (first, 0.121020, 0.216928, 0.168974, 0, 4.5992e-3),
        (0.8, 0.8): (irm, 0.18, 0.18, 0.18, 0, 0),
        (0.294281, 0.955719): (second, 0.378980, 0.283072, 0.331026, 0, 4.5992e-3),
        (0.0, 0.0): ((0.0, 0.0), 0.5, 0.5, 0.5, 0, 0),
    }
    for published, (point, risk1, risk2, mean, penalty, variance) in table.items():
        assert np.allclose(point, published, atol=5e-6)
        risks = FAILURE.risks(*point)
        assert np.allclose(risks, (risk1, risk2), atol=1e-6)
        assert risks.mean() == pytest.approx(mean, abs=1e-6)
        assert (FAILURE.dummy_gradients(*point) ** 2).mean() == pytest.approx(penalty, abs=1e-6)
        assert risks.var(ddof=1) == pytest.approx(variance, abs=1e-6)
    everywhere = TwoBit(0.1, tuple(np.linspace(0.01, 0.99, 50)))
    for point in (first, second):
        assert np.abs(everywhere.dummy_gradients(*point)).max() < 1e-12


def test_pair_28_extra_solutions_exist_below_the_threshold_only() -> None:
    count = lambda alpha: len(TwoBit(alpha, (0.2, 0.3)).irm_s_solutions())  # noqa: E731
    assert [count(alpha) for alpha in (0.05, 0.1, 0.14)] == [4, 4, 4]
    assert [count(alpha) for alpha in (0.15, 0.25, 0.4)] == [2, 2, 2]
    assert bisect(lambda alpha: count(alpha) == 4, 0.1, 0.2) == pytest.approx(0.146447, abs=1e-6)
    assert count(0.86) == 4


def bisect(holds, low: float, high: float, steps: int = 30) -> float:
    """The point up to which `holds` is true."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_pair_29_both_constraints_together_leave_zero_and_irm(loss: str) -> None:
    rng = np.random.default_rng(0)
    for alpha in (0.05, 0.1, 0.3):
        betas = tuple(np.sort(rng.uniform(0.05, 0.95, 2)))
        for problem in (TwoBit(alpha, betas, loss), TwoBit(alpha, (*betas, 0.5), loss)):
            roots = stationary_points(problem)
            spread = [np.ptp(problem.risks(*root)) for root in roots]
            both = sorted(tuple(np.round(root, 6)) for root, gap in zip(roots, spread, strict=True) if gap < 1e-8)
            wanted = sorted(tuple(np.round(root, 6)) for root in ((0.0, 0.0), problem.irm_solution))
            assert np.allclose(sorted(set(both)), wanted, atol=1e-5)


def stationary_points(problem: TwoBit) -> list[np.ndarray]:
    """Roots of all dummy gradients, found from a grid of starts."""
    found: list[np.ndarray] = []
    for start in itertools.product(np.linspace(-1, 6, 8), repeat=2):
        root, _, ok, _ = fsolve(lambda p: problem.dummy_gradients(*p)[:2], start, full_output=True, xtol=1e-13)
        if ok != 1 or np.abs(problem.dummy_gradients(*root)).max() > 1e-10 or np.abs(root).max() > 50:
            continue
        if not any(np.allclose(root, old, atol=1e-5) for old in found):
            found.append(root)
    return found


@settings(max_examples=40, deadline=None)
@given(st.floats(0.02, 0.45), st.floats(0.01, 2 * np.pi - 0.01), st.sampled_from([1, -1]), chances, chances)
def test_pair_30_predictors_that_are_not_odd_form_a_circle_of_false_solutions(alpha, angle, sign, beta1, beta2) -> None:
    assume(abs(angle - np.pi) > 0.01 and abs(beta1 - beta2) > 0.02)  # at 0 and pi lie the two true solutions
    radius = (1 - 2 * alpha) / 2
    u, v = radius * np.sin(angle), radius + radius * np.cos(angle)
    f = {(1, 1): u + v, (-1, -1): u - v, (1, -1): sign * u + v, (-1, 1): sign * u - v}
    risks, misfits = [], []
    for beta in (beta1, beta2):
        risk = gradient = 0.0
        given_output: dict[float, list[float]] = {}
        for y, s1, s2 in itertools.product((1, -1), repeat=3):
            mass = 0.5 * (1 - alpha if s1 > 0 else alpha) * (1 - beta if s2 > 0 else beta)
            out = f[y * s1, y * s2]
            risk += mass * (out - y) ** 2 / 2
            gradient += mass * (out - y) * out
            total = given_output.setdefault(round(out, 12), [0.0, 0.0])
            total[0] += mass
            total[1] += mass * y
        assert abs(gradient) < 1e-10
        risks.append(risk)
        misfits += [abs(mean / mass - out) for out, (mass, mean) in given_output.items()]
    assert abs(risks[0] - risks[1]) < 1e-10
    assert max(misfits) > 1e-6  # an invariant predictor is E[Y | its output] in both environments; this one is not


def test_pair_31_irm_is_an_extrapolation_and_not_pareto_optimal() -> None:
    def risks(point):
        return FAILURE.risks(*point)

    irm = torch.tensor(FAILURE.irm_solution, dtype=torch.float64, requires_grad=True)
    mixture = (FAILURE.risks(irm[0], irm[1]) * torch.tensor([-10 / 29, 39 / 29], dtype=torch.float64)).sum()
    assert torch.autograd.grad(mixture, irm)[0].abs().max() < 1e-12
    best_of_second = FAILURE.pareto_set(2)[1]
    assert np.allclose(best_of_second, (0.86207, 0.71429), atol=1e-5)
    assert np.allclose(risks(best_of_second), (0.161506, 0.177340), atol=1e-6)
    assert (risks(best_of_second) < risks(FAILURE.irm_solution)).all()


def test_pair_32_only_all_three_objectives_keep_irm() -> None:
    def objectives(a, b):
        risks = FAILURE.risks(a, b)
        return np.stack([risks.mean(-1), (FAILURE.dummy_gradients(a, b) ** 2).mean(-1), risks.var(-1, ddof=1)], -1)

    irm, first = FAILURE.irm_s_solutions()[1:3]
    at_irm, at_first = objectives(*irm), objectives(*first)
    assert at_first[0] < at_irm[0]
    assert at_first[1] <= 1e-20
    axis = np.arange(-0.2, 1.4, 1e-3)
    grid = objectives(*np.meshgrid(axis, axis, indexing="ij"))
    assert not ((grid <= at_irm + 1e-15).all(-1) & (grid < at_irm - 1e-9).any(-1)).any()


def test_pair_34_the_logistic_threshold_and_roots() -> None:
    solutions = TwoBit(0.05, (0.2, 0.3), "logistic").irm_s_solutions()
    assert np.allclose(solutions, [(0, 0), (2.9444, 2.9444), (4.9847, 0.9041), (0.9041, 4.9847)], atol=1e-3)
    many = lambda alpha: len(TwoBit(alpha, (0.2, 0.3), "logistic").irm_s_solutions()) == 4  # noqa: E731
    assert bisect(many, 0.05, 0.1, steps=14) == pytest.approx(0.08322, abs=1e-4)
    for point in solutions:
        assert np.abs(TwoBit(0.05, (0.01, 0.5, 0.99), "logistic").dummy_gradients(*point)).max() < 1e-10


CMNIST = {
    "standard": (0.25, (0.1, 0.2)),
    "modified": (0.10, (0.2, 0.25)),
    "11": (0.25, (0.1, 0.11)),
    "gray": (0.25, (0.5, 0.5)),
}


@pytest.mark.parametrize("variant", ["standard", "modified"])
def test_pair_36_cmnist_noise_colours_and_sizes(real_data, variant: str) -> None:
    noise, flips = CMNIST[variant]
    data = load("cmnist", variant=variant)
    assert data.train.x.shape == (50_000, 392)
    assert torch.bincount(data.train.env).tolist() == [25_000] * 2
    assert torch.bincount(data.test.env).tolist() == [10_000] * 3
    for part, rates in ((data.train, flips), (data.test, (0.9, 0.1, 0.5))):
        for env, rate in enumerate(rates):
            rows = part.env == env
            shape = (part.columns["digit"][rows] < 5).float()
            assert (part.y[rows] != shape).float().mean().item() == pytest.approx(noise, abs=0.01)
            assert (part.y[rows] != part.columns["colour"][rows]).float().mean().item() == pytest.approx(rate, abs=0.01)
        filled = (part.x.reshape(-1, 2, 196) > 0).any(2)
        assert bool((filled.sum(1) == 1).all())
        assert torch.equal(filled[:, 1].long(), part.columns["colour"])
    same = load("cmnist", variant=variant, seed=0)
    assert torch.equal(data.train.x, same.train.x)
    assert torch.equal(data.test.y, same.test.y)
    assert not torch.equal(data.train.y, load("cmnist", variant=variant, seed=1).train.y)


def test_pair_37_a_colour_predictor_collapses_and_a_digit_predictor_does_not(real_data) -> None:
    for name, ceiling in (("cmnist", 0.75), ("cmnist-m", 0.9)):
        test = load(name).test
        assert accuracies(test, test.columns["colour"]) == pytest.approx([0.1, 0.9, 0.5], abs=0.012)
        assert accuracies(test, test.columns["digit"] < 5) == pytest.approx([ceiling] * 3, abs=0.012)


def accuracies(part, predicted: torch.Tensor) -> list[float]:
    right = predicted.float() == part.y
    return [right[part.env == env].float().mean().item() for env in range(part.num_envs)]


def test_feat_1_two_patch_noise_spares_the_signal_and_flips_as_often_as_asked() -> None:
    data = load("two-patch", per_env=20_000)
    train, test = data.train, data.test
    assert train.x.shape[1:] == (2, 20)
    assert bool((train.x[:, 1, :2] == 0).all())
    assert bool((train.x[:, 0, 2:] == 0).all())
    assert train.x[:, 1, 2:].std().item() == pytest.approx(0.01, rel=0.01)
    assert torch.equal(train.y * 2 - 1, train.columns["sign"])
    for env, beta in enumerate((0.1, 0.2)):
        rows = train.env == env
        for coordinate, chance in ((0, 0.25), (1, beta)):
            wrong = train.x[rows, 0, coordinate] != train.columns["sign"][rows]
            bound = 4 * (chance * (1 - chance) / len(wrong)) ** 0.5
            assert wrong.float().mean().item() == pytest.approx(chance, abs=bound)
    assert torch.equal(test.x[:, 0, 0], test.columns["sign"])
    assert (test.x[:, 0, 1] == test.columns["sign"]).float().mean().item() == pytest.approx(0.15, abs=0.02)


def test_feat_38_colours_agree_with_the_label_and_pixels_stay_in_range(real_data) -> None:
    for variant, (noise, flips) in CMNIST.items():
        train = load("cmnist", variant=variant).train
        assert float(train.x.min()) == 0
        assert float(train.x.max()) == 1
        agree = [(train.columns["colour"] == train.y)[train.env == env].float().mean().item() for env in range(2)]
        assert agree == pytest.approx([1 - flip for flip in flips], abs=0.01)
        assert ((train.columns["digit"] < 5) == train.y).float().mean().item() == pytest.approx(1 - noise, abs=0.01)
        assert torch.equal(train.env, torch.arange(50_000) % 2)


def test_feat_39_worst_accuracy_of_colour_is_a_tenth(real_data) -> None:
    test = load("cmnist").test
    assert min(accuracies(test, test.columns["colour"])) == pytest.approx(0.1, abs=0.01)
    assert min(accuracies(test, test.columns["digit"] < 5)) == pytest.approx(0.75, abs=0.01)


def test_feat_39_the_small_stand_in_behaves_the_same() -> None:
    data = load("colored-digits", copies=20)
    assert accuracies(data.test, data.test.columns["colour"]) == pytest.approx([0.1, 0.9, 0.5], abs=0.03)
    assert accuracies(data.train, data.train.columns["colour"]) == pytest.approx([0.9, 0.8], abs=0.03)
    assert accuracies(data.val, data.val.columns["digit"] < 5) == pytest.approx([0.75, 0.75], abs=0.04)
