import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.errors import ShiftproofError
from shiftproof.nn import (
    sample_bernoulli,
    sample_concrete,
    segment_count,
    segment_max,
    segment_mean,
    segment_min,
    segment_normalise,
    segment_rank,
    segment_softmax,
    segment_sum,
    share_of,
    top_edges,
)
from tests.nn.families import assert_close, assert_gradients_match_finite_differences, seeded

GROUP = torch.tensor([2, 0, 2, 0, 2, 4])  # groups 1, 3 and the last, 5, are empty


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_reductions_equal_a_loop_over_the_groups(shape):
    values = torch.randn(6, *shape, generator=seeded(0))
    for reduce, by_hand in (
        (segment_sum, lambda v: v.sum(0)),
        (segment_mean, lambda v: v.mean(0)),
        (segment_max, lambda v: v.max(0).values),
        (segment_min, lambda v: v.min(0).values),
    ):
        found = reduce(values, GROUP, 6)
        assert found.shape == (6, *shape)
        for g in range(6):
            rows = values[g == GROUP]
            assert_close(found[g], by_hand(rows) if len(rows) else torch.zeros(shape))


def test_counts_keep_a_place_for_empty_groups():
    assert segment_count(GROUP, 6).tolist() == [2, 0, 3, 0, 1, 0]


def test_softmax_adds_up_to_one_in_each_group_and_survives_large_scores():
    scores = torch.randn(6, generator=seeded(0)) + 1e4 * GROUP
    shares = segment_softmax(scores, GROUP, 6)
    assert_close(segment_sum(shares, GROUP, 6), torch.tensor([1.0, 0, 1, 0, 1, 0]))
    assert_close(shares[GROUP == 2], scores[GROUP == 2].softmax(0))


def test_normalise_spans_zero_to_one_and_a_constant_group_gives_zeros():
    values = torch.tensor([1.0, 5.0, 3.0, 5.0, 2.0, 7.0])
    assert_close(segment_normalise(values, GROUP, 6), torch.tensor([0.0, 0, 1, 0, 0.5, 0]))


def test_gradients_of_reductions():
    values = torch.randn(6, 2, generator=seeded(1))
    for reduce in (segment_sum, segment_mean, segment_max, segment_min, segment_normalise):
        assert_gradients_match_finite_differences(lambda v, reduce=reduce: reduce(v, GROUP, 6), values)
    assert_gradients_match_finite_differences(lambda v: segment_softmax(v, GROUP, 6), values[:, 0])


def test_extremes_can_be_differentiated_twice():
    values = torch.randn(6, 2, generator=seeded(1), dtype=torch.double).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda v: segment_max(v, GROUP, 6) ** 3, values)


def test_tied_rows_share_the_gradient_of_an_extreme():
    values = torch.tensor([[2.0], [5.0], [2.0], [1.0], [0.0], [3.0]], requires_grad=True)
    segment_max(values, GROUP, 6).sum().backward()
    assert values.grad.squeeze(1).tolist() == [0.5, 1, 0.5, 0, 0, 1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 2)), max_size=30))
def test_rank_equals_a_stable_sort_of_each_group(entries):
    group = torch.tensor([g for g, _ in entries], dtype=torch.long)
    scores = torch.tensor([float(s) for _, s in entries])
    rank = segment_rank(scores, group, 6)
    for g in range(6):
        inside = (group == g).nonzero().squeeze(1)
        order = np.argsort(-scores[inside].numpy(), kind="stable")
        assert inside[rank[inside].argsort()].tolist() == inside.numpy()[order].tolist()


def test_rounding_is_that_of_the_decimal_as_written():
    counts = torch.tensor([90, 10, 3, 0])
    assert share_of(counts, 0.7, "floor").tolist() == [63, 7, 2, 0]
    assert share_of(counts, 0.7, "ceil").tolist() == [63, 7, 3, 0]
    thirds = torch.tensor([3, 6, 7, 3_000_000])
    assert share_of(thirds, 1 / 3, "ceil").tolist() == [1, 2, 3, 1_000_000]
    assert share_of(thirds, 1 / 3, "floor").tolist() == [1, 2, 2, 1_000_000]


def test_selection_rejects_what_it_cannot_mean():
    scores, group = torch.zeros(2), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ShiftproofError, match="unknown rounding 'cell'; did you mean 'ceil'"):
        top_edges(scores, group, 1, 0.5, "cell")
    with pytest.raises(ShiftproofError, match="at most 1"):
        top_edges(scores, group, 1, 1.5)


def test_selection_of_nothing_and_of_all():
    scores, group = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1])
    assert top_edges(scores, group, 3, 0.0).tolist() == [False] * 3
    assert top_edges(scores, group, 3, 1.0).tolist() == [True] * 3
    assert top_edges(scores, group, 3, -1).tolist() == [True] * 3
    none = torch.zeros(0)
    assert top_edges(none, none.long(), 2, 0.5).shape == (0,)


def test_padding_edges_are_never_selected():
    scores, group = torch.tensor([1.0, 9.0, 9.0]), torch.tensor([0, 1, 1])
    assert top_edges(scores, group, 1, 1.0).tolist() == [True, False, False]


def test_bernoulli_draws_follow_the_probability_and_the_generator():
    prob = torch.full((20_000,), 0.3)
    drawn = sample_bernoulli(prob, seeded(0))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert abs(float(drawn.mean()) - 0.3) < 0.015
    assert torch.equal(drawn, sample_bernoulli(prob, seeded(0)))


def test_a_probability_that_is_no_number_draws_zero_and_leaves_the_other_draws_alone():
    prob = torch.full((20,), 0.5)
    broken = torch.where(torch.arange(20) == 3, torch.nan, prob)
    drawn = sample_bernoulli(broken, seeded(0))
    assert drawn[3] == 0
    assert torch.equal(drawn[4:], sample_bernoulli(prob, seeded(0))[4:])


def test_concrete_draws_pass_one_half_as_often_as_a_bernoulli_and_carry_gradients():
    logits = torch.full((20_000,), -0.5, requires_grad=True)
    drawn = sample_concrete(logits, generator=seeded(0))
    assert abs(float((drawn > 0.5).float().mean()) - float(torch.tensor(-0.5).sigmoid())) < 0.015
    drawn.sum().backward()
    assert_close(logits.grad, (drawn * (1 - drawn)).detach())
    cold = sample_concrete(logits.detach(), temperature=1e-3, generator=seeded(0))
    assert float(((cold < 0.01) | (cold > 0.99)).float().mean()) > 0.98
    with pytest.raises(ShiftproofError, match="positive"):
        sample_concrete(logits, temperature=0.0)
