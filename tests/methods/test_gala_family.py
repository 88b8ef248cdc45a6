"""GALA and the methods it is held against: what a user of them relies on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import shiftproof as sp
from shiftproof.methods import ERM, DataShape, Network
from shiftproof.training import Trainer, trainer

SMALL = {"train_per_class": 12, "val_per_class": 4, "test_per_class": 4}
NETWORK = Network(layers=2, hidden=8)
QUICK = {"layers": 2, "hidden": 8, "epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return sp.load("two-piece", **SMALL)


class Repeats(ERM):
    """Sees the first two samples `epoch` times more than the others, and writes down what it saw."""

    seen: list[list[int]]

    def start_epoch(self, epoch: int) -> None:
        self.seen = [*getattr(self, "seen", []), []]

    def training_index(self, epoch: int) -> Tensor | None:
        everything = torch.arange(self.shape.num_train)
        return None if epoch == 0 else torch.cat([everything, everything[:2].repeat(epoch)])

    def losses(self, batch) -> dict[str, Tensor]:
        self.seen[-1] += batch.index.tolist()
        return super().losses(batch)


def test_an_epoch_consists_of_the_samples_the_method_asks_for(data) -> None:
    method = Repeats(DataShape.of(data), network=NETWORK)
    Trainer(epochs=3, batch_size=7).fit(method, data)
    once = list(range(len(data.train)))
    assert [sorted(epoch) for epoch in method.seen] == [sorted(once + [0, 1] * extra) for extra in range(3)]


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch):
    """Stop any training before the epoch whose number is given."""
    original = trainer._Loop._train_epoch
    last: dict[str, int | None] = {"epoch": None}

    def one_epoch(self, stepper):
        if self.epoch == last["epoch"] and self.config["method"] != "assistant":
            raise Killed
        original(self, stepper)

    monkeypatch.setattr(trainer._Loop, "_train_epoch", one_epoch)
    return lambda epoch: last.update(epoch=epoch)


def test_a_killed_run_that_repeats_samples_goes_on_to_the_same_weights(data, tmp_path, kill_after) -> None:
    def fit(folder: str, resume: bool = False):
        torch.manual_seed(0)
        method = Repeats(DataShape.of(data), network=NETWORK)
        Trainer(epochs=4, batch_size=7, out=tmp_path / folder, resume=resume, checkpoint_seconds=0).fit(method, data)
        return method

    whole = fit("whole")
    kill_after(2)
    with pytest.raises(Killed):
        fit("killed")
    kill_after(None)
    again = fit("killed", resume=True)
    for ours, theirs in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_helper_can_be_judged_otherwise_than_the_run_it_helps(data) -> None:
    chosen = []

    class Told(ERM):
        def prepare(self, dataset, trainer) -> None:
            helper = ERM(self.shape, network=NETWORK)
            without_val = replace(dataset, splits={"train": dataset.train})  # a choice by validation would raise
            trainer.fit_reference(helper, without_val, "helper", selection="last")
            chosen.append(helper)

    Trainer(epochs=1, selection="val").fit(Told(DataShape.of(data), network=NETWORK), data)
    assert chosen
