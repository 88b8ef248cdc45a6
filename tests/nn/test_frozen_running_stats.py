"""A pass whose batch statistics are used and forgotten."""

import pytest
import torch

from shiftproof.nn.frozen_running_stats import still_statistics
from shiftproof.nn.norms import NodeBatchNorm

MASKS = [None, torch.arange(12) < 9]


@pytest.mark.parametrize("mask", MASKS, ids=["plain", "padded"])
def test_a_still_pass_gives_what_training_gives_and_moves_nothing(mask) -> None:
    torch.manual_seed(0)
    norm, twin = NodeBatchNorm(4), NodeBatchNorm(4)
    first, second = torch.randn(12, 4), 3 + 5 * torch.randn(12, 4)
    for one in (norm, twin):
        one(first, mask)
    with still_statistics(norm):
        found = norm(second, mask)
    before = norm.running_mean.clone(), norm.running_var.clone()
    torch.testing.assert_close(found, twin(second, mask))
    assert not torch.allclose(before[0], twin.running_mean)
    norm(second, mask)  # what was held still moves again
    torch.testing.assert_close(norm.running_mean, twin.running_mean)
    torch.testing.assert_close(norm.running_var, twin.running_var)


def test_statistics_move_again_after_an_error() -> None:
    norm = NodeBatchNorm(4, momentum=0.3)
    with pytest.raises(ValueError, match="stop"), still_statistics(torch.nn.Sequential(norm)):
        raise ValueError("stop")
    assert norm.momentum == 0.3
