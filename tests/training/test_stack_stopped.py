"""Stacks of seeds that are killed, go on, lose members or have a first stage: nothing of it shows in the result."""

import json
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.api.fitting import loop_for
from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.methods import DataShape, GMTSimulated
from shiftproof.methods.base import Method
from shiftproof.nn import GNNEncoder
from shiftproof.runtime.files import read_tensors
from shiftproof.training import CannotStack, Trainer, TrainingDiverged
from shiftproof.training import seed_stack as training_together
from shiftproof.training.loop import Loop
from shiftproof.training.run import STACK, WEIGHTS
from shiftproof.training.seed_stack import Together, fit_together
from shiftproof.training.stack import StackedStepper
from tests.training.stacks import GRAPHS, SMALL, members_of


@pytest.fixture(scope="module")
def graphs():
    return load(GRAPHS)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch):
    original, left = Together._epoch, {"epochs": None}

    def one_epoch(self, stepper):
        if left["epochs"] == 0:
            raise Killed
        if left["epochs"] is not None:
            left["epochs"] -= 1
        return original(self, stepper)

    monkeypatch.setattr(Together, "_epoch", one_epoch)
    return lambda epochs: left.update(epochs=epochs)


def same_runs(one, other) -> None:
    if torch.cuda.is_available():
        pytest.skip("sums of a GPU are in no fixed order, and runs are compared bit by bit")
    for a, b in zip(one, other, strict=True):
        for name in ("metrics.json", "history.json", "config.json"):
            assert (a.folder / name).read_bytes() == (b.folder / name).read_bytes(), name
        for left, right in zip(a.method.state_dict().values(), b.method.state_dict().values(), strict=True):
            assert torch.equal(left, right)


@pytest.mark.filterwarnings("ignore:r falls")
@pytest.mark.parametrize("done", [0, 1, 3])
@pytest.mark.parametrize(("method", "ahead"), [("gsat", ()), ("erm", ()), ("erm", ("cpu",))])
def test_a_stopped_stack_ends_as_an_uninterrupted_one(graphs, tmp_path, kill_after, monkeypatch, method, ahead, done):
    monkeypatch.setattr(training_together, "LOOKS_AHEAD", ahead)  # as on a GPU, where the next epoch is laid out early
    settings = {**SMALL, "dropout": 0.3, "epochs": 4}
    whole = sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "whole", **settings)
    kill_after(done)
    with pytest.raises(Killed):
        sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "stopped", **settings)
    kill_after(None)
    torch.rand(5)
    again = sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "stopped", resume=True, **settings)
    same_runs(again, whole)


@pytest.mark.filterwarnings("ignore:r falls")
@pytest.mark.parametrize("done", [1, 4])
@pytest.mark.parametrize("method", ["gmt-sam", "gsat-min0"])
def test_first_stages_are_a_stack_too(graphs, tmp_path, kill_after, method, done):
    """Also when the stack was stopped in the first stage or in the second."""
    settings = {**SMALL, **({"samples": 3} if method == "gmt-sam" else {})}
    whole = sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "whole", **settings)
    for run in whole:
        assert json.loads((run.folder / "extractor" / "timing.json").read_text())["stacked"] == 2
        assert not any(p.requires_grad for p in run.method.extractor.parameters())
    kill_after(done)
    with pytest.raises(Killed):
        sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "stopped", **settings)
    kill_after(None)
    with pytest.raises(ShiftproofError, match="already holds an unfinished run"):
        sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "stopped", **settings)
    again = sp.fit_seeds(method, graphs, seeds=(0, 1), out=tmp_path / "stopped", resume=True, **settings)
    same_runs(again, whole)
    without = sp.fit_seeds(method, graphs, seeds=(0, 1), **settings)
    for one, other in zip(without, whole, strict=True):
        assert one.metrics == other.metrics


@pytest.mark.filterwarnings("ignore:r falls")
@pytest.mark.parametrize("finished", [False, True], ids=["together", "the others done"])
def test_a_first_stage_that_diverges_costs_its_own_seed_alone(graphs, tmp_path, monkeypatch, finished):
    original = GMTSimulated.prepare

    def prepare(self, dataset, trainer) -> None:
        original(self, dataset, trainer)
        if trainer.seed == 1:
            self.scorer.requires_grad_(False)
            next(self.scorer.parameters()).fill_(torch.nan)

    settings = {**SMALL, "samples": 3, "out": tmp_path, "resume": True}
    if finished:
        sp.fit_seeds("gmt-sam", graphs, seeds=(0, 2), **settings)
    monkeypatch.setattr(GMTSimulated, "prepare", prepare)
    loops = [loop_for("gmt-sam", graphs, seed=s, **{**settings, "out": tmp_path / f"seed-{s}"}) for s in range(3)]
    runs = fit_together(loops)
    assert [isinstance(run, TrainingDiverged) for run in runs] == [False, True, False]
    assert [(tmp_path / f"seed-{s}" / "metrics.json").exists() for s in range(3)] == [True, False, True]


@pytest.mark.filterwarnings("ignore:r falls")
def test_a_first_stage_without_room_for_a_stack_is_that_of_a_single_run(graphs, tmp_path):
    """Finding out leaves no trace, in batch statistics neither."""
    settings = {**SMALL, "samples": 8, "memory_gib": 1e-3, "epochs": 1}
    runs = sp.fit_seeds("gmt-sam", graphs, seeds=(0, 1), out=tmp_path / "stack", **settings)
    for seed, run in enumerate(runs):
        assert "stacked" not in json.loads((run.folder / "extractor" / "timing.json").read_text())
        sp.fit("gmt-sam", graphs, seed=seed, out=tmp_path / f"alone-{seed}", **settings)
        ours, own = (
            read_tensors(folder / "extractor" / WEIGHTS, "the test")[0]
            for folder in (run.folder, tmp_path / f"alone-{seed}")
        )
        assert all(torch.equal(ours[name], own[name]) for name in own)


def test_members_are_prepared_by_a_trainer_that_knows_its_settings(graphs, monkeypatch):
    """Some methods ask it for more than to train a helper, or whether it is one at all."""
    asked = []
    monkeypatch.setattr(BreaksForSomeSeeds, "prepare", lambda self, dataset, trainer: asked.append(trainer))
    sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1), epochs=1, batch_size=9)
    assert [(type(trainer), trainer.batch_size) for trainer in asked] == [(Trainer, 9)] * 2
    with pytest.warns(UserWarning, match="r falls"):
        sp.fit_seeds("gsat", graphs, seeds=(0, 1), **SMALL)


@pytest.mark.filterwarnings("ignore:r falls")
def test_a_first_stage_that_cannot_be_stacked_is_trained_by_each(graphs, tmp_path, monkeypatch):
    def refuse(self) -> None:
        if "extractor" in str(self.first.folder):
            raise CannotStack("no")

    monkeypatch.setattr(Together, "_try", refuse)
    runs = sp.fit_seeds("gsat-min0", graphs, seeds=(0, 1), out=tmp_path, **SMALL)
    for run in runs:
        assert run.timing["stacked"] == 2
        assert "stacked" not in json.loads((run.folder / "extractor" / "timing.json").read_text())


def test_the_buffers_of_replayed_steps_hold_every_batch(graphs, tmp_path, monkeypatch):
    """As on a GPU, where a captured step reads its batch from the same memory each time; the last one is smaller."""
    settings = {**SMALL, "batch_size": 10}
    assert len(graphs.train) % 10
    plain = sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "plain", **settings)
    original = Together._stepper

    def usable(self) -> StackedStepper:
        stepper = original(self)
        stepper.usable = True
        return stepper

    monkeypatch.setattr(Together, "_stepper", usable)
    monkeypatch.setattr(StackedStepper, "_ready", lambda *_: False)  # not captured, but read from the buffer
    same_runs(sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "buffered", **settings), plain)


def test_the_optimiser_of_single_numbers_is_resumed_for_each_member(graphs, tmp_path, kill_after):
    """GIN's eps is one: its averages are one number a member, as the count of steps is one for all."""
    settings = {**SMALL, "conv": "gin"}
    assert any(p.dim() == 0 for p in members_of("erm", graphs, conv="gin")[0].parameters())
    whole = sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "whole", **settings)
    kill_after(1)
    with pytest.raises(Killed):
        sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "stopped", **settings)
    kill_after(None)
    same_runs(sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "stopped", resume=True, **settings), whole)


def test_batches_keep_their_size_when_a_stack_goes_on(graphs, tmp_path, kill_after, monkeypatch):
    """The noise of dropout is drawn for the padding too, and follows its size."""
    monkeypatch.setattr(StackedStepper, "GRAIN", 1)
    monkeypatch.setattr("shiftproof.data.padding.DEVIATIONS", -100.0)  # as the first epoch has it, and no other
    settings = {**SMALL, "dropout": 0.3}
    whole = sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "whole", **settings)
    kill_after(1)
    with pytest.raises(Killed):
        sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "stopped", **settings)
    kill_after(None)
    same_runs(sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "stopped", resume=True, **settings), whole)


def test_a_single_run_remembers_the_size_of_its_replayed_batches(graphs, tmp_path):
    def loop() -> Loop:
        made = loop_for("erm", graphs, seed=0, out=tmp_path, resume=True, device="cpu", compile=True, **SMALL)
        made.device = torch.device("cuda")  # where steps are replayed
        return made

    first, again = loop(), loop()
    optimizer = first.optimizer()
    stepper = first._stepper(optimizer)
    stepper.usable = False  # this machine need not have one
    stepper.room = (256, 512)
    first._train_epoch(stepper)
    first.device = again.device = torch.device("cpu")
    tensors, note = first.state(optimizer)
    again.take_state(tensors, json.loads(json.dumps(note)), tmp_path, again.optimizer())
    again.device = torch.device("cuda")
    assert again._stepper(again.optimizer()).room == (256, 512)


def test_a_run_on_the_second_gpu_captures_its_steps_there(graphs, monkeypatch):
    """A step captured on another device would be empty, and replaying it would train nothing."""
    loop, entered = loop_for("erm", graphs, seed=0, device="cpu", **SMALL), []

    @contextmanager
    def device(where):
        entered.append(where)
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    with loop.reproducibly():
        assert not entered
    loop.device = torch.device("cuda:1")
    with loop.reproducibly():
        assert entered == [torch.device("cuda:1")]


def test_after_a_first_stage_operations_may_still_have_no_deterministic_version(graphs):
    loop = loop_for("erm", graphs, seed=0, deterministic=True, **SMALL)
    with loop.reproducibly():
        with loop.reproducibly():
            pass
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_stopped_stack_can_go_on_as_single_runs(graphs, tmp_path, kill_after):
    kill_after(1)
    with pytest.raises(Killed):
        sp.fit_seeds("erm", graphs, seeds=(0, 1), out=tmp_path / "stopped", **SMALL)
    kill_after(None)
    assert (tmp_path / "stopped" / "seed-0" / STACK).exists()
    again = sp.fit("erm", graphs, seed=0, out=tmp_path / "stopped" / "seed-0", resume=True, **SMALL)
    same_runs([again], [sp.fit("erm", graphs, seed=0, out=tmp_path / "alone", **SMALL)])
    assert not (tmp_path / "stopped" / "seed-0" / STACK).exists()


def test_killed_while_the_runs_are_written_the_rest_is_written_later(graphs, tmp_path, monkeypatch):
    settings = {**SMALL, "dropout": 0.3}
    whole = sp.fit_seeds("erm", graphs, seeds=(0, 1, 2), out=tmp_path / "whole", **settings)
    original = sp.training.loop.Loop.conclude

    def conclude(self):
        if self.trainer.seed == 1:
            raise Killed
        return original(self)

    with monkeypatch.context() as patched:
        patched.setattr("shiftproof.training.loop.Loop.conclude", conclude)
        with pytest.raises(Killed):
            sp.fit_seeds("erm", graphs, seeds=(0, 1, 2), out=tmp_path / "stopped", **settings)
    written = [(tmp_path / "stopped" / f"seed-{s}" / "metrics.json").exists() for s in range(3)]
    assert written == [False, False, True]
    again = sp.fit_seeds("erm", graphs, seeds=(0, 1, 2), out=tmp_path / "stopped", resume=True, **settings)
    same_runs(again, whole)


class BreaksForSomeSeeds(Method):
    """A linear classifier whose loss is NaN after two epochs where its buffer says so."""

    bad: torch.Tensor

    def __init__(self, shape: DataShape) -> None:
        super().__init__(shape)
        self.encoder = GNNEncoder(shape.in_shape[0], hidden=4, layers=1, conv="gin")
        self.head = nn.Linear(4, shape.num_outputs)
        self.register_buffer("bad", torch.zeros(()))
        self.epoch_now = 0

    def prepare(self, dataset, trainer) -> None:
        self.bad.fill_(float(trainer.seed == 1))

    def start_epoch(self, epoch: int) -> None:
        self.epoch_now = epoch

    def forward(self, batch):
        h = self.encoder(batch.x, batch.edge_index, node_mask=batch.node_mask)
        return self.head(sp.nn.readout(h, batch))

    def losses(self, batch):
        late = torch.where(self.bad > 0, torch.nan if self.epoch_now >= 2 else 1.0, 1.0)
        return {"task": nn.functional.cross_entropy(self(batch), batch.y) * late}


def test_a_member_that_diverges_leaves_the_others_alone(graphs, tmp_path):
    settings = {"epochs": 4, "batch_size": 9}
    with pytest.raises(TrainingDiverged, match="epoch 2"):
        sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1, 2), out=tmp_path, **settings)
    assert [(tmp_path / f"seed-{s}" / "metrics.json").exists() for s in range(3)] == [True, False, True]
    alone = sp.fit(BreaksForSomeSeeds, graphs, seed=2, **settings)
    kept = json.loads((tmp_path / "seed-2" / "metrics.json").read_text())
    assert kept["metrics"]["test"]["accuracy"] == pytest.approx(alone.metrics["test"]["accuracy"])


@pytest.mark.parametrize("bad", [0, 1])
def test_a_stack_with_a_member_lost_is_resumed(graphs, tmp_path, kill_after, monkeypatch, bad):
    """Where it was, and with what the optimisers of the others remember."""
    prepare = lambda self, dataset, trainer: self.bad.fill_(float(trainer.seed == bad))  # noqa: E731
    monkeypatch.setattr(BreaksForSomeSeeds, "prepare", prepare)
    settings = {"epochs": 5, "batch_size": 9, "checkpoint_seconds": 0.0}
    with pytest.raises(TrainingDiverged, match="epoch 2"):
        sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1, 2), out=tmp_path / "whole", **settings)
    kill_after(3)
    with pytest.raises(Killed):
        sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1, 2), out=tmp_path / "stopped", **settings)
    kill_after(None)
    with pytest.raises(TrainingDiverged, match="epoch 2"):
        sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1, 2), out=tmp_path / "stopped", resume=True, **settings)
    for seed in {0, 1, 2} - {bad}:
        for name in ("metrics.json", "history.json"):
            ours, theirs = (tmp_path / folder / f"seed-{seed}" / name for folder in ("stopped", "whole"))
            assert ours.read_bytes() == theirs.read_bytes()


def test_a_member_that_has_stopped_is_not_lost_by_what_comes_after(graphs, tmp_path, monkeypatch):
    """Its weights are still moved with those of the others, and may break."""
    original = Loop.evaluate

    def evaluate(self, seen=None) -> str:
        note = original(self, seen)
        self.stopped = self.trainer.seed == 1  # after the first epoch; its loss is NaN from the third on
        return note

    monkeypatch.setattr(Loop, "evaluate", evaluate)
    settings = {"epochs": 4, "batch_size": 9, "checkpoint_seconds": 0.0, "selection": "stopped"}
    runs = sp.fit_seeds(BreaksForSomeSeeds, graphs, seeds=(0, 1), out=tmp_path, **settings)
    assert [len(run.history) for run in runs] == [4, 1]


def test_a_member_that_stops_early_keeps_the_weights_of_that_moment(graphs):
    settings = {**SMALL, "dropout": 0.0, "epochs": 12, "patience": 2, "warmup": 0, "selection": "stopped"}
    together = sp.fit_seeds("erm", graphs, seeds=(0, 1, 2), **settings)
    for seed, run in enumerate(together):
        alone = sp.fit("erm", graphs, seed=seed, **settings)
        assert len(run.history) == len(alone.history)
        for left, right in zip(run.method.state_dict().values(), alone.method.state_dict().values(), strict=True):
            torch.testing.assert_close(left, right, rtol=1e-2, atol=1e-3)
