"""What layers ask of a stack again and again is computed once, and never for another index."""

import pytest
import torch

from shiftproof.nn import stacking as module
from shiftproof.nn.stacking import numbered_apart, stacked, stacking

INDEX = torch.tensor([[0, 1], [1, 0]])


def test_numbers_of_all_networks_in_one_list():
    assert numbered_apart(INDEX, 3).tolist() == [0, 1, 4, 3]
    assert numbered_apart(INDEX, 2).tolist() == [0, 1, 3, 2]
    assert numbered_apart(torch.zeros(2, 0, dtype=torch.long), 0).tolist() == []


def test_inside_a_stack_an_index_is_numbered_once_for_each_size():
    with stacking(2):
        first = numbered_apart(INDEX, 3)
        assert numbered_apart(INDEX, 3) is first
        assert numbered_apart(INDEX, 2).tolist() == [0, 1, 3, 2]
        assert numbered_apart(INDEX.clone(), 3) is not first
    assert numbered_apart(INDEX, 3) is not first


def test_an_index_that_is_written_to_is_numbered_anew():
    index = INDEX.clone()
    with stacking(2):
        numbered_apart(index, 3)
        index.copy_(torch.tensor([[1, 1], [0, 0]]))
        assert numbered_apart(index, 3).tolist() == [1, 1, 3, 3]


def test_of_inference_tensors_nothing_is_kept():
    with torch.inference_mode():
        index = INDEX.clone()
        with stacking(2):
            numbered_apart(index, 3)
            index.copy_(torch.tensor([[1, 1], [0, 0]]))
            assert numbered_apart(index, 3).tolist() == [1, 1, 3, 3]


def test_a_stack_inside_another_and_one_that_fails_leave_nothing_behind():
    with stacking(2):
        outer = numbered_apart(INDEX, 3)
        with stacking(3):
            assert numbered_apart(INDEX, 3) is not outer
        with pytest.raises(IndexError), stacking(3):
            numbered_apart(INDEX[9], 3)
        assert numbered_apart(INDEX, 3) is outer
    assert (stacked(), module._numbered) == (False, [])
