"""Numbered facts of docs/papers/pair.md#checked-facts, that concern training and its measures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

import shiftproof as sp
from shiftproof.methods import IRMX, DataShape, Network
from shiftproof.statistics.metrics import Predictions, macro_f1, mcc, pearson, percentile10, worst_group
from shiftproof.training import Weighted

seeds = st.integers(0, 10_000)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, envs=st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), n=st.integers(4, 40))
def test_pair_45_worst_group_and_percentile_leave_empty_groups_out(seed, envs, n):
    g = torch.Generator().manual_seed(seed)
    env = torch.tensor(envs)[torch.randint(len(envs), (n,), generator=g)]  # other numbers up to 9 have no sample
    y, logits = torch.randint(2, (n,), generator=g).float(), torch.randn(n, generator=g)
    p = Predictions(logits, y, env, "binary")
    parts = [float(((logits > 0) == (y > 0))[env == e].double().mean()) for e in env.unique()]
    assert worst_group(p) == pytest.approx(min(parts))
    assert percentile10(p) == pytest.approx(np.percentile(parts, 10))


def test_pair_45_without_groups_the_worst_is_the_whole():
    y = torch.tensor([1.0, 1.0, 0.0, 1.0])
    p = Predictions(torch.tensor([1.0, -1.0, -1.0, 1.0]), y, None, "binary")
    assert worst_group(p) == percentile10(p) == 0.75


def test_pair_45_the_worst_group_of_a_regression_is_that_of_least_correlation():
    env = torch.tensor([0, 0, 0, 1, 1, 1, 2])  # the last group has one sample and no correlation
    y = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 5.0])
    p = Predictions(torch.tensor([1.0, 2.0, 3.0, 3.0, 2.0, 1.0, 0.0]), y, env, "regression")
    assert worst_group(p) == pytest.approx(-1.0)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, present=st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
def test_pair_45_macro_f1_leaves_classes_out_that_no_label_has(seed, present):
    g = torch.Generator().manual_seed(seed)
    y = torch.tensor(present)[torch.randint(len(present), (30,), generator=g)]
    guess = torch.randint(6, (30,), generator=g)
    p = Predictions(torch.nn.functional.one_hot(guess, 6).float(), y, None, "multiclass")
    classes = y.unique().tolist()
    wanted = np.mean([f1_score(y == k, guess == k, zero_division=0.0) for k in classes])
    assert macro_f1(p) == pytest.approx(wanted, abs=1e-12)
    perfect = Predictions(torch.nn.functional.one_hot(y, 6).float(), y, None, "multiclass")
    assert macro_f1(perfect) == 1.0
    assert mcc(perfect) == (1.0 if len(classes) > 1 else 0.0)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n=st.integers(3, 50))
def test_pearson_is_that_of_numpy_and_undefined_for_a_constant(seed, n):
    g = torch.Generator().manual_seed(seed)
    guess, y = torch.randn(2, n, generator=g)
    p = Predictions(guess, y, None, "regression")
    assert pearson(p) == pytest.approx(np.corrcoef(guess, y)[0, 1], abs=1e-6)
    assert math.isnan(pearson(Predictions(torch.full((n,), 0.1), y, None, "regression")))
    assert math.isnan(pearson(Predictions(guess, torch.full((n,), 0.1), None, "regression")))


def gradients(penalties: dict[str, float], balance: Weighted, step: int = 0) -> list[torch.Tensor]:
    data = sp.load("two-bit:per_env=50")
    torch.manual_seed(0)
    method = IRMX(DataShape.of(data), network=Network(widths=(5,)), **penalties)
    method.prepare(data, balance)  # given environments: nothing is asked of the trainer
    terms = method.losses(data.train.whole())
    balance.backward(terms, method, step)
    return [parameter.grad for parameter in method.parameters()]


@settings(max_examples=10, deadline=None)
@given(irm=st.floats(0, 100), vrex=st.floats(0, 100))
def test_pair_21_fixed_weights_give_the_gradients_of_the_plain_sum(irm, vrex):
    ours = gradients({"irm_penalty": irm, "vrex_penalty": vrex}, Weighted())
    parts = [
        gradients({}, Weighted({"task": 1.0, "irm": 0.0, "vrex": 0.0})),
        gradients({}, Weighted({"task": 0.0, "irm": 1.0, "vrex": 0.0})),
        gradients({}, Weighted({"task": 0.0, "irm": 0.0, "vrex": 1.0})),
    ]
    for mine, task, by_irm, by_vrex in zip(ours, *parts, strict=True):
        wanted = task + irm * by_irm + vrex * by_vrex
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


def test_pair_21_weights_of_the_balance_and_of_the_method_give_the_same_bits():
    by_method = gradients({"irm_penalty": 3.0, "vrex_penalty": 0.5}, Weighted())
    by_balance = gradients({}, Weighted({"irm": 3.0, "vrex": 0.5}))
    assert all(torch.equal(a, b) for a, b in zip(by_method, by_balance, strict=True))
