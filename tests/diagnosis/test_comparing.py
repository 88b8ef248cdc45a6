"""The tests behind a diagnosis: their level, their intervals, and what they find."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shiftproof.diagnosis.comparing import (
    auc_with_variance,
    compare_classes,
    compare_groups,
    compare_numbers,
    compare_vectors,
    counts,
    holm,
    table_test,
)


def draws(kind: str, rng: np.random.Generator, moved: float = 0.0):
    if kind == "numbers":
        return compare_numbers(rng.normal(size=80), rng.normal(moved, size=120))
    if kind == "classes":
        shares = np.array([0.5, 0.3, 0.2])
        other = shares + np.array([-1, 0.5, 0.5]) * moved / 4
        return compare_classes(rng.choice(3, 80, p=shares), rng.choice(3, 120, p=other))
    if kind == "groups":
        return compare_groups(rng.integers(4, size=200), rng.integers(3, size=200))
    return compare_vectors(rng.normal(size=(80, 5)), rng.normal(moved, size=(120, 5)))


@pytest.mark.parametrize("kind", ["numbers", "classes", "groups", "vectors"])
def test_p_values_hold_their_level_where_nothing_differs(kind: str) -> None:
    p = np.array([draws(kind, np.random.default_rng(seed)).p for seed in range(200)])
    # 5 % of 200, and three deviations of a binomial count above that
    assert (p < 0.05).sum() <= 10 + 3 * 3.1


@pytest.mark.parametrize("kind", ["numbers", "classes", "vectors"])
def test_p_values_are_small_where_something_differs(kind: str) -> None:
    assert draws(kind, np.random.default_rng(0), moved=1.5).p < 1e-4


def test_the_interval_of_the_largest_difference_covers_it() -> None:
    true = 2 * stats.norm.cdf(0.4) - 1  # of two normal laws 0.8 apart
    found = [
        compare_numbers(r.normal(size=100), r.normal(0.8, size=150)) for r in map(np.random.default_rng, range(200))
    ]
    assert np.mean([f.low <= true <= f.high for f in found]) >= 0.93


def test_the_interval_of_the_share_in_other_classes_covers_it() -> None:
    a, b = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    found = [
        compare_classes(r.choice(3, 150, p=a), r.choice(3, 100, p=b)) for r in map(np.random.default_rng, range(200))
    ]
    assert np.mean([f.low <= 0.3 <= f.high for f in found]) >= 0.93


def test_the_interval_of_cramers_v_covers_it() -> None:
    joint = np.array([[0.35, 0.15], [0.15, 0.35]])  # V is 0.4
    cover = []
    for seed in range(200):
        flat = np.random.default_rng(seed).choice(4, 300, p=joint.ravel())
        found = compare_groups(flat // 2, flat % 2)
        cover.append(found.low <= 0.4 <= found.high)
    assert np.mean(cover) >= 0.9


def test_a_spread_that_changes_is_seen_by_the_classifier_and_by_the_curves() -> None:
    rng = np.random.default_rng(0)
    narrow, wide = rng.normal(size=(300, 4)), 3 * rng.normal(size=(300, 4))
    assert compare_vectors(narrow, wide).p < 1e-6
    assert compare_numbers(narrow[:, 0], wide[:, 0]).p < 1e-6


def test_equal_constants_are_no_difference() -> None:
    assert compare_vectors(np.ones((30, 3)), np.ones((30, 3))).p == 1.0
    assert compare_numbers(np.ones(30), np.ones(40)).effect == 0.0
    assert table_test([np.array([[5, 0], [7, 0]])])[0] == 1.0


def test_sparse_tables_are_counted_and_agree_with_the_exact_test() -> None:
    table = np.array([[8, 2], [1, 5]])
    exact = stats.fisher_exact(table).pvalue
    assert table_test([table])[0] == pytest.approx(exact, abs=0.02)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.integers(6, size=30).astype(float), rng.integers(2, 8, size=20).astype(float)
    pairs = (high[:, None] > low).mean() + 0.5 * (high[:, None] == low).mean()
    assert auc_with_variance(low, high)[0] == pytest.approx(pairs)


def test_counts_leave_out_what_never_occurs() -> None:
    assert counts(np.array([4, 4, 9]), np.array([0, 7, 7])).tolist() == [[1, 1], [0, 1]]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_raises_p_values_keeps_their_order_and_never_beats_bonferroni(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(a <= b + 1e-12 for a, b in zip(p, adjusted, strict=True))
    assert all(b <= min(1.0, a * len(p)) + 1e-12 for a, b in zip(p, adjusted, strict=True))
    order = np.argsort(p)
    assert (np.diff(np.array(adjusted)[order]) >= -1e-12).all()
    assert min(adjusted) == pytest.approx(min(1.0, min(p) * len(p)))
