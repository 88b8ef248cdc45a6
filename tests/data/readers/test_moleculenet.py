"""MoleculeNet as a table of one's own: its split, the settings molecules get, the recipe beside the literature."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import shiftproof as sp
from shiftproof.api.choosing import _smaller
from shiftproof.errors import ShiftproofError
from shiftproof.papers.molecules.published import GIN, spanned
from shiftproof.papers.molecules.tables import CLAIMS, SETS, rows
from shiftproof.presets import GRAPHS, MOLECULES, preset_for
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Job
from tests.data.readers.tables_to_read import assays, command


@pytest.mark.parametrize("name", ["bace", "bbbp"])
def test_the_scaffold_split_of_the_plain_file_is_that_of_ogb(name: str, real_data: Path) -> None:
    data = sp.load(f"moleculenet:name={name}")
    file = real_data / "molecules" / {"bace": "bace.csv.gz", "bbbp": "BBBP.csv.gz"}[name]
    texts = pd.read_csv(file)[data.reading["smiles"]].tolist()
    archive = zipfile.ZipFile(real_data / "molecules" / f"ogbg_mol{name}.zip")
    with archive.open(f"ogbg_mol{name}/mapping/mol.csv.gz") as packed:
        theirs = pd.read_csv(packed, compression="gzip")["smiles"].tolist()
    for ours, called in (("train", "train"), ("val", "valid"), ("test", "test")):
        with archive.open(f"ogbg_mol{name}/split/scaffold/{called}.csv.gz") as packed:
            wanted = pd.read_csv(packed, compression="gzip", header=None)[0]
        assert sorted(texts[row] for row in data[ours].index.tolist()) == sorted(theirs[row] for row in wanted)


def test_its_name_loads_it_again_and_a_wrong_one_is_a_sentence(real_data: Path) -> None:
    data = sp.load("moleculenet", name="bace", split="size")
    assert data.spec == "moleculenet:name=bace,split=size"
    assert sp.load(data.spec).train.index.tolist() == data.train.index.tolist()
    with pytest.raises(ShiftproofError, match="did you mean 'bace'"):
        sp.load("moleculenet:name=base")


def test_molecules_get_settings_of_their_own_and_other_graphs_do_not(tmp_path: Path) -> None:
    table = sp.load(assays(tmp_path / "a.csv"), label="active")
    assert preset_for(table) is MOLECULES
    assert preset_for(_smaller(table, 10, 0)) is MOLECULES  # what auto tries its candidates on
    tiny = {"train_per_class": 2, "val_per_class": 2, "test_per_class": 2}
    plain = sp.load(sp.load("two-piece", **tiny).train.to_pyg(), split=(1.0, 0.0, 0.0))
    assert preset_for(plain) is GRAPHS


def test_fit_says_the_settings_and_what_was_given_in_their_place(tmp_path: Path) -> None:
    table = assays(tmp_path / "a.csv")
    words = ("--label", "active", "-m", "erm", "--set", "hidden=8", "--set", "epochs=1", "--out", tmp_path / "runs")
    done = command("fit", table, *words)
    assert done.returncode == 0, done.stderr
    said = next(line for line in done.stderr.splitlines() if line.startswith("settings: "))
    assert "hidden=8" in said
    assert f"dropout={MOLECULES.network['dropout']}" in said
    assert "default for molecules" in said
    assert "settings:" not in command("fit", table, *words[:-1], tmp_path / "other", "--json").stderr


def finished(folder: Path, data: str, score: float, seed: int) -> Job:
    job = Job(data, "erm", seed, folder / data.replace(":", "_") / str(seed))
    found = {"test": {"roc_auc": score}, "val": {"roc_auc": score + 0.1}}
    write_json(job.out / "config.json", {"metric": "roc_auc"})
    write_json(job.out / "metrics.json", {"metrics": found, "selection": "val"})
    write_json(job.out / "timing.json", {"device": "cpu"})
    return job


def test_rows_stand_beside_every_reported_figure_and_its_source(tmp_path: Path) -> None:
    made = rows([finished(tmp_path, data, 0.7 + 0.01 * seed, seed) for data in SETS for seed in range(3)])
    assert [row["dataset"] for row in made] == list(SETS)
    for row, name in zip(made, ("bace", "bbbp", "hiv"), strict=True):
        assert row["mean"] == pytest.approx(0.71)
        assert row["val"]["mean"] == pytest.approx(0.81)
        assert [figure["source"] for figure in row["reported"]] == [figure.source for figure in GIN[name]]
        low, high = row["range"]
        assert (low, high) == spanned(name)
        assert low < row["published"]["mean"] < high
    verdicts = [claim.judge(made).verdict for claim in CLAIMS]
    low, high = spanned("bbbp")
    assert verdicts == ["does not hold", "holds", "holds" if low <= 0.71 <= high else "does not hold", "does not hold"]
    assert {claim.judge([]).verdict for claim in CLAIMS} == {"not tested"}


def test_rows_of_other_methods_stand_beside_no_figure_of_a_gin(tmp_path: Path) -> None:
    job = finished(tmp_path, SETS[0], 0.9, 0)
    (row,) = rows([replace(job, method="forest")])
    assert "reported" not in row
    assert {claim.judge([row]).verdict for claim in CLAIMS} == {"not tested"}
