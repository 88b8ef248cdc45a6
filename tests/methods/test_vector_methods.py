"""Methods on one vector a sample: they say what scikit-learn and LightGBM say, without either once they are fitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data import Dataset, DomainSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods.tanimoto import tanimoto
from shiftproof.methods.tanimoto_gp import classified, regressed
from shiftproof.methods.trees import float_below
from tests.methods.labelled import motif_data

ON_TABLES = ("forest", "boosting", "linear")
ON_GRAPHS = (*ON_TABLES, "tanimoto-svm", "tanimoto-gp")
FEW = {"forest": {"trees": 20}, "boosting": {"trees": 10, "least_in_a_leaf": 3}}

SUGARS = ["OCC(O)C", "CCC(O)CO", "OCCCO", "CC(O)CCO", "OCC(O)CC", "CCCC(O)CO", "OCCO", "CC(O)C(O)C"]
FATS = ["CCCCCC", "CCCC(C)C", "CCCCCCC", "CC(C)CCC", "CCCCC(C)C", "CCCCCCCC", "CC(C)C(C)C", "CCCCCCC(C)C"]


def table_of(task: str, samples: int = 120, seed: int = 0) -> Dataset:
    """Rows of five numbers: the first decides the class, the sum of two the number; a third of the labels are gaps."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 5, generator=g)
    y = {
        "binary": (x[:, 0] > 0).float(),
        "multiclass": (x[:, 0] > 0.5).long() + (x[:, 0] > -0.5).long(),
        "regression": x[:, 0] + 2 * x[:, 1],
        "multilabel": torch.stack([x[:, 0] > 0, x[:, 1] > 0.3], 1).float(),
    }[task]
    if task == "multilabel":
        y[torch.rand(y.shape, generator=g) < 0.3] = torch.nan
    parts = dict(zip(("train", "val", "test"), torch.arange(samples).split([samples - 40, 20, 20]), strict=True))
    metric = {"regression": "mse", "multilabel": "roc_auc"}.get(task, "accuracy")
    classes = {"multiclass": 3, "multilabel": 2}.get(task, 2)
    splits = {name: DomainSet(x[rows], y[rows]) for name, rows in parts.items()}
    return Dataset(splits, name="rows", task=task, metric=metric, num_classes=classes)  # type: ignore[arg-type]


@pytest.fixture
def alcohols(tmp_path: Path) -> Path:
    """A table of molecules: those with a hydroxyl group are active."""
    pytest.importorskip("rdkit")
    rows = [(s, 1) for s in SUGARS] + [(s, 0) for s in FATS]
    path = tmp_path / "alcohols.csv"
    path.write_text("smiles,active\n" + "".join(f"{s},{y}\n" for s, y in rows))
    return path


@pytest.mark.parametrize("method", ON_TABLES)
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "multilabel"])
def test_rows_of_a_table_are_told_apart_whatever_the_label_is(task: str, method: str) -> None:
    run = sp.fit(method, table_of(task), **FEW.get(method, {}))
    score = run.metrics["test"]["pearson" if task == "regression" else "accuracy"]
    assert score > (0.6 if task == "multiclass" else 0.7)


def test_a_forest_says_what_scikit_learn_says() -> None:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    for task, kind in (("binary", RandomForestClassifier), ("regression", RandomForestRegressor)):
        data = table_of(task)
        run = sp.fit("forest", data, trees=15, seed=3)
        theirs = kind(15, random_state=3).fit(data.train.x.numpy(), data.train.y.numpy())
        ours = run.logits(data.test).double().numpy()
        if task == "regression":
            np.testing.assert_allclose(ours, theirs.predict(data.test.x.numpy()), rtol=1e-5)
        else:
            share = theirs.predict_proba(data.test.x.numpy())[:, 1]
            np.testing.assert_allclose(1 / (1 + np.exp(-ours)), (15 * share + 0.5) / 16, rtol=1e-5)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_by_scikit_learn_says_what_scikit_learn_says(task: str) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    data = table_of(task)
    run = sp.fit("boosting", data, trees=10, least_in_a_leaf=3, engine="scikit-learn")
    kind = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    theirs = kind(max_iter=10, min_samples_leaf=3, early_stopping=False).fit(data.train.x.numpy(), data.train.y.numpy())
    rows = data.test.x.numpy()
    raw = theirs.predict(rows) if task == "regression" else theirs.decision_function(rows)  # type: ignore[union-attr]
    np.testing.assert_allclose(run.logits(data.test).numpy(), raw, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_by_lightgbm_says_what_lightgbm_says(task: str) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    data = table_of(task)
    run = sp.fit("boosting", data, trees=10, least_in_a_leaf=3, engine="lightgbm")
    kind = {"regression": "regression", "binary": "binary", "multiclass": "multiclass"}[task]
    settings = {"objective": kind, "min_data_in_leaf": 3, "verbosity": -1, "num_threads": 1, "deterministic": True}
    settings |= {"num_class": 3} if task == "multiclass" else {}
    settings |= {"seed": 0, "force_row_wise": True}
    table = lightgbm.Dataset(data.train.x.numpy(), data.train.y.numpy())
    theirs = lightgbm.train(settings, table, num_boost_round=10).predict(data.test.x.numpy(), raw_score=True)
    np.testing.assert_allclose(run.logits(data.test).numpy(), theirs, rtol=1e-4, atol=1e-5)


def test_a_threshold_asks_the_same_of_32_bit_numbers() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000).astype(np.float32)
    thresholds = np.concatenate([x.astype(np.float64), (x[1:].astype(float) + x[:-1]) / 2, x * (1 + 1e-12)])
    for value in (x, np.float32(0.1) * x):
        asked = value[:, None] <= thresholds
        assert (asked == (value[:, None] <= float_below(thresholds))).all()


@pytest.mark.parametrize("method", ON_GRAPHS)
def test_molecules_loaded_without_fingerprints_get_them(method: str, alcohols: Path, tmp_path: Path) -> None:
    data = sp.load(alcohols, label="active", split="random")
    run = sp.fit(method, data, out=tmp_path / "run", **FEW.get(method, {}))
    wanted = ["ecfp", "descriptors"] if method == "boosting" else ["ecfp"]
    assert run.config["vectors"]["blocks"] == wanted
    assert run.metrics["train"]["accuracy"] == 1
    new = tmp_path / "new.csv"
    new.write_text("smiles\nOCC(O)CCC\nCCCCCCCCC\n")
    alcohol = sp.Run.load(tmp_path / "run").predict(new).probabilities[:, 1]
    assert alcohol[0] > alcohol[1]


def test_the_blocks_a_table_was_loaded_with_are_looked_at(alcohols: Path) -> None:
    data = sp.load(alcohols, label="active", split="random", features="graph+maccs")
    assert sp.fit("forest", data, trees=5).config["vectors"]["blocks"] == ["maccs"]
    both = sp.fit("forest", data, trees=5, vectors="fcfp").config
    assert both["vectors"]["blocks"] == ["maccs", "fcfp"]
    assert sp.fit("forest", data, trees=5).method.feature.max() < 167  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ON_GRAPHS)
def test_graphs_that_are_no_molecules_are_told_apart_by_their_neighbourhoods(method: str) -> None:
    run = sp.fit(method, motif_data(240), **FEW.get(method, {}))
    assert run.metrics["val"]["accuracy"] > 0.6  # of the same sizes; the test graphs are twice as large


def test_a_saved_forest_needs_no_scikit_learn_and_no_pickle(tmp_path: Path) -> None:
    data = motif_data()
    run = sp.fit("forest", data, trees=10, out=tmp_path / "run")
    sp.data.save_dataset(data, tmp_path / "data")
    asked = (
        "import sys\nsys.modules['sklearn.ensemble'] = None\nimport shiftproof as sp\n"
        f"run = sp.Run.load({str(tmp_path / 'run')!r})\n"
        f"print(run.predict(sp.load({str(tmp_path / 'data')!r}).test).logits.sum().item())\n"
    )
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert float(said) == pytest.approx(float(run.logits(data.test).sum()))


def test_likeness_of_counts_is_the_smaller_over_the_larger() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 4, (count, 12)) * rng.integers(0, 2, (count, 12)) for count in (6, 5))
    slow = np.minimum(a[:, None], b[None]).sum(-1) / np.maximum(a[:, None], b[None]).sum(-1)
    fast = tanimoto(torch.tensor(a), torch.tensor(b))
    np.testing.assert_allclose(fast.numpy(), slow, rtol=1e-6)
    assert torch.equal(tanimoto(torch.zeros(1, 3), torch.zeros(1, 3)), torch.ones(1, 1))


def test_the_weights_of_a_gaussian_process_of_numbers_solve_its_equation() -> None:

    rng = np.random.default_rng(1)
    x = torch.tensor(rng.integers(0, 3, (40, 10)))
    kernel = tanimoto(x, x).double().numpy()
    y = kernel @ rng.standard_normal(40) + 0.1 * rng.standard_normal(40)
    weight, mean = regressed(kernel, y)
    noise = float(np.median(((y - mean) - kernel @ weight) / weight))  # (K + noise) weight = y - mean
    np.testing.assert_allclose((kernel + noise * np.eye(40)) @ weight, y - mean, atol=1e-6)


def test_the_mode_of_a_gaussian_process_of_classes_has_no_gradient() -> None:
    """At the mode the weights are what the labels exceed the probabilities by (Rasmussen and Williams, 3.17)."""
    rng = np.random.default_rng(2)
    x = torch.tensor(rng.integers(0, 3, (50, 10)))
    kernel = tanimoto(x, x).double().numpy()
    y = (kernel @ rng.standard_normal(50) > 0).astype(float)
    weight, bias = classified(kernel, y)
    f = kernel @ weight
    gradient = y - 1 / (1 + np.exp(-(f + bias)))
    scale = float(weight @ gradient / (gradient @ gradient))
    np.testing.assert_allclose(weight, scale * gradient, atol=1e-3 * np.abs(weight).max())


def test_a_column_without_two_labels_gets_its_rate(alcohols: Path) -> None:
    data = table_of("multilabel")
    y = data.train.y.clone()
    y[:, 1] = torch.where(y[:, 1].isnan(), y[:, 1], torch.ones(()))
    data = data.with_splits(train=DomainSet(data.train.x, y))
    for method in ON_TABLES:
        found = sp.fit(method, data, **FEW.get(method, {})).logits(data.test)
        assert bool((found[:, 1] > 0).all()), method
        assert len(found[:, 1].unique()) == 1


def test_what_cannot_be_looked_at_is_said(alcohols: Path) -> None:
    with pytest.raises(ShiftproofError, match="rows of plain tensors are vectors already"):
        sp.fit("forest", table_of("binary"), vectors="ecfp")
    data = sp.load(alcohols, label="active", split="random")
    with pytest.raises(ShiftproofError, match="features of molecules 'ecpf'"):
        sp.fit("forest", data, vectors="ecpf")
