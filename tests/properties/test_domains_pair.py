"""Facts of docs/papers/pair.md#checked-facts about batches of domains and DomainBed's coloured digits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.data import DomainBatchSampler, load
from shiftproof.errors import ShiftproofError

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def groups_of(counts: list[int], seed: int) -> torch.Tensor:
    groups = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed))]


@settings(max_examples=60, deadline=None)
@given(counts=sizes, k=st.integers(1, 6), size=st.integers(1, 9), seed=st.integers(0, 99))
def test_pair_40_a_batch_has_distinct_domains_and_the_epoch_ends(counts, k, size, seed):
    groups = groups_of(counts, seed)
    k = min(k, len(counts))
    sampler = DomainBatchSampler(groups, k, size)
    positions = sampler.epoch(torch.Generator().manual_seed(seed))
    assert positions.shape[1:] == (k, size)
    drawn = groups[positions]
    assert bool((drawn == drawn[..., :1]).all())  # one domain in each part
    for row in drawn[..., 0].tolist():
        assert len(set(row)) == k
    whole = [max(count // size, 1) for count in counts]

    def with_more_than_one_left(rows: torch.Tensor) -> int:
        used = torch.bincount(rows[..., 0].flatten(), minlength=len(counts)).tolist()
        return sum(n - u > 1 for n, u in zip(whole, used, strict=True))

    assert with_more_than_one_left(drawn) < k
    assert len(drawn) == 1 or with_more_than_one_left(drawn[:-1]) >= k


@settings(max_examples=40, deadline=None)
@given(counts=sizes, size=st.integers(1, 9), seed=st.integers(0, 99))
def test_pair_40_no_sample_comes_back_before_its_domain_is_used_up(counts, size, seed):
    groups = groups_of(counts, seed)
    positions = DomainBatchSampler(groups, 1, size).epoch(torch.Generator().manual_seed(seed))
    for domain, count in enumerate(counts):
        own = positions[groups[positions] == domain]
        first = own[:count]
        assert len(first.unique()) == len(first)


def test_pair_40_a_fixed_number_of_steps_draws_all_domains_equally():
    groups = groups_of([5, 50, 500], 0)
    sampler = DomainBatchSampler(groups, "all", 4, steps=30)
    positions = sampler.epoch(torch.Generator().manual_seed(0))
    assert positions.shape == (30, 3, 4)
    assert torch.bincount(groups[positions].flatten()).tolist() == [120, 120, 120]
    again = sampler.epoch(torch.Generator().manual_seed(0))
    assert torch.equal(positions, again)
    some = DomainBatchSampler(groups, 2, 4, steps=300).epoch(torch.Generator().manual_seed(0))
    counts = torch.bincount(groups[some].flatten())
    assert (counts / counts.sum() - 1 / 3).abs().max() < 0.05


def test_pair_40_it_is_a_batch_sampler_of_torch():
    groups = groups_of([8, 8], 0)
    sampler = DomainBatchSampler(groups, "all", 2, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(groups), batch_sampler=sampler)
    batches = [batch.bincount().tolist() for (batch,) in loader]
    assert batches == [[2, 2]] * 3


@pytest.mark.parametrize(("domains", "size", "steps"), [(0, 4, None), ("all", 0, None), ("all", 4, 0)])
def test_pair_40_numbers_that_make_no_batch_are_refused(domains, size, steps):
    with pytest.raises(ShiftproofError):
        DomainBatchSampler(torch.zeros(4), domains, size, steps=steps)


def test_pair_36_and_37_colour_goes_with_the_label_as_the_domain_says(real_data):
    try:
        data = load("domainbed-cmnist", size=7)
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    assert sum(len(split) for split in data.splits.values()) == 70_000
    assert data.env_names_of("train") == ("+90%", "+80%")
    assert data.env_names_of("test") == ("-90%",)
    for split in data.splits.values():
        channels = split.x.flatten(2).sum(2) > 0
        assert bool((channels.sum(1) <= 1).all())
        shown = channels.any(1)
        colour = channels.long().argmax(1)
        for env in split.env.unique().tolist():
            agree = float((colour == split.y)[shown & (split.env == env)].float().mean())
            expected = {2: [0.9, 0.8], 1: [0.1]}[len(split.env.unique())][env]
            assert agree == pytest.approx(expected, abs=0.012)
    whole = load("domainbed-cmnist", size=7)
    assert torch.equal(whole.train.x[:50], data.train.x[:50])
    assert torch.equal(whole.train.y, data.train.y)
