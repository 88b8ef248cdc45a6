"""A chemist asks a trained run about new molecules: a list, a frame, a file; some of them are no molecules."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import shiftproof as sp
from tests.first_hour.assays import assays

pytest.importorskip("rdkit")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chemist")
    assays().to_csv(folder / "assays.csv", index=False)
    data = sp.load(folder / "assays.csv", smiles="smiles", label="active", split="random")
    sp.fit("erm", data, epochs=2, hidden=8, out=folder / "run")
    return folder


@pytest.fixture(scope="module")
def run(trained):
    return sp.Run.load(trained / "run")


def test_a_list_of_smiles_gives_a_row_each_and_a_bad_one_says_why(run):
    predictions = run.predict(["CCO", "C1CC", "c1ccccc1", None])
    frame = predictions.to_frame()
    assert frame["smiles"].tolist()[:3] == ["CCO", "C1CC", "c1ccccc1"]
    assert frame["problem"].notna().tolist() == [False, True, False, True]
    assert predictions.usable.tolist() == [True, False, True, False]
    assert np.isnan(predictions.logits.numpy()).tolist() == [False, True, False, True]
    assert frame["prediction"].isna().tolist() == [False, True, False, True]
    assert predictions[1]["problem"] == "SMILES cannot be parsed"
    alone = run.predict(["c1ccccc1"])
    assert alone["probability"] == pytest.approx(predictions["probability"][2:3], abs=1e-6)


def test_a_list_in_which_nothing_is_a_molecule_is_all_marked(run):
    frame = run.predict(["C1CC", "nonsense"]).to_frame()
    assert frame["problem"].notna().all()
    assert len(frame) == 2


def test_a_frame_keeps_its_index_its_ids_and_its_order(run):
    new = assays().drop(columns="active").iloc[[40, 3, 17]]
    frame = run.predict(new).to_frame()
    assert frame.index.tolist() == [40, 3, 17]
    assert frame["compound_id"].tolist() == ["CMP-040", "CMP-003", "CMP-017"]
    assert "label" not in frame
    whole = run.predict(assays())
    assert frame["probability"].tolist() == pytest.approx([whole["probability"][row] for row in (40, 3, 17)], abs=1e-6)
    assert whole["label"] == assays()["active"].tolist()


def test_labels_may_be_missing_here_and_there_or_everywhere(run):
    some = assays().astype({"active": object}).head(4)
    some.loc[2, "active"] = None
    assert run.predict(some)["label"] == [0, 0, None, 1]
    assert "label" not in run.predict(some.assign(active="")).to_frame()


def test_the_column_of_smiles_may_have_another_name(run):
    renamed = assays().rename(columns={"smiles": "SMILES"})
    assert run.predict(renamed)["prediction"] == run.predict(assays())["prediction"]
    renamed = assays().rename(columns={"smiles": "structure"})
    assert run.predict(renamed, smiles="structure")["prediction"] == run.predict(assays())["prediction"]
    with pytest.raises(sp.ShiftproofError, match=r"no column 'smiles'.*smiles='COLUMN', or --smiles COLUMN"):
        run.predict(renamed)


def test_a_column_of_a_frame_and_one_smiles_are_taken_too(run):
    column = run.predict(assays()["smiles"].iloc[5:8]).to_frame()
    assert column.index.tolist() == [5, 6, 7]
    assert len(run.predict("CCO")) == 1


def test_molecules_of_rdkit_are_taken(run):
    from rdkit import Chem

    molecules = [Chem.MolFromSmiles("OCC"), None]
    assert run.predict(molecules)["probability"] == [pytest.approx(run.predict(["CCO"])["probability"][0]), None]


def test_a_fresh_process_predicts_the_same(trained, run):
    words = f"import shiftproof as sp; print(sp.predict({str(trained / 'run')!r}, ['CCO'])['probability'][0])"
    printed = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(run.predict(["CCO"])["probability"][0], abs=1e-6)


def test_the_command_takes_a_table_without_labels_and_another_smiles_column(trained, shiftproof, tmp_path):
    new = pd.DataFrame({"name": ["a", "b", "c"], "structure": ["CCO", "C1CC", "CCN"], "active": ["", "", ""]})
    new.to_csv(tmp_path / "new.csv", index=False)
    status, out, err = shiftproof("predict", trained / "run", "new.csv", "--smiles", "structure", "--out", "p.csv")
    assert status == 0, err
    assert out == "2 predictions in p.csv\n"
    written = pd.read_csv(tmp_path / "p.csv")
    assert written["name"].tolist() == ["a", "b", "c"]
    assert written["problem"].notna().tolist() == [False, True, False]
    assert "label" not in written


def test_rows_are_chosen_and_more_is_said_of_them(run):
    predictions = run.predict(["CCO", "C1CC", "CCN"]).with_columns(trust=[0.9, 0.1], note=["x", "y", "z"])
    assert predictions.trust == [0.9, None, 0.1]
    assert predictions[1:]["note"] == ["y", "z"]
    assert predictions.set is None
    with pytest.raises(sp.ShiftproofError, match="column 'low' has 1 entries; there are 3 rows, 2 of them usable"):
        predictions.with_columns(low=[1.0])
    assert predictions.with_columns(set=[("0", "1"), ("0",)])[2]["set"] == ("0",)
