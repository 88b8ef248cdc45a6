"""Tables of molecules: labels of every kind, splits, environments, the cache and the rows that are left out."""

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import shiftproof as sp
from shiftproof.data.readers import featurising
from shiftproof.data.splitting import at_random, largest_first
from tests.data.readers.tables_to_read import assays, smiles, table


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shiftproof" / "molecules"


@pytest.mark.parametrize("name", ["molbace", "molbbbp"])
def test_the_scaffold_split_is_that_of_ogb(name: str, real_data: Path, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(real_data / "molecules" / f"ogbg_{name}.zip")
    with archive.open(f"ogbg_{name}/mapping/mol.csv.gz") as file:
        (tmp_path / "mol.csv.gz").write_bytes(file.read())
    label = {"molbace": "Class", "molbbbp": "p_np"}[name]
    columns = pd.read_csv(tmp_path / "mol.csv.gz").columns
    data = sp.load(tmp_path / "mol.csv.gz", smiles="smiles", label=label if label in columns else columns[0])
    for ours, theirs in (("train", "train"), ("val", "valid"), ("test", "test")):
        with archive.open(f"ogbg_{name}/split/scaffold/{theirs}.csv.gz") as file:
            rows = pd.read_csv(file, compression="gzip", header=None)[0]
        assert sorted(data[ours].index.tolist()) == sorted(rows)


def test_no_scaffold_stands_in_two_splits(tmp_path: Path) -> None:
    data = sp.load(assays(tmp_path / "a.csv"), label="active", split="scaffold")
    seen = [set(part.columns["scaffold"].tolist()) for part in data.splits.values()]
    assert not seen[0] & (seen[1] | seen[2])
    assert not seen[1] & seen[2]
    assert sum(len(part) for part in data.splits.values()) == 96


def test_small_molecules_train_and_large_ones_test(tmp_path: Path) -> None:
    data = sp.load(assays(tmp_path / "a.csv"), label="active", split="size")
    assert int(data.train.sizes.max()) <= int(data.val.sizes.min()) <= int(data.test.sizes.min())
    assert data.environment == "size group"


def test_old_rows_train_and_new_ones_test(tmp_path: Path) -> None:
    data = sp.load(assays(tmp_path / "a.csv"), label="active", split="time", by="year")
    year = torch.tensor([2000 + i % 20 for i in range(96)])
    assert int(year[data.train.index].max()) <= int(year[data.test.index].min())


def test_whole_assays_are_held_out_and_named_splits_are_taken(tmp_path: Path) -> None:
    data = sp.load(assays(tmp_path / "a.csv", 90), label="active", env="assay", split="column")
    assert {tuple(sorted(set(part.env.tolist()))) for part in data.splits.values()} != {(0, 1, 2)}
    rows = [[text, i % 2, ["Train", "valid", "TEST"][i % 3]] for i, text in enumerate(smiles(30))]
    data = sp.load(table(tmp_path / "b.csv", rows, "smiles,y,part"), label="y", split="column", by="part")
    assert data.test.index.tolist() == list(range(2, 30, 3))


@pytest.mark.parametrize(
    ("labels", "task", "metric"),
    [
        ([0, 1], "binary", "roc_auc"),
        (["active", "inactive"], "binary", "roc_auc"),
        ([-1, 1], "binary", "roc_auc"),
        (["red", "green", "blue"], "multiclass", "accuracy"),
        ([1, 2, 3], "multiclass", "accuracy"),
        ([0.5 * i for i in range(30)], "regression", "mse"),
    ],
)
def test_what_labels_are_for_is_read_off_them(labels: list, task: str, metric: str, tmp_path: Path) -> None:
    rows = [[text, labels[i % len(labels)]] for i, text in enumerate(smiles(60))]
    data = sp.load(table(tmp_path / "t.csv", rows), label="active", split="random")
    assert (data.task, data.metric) == (task, metric)
    if task in ("binary", "multiclass"):
        names = data.value_names["label"]
        assert [names[int(y)] for y in data.train.y] == [str(rows[i][1]) for i in data.train.index.tolist()]


def test_several_labels_with_gaps_are_learned_where_they_are_known(tmp_path: Path) -> None:
    rows = [[text, i % 2, "" if i % 3 else 1 - i % 2, ""] for i, text in enumerate(smiles(60))]
    rows[0][3], rows[1][3] = 0, 1
    path = table(tmp_path / "t.csv", rows, "smiles,a,b,c")
    data = sp.load(path, label=("a", "b", "c"), split="random")
    assert data.task == "multilabel"
    assert int(torch.isnan(data.train.y).sum()) > 0
    run = sp.fit("erm", data, epochs=2, hidden=8)
    assert np.isfinite(run.history[-1]["losses"]["task"])
    assert run.metrics["train"]["roc_auc"] is not None
    assert [len(part) for part in sp.load(path, label="*", split="random").splits.values()] == [
        len(part) for part in data.splits.values()
    ]


def test_one_molecule_in_ten_is_broken_and_the_others_are_read(tmp_path: Path) -> None:
    texts = smiles(60)
    broken = {4: "C1CC", 14: "not a molecule", 24: "", 34: "C(C)(C)(C)(C)C", 44: "[Xx]", 54: "c1cccc1"}
    rows = [[broken.get(i, text), i % 2] for i, text in enumerate(texts)]
    data = sp.load(table(tmp_path / "t.csv", rows), label="active", split="random")
    assert [row for row, _, _ in data.rejected] == [i + 1 for i in broken]
    assert "valence" in data.rejected[3][2]
    assert "6 of 60 rows are left out" in data.notes[0]
    assert sum(len(part) for part in data.splits.values()) == 54


def test_reading_again_takes_the_cache_and_a_changed_file_does_not(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = assays(tmp_path / "a.csv")
    first = sp.load(path, label="active")
    assert len(list(own_cache.iterdir())) == 1
    read = []
    whole = featurising._read_chunk
    monkeypatch.setattr(featurising, "_read_chunk", lambda *given: read.append(given) or whole(*given))
    again = sp.load(path, label="active", split="size")
    assert not read  # labels and splits may change, the molecules are the same
    assert torch.equal(first.train.x[:1], sp.load(path, label="active").train.x[:1])
    assert again.train.num_features == 39
    assays(path, 90)
    sp.load(path, label="active")
    assert read
    for file in own_cache.iterdir():
        file.write_bytes(b"cut")
    assert len(sp.load(path, label="active").train) > 0


def test_processes_read_the_same_as_one(own_cache: Path) -> None:
    texts = [f"C{'C' * (i % 40)}O{i % 7 * 'C'}N{'C' * (i // 280)}" for i in range(1200)]
    texts = list(dict.fromkeys(texts))
    one = featurising.read_molecules(texts, processes=1, cached=False)
    two = featurising.read_molecules(texts, processes=2, cached=False)
    for name in ("atoms", "bonds", "ends", "sizes", "scaffold", "number"):
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_a_repeated_molecule_never_stands_on_both_sides_of_a_random_split(tmp_path: Path) -> None:
    texts = smiles(31) * 3  # an odd number, so that labels contradict each other
    data = sp.load(table(tmp_path / "t.csv", [[t, i % 2] for i, t in enumerate(texts)]), label="active", split="random")
    where = {part: {texts[i] for i in samples.index.tolist()} for part, samples in data.splits.items()}
    assert not where["train"] & where["test"]
    assert "62 rows repeat" in " ".join(data.notes)
    assert "more than one label" in " ".join(data.notes)


def test_the_text_of_a_data_set_loads_it_again(tmp_path: Path) -> None:
    rows = [[text, i % 2, i % 2] for i, text in enumerate(smiles(60))]
    path = table(tmp_path / "t.csv", rows, 'smiles,"Injury, poisoning (all)",b=c')
    data = sp.load(path, label=("Injury, poisoning (all)", "b=c"))
    again = sp.load(data.spec)
    assert torch.equal(data.test.y, again.test.y)


def test_gzip_and_parquet_hold_the_same_as_csv(tmp_path: Path) -> None:
    frame = pd.read_csv(assays(tmp_path / "a.csv"))
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    plain, packed = (sp.load(tmp_path / name, label="active") for name in ("a.csv", "a.csv.gz"))
    assert torch.equal(plain.train.x, packed.train.x)
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "a.parquet")
    assert torch.equal(plain.train.y, sp.load(tmp_path / "a.parquet", label="active").train.y)


def test_largest_groups_train_and_equal_entries_stay_together() -> None:
    parts = largest_first(["a"] * 6 + ["b"] * 3 + ["c", "d"])
    assert parts["train"].tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
        10,
        9,
    ]  # b would overfill train; of one size the later goes first
    entries = np.repeat(np.arange(50), 4)
    parts = at_random(entries, 0)
    assert not set(entries[parts["train"]]) & set(entries[parts["test"]])
    assert sum(len(rows) for rows in parts.values()) == 200


def test_a_column_of_molecules_that_is_asked_for_as_environments_does_not_make_a_table_one_of_molecules(tmp_path):
    rings = ["C1CCCCC1C", "c1ccccc1CC", "C1CCNCC1CO"]
    rows = [{"x": i % 7, "active": i % 2, "scaffold_text": rings[i % 3] + "C" * (i % 10)} for i in range(60)]
    pd.DataFrame(rows).to_csv(tmp_path / "some.csv", index=False)
    plain = sp.load(tmp_path / "some.csv", label="active", env="scaffold_text", split="random")
    assert plain.kind == "tensors"
    assert sp.load(tmp_path / "some.csv", label="active", split="random").kind == "graphs"
