"""Facts 13, 15 and 24 of docs/papers/gmt.md#checked-facts: how GSAT and GMT are trained, stage by stage."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import DECODERS, GSAT, DataShape, GMTSam, GMTSimulated, Method
from shiftproof.objectives import PriorSchedule
from shiftproof.training import loop, trainer
from tests.properties.small_gmt import made, small_motifs

QUICK = {"hidden": 8, "batch_size": 12, "decay_interval": 1}


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return small_motifs()


def test_gmt_13_the_prior_falls_in_steps_and_reaches_its_end_exactly():
    schedule = PriorSchedule(0.9, 0.7, 0.1, 10)
    assert [schedule.at(e) for e in (0, 9, 10, 19, 20, 99)] == [0.9, 0.9, 0.8, 0.8, 0.7, 0.7]
    assert [schedule.reached(e) for e in (0, 19, 20, 99)] == [False, False, True, True]
    for initial in (0.9, 1.0):
        for final in (0.5, 0.6, 0.7, 0.8):
            steps = PriorSchedule(initial, final, 0.1, 3)
            assert steps.at(steps.first_final) == final
            assert steps.first_final == 3 * round(10 * (initial - final))
    schedule.require_reached(21)
    with pytest.raises(ShiftproofError, match="only by epoch 20 of a run of 20"):
        schedule.require_reached(20)
    for wrong in (
        {"final": 0.95},
        {"initial": 1.1},
        {"interval": 0},
        {"interval": 1.5},
        {"decay": 0.0},
        {"decay": math.nan},
    ):
        with pytest.raises(ShiftproofError):
            PriorSchedule(**wrong)
    slow = PriorSchedule(decay=1e-12)  # nobody counts the steps
    assert slow.reached(slow.first_final)
    assert slow.first_final == pytest.approx(2e12)


def test_gmt_13_only_epochs_with_the_final_prior_are_kept_and_a_short_run_says_so(data):
    run = sp.fit("gsat", data, epochs=3, **QUICK)
    assert run.selected_epoch == 2  # the only one with r = 0.7
    assert [run.method.selectable(epoch) for epoch in range(4)] == [False, False, True, True]
    everything = made(GSAT, data, candidates="all")
    assert all(everything.selectable(epoch) for epoch in range(4))
    with pytest.warns(UserWarning, match="r falls from 0.9 to 0.7 only by epoch 2 of a run of 2.* last epoch is kept"):
        assert sp.fit("gsat", data, epochs=2, **QUICK).selected_epoch == 1


class Scripted(Method):
    """Right in every epoch, but sure of it to a different degree."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sure = torch.nn.Parameter(torch.zeros(()))

    def start_epoch(self, epoch):
        with torch.no_grad():
            self.sure.fill_((1.0, 3.0, 2.0)[epoch])

    def forward(self, batch):
        return self.sure * torch.nn.functional.one_hot(batch.y, 3).float()

    def losses(self, batch):
        return {"task": 0 * self.sure}


@pytest.mark.parametrize(("by_loss", "kept"), [(False, 0), (True, 1)])
def test_of_equal_epochs_the_one_with_the_lower_loss_is_kept(data, by_loss, kept):
    """Accuracy on few graphs is mostly tied; the loss decides (docs/papers/gmt.md#selection)."""

    class Tied(Scripted):
        @property
        def how_trained(self):
            return replace(super().how_trained, ties_by_loss=by_loss)

    method = Tied(DataShape.of(data))
    assert trainer.Trainer(epochs=3, lr=0.0, batch_size=None).fit(method, data).selected_epoch == kept
    said = trainer.Trainer(epochs=3, lr=0.0, batch_size=None, ties_by_loss=by_loss)
    assert said.fit(Scripted(DataShape.of(data)), data).selected_epoch == kept
    assert GSAT(DataShape.of(data)).how_trained.ties_by_loss
    assert GMTSam(DataShape.of(data)).how_trained.ties_by_loss


def test_gmt_15_a_single_sample_needs_no_warming_up_but_for_the_doubled_weight(data):
    batch = data.train.whole()
    terms = {}
    for warmup in ("none", "single"):
        method = made(GMTSimulated, data, samples=1, sample_warmup=warmup, penalty=0.3)
        method.start_epoch(0)
        torch.manual_seed(5)
        terms[warmup] = method.losses(batch), method.weights["information"], method.drawn
    assert torch.equal(terms["none"][0]["task"], terms["single"][0]["task"])
    assert torch.equal(terms["none"][0]["information"], terms["single"][0]["information"])
    assert (terms["none"][1], terms["single"][1]) == (0.3, 0.6)
    many = made(GMTSimulated, data, samples=7, sample_warmup="single", decay_interval=3, penalty=0.3)
    seen = []
    for epoch in (0, 2, 3, 9):
        many.start_epoch(epoch)
        seen.append((many.drawn, many.weights["information"]))
    assert seen == [(1, 0.6), (1, 0.6), (7, 0.3), (7, 0.3)]


@pytest.mark.parametrize("freeze_mode", ["train", "eval"])
def test_gmt_24_the_second_stage_leaves_the_extractor_alone(data, freeze_mode, tmp_path):
    run = sp.fit("gmt-sam", data, epochs=3, samples=2, freeze_mode=freeze_mode, out=tmp_path, **QUICK)
    stage1 = sp.Run.load(tmp_path / "extractor", method=made(GMTSimulated, data, samples=2))
    assert stage1.selected_epoch >= 2
    before, after = dict(stage1.method.named_parameters()), dict(run.method.extractor.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(p.requires_grad for p in run.method.extractor.parameters())
    buffers = dict(stage1.method.named_buffers())
    moved = [n for n, b in run.method.extractor.named_buffers() if n != "r" and not torch.equal(b, buffers[n])]
    assert bool(moved) == (freeze_mode == "train")


def test_gmt_24_nothing_of_the_extractor_gets_a_gradient(data):
    method = made(GMTSam, data, samples=2)
    method.losses(data.train.whole())["task"].backward()
    assert all(p.grad is None for p in method.extractor.parameters())
    assert all(p.grad is not None for p in method.head.parameters())


@pytest.mark.parametrize("name", DECODERS)
def test_all_nine_decoders_train_and_an_old_start_is_the_first_stage(data, name):
    run = sp.fit("gmt-sam", data, epochs=3, samples=2, lr=0.0, freeze_mode="eval", **DECODERS[name], **QUICK)
    same = torch.equal(run.method.head.weight, run.method.extractor.head.weight)
    assert same == (DECODERS[name]["init"] == "old")
    assert run.metrics["test"]["edge_auc"] is not None


def test_there_are_nine_decoders():
    assert len(DECODERS) == 9
    assert DECODERS["old-lin-normal"] == {"init": "old", "placement": "first", "decoding": "normal"}


def test_gsat_min0_is_gsat_under_the_second_stage(data, tmp_path):
    run = sp.fit("gsat-min0", data, epochs=3, out=tmp_path, **QUICK)
    assert type(run.method.extractor) is GSAT
    assert run.method.decoding == "min0"
    plain = sp.fit("gsat", data, epochs=3, **QUICK)
    # the extractor is trained as GSAT itself is, from another start
    assert plain.history[0]["losses"].keys() == {"task", "information"}


class Killed(Exception):
    """Stands for the end of the process."""


TWICE = {**QUICK, "epochs": 3, "checkpoint_seconds": 0.0, "dropout": 0.3}
_WHOLE: dict[str, sp.Run] = {}


@pytest.mark.parametrize(
    ("method", "done"),
    [("gmt-sam", 0), ("gmt-sam", 2), ("gmt-sam", 3), ("gmt-sam", 5), ("gmt-lin", 2), ("gsat-min0", 3)],
)
def test_a_killed_run_goes_on_to_the_same_weights_also_between_the_stages(data, tmp_path, monkeypatch, method, done):
    left = {"epochs": -1}
    original = loop.Loop._train_epoch

    def one_epoch(self, stepper):
        if left["epochs"] == 0:
            raise Killed
        left["epochs"] -= 1
        original(self, stepper)

    monkeypatch.setattr(loop.Loop, "_train_epoch", one_epoch)
    settings = {**TWICE, **({} if method == "gmt-lin" else {"init": "old", "samples": 3})}
    whole = _WHOLE[method] = _WHOLE.get(method) or sp.fit(method, data, out=tmp_path / "whole", **settings)
    left["epochs"] = done
    with pytest.raises(Killed):
        sp.fit(method, data, out=tmp_path / "killed", **settings)
    left["epochs"] = -1
    torch.rand(3)
    again = sp.fit(method, data, out=tmp_path / "killed", resume=True, **settings)
    assert again.metrics == whole.metrics
    for key, tensor in whole.method.state_dict().items():
        assert torch.equal(tensor, again.method.state_dict()[key]), key
