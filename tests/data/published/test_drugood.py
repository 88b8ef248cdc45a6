"""DrugOOD files: splits, domains, the packed copy, and sentences for files that are not right."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from tests.data.looks_at_graphs import assert_same

pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")

SPLITS = ("train", "ood_val", "ood_test", "iid_val", "iid_test")


def record(smiles: str, label: int, domain: int, assay: int) -> dict:
    return {"smiles": smiles, "reg_label": 4.5 + label, "assay_id": assay, "cls_label": label, "domain_id": domain}


@pytest.fixture
def page() -> dict:
    rows = {
        "train": [("CCO", 0, 7, 70), ("CCN", 1, 40, 400), ("CCCC", 1, 40, 400)],
        "ood_val": [("c1ccccc1", 1, 3, 30), ("CC", 0, 3, 70)],
        "ood_test": [("CC=O", 1, 9, 90), ("CCO", 0, 1, 10)],
        "iid_val": [("CCF", 1, 7, 70)],
        "iid_test": [("CCS", 0, 40, 400)],
    }
    cfg = {"path": {"source_root": "data/chembl_29_sqlite/chembl_29.db"}}
    return {"cfg": cfg, "split": {name: [record(*row) for row in some] for name, some in rows.items()}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path / "files"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "files" / "drugood").mkdir(parents=True)
    return tmp_path / "files" / "drugood"


def write(folder: Path, page: object, name: str = "lbap_core_ec50_assay.json") -> Path:
    (folder / name).write_text(json.dumps(page))
    return folder / name


def test_splits_labels_and_domains(folder: Path, page: dict) -> None:
    write(folder, page)
    data = load("drugood-ec50-assay")
    assert list(data.splits) == ["train", "val", "test", "iid_val", "iid_test"]
    assert [len(split) for split in data.splits.values()] == [3, 2, 2, 1, 1]
    assert (data.task, data.num_classes, data.metric, data.environment) == ("multiclass", 2, "roc_auc", "domain")
    assert data.train.y.tolist() == [0, 1, 1]
    assert data.train.env.tolist() == [1, 0, 0]  # the commonest domain of training is number 0
    assert data.env_names[:2] == ("40", "7")
    assert data.val.env is None
    names = data.value_names
    for split, source in zip(("train", "val", "test", "iid_val", "iid_test"), SPLITS, strict=True):
        for column, key in (("domain", "domain_id"), ("assay", "assay_id")):
            read = [names[column][number] for number in data[split].columns[column].tolist()]
            assert read == [str(row[key]) for row in page["split"][source]]
    assert data.train.columns["value"].tolist() == [4.5, 5.5, 5.5]
    assert "ChEMBL 29" in data.provenance
    assert "ChEMBL 30" in data.provenance


def test_the_largest_domain_alone_trains(folder: Path, page: dict) -> None:
    write(folder, page)
    data = load("drugood:largest_domain_only=true")
    assert (len(data.train), data.train.num_envs, len(data.test)) == (2, 1, 2)
    assert data.spec == "drugood:file=lbap_core_ec50_assay,largest_domain_only=True"


def test_gzipped_and_plain_files_are_one(folder: Path, page: dict) -> None:
    plain = write(folder, page)
    first = load("drugood-ec50-assay")
    (folder / "lbap_core_ec50_assay.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert_same(first, load("drugood-ec50-assay"))


def test_the_second_load_needs_no_rdkit_and_its_folder_is_a_data_set(folder, page, tmp_path, monkeypatch) -> None:
    write(folder, page)
    first = load("drugood-ec50-assay")
    for module in [name for name in sys.modules if name.partition(".")[0] == "rdkit"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("shiftproof.data.published.drugood.molecule_graphs", None)
    assert_same(first, load("drugood-ec50-assay"))
    (packed,) = (tmp_path / "cache" / "shiftproof" / "drugood").iterdir()
    assert_same(first, load(packed))


def test_a_changed_file_and_a_damaged_copy_are_read_anew(folder: Path, page: dict, tmp_path: Path) -> None:
    write(folder, page)
    first = load("drugood-ec50-assay")
    (packed,) = (tmp_path / "cache" / "shiftproof" / "drugood").iterdir()
    (packed / "train.safetensors").write_bytes(b"no")
    assert_same(first, load("drugood-ec50-assay"))
    page["split"]["train"].pop()
    write(folder, page)
    assert len(load("drugood-ec50-assay").train) == 2


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path, page: dict, tmp_path: Path) -> None:
    write(folder, page)
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert len(load("drugood-ec50-assay").train) == 3


@pytest.mark.parametrize("name", ["drugood-ic50-scaffold", "drugood-ki-size", "drugood:file=lbap_core_ic50_scaffold"])
def test_a_missing_file_is_one_sentence(folder: Path, name: str) -> None:
    with pytest.raises(ShiftproofError, match=r"the DrugOOD file lbap_core_\w+ is missing: put 'drugood/lbap_core"):
        load(name)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda page: page["split"].pop("ood_val"), "has no split 'ood_val'"),
        (lambda page: page["split"]["train"][1].pop("smiles"), "split 'train': row 1 has no smiles"),
        (lambda page: page["split"]["train"][2].update(cls_label=2), "split 'train': cls_label of row 2 is 2"),
        (lambda page: page["split"]["ood_val"][1].update(smiles="C1"), "row 4 .'C1'. cannot be parsed"),
        (lambda page: page["split"]["train"][0].update(reg_label="high"), "row 0 has no number as reg_label"),
        (lambda page: page.pop("split"), "is not a DrugOOD file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(folder: Path, page: dict, spoil, sentence: str) -> None:
    spoil(page)
    write(folder, page)
    with pytest.raises(ShiftproofError, match=sentence):
        load("drugood-ec50-assay")


def test_text_that_is_no_json_and_names_that_leave_the_folder(folder: Path) -> None:
    (folder / "lbap_core_ec50_assay.json").write_text("{")
    with pytest.raises(ShiftproofError, match="not readable as JSON"):
        load("drugood-ec50-assay")
    with pytest.raises(ShiftproofError, match="not the name of a DrugOOD file"):
        load("drugood", file="../secret")


def test_two_loads_give_the_same_tensors(folder: Path, page: dict) -> None:
    write(folder, page)
    one, other = load("drugood-ec50-assay"), load("drugood-ec50-assay")
    assert torch.equal(one.train.x, other.train.x)
    assert one.provenance == other.provenance
