"""What a diagnosis holds, says, draws and writes; the assistant; the drop."""

import json
import math

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset, DomainSet
from shiftproof.diagnosis import diagnose, write_diagnosis
from shiftproof.diagnosis.drops import NEW_ENVIRONMENT
from shiftproof.diagnosis.shortcuts import conditional_entropy
from tests.diagnosis.worlds import graphs, tensor_part, tensors

TINY = "two-piece:inv=0.7,spu=0.9,train_per_class=250,val_per_class=60,test_per_class=60"


@pytest.fixture(scope="module")
def with_assistant():
    return sp.diagnose(TINY, epochs=16, device="cpu")


def test_the_assistant_shows_the_two_subsets_and_that_it_follows_the_shortcut(with_assistant) -> None:
    found = with_assistant.tracking
    assert found.right + found.wrong == found.samples == 600
    assert found.follows["label"] == "shortcut"
    cause, shortcut = (found.proxies["label"][name] for name in ("cause", "shortcut"))
    # docs/papers/gala.md#t5: the base is always right where the assistant is, the motif as often in both subsets
    assert shortcut["strength_correct"] - shortcut["strength_incorrect"] > 0.5
    assert abs(cause["strength_correct"] - cause["strength_incorrect"]) < 0.2
    assert "good assistant for GALA" in with_assistant.summary()


def test_the_drop_of_the_assistant_is_measured_with_an_interval(with_assistant) -> None:
    drop = next(d for d in with_assistant.drops if d.where == "test" and "ERM" in d.model)
    assert 0 < drop.low < drop.drop < drop.high
    assert drop.drop == pytest.approx(drop.before - drop.after)


def test_it_becomes_json_a_figure_and_a_page(with_assistant, tmp_path) -> None:
    files = write_diagnosis(with_assistant, tmp_path / "new" / "folder")
    page = json.loads(files[0].read_text())
    assert page["shortcuts"]["dominates"] == "shortcut"
    assert page["alarms"] == len(with_assistant.alarms) > 0
    assert {f["kind"] for f in page["findings"]} >= {"label", "size", "relation"}
    text = files[1].read_text()
    assert "the shortcut dominates" in text
    assert "can cope: gala" in text
    html = files[2].read_text()
    assert "<svg" in html
    assert "http" not in html.split("</svg>")[1]
    assert with_assistant.draw(tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(sp.ShiftproofError, match=r"must end in \.png, \.svg or \.pdf"):
        with_assistant.draw(tmp_path / "a.txt")


def test_equal_seeds_give_equal_answers() -> None:
    first, again = (diagnose(TINY, epochs=1, device="cpu", seed=3).to_json() for _ in range(2))
    assert first == again


def test_without_truth_and_environments_it_says_what_cannot_be_known() -> None:
    said = sp.diagnose(graphs(), assistant=False).summary()
    assert "not recorded here" in said
    assert "Without environments" in said
    assert "No assistant was trained" in said


def test_the_room_is_the_function_and_keeps_its_names() -> None:
    assert sp.diagnosis.Diagnosis is type(sp.diagnose(tensors(), assistant=False))


def test_a_set_with_one_split_compares_nothing_and_says_so() -> None:
    found = sp.diagnose(Dataset({"train": tensors().train}, name="alone"), assistant=False)
    assert found.findings == ()
    assert found.drops == ()
    assert "Nothing could be compared" in found.summary()
    assert "cannot be estimated" in found.summary()


def test_leaving_environments_out_foretells_the_drop_in_a_new_one() -> None:
    rates = (0.95, 0.9, 0.85, 0.95, 0.9)
    rng = np.random.default_rng(0)
    parts = {
        "train": tensor_part(rng, 3000, environments=5, agrees_in=rates),
        "test": tensor_part(rng, 500, agrees=0.92),
    }
    drop = next(
        d for d in sp.diagnose(Dataset(parts, name="five"), assistant=False).drops if d.where == NEW_ENVIRONMENT
    )
    assert drop.low < 0 < drop.high  # new environments like these are as good as the old ones on average
    assert drop.high - drop.low < 0.5


def test_two_environments_are_too_few_to_foretell_and_that_is_said() -> None:
    found = sp.diagnose(tensors(everywhere={"environments": 2}), assistant=False)
    assert all(drop.where != NEW_ENVIRONMENT for drop in found.drops)
    assert "at least three training environments" in found.summary()


def test_numbers_and_many_labels_are_diagnosed_too() -> None:
    rng = np.random.default_rng(0)

    def part(moved: float, count: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
        x = rng.normal(size=(count, 3))
        return torch.from_numpy(x).float(), torch.from_numpy(x[:, 0] + moved + 0.1 * rng.normal(size=count)).float()

    numbers = Dataset(
        {"train": DomainSet(*part(0)), "test": DomainSet(*part(2))}, name="n", task="regression", metric="mse"
    )
    found = sp.diagnose(numbers)
    assert {f.kind for f in found.alarms} >= {"label", "relation"}
    assert found.tracking is None
    assert "An assistant needs classes" in found.summary()
    assert "Mean squared error of a linear model" in found.summary()

    def many(share: float) -> DomainSet:
        y = (rng.random((300, 2)) < [0.5, share]).astype(np.float32)
        y[rng.random((300, 2)) < 0.2] = math.nan
        return DomainSet(torch.from_numpy(rng.normal(size=(300, 3))).float(), torch.from_numpy(y))

    labels = Dataset(
        {"train": many(0.2), "test": many(0.7)}, name="m", task="multilabel", metric="roc_auc", num_classes=2
    )
    assert {f.kind for f in sp.diagnose(labels).alarms} == {"label 1"}


def test_entropy_of_a_piece_given_the_label_is_the_closed_form() -> None:
    # docs/papers/gala.md#two-piece-graphs: a piece that matches in 0.9 of three classes has 0.394 nats
    y = np.repeat([0, 1, 2], 20000)
    rng = np.random.default_rng(0)
    other = (y + rng.integers(1, 3, size=len(y))) % 3
    piece = np.where(rng.random(len(y)) < 0.9, y, other)
    assert conditional_entropy(piece, y) == pytest.approx(0.394, abs=0.01)
    assert conditional_entropy(y, y) == 0.0


def test_columns_of_ones_own_named_invariant_and_spurious_are_ground_truth() -> None:
    data = tensors(0, count=500)
    rng = np.random.default_rng(0)
    for part in (data.train, data.test):
        y = part.y.numpy()
        part.columns["invariant"] = torch.from_numpy(np.where(rng.random(500) < 0.7, y, 1 - y))
        part.columns["spurious"] = torch.from_numpy(np.where(rng.random(500) < 0.9, y, 1 - y))
    found = sp.diagnose(data, assistant=False).shortcuts
    assert found is not None
    assert found.dominates == "shortcut"


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"most": 0}, {"assistant_samples": -1}])
def test_a_wrong_option_is_one_sentence(wrong) -> None:
    with pytest.raises(sp.ShiftproofError, match="whole number from 1"):
        sp.diagnose(tensors(), **wrong)


def test_strengths_of_two_piece_graphs_have_two_names_each() -> None:
    small = {"train_per_class": 2, "val_per_class": 1, "test_per_class": 1}
    assert sp.load("two-piece", inv=0.7, spu=0.6, **small).spec == sp.load("two-piece", a=0.7, b=0.6, **small).spec
    with pytest.raises(sp.ShiftproofError, match="'b' and 'spu' of two-piece are one"):
        sp.load("two-piece", b=0.5, spu=0.6, **small)
