"""Runs that were saved before the files moved still load, and predict what they predicted.

`python tests/test_old_runs.py` made them; it is not to be run again, because they stand for the code of then.
"""

import json
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.training.run import Run

BEFORE = Path(__file__).parent / "fixtures" / "before_the_move"
TABLE = Path("molecules.csv")
SIZES = {"train_per_class": 8, "val_per_class": 3, "test_per_class": 3}
GRAPHS = ("spmotif-struc", SIZES)
VECTORS = ("two-bit", {"per_env": 24})
MOLECULES = (TABLE, {"smiles": "smiles", "label": "active"})
CLOUDS = ("toy-tracks", {"graphs": 30, "tracks": 4})
SMALL = {"hidden": 8, "layers": 2, "epochs": 3}
ROUNDS = {"rounds": 2, "round_epochs": 2, "widths": (8, 8), "epochs": 3}
MADE = {
    "ciga-v2": (GRAPHS, {**SMALL, "classifier_width": 8}),
    "gmt-sam": (GRAPHS, {**SMALL, "samples": 3, "erm_epochs": 1, "decay_interval": 1}),
    "feat": (VECTORS, ROUNDS),
    "irmx": (VECTORS, {"balance": "pair", "anneal_steps": 2, "widths": (8, 8), "epochs": 3}),
    "erm": (MOLECULES, SMALL),
    "lri-bernoulli": (CLOUDS, {**SMALL, "decay_interval": 1}),
}


def loaded(name: str) -> sp.Dataset:
    source, options = MADE[name][0]
    with chdir(BEFORE):  # no folder of a machine in what a run notes of its data
        return sp.load(source, **options)


def predicted(run: Run, data: sp.Dataset) -> list:
    torch.manual_seed(0)
    return run.logits(data["test"]).double().tolist()


@pytest.mark.parametrize("name", MADE)
def test_a_run_of_before_predicts_what_it_did(name: str) -> None:
    before = json.loads((BEFORE / "predictions.json").read_text())[name]
    found = predicted(Run.load(BEFORE / name), loaded(name))
    np.testing.assert_allclose(found, before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MADE)
def test_a_run_of_before_knows_its_settings(name: str) -> None:
    run = Run.load(BEFORE / name)
    assert run.name == name
    assert len(run.history) == MADE[name][1]["epochs"]
    assert {"train", "test"} <= run.metrics.keys()


if __name__ == "__main__":
    found = {}
    for method, (_, settings) in MADE.items():
        data = loaded(method)
        run = sp.fit(method, data, seed=1, device="cpu", **settings)
        run.timing = {}
        run.save(BEFORE / method)
        found[method] = predicted(run, data)
    (BEFORE / "predictions.json").write_text(json.dumps(found, indent=1) + "\n")
