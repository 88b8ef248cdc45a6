"""Every method on every data set that it fits: new ones are covered by being registered."""

import math

import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets, methods

_MOTIFS = {"train_per_class": 6, "val_per_class": 3, "test_per_class": 3}
SMALL = {
    "spmotif-struc": _MOTIFS,
    "spmotif-mixed": _MOTIFS,
    "spmotif-gsat": _MOTIFS,
    "two-piece": _MOTIFS,
    "ba-2motifs": {"graphs": 30},
    "toy-tracks": {"graphs": 60, "tracks": 4},
    "toy-groups": {"graphs": 60},
    "two-bit": {"per_env": 20},
    "two-patch": {"per_env": 20, "test_per_env": 20},
    "extrapolation": {"train_size": 40, "val_size": 20, "test_size": 20},
    "colored-digits": {},
}
# the smallest of each kind of real data; the others are read by the same code
REAL = {"cmnist": {}, "proteins": {}}
QUICK = {
    "epochs": 2,
    "batch_size": 16,
    "hidden": 8,
    "layers": 2,
    "widths": (8,),
    "reference_epochs": 1,
    "inference_steps": 10,
    "steps": 3,
    "explainer_epochs": 1,
    "round_epochs": 1,
    "head_steps": (2, 4),
}


def generated() -> list[str]:
    """All data sets that need no file and are known to be small, or small by default."""
    return [e.name for e in datasets if not e.name.startswith(".") and {"generated", "embedded"} & {*e.tags}]


def cut(data: Dataset) -> Dataset:
    """Evenly spaced samples of every split, so that all classes and environments stay; fewer of large graphs."""

    def some(split):
        most = 48 if not data.is_graph else min(max(1500 * len(split) // max(split.num_edges, 1), 6), 48)
        return split[torch.linspace(0, len(split) - 1, most).long().unique()] if len(split) > most else split

    return data.with_splits(**{name: some(split) for name, split in data.splits.items()})


_LOADED: dict[str, Dataset] = {}


def small(name: str) -> Dataset:
    if name not in _LOADED:
        options = SMALL.get(name, {})
        _LOADED[name] = cut(sp.load(name, **options))
    return _LOADED[name]


def quick(method: str, data: Dataset) -> dict:
    """Those of the quick settings that the method takes."""
    from shiftproof.api.fitting import Plan, accepted_settings

    network = Plan.make(method, data, {}).network_name
    groups = accepted_settings(methods[method].make, network=network)
    known = {name for group in groups.values() for name in group}
    return {name: value for name, value in QUICK.items() if name in known}


def fits(method: str, data: Dataset) -> bool:
    tags = methods[method].tags
    return not tags or data.kind in tags


def assert_trains(method: str, data: Dataset) -> None:
    """Losses are finite, all splits are measured, predictions have the right shape; or the kind of data is refused."""
    if not fits(method, data):
        with pytest.raises(ShiftproofError, match=f"method '{method}' works on .*, and '{data.name}'"):
            sp.fit(method, data)
        return
    run = sp.fit(method, data, **quick(method, data))
    learns = any(parameter.requires_grad for parameter in run.method.parameters())
    assert len(run.history) in ((1, 2) if learns else (0, 1, 2))  # a kernel machine is fitted before the first epoch
    for record in run.history:
        assert record["losses"]
        assert all(math.isfinite(value) for value in record["losses"].values())
    assert set(run.metrics) == set(data.splits)
    logits = run.logits(data.test)
    flat = data.task in ("binary", "regression")
    assert logits.shape == ((len(data.test),) if flat else (len(data.test), data.num_outputs))
    assert bool(logits.isfinite().all())
    assert run.metrics["test"]["samples"] == len(data.test)


@pytest.mark.parametrize("method", [entry.name for entry in methods])
@pytest.mark.parametrize("name", generated())
def test_every_method_trains_on_every_generated_data_set(name, method):
    assert_trains(method, small(name))


@pytest.mark.parametrize("name", REAL)
def test_plain_and_invariant_training_run_on_real_files(name, real_data):
    try:
        data = cut(sp.load(name, **REAL[name]))
    except ShiftproofError as missing:
        pytest.skip(str(missing))
    for method in ("erm", "irm", "eiil"):
        assert_trains(method, data)


@pytest.mark.parametrize("method", [entry.name for entry in methods])
def test_a_saved_run_of_every_method_is_loaded_with_the_same_predictions(method, tmp_path):
    data = small("spmotif-mixed")
    if not fits(method, data):
        data = small("two-bit")
    if not fits(method, data):
        data = sp.load("cora-like:nodes=60,edges=150,classes=3,features=8", by="degree")
    run = sp.fit(method, data, out=tmp_path, **quick(method, data))
    again = sp.Run.load(tmp_path)
    assert torch.equal(again.logits(data.test), run.logits(data.test))
    assert sp.fit(method, data, out=tmp_path, resume=True, **quick(method, data)).metrics == run.metrics


def test_environment_penalties_vanish_where_environments_are_equal():
    """V-REx on two copies of one environment is ERM up to rounding: the risks are the same numbers."""
    data = small("two-bit")
    half = data.train[data.train.env == 0]
    twice = half[torch.arange(len(half)).repeat(2)]
    twice = sp.data.DomainSet(twice.x, twice.y, torch.arange(2).repeat_interleave(len(half)))
    equal = data.with_splits(train=twice)
    chosen = {"batch_size": None, "widths": (4,), "epochs": 5}
    plain, vrex = sp.fit("erm", equal, **chosen), sp.fit("vrex", equal, penalty=1e3, **chosen)
    assert all(record["losses"]["vrex"] < 1e-10 for record in vrex.history)
    for a, b in zip(plain.method.parameters(), vrex.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_groupdro_turns_to_the_worse_environment():
    data = small("two-bit")
    run = sp.fit("groupdro", data, step=5.0, epochs=20, batch_size=None, widths=(4,), selection="last")
    q = run.method.group_weights.q
    assert float(q.sum()) == pytest.approx(1.0)
    risks = run.metrics["train"]["by_env"]
    accuracies = [entry["accuracy"] for entry in risks.values()]
    assert int(q.argmax()) == accuracies.index(min(accuracies))
    worst = sp.fit("groupdro", data, step=0.0, epochs=2, widths=(4,))
    assert worst.method.group_weights is None
