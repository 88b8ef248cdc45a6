"""A run that was stopped at any moment goes on to the very bits of one that was not."""

import json
import shutil

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import DataShape, Network
from shiftproof.runtime.files import read_tensors, write_atomic, write_json, write_tensors
from shiftproof.training import Run, Trainer, TrainingDiverged, Weighted, loop
from shiftproof.training.run_files import CONFIG, DIGESTS, HISTORY, METRICS, _digests
from tests.training.toys import TwoTerms, assert_same_weights, toy_data

PAGES = (CONFIG, HISTORY, METRICS)
GRAPHS = "spmotif-struc:train_per_class=8,val_per_class=4,test_per_class=4"
BITS = "two-bit:per_env=30"
CASES = {
    "erm": ("erm", BITS, {"widths": (6,)}),
    "irm with annealing and refresh": (
        "irm",
        BITS,
        {"widths": (6,), "penalty": 20.0, "anneal_steps": 9, "refresh": True, "rescale": True, "l2": 1e-3},
    ),
    "groupdro, whose weights are state": ("groupdro", BITS, {"widths": (6,), "step": 0.5}),
    "sgd with momentum": ("vrex", BITS, {"widths": (6,), "optimizer": "sgd"}),
    "dropout": ("erm", GRAPHS, {"hidden": 6, "layers": 2, "dropout": 0.5, "patience": 50, "warmup": 0}),
    "eiil": ("eiil", BITS, {"widths": (6,), "reference_epochs": 4, "inference_steps": 20}),
    "gsat after plain training": ("gsat", GRAPHS, {"hidden": 6, "layers": 2, "erm_epochs": 3, "own_encoder": True}),
}


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch):
    """Stop any training as soon as `epochs` epochs in all are done, after or before the checkpoint of the last one."""
    original = loop.Loop._train_epoch
    left = {"epochs": None}

    def one_epoch(self, stepper):
        if left["epochs"] == 0:
            raise Killed
        original(self, stepper)
        if left["epochs"] is not None:
            left["epochs"] -= 1

    monkeypatch.setattr(loop.Loop, "_train_epoch", one_epoch)
    return lambda epochs: left.update(epochs=epochs)


def assert_same_run(one: Run, other: Run) -> None:
    for name in ("metrics.json", "history.json", "config.json"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name
    assert_same_weights(one.method, other.method)
    assert one.metrics == other.metrics
    assert one.history == other.history


@pytest.mark.parametrize("done", [0, 1, 4, 5])
@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_ends_as_an_uninterrupted_one(tmp_path, kill_after, case, done):
    method, data, settings = CASES[case]
    dataset = sp.load(data)
    settings = {"epochs": 6, "batch_size": 16, "seed": 3, "checkpoint_seconds": 0.0, **settings}
    whole = sp.fit(method, dataset, out=tmp_path / "whole", **settings)
    kill_after(done)
    with pytest.raises(Killed):
        sp.fit(method, dataset, out=tmp_path / "stopped", **settings)
    kill_after(None)
    torch.rand(7)  # whatever else the new process did with the global generator
    again = sp.fit(method, dataset, out=tmp_path / "stopped", resume=True, **settings)
    assert_same_run(again, whole)
    assert not (tmp_path / "stopped" / "checkpoint.safetensors").exists()


def test_a_run_stopped_again_and_again_ends_as_an_uninterrupted_one(tmp_path, kill_after):
    method, data, settings = CASES["eiil"]
    settings = {"epochs": 3, "checkpoint_seconds": 0.0, "batch_size": 16, **settings}
    whole = sp.fit(method, data, out=tmp_path / "whole", **settings)
    kill_after(1)
    for _ in range(20):
        try:
            again = sp.fit(method, data, out=tmp_path / "stopped", resume=True, **settings)
            break
        except Killed:
            kill_after(1)
    assert_same_run(again, whole)


def test_a_run_whose_last_checkpoint_is_old_repeats_what_was_lost(tmp_path, kill_after):
    method, data, settings = CASES["irm with annealing and refresh"]
    settings = {"epochs": 6, "batch_size": 16, "checkpoint_seconds": 1e9, **settings}
    whole = sp.fit(method, data, out=tmp_path / "whole", **settings)
    kill_after(4)
    with pytest.raises(Killed):
        sp.fit(method, data, out=tmp_path / "stopped", **settings)
    assert read_tensors(tmp_path / "stopped" / "checkpoint.safetensors", "a test")[1]["epoch"] == 0
    kill_after(None)
    assert_same_run(sp.fit(method, data, out=tmp_path / "stopped", resume=True, **settings), whole)


def test_a_run_killed_while_its_result_is_written_is_written_again(tmp_path, monkeypatch):
    settings = {"epochs": 3, "widths": (6,), "checkpoint_seconds": 0.0}
    whole = sp.fit("irm", BITS, out=tmp_path / "whole", **settings)

    def killed(self, folder):
        write_json(folder / "history.json", self.history)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", killed)
        with pytest.raises(Killed):
            sp.fit("irm", BITS, out=tmp_path / "stopped", **settings)
    assert_same_run(sp.fit("irm", BITS, out=tmp_path / "stopped", resume=True, **settings), whole)


def test_early_stopping_survives_the_kill(tmp_path, kill_after):
    settings = {"epochs": 50, "widths": (6,), "lr": 0.0, "patience": 5, "warmup": 3, "checkpoint_seconds": 0.0}
    whole = sp.fit("erm", BITS, out=tmp_path / "whole", **settings)
    assert len(whole.history) == 8
    kill_after(6)
    with pytest.raises(Killed):
        sp.fit("erm", BITS, out=tmp_path / "stopped", **settings)
    kill_after(None)
    assert_same_run(sp.fit("erm", BITS, out=tmp_path / "stopped", resume=True, **settings), whole)


@pytest.fixture
def stopped(tmp_path, kill_after):
    """A run stopped after two of four epochs, with the settings to resume it."""
    settings = {"epochs": 4, "widths": (6,), "checkpoint_seconds": 0.0, "out": tmp_path / "run"}
    kill_after(2)
    with pytest.raises(Killed):
        sp.fit("irm", BITS, **settings)
    kill_after(None)
    return settings


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_refused(settings, said: str, *, method: str = "irm", data=BITS, **changed) -> None:
    """One sentence, and no file is touched."""
    before = contents(settings["out"])
    with pytest.raises(ShiftproofError, match=said) as caught:
        sp.fit(method, data, **{**settings, "resume": True, **changed})
    assert "\n" not in str(caught.value)
    assert contents(settings["out"]) == before


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"epochs": 5}, "training.epochs' is 4 there and 5 now"),
        ({"lr": 0.5}, "training.lr"),
        ({"penalty": 2.0}, "options.penalty"),
        ({"widths": (7,)}, "network.widths"),
        ({"seed": 1}, "seed' is 0 there and 1 now"),
        ({"l2": 0.5}, "training.l2"),
        ({"selection": "last"}, "selection"),
        ({"data": "two-bit:per_env=30,seed=1"}, "data"),
        ({"method": "vrex"}, "method' is 'irm' there and 'vrex' now"),
    ],
)
def test_resuming_with_other_settings_is_refused(stopped, changed, key):
    assert_refused(stopped, f"belongs to another run: '{key}", **changed)


def test_resuming_on_other_samples_of_the_same_name_is_refused(stopped):
    data = sp.load(BITS)
    data.train.x[0, 0] += 1
    assert_refused(stopped, "belongs to another run: 'data_digest'", data=data)


def test_a_foreign_checkpoint_is_refused(stopped):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, stopped["out"] / "checkpoint.safetensors")
    assert_refused(stopped, "checkpoint.safetensors was not written by shiftproof; resuming needs a")


@pytest.mark.parametrize("length", [0, 5, 200, -1])
def test_a_truncated_checkpoint_is_refused(stopped, length):
    path = stopped["out"] / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert_refused(stopped, "checkpoint.safetensors is damaged .* resuming cannot use it")


def test_a_checkpoint_that_is_no_safetensors_file_is_refused(stopped):
    (stopped["out"] / "checkpoint.safetensors").write_bytes(b"PK\x03\x04 this is something else entirely" * 9)
    assert_refused(stopped, "checkpoint.safetensors is damaged")


@pytest.mark.parametrize("text", ["{", "[]", '"text"', "\x00"])
def test_settings_that_are_not_those_of_a_run_are_refused(stopped, text):
    (stopped["out"] / "config.json").write_text(text)
    assert_refused(stopped, "config.json (is not readable as JSON|was not written by a run of shiftproof)")


def test_the_checkpoint_of_another_model_is_refused(stopped):
    path = stopped["out"] / "checkpoint.safetensors"
    tensors, note = read_tensors(path, "a test")
    write_tensors(path, {name: t for name, t in tensors.items() if name != "model.head.bias"}, note)
    assert_refused(stopped, "checkpoint.safetensors belongs to another model: it lacks 'head.bias'")
    write_tensors(path, {**tensors, "model.extra": torch.zeros(1)}, note)
    assert_refused(stopped, "it holds 'extra', which the model does not have")
    write_tensors(path, {**tensors, "model.head.bias": torch.zeros(3)}, note)
    assert_refused(stopped, r"'head.bias' is \(3,\) there, \(1,\) here")


@pytest.mark.parametrize("lost", ["rng.torch", "rng.order"])
def test_a_checkpoint_with_a_part_missing_is_refused(stopped, lost):
    path = stopped["out"] / "checkpoint.safetensors"
    tensors, note = read_tensors(path, "a test")
    write_tensors(path, {name: t for name, t in tensors.items() if name != lost}, note)
    assert_refused(stopped, "does not hold a whole checkpoint")


def test_an_unfinished_run_is_not_written_over(stopped):
    assert_refused(stopped, "already holds an unfinished run; resume it or choose another folder", resume=False)
    (stopped["out"] / "config.json").unlink()
    assert_refused(stopped, "already holds an unfinished run", resume=False)


def test_a_finished_run_is_kept_when_resumed_and_refused_otherwise(tmp_path):
    settings = {"epochs": 1, "widths": (6,), "out": tmp_path}
    first = sp.fit("irm", BITS, **settings)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = sp.fit("irm", BITS, resume=True, **settings)
    assert again.metrics == first.metrics
    assert_same_weights(again.method, first.method)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert_refused(settings, "already holds a finished run", resume=False)
    assert_refused(settings, "belongs to another run: 'training.lr'", lr=0.5)


def test_a_diverged_run_resumes_from_its_last_good_checkpoint_and_says_the_same_again(tmp_path):
    class Breaking(TwoTerms):
        def losses(self, batch):
            terms = super().losses(batch)
            self.count += 1
            return {**terms, "size": terms["size"] * (float("nan") if int(self.count) > 3 else 1.0)}

    def attempt(resume: bool) -> str:
        method = Breaking(DataShape.of(data))
        method.register_buffer("count", torch.tensor(0))
        with pytest.raises(TrainingDiverged) as caught:
            Trainer(epochs=9, batch_size=None, out=tmp_path, resume=resume, checkpoint_seconds=0.0).fit(method, data)
        return str(caught.value)

    data = toy_data()
    assert attempt(False) == attempt(True)
    assert "step 3 (epoch 3)" in attempt(True)


def test_a_loaded_run_is_the_run_that_was_saved(tmp_path):
    data = sp.load(BITS)
    run = sp.fit("groupdro", data, epochs=2, widths=(6,))
    assert run.folder is None
    run.save(tmp_path / "moved")
    again = Run.load(tmp_path / "moved")
    assert_same_weights(again.method, run.method)
    assert again.config == json.loads(json.dumps(run.config))
    assert (again.metrics, again.history, again.timing) == (run.metrics, run.history, run.timing)
    assert (again.selected_epoch, again.selection, again.name) == (run.selected_epoch, run.selection, "groupdro")
    assert torch.equal(again.logits(data.test), run.logits(data.test))
    assert not again.method.training
    assert repr(run).startswith(f"Run(groupdro on {data.spec}, seed 0: worst_group train 0.")


@pytest.fixture
def saved(tmp_path):
    sp.fit("erm", BITS, epochs=1, widths=(6,), out=tmp_path / "run")
    return tmp_path / "run"


def damage(name, change):
    def do(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return do


def edit(**changed):
    return damage("config.json", lambda raw: json.dumps({**json.loads(raw), **changed}).encode())


def noted(harm):
    """As `harm`, with digests of what is there now: of a run saved so, by another release or on purpose."""

    def do(folder):
        harm(folder)
        config, history, summary = (json.loads((folder / name).read_text()) for name in PAGES)
        digests = _digests(folder, config, history, {k: v for k, v in summary.items() if k != DIGESTS})
        write_json(folder / METRICS, {**summary, DIGESTS: digests})

    return do


NOT_ITS_OWN = "is not the file that this run was saved with: it was changed or comes from another run"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, "is not a folder; a run is a folder with config.json and weights.safetensors"),
        (lambda f: (f / "config.json").unlink(), "config.json is not there; loading a run needs it"),
        (lambda f: (f / "weights.safetensors").unlink(), "weights.safetensors is not there; loading a run needs it"),
        (lambda f: (f / "metrics.json").unlink(), "metrics.json is not there; .* finished with --resume"),
        (damage("weights.safetensors", lambda raw: raw[:-3]), "weights.safetensors is damaged"),
        (damage("weights.safetensors", lambda raw: raw[:4]), "weights.safetensors is damaged"),
        (damage("config.json", lambda raw: raw[:40]), "config.json is not readable as JSON"),
        (damage("config.json", lambda raw: b"{}"), "config.json does not describe a run of shiftproof"),
        (damage("metrics.json", lambda raw: b"{}"), "metrics.json does not hold the metrics of a run"),
        (damage("history.json", lambda raw: b"\xff"), "history.json is not readable as JSON"),
        (edit(method="erm2"), f"config.json {NOT_ITS_OWN}"),
        (edit(shape={}), f"config.json {NOT_ITS_OWN}"),
        (edit(options={"speed": 3}), f"config.json {NOT_ITS_OWN}"),
        (edit(network={"hidden": 3}), f"config.json {NOT_ITS_OWN}"),
        (noted(edit(method="erm2")), "unknown method 'erm2'; did you mean 'erm'"),
        (noted(edit(shape={})), "config.json does not describe a run of this release"),
        (noted(edit(options={"speed": 3})), "config.json does not describe a run of this release"),
        (noted(edit(network={"network": "mlp", "hidden": 3})), "'hidden' does not belong to the network 'mlp'"),
        (noted(edit(network={"hidden": 3})), "weights.safetensors belongs to another model"),  # an older run
    ],
)
def test_a_damaged_run_is_one_sentence(saved, harm, said):
    harm(saved)
    with pytest.raises(ShiftproofError, match=said) as caught:
        Run.load(saved)
    assert "\n" not in str(caught.value)


def test_weights_of_another_network_are_refused(saved, tmp_path):
    sp.fit("erm", BITS, epochs=1, network=Network(widths=(5,)), out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / "weights.safetensors", saved)
    with pytest.raises(ShiftproofError, match=f"weights.safetensors {NOT_ITS_OWN}"):
        Run.load(saved)
    noted(lambda folder: None)(saved)
    with pytest.raises(ShiftproofError, match=r"weights.safetensors belongs to another model: '.*' is .* there"):
        Run.load(saved)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    write_json(path, {"a": 1})

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "half")
    assert contents(tmp_path) == {"metrics.json": b'{\n "a": 1\n}\n'}


def test_results_hold_no_value_that_json_cannot(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_the_balance_of_a_checkpoint_is_given_its_state_back(tmp_path, kill_after):
    class Counting(Weighted):
        calls = 0

        def backward(self, terms, method, step):
            self.calls += 1
            super().backward(terms, method, step)

        def state_dict(self):
            return {"calls": self.calls}

        def load_state_dict(self, state):
            self.calls = state["calls"]

    data, settings = toy_data(), {"epochs": 4, "batch_size": None, "out": tmp_path, "checkpoint_seconds": 0.0}
    kill_after(3)
    with pytest.raises(Killed):
        Trainer(balance=Counting(), **settings).fit(TwoTerms(DataShape.of(data)), data)
    kill_after(None)
    balance = Counting()
    Trainer(balance=balance, resume=True, **settings).fit(TwoTerms(DataShape.of(data)), data)
    assert balance.calls == 4


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for place, said in (
        ("file/below", "is a file or lies in one"),
        ("file/b/c", "lies in one"),
        ("folder", "a folder"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            write_atomic(tmp_path / place, "new")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"
