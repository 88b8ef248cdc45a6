"""The theory of the GALA paper as arithmetic on tables (docs/papers/gala.md#impossibility, #t7, #t8, #t9)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.data.generated.impossibility import (
    accuracy,
    best_of_both,
    conditional_entropy,
    counted,
    environment,
    exchanged,
    generated,
    indistinguishable,
    is_consistent,
    mixture,
    ordering,
    rates,
    rules,
    sample_pieces,
    varies_enough,
)
from shiftproof.errors import ShiftproofError

chances = st.floats(0.0, 1.0)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-12)


@settings(max_examples=30, deadline=None)
@given(alpha=chances, beta=chances, classes=st.integers(2, 4))
def test_gala_32_a_law_adds_up_has_its_rates_and_pieces_that_depend_on_the_class_alone(alpha, beta, classes):
    law = environment(alpha, beta, classes)
    assert float(law.sum()) == pytest.approx(1, abs=1e-12)
    assert rates(law) == (pytest.approx(alpha, abs=1e-12), pytest.approx(beta, abs=1e-12))
    given_y = law * classes
    assert close(given_y, given_y.sum(2, keepdim=True) * given_y.sum(1, keepdim=True))


def test_gala_32_the_four_cases_of_two_bits():
    alpha, beta = 0.2, 0.3
    given_y = 2 * environment(alpha, beta)[1]
    expected = [[alpha * beta, alpha * (1 - beta)], [(1 - alpha) * beta, (1 - alpha) * (1 - beta)]]
    torch.testing.assert_close(given_y, torch.tensor(expected, dtype=torch.float64))


def test_gala_T7_generation_by_a_reversed_estimate_erases_the_cause_and_keeps_the_shortcut():
    """The printed instance, exactly and by all n * n recombinations of n = 20,000 drawn samples."""
    train = mixture([environment(0.25, 0.1), environment(0.25, 0.2)])
    assert close(generated(train, reversed=True), environment(0.5, 0.15))
    y, c, s = sample_pieces(20_000, train, generator=torch.Generator().manual_seed(0))
    # recombining every pair: each (class, estimated cause) meets each estimated rest as often as that occurs
    drawn = generated(counted(y, c, s), reversed=True)
    assert rates(drawn) == (pytest.approx(0.5, abs=0.01), pytest.approx(0.15, abs=0.01))
    small = slice(0, 60)
    pairs = [(int(y[i]), int(c[j]), int(s[i])) for i in range(60) for j in range(60)]
    listed = counted(*(torch.tensor(column) for column in zip(*pairs, strict=True)))
    assert close(generated(counted(y[small], c[small], s[small]), reversed=True), listed)


def test_gala_T7_an_estimate_that_is_right_erases_the_shortcut():
    train = mixture([environment(0.25, 0.1), environment(0.25, 0.2)])
    assert close(generated(train), environment(0.25, 0.5))


@pytest.mark.parametrize("b", [0.6, 0.9])
def test_gala_T7_with_three_classes_the_motif_matches_in_a_third(b):
    motif, base = (1 - rate for rate in rates(generated(environment(0.2 * 2 / 3, 1 - b, 3), reversed=True)))
    assert motif == pytest.approx(1 / 3, abs=1e-12)
    assert base == pytest.approx(b, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(a1=chances, a2=chances, b1=chances, b2=chances)
def test_gala_T8_two_sets_of_environments_have_one_mixture(a1, a2, b1, b2):
    ours, theirs = indistinguishable((a1, a2), (b1, b2))
    assert close(mixture(ours), mixture(theirs))


def test_gala_T8_with_equal_rates_the_mixture_does_not_change_when_the_pieces_are_exchanged():
    seen = mixture([environment(0.2, 0.1), environment(0.2, 0.3)])
    assert close(seen, environment(0.2, 0.2))
    assert close(seen, exchanged(seen))
    uneven = environment(0.2, 0.3)
    assert not close(uneven, exchanged(uneven))


def test_gala_34_no_rule_serves_both_worlds_that_look_alike():
    """Trained on (0.2, 0.1) and (0.2, 0.3), or the same with the pieces exchanged; the shortcut turns in the test."""
    ours, theirs = environment(0.2, 0.9), environment(0.9, 0.2)
    assert accuracy(rules(), ours).shape == (16,)
    for world in (ours, theirs):
        assert float(accuracy(rules(), world).max()) >= 0.8
    assert best_of_both(ours, theirs) < 0.6
    assert best_of_both(ours, ours) >= 0.8


@settings(max_examples=30, deadline=None)
@given(alpha=chances, b1=chances, b2=chances, classes=st.integers(2, 3))
def test_gala_T9_mixing_environments_averages_the_rate_of_the_shortcut(alpha, b1, b2, classes):
    mixed = mixture([environment(alpha, b1, classes), environment(alpha, b2, classes)])
    assert close(mixed, environment(alpha, (b1 + b2) / 2, classes))


def test_gala_34_without_variation_even_environment_labels_do_not_tell_the_pieces_apart():
    """In a second world, where the other piece is the cause, every environment has the law it has in the first."""
    steady, varied = [(0.2, 0.1), (0.2, 0.1)], [(0.2, 0.1), (0.2, 0.3)]
    for alpha, beta in steady:  # the cause of the second world has the rate of the first one's shortcut
        assert close(environment(alpha, beta), exchanged(environment(beta, alpha)))
    assert not varies_enough([environment(*rate) for rate in steady])
    assert varies_enough([environment(*rate) for rate in varied])
    # with variation the second world would need a cause whose rate changes, which is none
    assert not varies_enough([exchanged(environment(*rate)) for rate in varied])


def test_gala_35_a_cause_that_changes_is_no_sufficient_variation():
    assert not varies_enough([environment(0.2, 0.1), environment(0.3, 0.4)])


def test_gala_35_consistency_wants_the_same_stronger_piece_everywhere():
    weak, strong = environment(0.2, 0.4), environment(0.2, 0.1)
    assert (ordering(weak), ordering(strong), ordering(environment(0.2, 0.2))) == (1, -1, 0)
    assert is_consistent([weak, environment(0.2, 0.3)])
    assert is_consistent([strong, environment(0.2, 0.05)])
    assert not is_consistent([weak, strong])
    assert not is_consistent([environment(0.2, 0.2)])


@pytest.mark.parametrize(
    ("noise", "b", "cause", "shortcut", "regime"),
    [
        (0.2, 0.6, 0.485, 0.950, 1),
        (0.2, 0.7, 0.485, 0.819, 1),
        (0.2, 0.9, 0.485, 0.394, -1),
        (0.3, 0.9, 0.639, 0.394, -1),
    ],
)
def test_gala_33_entropies_of_the_four_data_sets(noise, b, cause, shortcut, regime):
    law = environment(2 * noise / 3, 1 - b, 3)
    assert conditional_entropy(law, "cause") == pytest.approx(cause, abs=1e-3)
    assert conditional_entropy(law, "shortcut") == pytest.approx(shortcut, abs=1e-3)
    assert ordering(law) == regime


@pytest.mark.parametrize(("noise", "b", "reached"), [(0.2, 0.6, 0.867), (0.2, 0.9, 1 / 3), (0.3, 0.9, 1 / 3)])
def test_gala_33_the_best_rule_of_training_in_the_test(noise, b, reached):
    """The accuracies of docs/papers/gala.md#t6 without sampling."""
    rule = environment(2 * noise / 3, 1 - b, 3).argmax(0)
    assert float(accuracy(rule, environment(2 * noise / 3, 2 / 3, 3))) == pytest.approx(reached, abs=1e-3)


def test_chances_and_pieces_that_are_none_are_refused():
    with pytest.raises(ShiftproofError, match=r"'spurious' is a chance between 0 and 1, not 1\.5"):
        environment(0.2, 1.5)
    with pytest.raises(ShiftproofError, match="a piece is the 'cause' or the 'shortcut', not 'base'"):
        conditional_entropy(environment(0.2, 0.1), "base")
