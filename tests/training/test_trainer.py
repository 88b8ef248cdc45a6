"""What the trainer keeps, measures, weighs and stops."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import EIIL, ERM, IRM, DataShape, Method, Network
from shiftproof.objectives import infer_environments
from shiftproof.pareto.pair import head_parameters
from shiftproof.runtime.files import read_tensors
from shiftproof.training import Run, Trainer, TrainingDiverged, Weighted
from shiftproof.training.run import CHECKPOINT
from tests.training.toys import Scripted, TwoTerms, assert_same_weights, toy_data

SMALL = Network(widths=(4,))


def scripted(scores, **settings):
    data = toy_data()
    return Trainer(epochs=len(scores), **settings).fit(Scripted(DataShape.of(data), scores), data)


def linear(data, seed: int = 0, **options) -> TwoTerms:
    torch.manual_seed(seed)
    return TwoTerms(DataShape.of(data), **options)


def test_the_best_validation_epoch_is_kept_and_the_first_of_equals():
    run = scripted([0.25, 0.75, 0.5, 0.75, 0.5])
    assert (run.selected_epoch, run.selection) == (1, "val")
    assert run.metrics["val"]["accuracy"] == 0.75
    assert [record["val"]["accuracy"] for record in run.history] == [0.25, 0.75, 0.5, 0.75, 0.5]


def test_a_loss_selects_its_lowest_epoch():
    run = scripted([0.25, 0.75, 0.5], metric="loss")
    assert run.selected_epoch == 1


def test_the_last_epoch_is_kept_without_looking_at_any_split():
    run = scripted([0.25, 0.75, 0.5], selection="last")
    assert (run.selected_epoch, run.selection) == (2, "last")
    assert run.metrics["test"]["accuracy"] == 0.5
    assert all(set(record) == {"epoch", "steps", "losses"} for record in run.history)


def test_data_without_a_validation_split_keep_the_last_epoch():
    data = toy_data(splits=("train", "test"))
    run = Trainer(epochs=3).fit(Scripted(DataShape.of(data), [0.25, 0.75, 0.5]), data)
    assert (run.selected_epoch, run.selection) == (2, "last")


def test_a_choice_by_the_test_split_says_so_in_every_result(tmp_path):
    run = scripted([0.25, 0.75, 0.5], selection="oracle", out=tmp_path)
    assert run.selected_epoch == 1
    written = json.loads((tmp_path / "metrics.json").read_text())
    assert written["selection"] == "oracle: the test split chose the epoch"
    assert "val" not in run.history[0]
    assert run.history[1]["test"] == {"accuracy": 0.75}


@pytest.mark.parametrize(("selection", "missing"), [("val", "val"), ("oracle", "test")])
def test_a_selection_needs_its_split(selection, missing):
    data = toy_data(splits=("train",))
    with pytest.raises(ShiftproofError, match=f"selection '{selection}' needs a split '{missing}', which 'toy'"):
        Trainer(selection=selection).fit(linear(data), data)


def test_tracked_splits_are_measured_beside_the_judge():
    run = scripted([0.25, 0.75], track=("train", "test"))
    assert set(run.history[0]) == {"epoch", "steps", "losses", "val", "train", "test"}
    assert run.history[1]["train"] == {"accuracy": 0.75}
    assert set(scripted([0.5], selection="last", track=("test",)).history[0]) == {"epoch", "steps", "losses", "test"}


def test_epochs_between_evaluations_are_not_measured_and_the_last_always_is():
    run = scripted([0.1, 0.9, 0.4, 0.2, 0.3], evaluate_every=3)
    assert [record["epoch"] for record in run.history if "val" in record] == [2, 4]
    assert run.selected_epoch == 2


def test_patience_counts_epochs_however_often_the_split_is_looked_at():
    run = scripted([0.5] * 40, patience=6, warmup=4, evaluate_every=3)
    # looked at after epochs 2, 5, 8 and 11; six epochs without a better one are over after epoch 9, the next look is 11
    assert len(run.history) == 12
    assert run.selected_epoch == 2


def test_nothing_is_kept_of_a_metric_that_is_never_defined():
    data = toy_data()
    data.val.y[:] = 1.0  # one class only: no ROC-AUC
    run = Trainer(epochs=3, metric="roc_auc").fit(linear(data), data)
    assert run.selected_epoch == 0
    assert run.metrics["val"]["roc_auc"] is None
    assert run.metrics["test"]["roc_auc"] is not None


def test_every_split_and_every_environment_is_measured():
    run = scripted([0.5])
    assert set(run.metrics) == {"train", "val", "test"}
    test = run.metrics["test"]
    assert test["samples"] == 16
    assert {"accuracy", "roc_auc", "mcc", "macro_f1", "worst_group", "percentile10", "loss"} <= test.keys()
    assert set(test["by_env"]) == {"0", "1"}
    assert sum(env["samples"] for env in test["by_env"].values()) == 16
    assert test["worst_group"] == min(env["accuracy"] for env in test["by_env"].values())


def test_the_whole_set_is_one_step_and_batches_are_several():
    data = toy_data(train=24)
    assert [Trainer(epochs=1, batch_size=b).fit(linear(data), data).history[0]["steps"] for b in (None, 24, 7)] == [
        1,
        1,
        4,
    ]


def manual(data, steps: int, *, l2: float = 0.0, weights=(1.0, 1.0), scale: float = 1.0, make=torch.optim.SGD, **adam):
    """The plain training loop, the sum of the terms written out."""
    method = linear(data)
    optimizer = make(method.parameters(), **adam)
    for step in range(steps):
        w = weights(step) if callable(weights) else weights
        terms = method.losses(data.train.whole())
        loss = w[0] * terms["task"] + w[1] * terms["size"]
        loss = (loss + l2 * sum(p.square().sum() for p in method.parameters())) / scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return method


def trained(data, steps: int, balance: Weighted | None = None, penalty: float = 1.0, **settings):
    method = linear(data, penalty=penalty)
    chosen = {"batch_size": None, "selection": "last", "epochs": steps, **settings}
    Trainer(balance=balance or Weighted(), **chosen).fit(method, data)
    return method


def assert_close(one: nn.Module, other: nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_with_weight_decay_is_that_of_torch(momentum):
    data = toy_data()
    ours = trained(data, 5, optimizer="sgd", lr=0.1, momentum=momentum, weight_decay=0.3)
    assert_close(ours, manual(data, 5, lr=0.1, momentum=momentum, weight_decay=0.3))


def test_adam_with_weight_decay_is_that_of_torch():
    data = toy_data()
    ours = trained(data, 5, lr=0.1, weight_decay=0.3)
    assert_close(ours, manual(data, 5, make=torch.optim.Adam, lr=0.1, weight_decay=0.3))


def test_l2_is_the_squared_norm_added_to_the_loss():
    data = toy_data()
    assert_close(trained(data, 5, Weighted(l2=0.2), lr=0.1), manual(data, 5, l2=0.2, make=torch.optim.Adam, lr=0.1))


def test_l2_counts_parameters_that_no_term_uses():
    data = toy_data()
    method = linear(data)
    method.idle = nn.Parameter(torch.tensor([3.0]))
    Trainer(epochs=1, batch_size=None, optimizer="sgd", lr=0.1, momentum=0.0, balance=Weighted(l2=0.5)).fit(
        method, data
    )
    torch.testing.assert_close(method.idle, torch.tensor([2.7]))


def test_penalties_have_the_annealing_weight_first_and_their_own_after():
    data = toy_data()
    ours = trained(data, 6, Weighted(anneal_steps=3, anneal_weight=0.5), penalty=7.0, optimizer="sgd", lr=0.01)
    wanted = manual(data, 6, weights=lambda step: (1.0, 0.5 if step < 3 else 7.0), lr=0.01, momentum=0.9)
    assert_close(ours, wanted)


def test_rescaling_divides_the_whole_sum_by_the_largest_weight_above_one():
    data = toy_data()
    ours = trained(data, 4, Weighted(rescale=True, l2=0.2), penalty=8.0, optimizer="sgd", lr=0.1)
    assert_close(ours, manual(data, 4, l2=0.2, weights=(1.0, 8.0), scale=8.0, lr=0.1, momentum=0.9))
    ours = trained(data, 4, Weighted(rescale=True), penalty=0.5, optimizer="sgd", lr=0.1)
    assert_close(ours, manual(data, 4, weights=(1.0, 0.5), lr=0.1, momentum=0.9))


def test_weights_override_those_of_the_method_term_by_term():
    data = toy_data()
    ours = trained(data, 3, Weighted({"size": 4.0}), optimizer="sgd", lr=0.1)
    assert_close(ours, manual(data, 3, weights=(1.0, 4.0), lr=0.1, momentum=0.9))


def test_refreshing_forgets_the_state_of_the_optimiser_when_the_annealing_ends():
    data = toy_data()
    ours = trained(data, 6, Weighted(anneal_steps=3, anneal_weight=0.5, refresh=True), penalty=7.0, lr=0.05)
    kept = trained(data, 6, Weighted(anneal_steps=3, anneal_weight=0.5), penalty=7.0, lr=0.05)
    method = manual(data, 3, weights=(1.0, 0.5), make=torch.optim.Adam, lr=0.05)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.05)
    for _ in range(3):
        terms = method.losses(data.train.whole())
        optimizer.zero_grad()
        (terms["task"] + 7.0 * terms["size"]).backward()
        optimizer.step()
    assert_close(ours, method)
    assert not torch.allclose(ours.head.weight, kept.head.weight, atol=1e-3)


def test_a_term_without_a_weight_is_one_sentence():
    data = toy_data()
    method = linear(data)
    method.weights = {"task": 1.0}
    with pytest.raises(ShiftproofError, match="loss term 'size' has no weight; add it to the weights of the method"):
        Trainer(epochs=1).fit(method, data)


def test_history_names_the_terms_as_the_losses_do_whatever_the_order_of_the_weights():
    data = toy_data()
    method = linear(data)
    method.weights = {"size": 1.0, "task": 1.0}
    with torch.no_grad():
        wanted = {name: float(value) for name, value in method.losses(data.train.whole()).items()}
    run = Trainer(epochs=1, batch_size=None).fit(method, data)
    assert run.history[0]["losses"] == pytest.approx(wanted)


def test_history_holds_the_mean_over_the_steps_of_an_epoch():
    data = toy_data(train=8)
    run = Trainer(epochs=1, batch_size=4, lr=0.0, seed=3).fit(method := linear(data), data)
    batches = data.train.batches(4, shuffle=True, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = sum(float(method.losses(batch)["size"]) for batch in batches) / 2
    assert run.history[0]["losses"]["size"] == pytest.approx(wanted, rel=1e-6)
    assert run.history[0]["steps"] == 2


def test_augmentation_changes_the_batches_of_training_and_none_that_is_judged(tmp_path):
    seen = []

    def flipped(batch):
        seen.append(len(batch))
        return replace(batch, y=1 - batch.y) if torch.rand(()) < 0.9 else batch

    plain = sp.load("two-bit:per_env=30,seed=1")
    data = replace(plain, augment=flipped)
    settings = {"epochs": 4, "batch_size": 16, "widths": (8,), "lr": 0.1, "seed": 0, "selection": "last"}
    one, other = (sp.fit("erm", data, out=tmp_path / name, **settings) for name in "ab")
    assert sum(seen) == 2 * 4 * len(plain.train)
    assert one.metrics == other.metrics
    assert one.metrics["train"]["accuracy"] < 0.5 < sp.fit("erm", plain, **settings).metrics["train"]["accuracy"]
    assert "flipped" in one.config["augment"]
    with pytest.raises(ShiftproofError, match="'augment' is"):
        sp.fit("erm", plain, out=tmp_path / "a", resume=True, **settings)


def test_a_shuffled_epoch_shows_each_sample_its_own_position():
    class Watching(TwoTerms):
        def losses(self, batch):
            seen.append(batch.index.clone())
            assert torch.equal(batch.x, data.train.x[batch.index])
            return super().losses(batch)

    data, seen = toy_data(train=10), []
    data = data.with_splits(train=data.train[torch.arange(9, -1, -1)])  # its index counts down
    Trainer(epochs=2, batch_size=4).fit(Watching(DataShape.of(data)), data)
    epochs = torch.cat(seen).view(2, 10)
    assert (epochs.sort(1).values == torch.arange(10)).all()
    assert not torch.equal(epochs[0], epochs[1])


class Breaking(TwoTerms):
    """Turns NaN or infinite at one step, in the second term."""

    def __init__(self, shape: DataShape, at: int, value: float) -> None:
        super().__init__(shape)
        self.at, self.value = at, value
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def losses(self, batch):
        terms = super().losses(batch)
        if int(self.count) == self.at:
            terms["size"] = terms["size"] * self.value
        self.count += 1
        return terms


@pytest.mark.parametrize(("value", "word"), [(math.nan, "nan"), (math.inf, "inf")])
@pytest.mark.parametrize("selection", ["val", "last"])
def test_a_loss_that_is_no_number_stops_with_term_and_step_and_keeps_the_last_good_checkpoint(
    tmp_path, value, word, selection
):
    data = toy_data(train=24)  # three steps an epoch
    trainer = Trainer(epochs=9, batch_size=8, out=tmp_path, selection=selection, checkpoint_seconds=0.0)
    said = rf"^loss term 'size' became {word} at step 7 \(epoch 2\); the last good checkpoint is in {tmp_path}$"
    with pytest.raises(TrainingDiverged, match=said):
        trainer.fit(Breaking(DataShape.of(data), 7, value), data)
    tensors, note = read_tensors(tmp_path / CHECKPOINT, "a test")
    assert (note["epoch"], note["step"]) == (2, 6)
    assert all(bool(t.isfinite().all()) for t in tensors.values() if t.is_floating_point())
    assert not (tmp_path / "metrics.json").exists()


def test_a_step_that_breaks_the_weights_behind_a_finite_loss_stops_too(tmp_path):
    class Late(TwoTerms):
        def losses(self, batch):
            terms = super().losses(batch)
            terms["size"] = terms["size"] + (self.head.bias * 0).sqrt().sum()  # value 0, gradient NaN
            return terms

    data = toy_data()
    for selection in ("val", "last"):
        with pytest.raises(TrainingDiverged, match=r"weight 'head\.bias' became NaN or infinite by step 0"):
            Trainer(epochs=1, batch_size=None, selection=selection).fit(Late(DataShape.of(data)), data)


def test_eiil_trains_its_reference_in_a_sub_folder_and_takes_the_environments_it_infers(tmp_path):
    data = toy_data(train=24)
    torch.manual_seed(0)
    method = EIIL(DataShape.of(data), network=SMALL, solver="sign", reference_epochs=3)
    Trainer(epochs=2, out=tmp_path, seed=5).fit(method, data)
    reference = ERM(DataShape.of(data), network=SMALL)
    run = Run.load(tmp_path / "reference", method=reference)
    assert len(run.history) == 3
    inferred = infer_environments(run.logits(data.train), data.train.y, "binary", solver="sign")
    assert torch.equal(method.environment, inferred)
    assert 0 < inferred.sum() < 24


def test_the_reference_of_eiil_on_a_network_of_your_own_is_no_part_of_the_method():
    class Own(nn.Linear):
        out_channels = 2

        def forward(self, batch):
            return super().forward(batch.x)

    data = toy_data()
    own = Own(3, 2)
    before = own.weight.detach().clone()
    method = EIIL(DataShape.of(data), network=own, reference_epochs=1, inference_steps=5)
    assert not any("reference" in name for name in method.state_dict())
    Trainer(epochs=0).fit(method, data)
    assert torch.equal(own.weight, before), "the reference trains a copy"


def test_a_random_partition_is_balanced_fixed_for_a_sample_and_the_same_for_the_same_seed():
    class Watching(IRM):
        def losses(self, batch):
            for position, env in zip(batch.index.tolist(), self.env(batch).tolist(), strict=True):
                seen.setdefault(position, set()).add(env)
            return super().losses(batch)

    data = toy_data(train=25)
    drawn = []
    for seed in (1, 1, 2):
        seen = {}
        method = Watching(DataShape.of(data), network=SMALL, environments="random")
        Trainer(epochs=3, batch_size=8, seed=seed).fit(method, data)
        assert all(len(envs) == 1 for envs in seen.values())
        assert sorted(torch.bincount(method.environment).tolist()) == [12, 13]
        drawn.append(method.environment)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_given_environments_are_taken_where_there_are_two_and_drawn_where_there_are_not():
    data = toy_data()
    given = IRM(DataShape.of(data), network=SMALL)
    Trainer(epochs=0).fit(given, data)
    assert torch.equal(given.environment, data.train.env)
    data.train.env.zero_()
    drawn = IRM(DataShape.of(data), network=SMALL)
    Trainer(epochs=0).fit(drawn, data)
    assert torch.bincount(drawn.environment).tolist() == [12, 12]


def test_no_epoch_at_all_leaves_the_method_as_it_was():
    data = toy_data()
    run = Trainer(epochs=0).fit(method := linear(data), data)
    assert_same_weights(method, linear(data))
    assert run.history == []
    assert run.metrics["test"]["samples"] == 16


def test_an_unfinished_method_says_what_it_must_define():
    data = toy_data()
    with pytest.raises(NotImplementedError, match=r"Method must define losses\(batch\)"):
        Method(DataShape.of(data)).losses(data.train.whole())
    with pytest.raises(NotImplementedError, match=r"Method must define forward\(batch\)"):
        Method(DataShape.of(data))(data.train.whole())


def test_the_parameters_of_the_head_are_those_of_the_last_layer():
    data = toy_data()
    method = ERM(DataShape.of(data), network=SMALL)
    assert [p.shape for p in head_parameters(method)] == [(1, 4), (1,)]
    assert len(head_parameters(Scripted(DataShape.of(data), [1.0]))) == 1


@pytest.mark.slow  # a cold compiler takes half a minute
@pytest.mark.parametrize(
    "data", ["two-bit:per_env=50", "spmotif-struc:train_per_class=8,val_per_class=4,test_per_class=4"]
)
def test_compiled_losses_are_the_eager_ones(data):
    dataset = sp.load(data)
    runs = [sp.fit("irm", dataset, epochs=2, batch_size=16, hidden=8, compile=c) for c in (False, True)]
    for eager, compiled in zip(runs[0].history, runs[1].history, strict=True):
        assert compiled["losses"] == pytest.approx(eager["losses"], abs=1e-5)
