"""Where nothing moved nothing is alarmed."""

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset
from tests.diagnosis.worlds import graph_part, graphs, tensor_part, tensors


def still(make, seed: int) -> Dataset:
    """Three splits and three environments of one law, with a scaffold column on graphs."""
    rng = np.random.default_rng([seed, 5])
    sizes = {"train": 300, "val": 120, "test": 150}
    parts = {name: make(rng, count, environments=3, agrees=0.8) for name, count in sizes.items()}
    if make is graph_part:
        for part in parts.values():
            part.columns["scaffold"] = torch.from_numpy(rng.integers(0, 40, size=len(part)))
    return Dataset(parts, name="still")


def alarmed(make, seeds: range) -> list[int]:
    return [seed for seed in seeds if sp.diagnose(still(make, seed), assistant=False, seed=seed).alarms]


@pytest.mark.parametrize("make", [graph_part, tensor_part])
def test_no_alarm_on_data_without_a_shift(make) -> None:
    assert len(alarmed(make, range(20))) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [graph_part, tensor_part])
def test_no_alarm_in_95_of_100_seeds(make) -> None:
    assert len(alarmed(make, range(100))) <= 5


@pytest.mark.parametrize("make", [graphs, tensors])
def test_the_words_say_that_nothing_was_found_and_how_much_could_be_missed(make) -> None:
    found = sp.diagnose(make(1), assistant=False)
    assert not found.alarms
    assert "No shift was found" in found.summary()
    assert "could be missed" in found.summary()
