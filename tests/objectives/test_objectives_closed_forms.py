"""Every closed form against the plain way of computing the same number: autograd, or loops over samples and pairs."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.objectives import (
    clove_penalty,
    coral_penalty,
    dummy_gradients,
    env_risks,
    fishr_penalty,
    generalised_cross_entropy,
    gradient_matching_penalty,
    ib_penalty,
    iga_penalty,
    irm_penalty,
    irmx_penalty,
    logit_gradients,
    mean_risk,
    mmce,
    pair_contrast,
    sample_losses,
    spectral_decoupling,
    supervised_contrastive,
    vrex_penalty,
    worst_risk,
)

TASKS = ["multiclass", "binary", "multilabel", "regression"]
seeds = st.integers(0, 10_000)


def predictions(task, n=12, classes=3, seed=0):
    """Random logits and labels of a task, in float64; a quarter of the labels of a multilabel task are unknown."""
    g = torch.Generator().manual_seed(seed)
    columns = {"multiclass": classes, "multilabel": classes}.get(task, 1)
    logits = 2 * torch.randn(n, columns, generator=g, dtype=torch.float64)
    if task == "multiclass":
        y = torch.randint(classes, (n,), generator=g)
    elif task == "binary":
        y = torch.randint(2, (n,), generator=g)
    elif task == "multilabel":
        y = torch.randint(2, (n, columns), generator=g).double()
        y[torch.rand(n, columns, generator=g) < 0.25] = torch.nan
    else:
        y = torch.randn(n, generator=g, dtype=torch.float64)
    return logits if columns > 1 else logits.squeeze(1), y


def one_loss(z, y, task):
    """The loss of one sample, written out."""
    if task == "multiclass":
        return z.logsumexp(0) - z[y]
    if task == "regression":
        return (z - y).square().sum()
    if task == "binary":
        return F.softplus(z).sum() - y * z.sum()
    known = [k for k in range(len(y)) if y[k] == y[k]]
    return sum((F.softplus(z[k]) - y[k] * z[k] for k in known), 0 * z.sum()) / max(len(known), 1)


def environments(n, num_envs, seed=0):
    return torch.randint(num_envs, (n,), generator=torch.Generator().manual_seed(seed))


def members(env):
    return [torch.nonzero(env == e).squeeze(1) for e in env.unique()]


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_sample_losses_and_both_gradients_match_autograd(task, seed):
    logits, y = predictions(task, seed=seed)
    losses, columns, dummies = (
        sample_losses(logits, y, task),
        logit_gradients(logits, y, task),
        dummy_gradients(logits, y, task),
    )
    for i in range(len(y)):
        z = logits[i].clone().requires_grad_()
        w = torch.ones((), dtype=torch.float64, requires_grad=True)
        loss = one_loss(w * z, y[i], task)
        by_logit, by_scale = torch.autograd.grad(loss, [z, w])
        torch.testing.assert_close(losses[i], loss.detach())
        torch.testing.assert_close(columns[i], by_logit.reshape(-1))
        torch.testing.assert_close(dummies[i], by_scale)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_column_of_logits_or_labels_is_the_same_as_a_vector(task):
    logits, y = predictions(task)
    expected = sample_losses(logits, y, task)
    for z, t in itertools.product([logits, logits[:, None]], [y, y[:, None], y.double()]):
        assert torch.equal(sample_losses(z, t, task), expected)
        assert torch.equal(dummy_gradients(z, t, task), dummy_gradients(logits, y, task))


def test_a_row_without_a_known_label_has_loss_zero_and_no_gradient():
    logits, y = predictions("multilabel")
    logits.requires_grad_()
    y[3] = torch.nan
    losses = sample_losses(logits, y, "multilabel")
    (gradient,) = torch.autograd.grad(losses.sum() + dummy_gradients(logits, y, "multilabel").sum(), logits)
    assert losses[3] == 0
    assert gradient.isfinite().all()
    assert (gradient[3] == 0).all()
    assert (gradient[~y.isnan()] != 0).all()


def test_half_precision_counts_do_not_saturate():
    losses = torch.ones(5000, dtype=torch.bfloat16)
    risks, counts = env_risks(losses, torch.zeros(5000, dtype=torch.long), 1)
    assert counts.item() == 5000
    assert risks.item() == 1


@settings(max_examples=25, deadline=None)
@given(seed=seeds, num_envs=st.integers(1, 5))
def test_risks_by_environment_match_a_loop(seed, num_envs):
    losses = torch.rand(14, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    env = environments(14, num_envs, seed)
    risks, counts = env_risks(losses, env, num_envs + 1)
    by_loop = [losses[index].mean() for index in members(env)]
    for e in range(num_envs + 1):
        inside = losses[env == e]
        assert counts[e] == len(inside)
        torch.testing.assert_close(risks[e], inside.mean() if len(inside) else losses.new_zeros(()))
    torch.testing.assert_close(mean_risk(losses, env, num_envs + 1), torch.stack(by_loop).mean())
    torch.testing.assert_close(mean_risk(losses, env, num_envs + 1, reduction="sum"), torch.stack(by_loop).sum())
    torch.testing.assert_close(worst_risk(risks - 5, counts), torch.stack(by_loop).max() - 5)
    variance = torch.stack(by_loop).var(unbiased=len(by_loop) > 1)
    torch.testing.assert_close(vrex_penalty(risks, counts), variance)
    torch.testing.assert_close(vrex_penalty(risks, counts, unbiased=False), torch.stack(by_loop).var(unbiased=False))


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=15, deadline=None)
@given(seed=seeds, num_envs=st.integers(1, 4))
def test_irm_estimators_match_loops_over_environments(task, seed, num_envs):
    logits, y = predictions(task, n=15, seed=seed)
    env = environments(15, num_envs, seed + 1)

    def g(index):
        w = torch.ones((), dtype=torch.float64, requires_grad=True)
        loss = torch.stack([one_loss(w * logits[i], y[i], task) for i in index]).mean()
        return torch.autograd.grad(loss, w)[0]

    by_env = [g(index) for index in members(env)]
    full = sum(v * v for v in by_env) / len(by_env)
    halves = [g(index[::2]) * g(index[1::2]) for index in members(env) if len(index) > 1]
    pairs = [a * b for a, b in itertools.combinations(by_env, 2)]
    zero = torch.zeros((), dtype=torch.float64)
    for estimator, expected in {
        "full": full,
        "halves": sum(halves, zero) / max(len(halves), 1),
        "cross": sum(pairs, zero) / max(len(pairs), 1),
    }.items():
        actual = irm_penalty(logits, y, env, num_envs, task, estimator)
        torch.testing.assert_close(actual, expected, msg=estimator)


@pytest.mark.parametrize("estimator", ["full", "halves", "cross"])
@pytest.mark.parametrize("task", TASKS)
def test_the_gradient_of_the_irm_penalty_is_right(task, estimator):
    logits, y = predictions(task, n=8)
    env = torch.tensor([0, 1, 0, 0, 1, 1, 1, 0])
    assert torch.autograd.gradcheck(
        lambda z: irm_penalty(z, y, env, 2, task, estimator), logits.clone().requires_grad_()
    )


def test_irmx_is_the_weighted_sum_of_its_two_penalties():
    logits, y = predictions("multiclass")
    env = environments(12, 3)
    irm = irm_penalty(logits, y, env, 3, "multiclass")
    vrex = vrex_penalty(*env_risks(sample_losses(logits, y, "multiclass"), env, 3))
    actual = irmx_penalty(logits, y, env, 3, "multiclass", irm_weight=2.0, vrex_weight=7.0)
    torch.testing.assert_close(actual, 2 * irm + 7 * vrex)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_fishr_matches_per_sample_gradients_of_the_head(task, centred):
    _, y = predictions(task, n=10)
    h = torch.randn(10, 4, dtype=torch.float64)
    head = torch.nn.Linear(4, 3 if task in ("multiclass", "multilabel") else 1).double()
    env = torch.tensor([0, 2, 0, 1, 1, 2, 0, 0, 1, 2])
    rows = []
    for i in range(10):
        grads = torch.autograd.grad(one_loss(head(h[i]), y[i], task), [head.weight, head.bias])
        rows.append(torch.cat([v.flatten() for v in grads]))
    variances = []
    for index in members(env):
        g = torch.stack([rows[i] for i in index])
        variances.append(g.var(0, unbiased=False) if centred else g.square().mean(0))
    v = torch.stack(variances)
    expected = (v - v.mean(0)).square().sum()
    torch.testing.assert_close(fishr_penalty(h, head(h), y, env, 3, task, centred), expected)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, num_envs=st.integers(2, 4))
def test_coral_and_bottleneck_match_loops(seed, num_envs):
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(16, 3, dtype=torch.float64, generator=g)
    env = torch.arange(16) % num_envs
    parts = [h[index] for index in members(env)]
    terms = [
        (a.mean(0) - b.mean(0)).square().mean() + (a.T.cov() - b.T.cov()).square().mean()
        for a, b in itertools.combinations(parts, 2)
    ]
    torch.testing.assert_close(coral_penalty(h, env, num_envs), torch.stack(terms).mean())
    per_env = torch.stack([part.var(0).mean() for part in parts])
    torch.testing.assert_close(ib_penalty(h, env, num_envs), per_env.mean())
    torch.testing.assert_close(ib_penalty(h), h.var(0).mean())


def test_spectral_decoupling_is_the_mean_square_or_its_sum_over_environments():
    z = torch.tensor([[1.0, 3.0], [2.0, 2.0], [0.0, 4.0]])
    assert spectral_decoupling(z).item() == pytest.approx(34 / 6)
    assert spectral_decoupling(z, torch.tensor([0, 0, 1]), 2).item() == pytest.approx(18 / 4 + 16 / 2)


def dense_mmce(r, c, width):
    kernel = (-(r[:, None] - r[None]).abs() / width).exp()
    return (c - r) @ kernel @ (c - r) / len(r) ** 2


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n=st.integers(1, 20), width=st.sampled_from([0.05, 0.4, 2.0]))
def test_mmce_and_its_gradient_match_the_double_sum(seed, n, width):
    g = torch.Generator().manual_seed(seed)
    r = torch.rand(n, dtype=torch.float64, generator=g).requires_grad_()
    c = torch.randint(2, (n,), generator=g).double()
    actual, expected = mmce(r, c, width), dense_mmce(r, c, width)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(actual, r)[0], torch.autograd.grad(expected, r)[0])


def test_no_gradient_of_mmce_flows_through_correctness():
    soft = torch.tensor([0.2, 0.9, 0.6], requires_grad=True)
    assert not mmce(torch.tensor([0.5, 0.7, 0.8]), soft).requires_grad


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_clove_adds_up_the_calibration_errors_of_the_environments(task):
    logits, y = predictions(task, n=20)
    env = environments(20, 3)
    p = torch.stack([1 - logits.sigmoid(), logits.sigmoid()], 1) if task == "binary" else logits.softmax(1)
    confidence, guess = p.max(1)
    expected = sum(dense_mmce(confidence[i], (guess == y)[i].double(), 0.4) for i in members(env))
    torch.testing.assert_close(clove_penalty(logits, y, env, 3, task), expected)


def test_gradient_penalties_match_the_definitions():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    unused = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    x, y, env = torch.randn(12, 3).double(), torch.randint(2, (12,)), environments(12, 3)
    risks, _ = env_risks(sample_losses(net(x), y, "binary"), env, 3)
    weights = list(net.parameters())
    g = [torch.cat([v.flatten() for v in torch.autograd.grad(r, weights, retain_graph=True)]) for r in risks]
    mean = sum(g) / 3
    torch.testing.assert_close(iga_penalty(risks, [*weights, unused]), sum((v - mean).square().sum() for v in g))
    torch.testing.assert_close(iga_penalty(list(risks), weights), iga_penalty(risks, weights))
    matching = -sum(a @ b for a, b in itertools.combinations(g, 2))
    torch.testing.assert_close(gradient_matching_penalty(risks, iter(weights)), matching)


def test_gradient_penalties_can_themselves_be_differentiated():
    w = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 2, dtype=torch.float64)

    def losses(w):
        return ((x @ w).sin() ** 2).unbind()

    assert torch.autograd.gradcheck(lambda w: iga_penalty(losses(w), [w]), w)
    assert torch.autograd.gradcheck(lambda w: gradient_matching_penalty(losses(w), [w]), w)


def naive_contrast(z, y, variant="mul", denominator="all", temperature=1.0, predicted=None):
    """The contrastive losses of docs/papers/ciga.md#contrastive-term, #cnc as loops over anchors and pairs."""
    n, unit = len(y), z / z.norm(dim=1, keepdim=True)
    s = [[unit[i] @ unit[j] / temperature for j in range(n)] for i in range(n)]
    inner = []
    if variant == "single":
        for i in range(n):
            p = max(j for j in range(n) if y[j] == y[i])
            rest = [j for j in range(n) if y[j] != y[i]]
            if rest:
                inner.append(s[i][p] - s[i][max(rest)])
        return -sum(inner) / len(inner) if inner else 0 * z.sum()
    same = [[j for j in range(n) if j != i and y[j] == y[i]] for i in range(n)]
    differ = [[j for j in range(n) if y[j] != y[i]] for i in range(n)]
    positives, negatives = same, differ
    if variant in ("cnc", "cncp"):
        hard = [[j for j in same[i] if predicted[j] != y[j]] for i in range(n)]
        positives = hard if any(hard) else same
        easy = [[j for j in differ[i] if predicted[j] == y[j]] for i in range(n)]
        negatives = easy if variant == "cnc" and any(easy) else differ
    elif variant == "cnc-original":
        positives = [[j for j in same[i] if predicted[j] != predicted[i] and predicted[i] == y[i]] for i in range(n)]
        negatives = [[j for j in differ[i] if predicted[j] == predicted[i]] for i in range(n)]
    for i in range(n):
        terms = []
        for p in positives[i]:
            below = [p, *negatives[i]] if denominator == "negatives" else [*positives[i], *negatives[i]]
            terms.append(s[i][p] - torch.stack([s[i][a].exp() for a in below]).sum().log())
        if terms:
            inner.append(sum(terms) / len(terms))
    if not inner:
        return 0 * z.sum()
    inner = torch.stack(inner)
    return -inner.mean() + (inner.var(unbiased=False) if variant == "var" else 0)


KINDS = [
    ("mul", "all"),
    ("mul", "negatives"),
    ("var", "all"),
    ("var", "negatives"),
    ("single", "all"),
    ("cnc", "all"),
    ("cncp", "all"),
    ("cnc-original", "all"),
]


@pytest.mark.parametrize(("variant", "denominator"), KINDS)
@settings(max_examples=20, deadline=None)
@given(seed=seeds, n=st.integers(1, 9), classes=st.integers(1, 4), temperature=st.sampled_from([1.0, 0.2]))
def test_contrastive_losses_and_gradients_match_loops(variant, denominator, seed, n, classes, temperature):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 4, dtype=torch.float64, generator=g).requires_grad_()
    y, predicted = torch.randint(classes, (2, n), generator=g)
    options = {"variant": variant, "denominator": denominator, "temperature": temperature, "predicted": predicted}
    actual = supervised_contrastive(z, y, **options)
    expected = naive_contrast(z, y.tolist(), **{**options, "predicted": predicted.tolist()})
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (actual, expected)))


def test_correct_n_contrast_falls_back_where_the_batch_has_no_hard_pairs():
    z, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 1, 2])
    wrong = (y + 1) % 3
    # all wrong: no negative was predicted right, so every other class is one, as in cncp
    all_negatives = supervised_contrastive(z, y, variant="cnc", predicted=wrong)
    torch.testing.assert_close(all_negatives, supervised_contrastive(z, y, variant="cncp", predicted=wrong))
    # all right: no positive was predicted wrong, so every other sample of the class is one, as in CIGA's term
    for variant in ("cnc", "cncp"):
        perfect = supervised_contrastive(z, y, variant=variant, predicted=y)
        torch.testing.assert_close(perfect, supervised_contrastive(z, y))


@pytest.mark.parametrize("denominator", ["all", "negatives"])
def test_contrastive_loss_survives_a_tiny_temperature(denominator):
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    loss = supervised_contrastive(z, torch.tensor([0, 0, 1]), temperature=1e-3, denominator=denominator)
    loss.backward()
    assert loss.isfinite()
    assert z.grad.isfinite().all()
    assert loss > 100


def test_pairs_of_your_choice_and_an_anchor_without_candidates():
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]).bool()
    candidates = torch.tensor([[0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    s = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    expected = -(s[0, 1] - s[0, 1:].logsumexp(0) + s[1, 0] - s[1, [0, 2]].logsumexp(0)) / 2
    actual = pair_contrast(z, positives, candidates)
    torch.testing.assert_close(actual, expected)
    assert torch.autograd.grad(actual, z)[0].isfinite().all()


def test_generalised_cross_entropy_of_a_binary_logit_is_that_of_two_classes():
    z, y = predictions("binary")
    two = torch.stack([torch.zeros_like(z), z], 1)
    torch.testing.assert_close(generalised_cross_entropy(z, y, 0.5), generalised_cross_entropy(two, y, 0.5))
    p = two.softmax(1)[torch.arange(12), y]
    torch.testing.assert_close(generalised_cross_entropy(two, y, 0.5, weight=True), (1 - p.sqrt()) / 0.5)
