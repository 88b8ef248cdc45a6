"""Plain tensors with environments: the same contract as packed graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.data import Dataset, DomainSet
from shiftproof.errors import ShiftproofError


def rows(n: int = 5, *, image: bool = False) -> DomainSet:
    """Sample i holds the number i everywhere, so that a row in the wrong place shows."""
    number = torch.arange(n)
    x = number.float()[:, None].expand(n, 4).clone()
    x = x.view(n, 1, 2, 2) if image else x
    return DomainSet(x, number % 2, number % 3, columns={"site": number * 10})


def assert_rows(batch, numbers: list[int]) -> None:
    assert batch.x.flatten(1)[:, 0].tolist() == numbers
    assert batch.y.tolist() == [i % 2 for i in numbers]
    assert batch.env.tolist() == [i % 3 for i in numbers]
    assert batch.index.tolist() == numbers
    assert batch.columns["site"].tolist() == [10 * i for i in numbers]
    assert len(batch) == len(numbers)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 12), size=st.integers(1, 15), image=st.booleans())
def test_batches_follow_the_order_and_the_last_may_be_smaller(n, size, image):
    batches = list(rows(n, image=image).batches(size))
    assert [len(batch) for batch in batches] == [min(size, n - start) for start in range(0, n, size)]
    for start, batch in zip(range(0, n, size), batches, strict=True):
        assert_rows(batch, list(range(start, min(start + size, n))))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 12), size=st.integers(1, 15), seed=st.integers(0, 99))
def test_a_shuffled_epoch_has_every_sample_once(n, size, seed):
    seen = []
    for batch in rows(n).batches(size, shuffle=True, generator=torch.Generator().manual_seed(seed)):
        assert_rows(batch, batch.index.tolist())
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(n))


@pytest.mark.parametrize("shuffle", [False, True])
def test_all_samples_at_once_stay_in_their_place(shuffle):
    ours = rows()
    (batch,) = ours.batches(None, shuffle=shuffle)
    assert_rows(batch, [0, 1, 2, 3, 4])
    assert batch.x.data_ptr() == ours.x.data_ptr()


@pytest.mark.parametrize(
    ("index", "numbers"),
    [
        (slice(1, 4), [1, 2, 3]),
        (-1, [4]),
        ([2, -5, 2], [2, 0, 2]),
        (torch.tensor([4, 0]), [4, 0]),
        (torch.tensor([True, False, True, False, False]), [0, 2]),
        ([True, False, True, False, False], [0, 2]),
        ([], []),
    ],
)
def test_every_way_of_choosing_names_the_same_samples(index, numbers):
    assert_rows(rows().batch(index), numbers)
    assert_rows(rows()[index].whole(), numbers)


def test_the_number_of_a_sample_survives_selection_upon_selection():
    assert rows()[[4, 2, 1]][1:].index.tolist() == [2, 1]


def test_parts_of_different_length_are_refused():
    with pytest.raises(ShiftproofError, match="'y' has 2 rows, 'x' has 3; they must be equal"):
        DomainSet(torch.zeros(3, 1), torch.zeros(2))
    with pytest.raises(ShiftproofError, match="'site' has 4 rows, 'x' has 3"):
        DomainSet(torch.zeros(3, 1), columns={"site": torch.zeros(4)})


@pytest.mark.parametrize("size", [0, -2])
def test_a_batch_needs_room_for_a_sample(size):
    with pytest.raises(ShiftproofError, match=f"at least one sample, not {size}"):
        rows().batches(size)


def test_a_column_becomes_the_environment_by_name():
    assert rows().group_by("site").env.tolist() == [0, 10, 20, 30, 40]
    with pytest.raises(ShiftproofError, match="unknown environment column 'sight'; did you mean 'site'"):
        rows().group_by("sight")


def test_moving_moves_every_tensor():
    moved = rows().to("meta")
    parts = [moved.x, moved.y, moved.env, moved.index, moved.columns["site"]]
    assert {tensor.device.type for tensor in parts} == {"meta"}
    ours = rows()
    assert ours.to("cpu") is ours


def test_features_know_their_width_even_without_samples():
    assert rows(image=True).num_features == rows(image=True)[[]].num_features == 4
    assert repr(rows(image=True)) == "DomainSet(5 samples of shape (1, 2, 2), environments=3)"


def test_what_cannot_be_right_is_named_by_row():
    ours = rows(image=True)
    ours.x[3, 0, 1, 1] = float("inf")
    with pytest.raises(ShiftproofError, match=r"toy: features hold NaN or infinity \(row 3\)"):
        ours.check("toy")
    with pytest.raises(ShiftproofError, match="toy: labels must be 0 to 0, but row 1 has 1"):
        rows().check("toy", num_classes=1)
    with pytest.raises(ShiftproofError, match=r"row 0 has 0\.5"):
        DomainSet(torch.zeros(1, 1), torch.tensor([0.5])).check("toy", num_classes=2)
    with pytest.raises(ShiftproofError, match="toy: environments are numbered from 0, but row 0 has -1"):
        DomainSet(torch.zeros(1, 1), env=torch.tensor([-1])).check("toy")


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        ("regression", [0.5, float("nan")], r"labels hold NaN or infinity \(row 1\)"),
        ("multilabel", [[0.0, float("nan")], [1.0, 2.0]], "labels must be 0, 1 or NaN, but row 1 has"),
        ("binary", [0.0, float("nan")], "labels must be 0 to 1, but row 1 has nan"),
        ("multiclass", [0, 2], "labels must be 0 to 1, but row 1 has 2"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_named(task, y, said):
    train = DomainSet(torch.zeros(2, 1), torch.tensor(y))
    with pytest.raises(ShiftproofError, match=f"toy, split 'train': {said}"):
        Dataset({"train": train}, name="toy", task=task).check()


def test_unknown_labels_of_a_multilabel_task_are_no_mistake():
    y = torch.tensor([[0.0, float("nan")], [1.0, 0.0]])
    Dataset({"train": DomainSet(torch.zeros(2, 1), y)}, name="toy", task="multilabel").check()


def test_a_data_set_names_its_splits():
    data = Dataset({"train": rows(), "test": rows(2)}, name="toy")
    assert len(data.test) == 2
    assert repr(data) == "Dataset(toy: train=5, test=2; multiclass, accuracy)"
    with pytest.raises(ShiftproofError, match="unknown split 'tets' of 'toy'; did you mean 'test'"):
        data["tets"]
    with pytest.raises(AttributeError, match="no split 'val'; it has train, test"):
        _ = data.val
    with pytest.raises(ShiftproofError, match="has no split 'train', only test"):
        Dataset({"test": rows()}, name="toy")
    with pytest.raises(ShiftproofError, match="unknown task 'binry'; did you mean 'binary'"):
        Dataset({"train": rows()}, name="toy", task="binry")
    with pytest.raises(ShiftproofError, match="toy, split 'test' is empty"):
        data.with_splits(test=rows()[[]]).check()
    with pytest.raises(ShiftproofError, match="toy, split 'train' has no labels"):
        Dataset({"train": DomainSet(torch.zeros(2, 1))}, name="toy").check()


def test_grouping_reaches_every_split_that_has_the_column():
    data = Dataset({"train": rows(), "test": DomainSet(torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))}, name="toy")
    grouped = data.group_by("site")
    assert grouped.environment == "site"
    assert grouped.train.env.tolist() == [0, 10, 20, 30, 40]
    assert grouped.test.env is None
    with pytest.raises(ShiftproofError, match="unknown environment column 'sitr'"):
        data.group_by("sitr")
