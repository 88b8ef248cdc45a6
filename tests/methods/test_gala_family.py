"""GALA and the methods it is held against: what a user of them relies on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import CAL, ERM, GALA, GIL, GREA, GSAT, DataShape, DisC, MoleOOD, Network, ProxyTable
from shiftproof.methods.base import HowTrained
from shiftproof.nn import reverse_edges
from shiftproof.presets import preset_for
from shiftproof.registry import methods
from shiftproof.training import Trainer, loop

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
        self.epoch = epoch
        self.seen = [*getattr(self, "seen", []), []]

    @property
    def how_trained(self) -> HowTrained:
        everything = torch.arange(self.shape.num_train)
        epoch = getattr(self, "epoch", 0)
        samples = None if epoch == 0 else torch.cat([everything, everything[:2].repeat(epoch)])
        return replace(super().how_trained, samples=samples)

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
    original = loop.Loop._train_epoch
    last: dict[str, int | None] = {"epoch": None}

    def one_epoch(self, stepper):
        if self.epoch == last["epoch"] and self.config["method"] != "assistant":
            raise Killed
        original(self, stepper)

    monkeypatch.setattr(loop.Loop, "_train_epoch", one_epoch)
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


@pytest.mark.parametrize(
    ("a", "b", "alpha", "upsample"),
    [(0.8, 0.6, 0.5, "auto"), (0.8, 0.7, 1.0, "auto"), (0.8, 0.9, 0.5, 3), (0.7, 0.9, 128.0, 4), (0.7, 0.95, 128.0, 4)],
)
def test_gala_takes_the_published_settings_of_the_nearest_pair(a, b, alpha, upsample) -> None:
    settings = preset_for(sp.load("two-piece", a=a, b=b, **SMALL), "gala").settings("gala")
    assert (settings["alpha"], settings["upsample"]) == (alpha, upsample)
    assert (settings["clusters"], settings["terms_from"], settings["warmup"]) == (3, 10, 100)


def test_a_column_a_tensor_or_chance_can_stand_for_the_environment(data) -> None:
    given = {**QUICK, "upsample": "off"}
    by_column = sp.fit("gala", data, proxy="base", **given).method
    assert torch.equal(by_column.proxy, data.train.columns["base"].long())
    by_tensor = GALA(DataShape.of(data), network=NETWORK, proxy=data.train.columns["base"].long(), upsample="off")
    sp.fit(by_tensor, data, epochs=1)
    assert torch.equal(by_tensor.proxy, by_column.proxy)
    by_chance = sp.fit("gala", data, proxy="random", **given).method
    assert set(by_chance.proxy.tolist()) == {0, 1, 2}


def test_no_assistant_is_trained_where_nothing_asks_for_one(data, tmp_path) -> None:
    sp.fit("gala", data, proxy="base", upsample="off", out=tmp_path / "alone", **QUICK)
    assert not (tmp_path / "alone" / "assistant").exists()
    sp.fit("gala", data, proxy="base", upsample=1, reference_epochs=1, out=tmp_path / "helped", **QUICK)
    assert (tmp_path / "helped" / "assistant" / "metrics.json").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"proxy": "colour"}, "unknown proxy 'colour'"),
        ({"proxy": torch.zeros(3, dtype=torch.long)}, "one whole number for each of the 36 training samples"),
        ({"upsample": -1}, "'upsample' of 'gala' is a whole number from 0 or off or auto, not -1"),
        ({"clusters": 0}, "'clusters' of 'gala' is a whole number from 1, not 0"),
        ({"assistant": "svm"}, "svm"),
    ],
)
def test_what_gala_cannot_do_is_one_sentence(data, options, sentence) -> None:
    with pytest.raises(ShiftproofError, match=sentence):
        sp.fit("gala", data, **{"reference_epochs": 1, **QUICK, **options})


@pytest.mark.parametrize("select", ["val", "last", "train"])
@pytest.mark.parametrize("assistant", ["erm", "xgnn"])
def test_gala_trains_with_every_assistant_and_says_what_its_proxies_follow(data, assistant, select) -> None:
    chosen = {"assistant": assistant, "assistant_select": select, "proxy": "label", "anchors": "incorrect", "beta": 1.0}
    run = sp.fit("gala", data, reference_epochs=1, denominator="infonce", terms_from=1, **chosen, **QUICK)
    told = run.method.proxy_table().diagnostics(data)
    assert told.keys() == {"assistant", "label", "base", "motif"}
    assert told["assistant"]["accuracy"] == pytest.approx(float(run.method.correct.double().mean()))
    assert all(0 <= told[name]["nmi"] <= 1 for name in ("label", "base", "motif"))


def test_diagnostics_recognise_what_the_proxy_follows_whatever_its_numbers(data) -> None:
    base, y = data.train.columns["base"].long(), data.train.y
    table = ProxyTable(torch.tensor([2, 0, 1])[base], base, base == y)
    told = table.diagnostics(data)
    assert told["base"]["nmi"] == pytest.approx(1)
    assert told["base"]["agreement"] == 1
    assert told["motif"]["agreement"] < 1
    assert told["base"]["strength_correct"] == 1
    if bool((base != y).any()):
        assert told["base"]["strength_incorrect"] == 0
    with pytest.raises(ShiftproofError, match="the proxies belong to 36 training samples"):
        table.diagnostics(data.with_splits(train=data.train[:5]))


def test_without_an_assistant_the_diagnostics_say_nothing_of_its_errors(data) -> None:
    told = sp.fit("gala", data, proxy="base", upsample="off", **QUICK).method.proxy_table().diagnostics(data)
    assert math.isnan(told["assistant"]["accuracy"])
    assert math.isnan(told["base"]["strength_incorrect"])
    assert told["base"]["agreement"] == 1


def test_options_can_be_given_as_text_like_on_the_command_line(data) -> None:
    method = sp.fit("gala", data, upsample="2", proxy="base", reference_epochs="1", alpha="4", **QUICK).method
    assert (method.upsample, method.proxy_source, method.full_weights["contrast"]) == (2, "base", 4.0)


def test_upsampling_repeats_the_errors_in_every_epoch(data, monkeypatch) -> None:
    seen: list[int] = []
    original = GALA.losses
    monkeypatch.setattr(
        GALA, "losses", lambda self, batch: (seen.extend(batch.index.tolist()), original(self, batch))[1]
    )
    run = sp.fit("gala", data, upsample=3, reference_epochs=1, **{**QUICK, "epochs": 1})
    correct = run.method.correct
    smaller = ~correct if int((~correct).sum()) <= int(correct.sum()) else correct
    assert torch.tensor(seen).bincount(minlength=36).tolist() == (1 + 3 * smaller.long()).tolist()


def test_a_killed_run_of_gala_goes_on_to_the_same_weights(data, tmp_path, kill_after) -> None:
    settings = {**QUICK, "epochs": 4, "reference_epochs": 2, "upsample": 2, "terms_from": 1, "checkpoint_seconds": 0.0}
    whole = sp.fit("gala", data, out=tmp_path / "whole", **settings)
    kill_after(2)
    with pytest.raises(Killed):
        sp.fit("gala", data, out=tmp_path / "killed", **settings)
    kill_after(None)
    again = sp.fit("gala", data, out=tmp_path / "killed", resume=True, **settings)
    assert again.metrics == whole.metrics
    for name, tensor in whole.method.state_dict().items():
        assert torch.equal(tensor, again.method.state_dict()[name]), name


def test_the_baselines_keep_their_train_mode_through_a_batch(data) -> None:
    for make in (GREA, CAL, GIL, DisC, MoleOOD):
        torch.manual_seed(0)
        method = make(DataShape.of(data), network=NETWORK).train()
        method.losses(data.train.whole())
        assert all(module.training for module in method.modules()), make.__name__


@pytest.mark.parametrize("name", ["grea", "cal", "gil", "dir", "disc", "ciga-v2"])
def test_predictions_are_normalised_as_rationales_whatever_left_overs_looked_like(data, name) -> None:
    def statistics(look) -> dict[str, Tensor]:
        torch.manual_seed(0)
        method = methods[name].make(DataShape.of(data), network=NETWORK).train()
        look(method)
        return {key: value for key, value in method.classifier.state_dict().items() if "running" in key}

    batch = data.train.whole()
    seen = statistics(lambda method: method.losses(batch))
    for key, value in statistics(lambda method: method(batch)).items():
        torch.testing.assert_close(seen[key], value, msg=key)


@pytest.mark.parametrize("name", ["grea", "cal", "gil", "disc"])
def test_a_method_whose_further_terms_still_wait_is_the_plain_backbone(data, name) -> None:
    options = {**QUICK, "ratio": -1.0, "classifier_input": "raw", "scorer_norm": True, "epochs": 3}
    plain = sp.fit("xgnn", data, **options)
    waiting = sp.fit(name, data, terms_from=3, **options)
    assert waiting.metrics == plain.metrics
    for key, value in plain.method.state_dict().items():
        if "tracked" not in key:
            assert torch.equal(value, waiting.method.state_dict()[key]), key


@pytest.mark.parametrize("name", ["grea", "cal", "gil"])
def test_further_terms_wait_for_their_epoch(data, name) -> None:
    method = methods[name].make(DataShape.of(data), network=NETWORK, penalty=2.0, terms_from=3)
    method.start_epoch(2)
    assert set(method.weights.values()) == {0.0, 1.0}
    method.start_epoch(3)
    assert set(method.weights.values()) == {1.0, 2.0}


def test_moleood_infers_first_and_goes_on_with_the_encoder_it_inferred_with(data, tmp_path) -> None:
    run = sp.fit("moleood", data, reference_epochs=2, out=tmp_path, **QUICK)
    assert (tmp_path / "inference" / "metrics.json").exists()
    assert run.method.inference.featurizer is run.method.featurizer
    before = run.method.inference.environments.detach().clone()
    assert bool((before != 0).any()), "stage 1 moves what starts at zero"


@pytest.mark.parametrize("name", ["gsat", "moleood", "gil", "cal"])
def test_a_killed_baseline_goes_on_to_the_same_weights(data, tmp_path, kill_after, name) -> None:
    settings = {
        **QUICK,
        "epochs": 4,
        "checkpoint_seconds": 0.0,
        **({"reference_epochs": 2} if name == "moleood" else {}),
    }
    whole = sp.fit(name, data, out=tmp_path / "whole", **settings)
    kill_after(3)
    with pytest.raises(Killed):
        sp.fit(name, data, out=tmp_path / "killed", **settings)
    kill_after(None)
    again = sp.fit(name, data, out=tmp_path / "killed", resume=True, **settings)
    for key, tensor in whole.method.state_dict().items():
        assert torch.equal(tensor, again.method.state_dict()[key]), key


def test_gsat_explains_by_the_chance_of_each_edge(data) -> None:
    method = GSAT(DataShape.of(data), network=NETWORK)
    shown = method.explain(data.train.whole())
    assert bool(((shown.edge_scores >= 0) & (shown.edge_scores <= 1)).all())
    assert method.training


def test_gsat_gives_both_directions_of_an_edge_the_same_attention() -> None:
    both = sp.load("two-piece", directed=False, **SMALL)
    batch = both.train.whole()
    alpha = GSAT(DataShape.of(both), network=NETWORK).attention(batch)
    torch.testing.assert_close(alpha, alpha[reverse_edges(batch.edge_index, batch.num_nodes)])
