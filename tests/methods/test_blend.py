"""Several methods as one: the mean of what each says alone, kept and resumed as one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods.blend import mean_prediction
from tests.methods.labelled import motif_data
from tests.methods.test_vector_methods import alcohols, table_of  # noqa: F401 - a fixture

TASKS = ["binary", "multiclass", "regression", "multilabel"]


@pytest.mark.parametrize("task", TASKS)
def test_a_blend_says_the_mean_of_what_its_members_say_alone(task: str, tmp_path: Path) -> None:
    data = table_of(task)
    members = ("forest:trees=10", "linear")
    blend = sp.fit("blend", data, members=members, out=tmp_path / "run")
    alone = [sp.fit("forest", data, trees=10), sp.fit("linear", data)]
    ours = blend.predict(data)
    theirs = [run.predict(data) for run in alone]
    if task == "regression":
        np.testing.assert_allclose(ours.values, np.mean([p.values for p in theirs], 0), rtol=1e-5, atol=1e-6)
    else:
        mean = np.mean([p.probabilities for p in theirs], 0)
        np.testing.assert_allclose(ours.probabilities, mean, atol=1e-5)
    again = sp.Run.load(tmp_path / "run").predict(data)
    assert torch.equal(again.logits, ours.logits)


def test_an_ensemble_of_networks_is_trained_member_by_member_and_resumed(tmp_path: Path) -> None:
    data = motif_data()
    settings = {"size": 2, "epochs": 2, "hidden": 8, "layers": 2}
    run = sp.fit("ensemble", data, out=tmp_path / "run", **settings)
    folders = sorted(path.name for path in (tmp_path / "run").iterdir() if path.is_dir())
    assert folders == ["member-0", "member-1"]
    first, second = (sp.fit("erm", data, epochs=1, hidden=8, layers=2).method for _ in range(2))
    for place, method in ((0, first), (1, second)):
        weights = sp.runtime.files.read_tensors(tmp_path / "run" / f"member-{place}" / "weights.safetensors", "a test")
        method.load_state_dict(weights[0])
    batch = data.test.batch(range(4))
    with torch.no_grad():
        alone = [method.eval()(batch) for method in (first, second)]
        assert not torch.allclose(alone[0], alone[1])  # other weights at the start
        torch.testing.assert_close(
            run.method(batch).softmax(-1), torch.stack([a.softmax(-1) for a in alone]).mean(0), atol=1e-5, rtol=1e-4
        )
    (tmp_path / "run" / "metrics.json").unlink()
    again = sp.fit("ensemble", data, out=tmp_path / "run", resume=True, **settings)
    assert again.metrics == run.metrics


def test_members_on_molecules_look_at_their_own_vectors(alcohols: Path, tmp_path: Path) -> None:  # noqa: F811
    data = sp.load(alcohols, label="active", split="random")
    members = ("forest:trees=5", "boosting:trees=3,least_in_a_leaf=2", "tanimoto-gp")
    run = sp.fit("blend", data, members=members, out=tmp_path / "run")
    assert set(run.config["vectors"]["blocks"]) == {"ecfp", "descriptors"}
    widths = [member.blocks for member in run.method.members]  # type: ignore[union-attr]
    assert widths == [("ecfp",), ("ecfp", "descriptors"), ("ecfp",)]
    new = ["OCC(O)CCC", "CCCCCCCCC"]
    alcohol = sp.Run.load(tmp_path / "run").predict(new).probabilities[:, 1]
    assert alcohol[0] > alcohol[1]


def test_what_cannot_be_blended_is_said() -> None:
    data = table_of("binary")
    for members, words in (
        ((), "at least one member"),
        (("blend",), "is a blend itself"),
        (("tanimoto-gp",), "works on graphs, and these are tensors"),
        (("forest:tree=3",), "'tree'"),
        (("forrest",), "forrest"),
    ):
        with pytest.raises(ShiftproofError, match=words):
            sp.fit("blend", data, members=members)


def test_the_mean_of_sure_predictions_stays_finite() -> None:
    sure = torch.tensor([400.0, -400.0])
    assert bool(mean_prediction([sure, sure], "binary").isfinite().all())
    both = mean_prediction([torch.tensor([[500.0, -500.0]]), torch.tensor([[500.0, -500.0]])], "multiclass")
    assert bool(both.isfinite().all())
