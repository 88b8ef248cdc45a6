"""Maps of where networks look: a shortcut with a known place, shares that can be told apart, a figure of both."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.data import Dataset, load
from shiftproof.data.generated.corner import PATCH, regions, with_patch
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.image_maps import share_in_region
from shiftproof.papers.feat import maps as feat_maps
from shiftproof.sweeps.recipes import Work


def digits_in_the_large(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits blown up to the size of MNIST's."""
    pixels, digits = load_digits(return_X_y=True)
    large = np.kron(pixels.reshape(-1, 8, 8)[:n], np.ones((2, 2))) * 15.9
    return np.pad(large, ((0, 0), (6, 6), (6, 6))).astype(np.uint8), digits[:n]


def small(n: int = 90, test: int = 30) -> Dataset:
    images, digits = digits_in_the_large(n + test)
    rng = np.random.default_rng(0)
    train = with_patch(images[:n], digits[:n], np.arange(n) % 2, (0.1, 0.2), 0.25, rng)
    held = with_patch(images[n:], digits[n:], np.arange(test) % 3, (0.9, 0.1, 0.5), 0.25, rng)
    return Dataset({"train": train, "test": held}, name="cmnist-corner", task="binary", metric="worst_group")


def test_the_patch_follows_the_label_and_the_digit_is_gray():
    images, digits = digits_in_the_large(1700)
    data = with_patch(images, digits, np.arange(1700) % 2, (0.1, 0.4), 0.25, np.random.default_rng(0))
    colour, y = data.columns["colour"], data.y.long()
    for env, flip in ((0, 0.1), (1, 0.4)):
        wrong = (colour != y)[data.env == env].double().mean()
        assert float(wrong) == pytest.approx(flip, abs=4 * (0.25 / 850) ** 0.5)
    corner = data.x[:, :, :PATCH, :PATCH]
    assert torch.equal(corner[:, 0].amin((1, 2)), colour.float()), "red for 1"
    assert torch.equal(corner[:, 1].amin((1, 2)), 1 - colour.float()), "green for 0"
    assert float(corner[:, 2].abs().max()) == 0
    outside = data.x.clone()
    outside[:, :, :PATCH, :PATCH] = 0
    assert torch.equal(outside[:, 0], outside[:, 2])


def test_regions_hold_the_digit_and_the_patch_and_do_not_overlap():
    x = small().train.x
    found = regions(x)
    assert float((found["digit"] * found["patch"]).max()) == 0
    assert float(found["patch"][0].sum()) == (PATCH + 1) ** 2
    lit = x.amax(1) > 0.1
    assert bool(((found["digit"] + found["patch"])[lit] == 1).all())


def test_maps_of_a_network_that_sees_the_patch_alone_fall_on_it():
    class Cornered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 1, 1)
            nn.init.constant_(self.conv.weight, 1.0)
            nn.init.zeros_(self.conv.bias)  # a random one lights the empty background up

        def forward(self, x):
            return self.conv(x).relu()[:, :, :PATCH, :PATCH].mean((1, 2, 3)).unsqueeze(1)

    model, x = Cornered(), small().test.x
    found = feat_maps.maps_of(model, model.conv, x)
    for kind in ("saliency", "integrated_gradients"):
        assert share_in_region(found[kind], regions(x)["patch"]).mean() > 0.99, kind
    # Grad-CAM weighs whole maps: its only one here is as bright on the digit, whatever becomes of that
    assert share_in_region(found["grad_cam"], regions(x)["digit"]).mean() > 0.5


def test_the_recipe_trains_measures_draws_and_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(feat_maps, "load", lambda spec: small())
    monkeypatch.setattr(feat_maps, "SMOKE_STEPS", 2)
    work = Work(tmp_path, range(2), smoke=True, device="cpu")
    rows = feat_maps.map_rows(work)
    assert {row["method"] for row in rows} == {"ERM 2", "ERM 4", "ERM 6", "FeAT 2x2"}
    shares = [row for row in rows if " in " in row["metric"]]
    assert len(shares) == 4 * 3 * 2
    assert all(0 <= value <= 1 for row in shares for value in row["values"])
    monkeypatch.setattr(feat_maps, "load", None)  # nothing is left to be trained
    assert feat_maps.map_rows(work) == rows
    picture = feat_maps.draw_maps(rows, tmp_path / "maps.svg")
    words = " ".join(ElementTree.fromstring(picture.read_text()).itertext())
    assert "FeAT 2x2" in words
    assert "integrated gradients" in words


def test_only_chooses_models_by_their_names_also_in_a_smoke_run(tmp_path, monkeypatch):
    monkeypatch.setattr(feat_maps, "load", lambda spec: small())
    monkeypatch.setattr(feat_maps, "SMOKE_STEPS", 2)
    work = Work(tmp_path, range(1), smoke=True, device="cpu", only=("FeAT 2x150", "ERM 150"))
    rows = feat_maps.map_rows(work)
    assert {row["method"] for row in rows} == {"ERM 2", "FeAT 2x2"}
    assert sorted(place.name for place in (tmp_path / "seed-0").iterdir()) == ["ERM-2", "FeAT-2x2"]
    assert "FeAT 2x2" in feat_maps.draw_maps(rows, tmp_path / "maps.svg").read_text()


def test_collect_takes_what_is_finished_and_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(feat_maps, "load", lambda spec: small())
    monkeypatch.setattr(feat_maps, "SMOKE_STEPS", 2)
    nothing = Work(tmp_path, range(2), smoke=True, device="cpu", collect=True)
    with pytest.raises(ShiftproofError, match="holds no finished model to collect"):
        feat_maps.map_rows(nothing)
    feat_maps.map_rows(Work(tmp_path, range(1, 2), smoke=True, device="cpu", only=("ERM 150",)))
    rows = feat_maps.map_rows(nothing)
    assert {(row["method"], *row["of_seeds"]) for row in rows} == {("ERM 2", 1)}
    assert feat_maps.draw_maps(rows, tmp_path / "maps.svg").exists()
    feat_maps.map_rows(Work(tmp_path, range(1), smoke=True, device="cpu", only=("FeAT 2x150",)))
    rows = feat_maps.map_rows(nothing)
    assert {(row["method"], *row["of_seeds"]) for row in rows} == {("ERM 2", 1), ("FeAT 2x2", 0)}
    assert {row["device"].split(",")[0] for row in rows} == {"cpu"}
    # images of two seeds would not go together
    assert {Path(row["drawn"]).parent.parent.name for row in rows if "drawn" in row} == {"seed-0"}


def test_only_with_a_word_that_names_no_model_trains_nothing(tmp_path):
    words = ["bench", "feat-gradcam", "--smoke", "--only", "FeAT 2x15", "--device", "cpu", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ShiftproofError)
    assert str(done.exception) == "unknown part of the recipe 'FeAT 2x15'; did you mean 'FeAT 2x150'?"
    assert not list(tmp_path.rglob("*.json"))


def test_too_many_samples_are_one_sentence(real_data):
    with pytest.raises(
        ShiftproofError, match="'samples' of data set 'cmnist-corner' is a whole number from 2 to 50000"
    ):
        load("cmnist-corner:samples=50001")
    data = load("cmnist-corner:samples=40,test_samples=5")
    assert tuple(data.train.x.shape) == (40, 3, 28, 28)
    assert len(data.test) == 15
