"""Callbacks are told of a run from its start to its end, may stop it, and change nothing else of it."""

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError, TrainingDiverged
from shiftproof.training import Callback, Trainer, loop
from tests.training.toys import TwoTerms, assert_same_weights, toy_data

BITS = "two-bit:per_env=30"
SMALL = {"widths": (6,), "batch_size": 16}
GRAPHS = "spmotif-struc:train_per_class=8,val_per_class=5,test_per_class=4"


class Diary(Callback):
    """Writes down what it is told; stops each run after `stop_after` epochs."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.lines: list[tuple] = []
        self.runs: list = []

    def on_start(self, training) -> None:
        self.lines.append(("start", training.seed, training.epoch))

    def on_epoch(self, training) -> None:
        torch.rand(3)  # what a callback draws must not move the run
        self.lines.append(("epoch", training.seed, training.epoch, training.record))
        if training.epoch == self.stop_after:
            training.stop("enough")

    def on_end(self, training, run) -> None:
        self.lines.append(("end", training.seed, training.epoch))
        self.runs.append(run)

    def kinds(self, seed: int = 0) -> list[str]:
        return [line[0] for line in self.lines if line[1] == seed]


def test_a_callback_is_told_of_start_every_epoch_and_end():
    diary = Diary()
    run = sp.fit("irm", BITS, epochs=3, callbacks=[diary], **SMALL)
    assert diary.kinds() == ["start", "epoch", "epoch", "epoch", "end"]
    records = [line[3] for line in diary.lines if line[0] == "epoch"]
    assert records == run.history
    assert set(records[0]["losses"]) == {"task", "irm"}
    assert records[0]["steps"] > 0
    assert diary.runs == [run]


def test_a_run_with_callbacks_has_the_bits_of_one_without():
    settings = {"epochs": 4, "hidden": 6, "layers": 2, "dropout": 0.5, "batch_size": 9}
    plain = sp.fit("erm", GRAPHS, **settings)
    told = sp.fit("erm", GRAPHS, callbacks=[Diary(), lambda training: training.record["losses"].clear()], **settings)
    assert told.history == plain.history
    assert_same_weights(told.method, plain.method)


def test_a_callback_stops_a_run_which_is_then_whole():
    run = sp.fit("erm", BITS, epochs=50, callbacks=[Diary(stop_after=2)], **SMALL)
    assert len(run.history) == 2
    assert run.timing["stopped"] == "enough"
    assert run.metrics["test"]["accuracy"] >= 0


def test_a_function_is_called_after_each_epoch():
    seen = []
    sp.fit("erm", BITS, epochs=3, callbacks=[lambda training: seen.append((training.epoch, training.epochs))], **SMALL)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_end_is_told_once_also_where_training_breaks_off():
    class Breaking(TwoTerms):
        def losses(self, batch):
            return {name: term * torch.inf for name, term in super().losses(batch).items()}

    diary = Diary()
    with pytest.raises(TrainingDiverged):
        sp.fit(Breaking, toy_data(), epochs=2, callbacks=[diary])
    assert diary.kinds() == ["start", "end"]
    assert diary.runs == [None]


def test_a_resumed_run_starts_where_it_was_stopped_and_a_finished_one_tells_nothing(tmp_path, monkeypatch):
    settings = {"epochs": 4, "checkpoint_seconds": 0.0, "out": tmp_path, **SMALL}
    original = loop.Loop._train_epoch

    def killed(self, stepper):
        if self.epoch == 2:
            raise KeyboardInterrupt
        original(self, stepper)

    diary = Diary()
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_train_epoch", killed)
        with pytest.raises(KeyboardInterrupt):
            sp.fit("erm", BITS, callbacks=[diary], **settings)
    assert diary.kinds() == ["start", "epoch", "epoch", "end"]
    again = Diary()
    sp.fit("erm", BITS, resume=True, callbacks=[again], **settings)
    assert again.lines[0] == ("start", 0, 2)
    assert again.kinds() == ["start", "epoch", "epoch", "end"]
    finished = Diary()
    sp.fit("erm", BITS, resume=True, callbacks=[finished], **settings)
    assert finished.lines == []


def test_a_helper_model_is_not_taken_for_the_run():
    diary = Diary()
    sp.fit("eiil", BITS, epochs=2, reference_epochs=3, inference_steps=5, callbacks=[diary], **SMALL)
    assert diary.kinds() == ["start", "epoch", "epoch", "end"]


def test_seeds_trained_as_one_tell_the_same_callback_each_for_itself():
    diary = Diary()
    settings = {"epochs": 3, "hidden": 6, "layers": 2, "batch_size": 9}

    def stop_one(training) -> None:
        if training.seed == 1 and training.epoch == 1:
            training.stop("this one only")

    runs = sp.fit_seeds("erm", GRAPHS, seeds=[0, 1], callbacks=[diary, stop_one], **settings)
    assert diary.kinds(0) == ["start", "epoch", "epoch", "epoch", "end"]
    assert diary.kinds(1) == ["start", "epoch", "end"]
    assert [len(run.history) for run in runs] == [3, 1]
    alone = sp.fit_seeds("erm", GRAPHS, seeds=[0, 1], **{**settings, "epochs": 1, "selection": "last"})
    stopped = sp.fit_seeds("erm", GRAPHS, seeds=[0, 1], callbacks=[stop_one], selection="last", **settings)
    assert_same_weights(stopped[1].method, alone[1].method)


def test_auto_tells_of_the_run_it_chose_not_of_its_trials():
    diary = Diary()
    run = sp.fit("auto", BITS, epochs=2, callbacks=[diary], **SMALL)
    assert [line[0] for line in diary.lines] == ["start", "epoch", "epoch", "end"]
    assert diary.runs[0].name == run.name


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Diary(), "is a list"),
        ([Diary], "write Diary"),
        ([3], "not 3"),
        ("wandb", "is a list"),
        ([None], "not a NoneType"),
    ],
)
def test_what_is_no_callback_is_one_sentence(given, words):
    with pytest.raises(ShiftproofError, match=words):
        sp.fit("erm", BITS, callbacks=given)
    with pytest.raises(ShiftproofError, match=words):
        Trainer(callbacks=given)
