"""What every model returns: rows in order, marks in their place, tables for people."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import shiftproof as sp
from shiftproof.data import DomainSet, Predictions

NAN = float("nan")


@pytest.fixture
def three() -> Predictions:
    logits = torch.tensor([[2.0, 0.0, -1.0], [NAN, NAN, NAN], [0.0, 0.0, 3.0]])
    return Predictions(
        "multiclass",
        logits,
        classes=("cat", "dog", "owl"),
        labels=torch.tensor([0.0, 1.0, NAN]),
        problems={1: "is empty"},
        identifiers={"name": ["a", "b", "c"]},
    )


def test_a_row_that_cannot_be_used_keeps_its_place(three):
    frame = three.to_frame()
    assert frame["prediction"].tolist() == ["cat", None, "owl"]
    assert frame["label"].tolist() == ["cat", "dog", None]
    assert frame["problem"].tolist() == [None, "is empty", None]
    assert three.probabilities[[0, 2]].sum(1) == pytest.approx(1)
    assert np.isnan(three.probabilities[1]).all()
    assert frame["probability_owl"].isna().tolist() == [False, True, False]


def test_selections_keep_what_belongs_to_each_row(three):
    assert three[[2, 1]].to_frame()["name"].tolist() == ["c", "b"]
    assert three[[2, 1]].problems == {1: "is empty"}
    assert three[three.usable]["prediction"] == ["cat", "owl"]
    assert three[-1]["prediction"] == "owl"
    assert [row["name"] for row in three] == ["a", "b", "c"]
    with pytest.raises(sp.ShiftproofError, match="unknown column 'predicton' of these predictions; did you mean"):
        three["predicton"]


def test_files_hold_what_the_frame_holds(three, tmp_path):
    more = three.with_columns(set=[("cat", "dog"), None, ("owl",)])
    read = pd.read_csv(more.to_csv(tmp_path / "p.csv"))
    assert read.columns.tolist() == more.to_frame().columns.tolist()
    assert read["set"].tolist()[0] == "cat | dog"
    rows = json.loads(more.to_json(tmp_path / "p.json").read_text())
    assert rows[1]["confidence"] is None
    assert rows[0]["probability_cat"] == pytest.approx(more.probabilities[0, 0])


def test_numbers_and_questions_are_said_in_the_users_units():
    values = Predictions("regression", torch.tensor([1.5, NAN]), problems={1: "no"}, labels=torch.tensor([2.0, NAN]))
    assert values.to_frame()["prediction"].tolist()[0] == 1.5
    assert values.values[0] == 1.5
    asked = Predictions("multilabel", torch.tensor([[3.0, -3.0]]), classes=("toxic", "soluble"))
    assert asked.values.tolist() == [[1, 0]]
    assert {"probability_toxic", "probability_soluble"} <= set(asked.to_frame())
    with pytest.raises(sp.ShiftproofError, match="see 'values'"):
        values.probabilities  # noqa: B018


def test_printing_says_how_many_rows_and_shows_the_first(three):
    assert repr(three).startswith("Predictions(3 rows, 1 of them unusable; multiclass)\n")
    assert "is empty" in three._repr_html_()


def test_every_sample_of_a_list_is_predicted_in_its_order():
    from torch_geometric.data import Data

    g = torch.Generator().manual_seed(0)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [Data(x=torch.randn(3, 2, generator=g), edge_index=ring, y=torch.tensor([i % 2])) for i in range(60)]
    run = sp.fit("erm", graphs, epochs=1, hidden=4)
    predictions = sp.predict(run, graphs)
    assert len(predictions) == 60
    assert predictions["label"] == [i % 2 for i in range(60)]
    assert torch.allclose(predictions.logits, run.logits(sp.GraphSet.from_pyg(graphs)), atol=1e-6)
    assert torch.allclose(run.predict(graphs[7]).logits, predictions.logits[7:8], atol=1e-5)
    assert torch.allclose(run.predict(graphs[::-1]).logits, predictions.logits.flip(0), atol=1e-5)


def test_rows_of_an_array_are_predicted_in_their_order():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=g)
    data = sp.Dataset({"train": DomainSet(x, (x[:, 0] > 0).float())}, name="points", task="binary")
    run = sp.fit("erm", data, epochs=2, widths=(4,))
    assert torch.equal(run.predict(x).logits, run.logits(data.train))
    assert torch.equal(run.predict(x.numpy()).logits, run.logits(data.train))
    assert torch.equal(run.predict(x.tolist()).logits, run.logits(data.train))
    assert torch.equal(run.predict(data.train[:4]).logits, run.logits(data.train[:4]))
