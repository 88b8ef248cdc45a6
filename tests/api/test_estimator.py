"""The classifier keeps scikit-learn's contract, on arrays as on graphs."""

import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import shiftproof as sp
from shiftproof.errors import ShiftproofError

SMALL = {"hidden": 8}


def graphs(count: int = 40) -> tuple[list[nx.Graph], np.ndarray]:
    """Rings and stars of different sizes."""
    made = [nx.cycle_graph(5 + i % 4) if i % 2 else nx.star_graph(4 + i % 4) for i in range(count)]
    return made, np.array(["ring" if i % 2 else "star" for i in range(count)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_check_of_scikit_learn_passes() -> None:
    settings = {"widths": (16,), "lr": 1e-2, "batch_size": 32}
    made = sp.ShiftproofClassifier("erm", epochs=30, device="cpu", settings=settings)
    results = check_estimator(made, on_fail=None)
    failed = {found["check_name"]: found["exception"] for found in results if found["status"] == "failed"}
    assert not failed
    assert sum(found["status"] == "passed" for found in results) > 45


def test_a_row_alone_gets_what_it_gets_among_others() -> None:
    x = np.random.default_rng(0).normal(size=(300, 7))
    made = sp.ShiftproofClassifier("erm", epochs=2, device="cpu", settings={"widths": (33, 17)}).fit(x, x[:, 0] > 0)
    alone = np.concatenate([made.predict_proba(x[i : i + 1]) for i in range(40)])
    assert np.abs(alone - made.predict_proba(x)[:40]).max() < 1e-7


def test_a_clone_has_the_same_parameters_and_nothing_learned() -> None:
    made = sp.ShiftproofClassifier("gala", epochs=3, settings={"hidden": 8})
    copy = clone(made)
    assert copy.get_params() == made.get_params()
    copy.set_params(method="erm", epochs=1)
    assert made.method == "gala"
    with pytest.raises(NotFittedError):
        copy.predict([nx.path_graph(3)])


def test_graphs_with_named_classes_are_told_apart_and_cross_validated() -> None:
    x, y = graphs()
    made = sp.ShiftproofClassifier("erm", epochs=60, settings={"hidden": 16, "lr": 1e-2}, validation=0.0)
    made.fit(x, y)
    assert list(made.classes_) == ["ring", "star"]
    assert made.predict_proba(x).shape == (40, 2)
    assert np.allclose(made.predict_proba(x).sum(1), 1)
    assert made.score(x, y) > 0.9
    assert cross_val_score(made.set_params(epochs=2), x, y, cv=2).shape == (2,)


@pytest.mark.parametrize("method", ["gala", "vrex"])
def test_environments_reach_the_method(method: str) -> None:
    x, y = graphs(24)
    made = sp.ShiftproofClassifier(method, epochs=1, settings=SMALL).fit(x, y, env=["lab a", "lab b"] * 12)
    assert made.run_.config["shape"]["num_envs"] == 2


def test_packed_graphs_and_smiles_go_through_cross_validation() -> None:
    x, y = graphs(20)
    from shiftproof.data.readers.networkx_graphs import from_networkx

    made = sp.ShiftproofClassifier("erm", epochs=1, settings=SMALL)
    assert len(cross_val_score(made, from_networkx(x), y, cv=2)) == 2
    smiles = ["CCO", "CCN", "CCC", "CCCl", "c1ccccc1", "CCF", "CO", "CN"] * 3
    assert len(cross_val_score(made, smiles, [0, 1] * 12, cv=2)) == 2


def test_a_pipeline_of_arrays_is_fitted_and_saved_without_pickles(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)) * 50
    y = (x[:, 0] > 0).astype(int)
    last = sp.ShiftproofClassifier("erm", epochs=20, settings={"widths": (8,), "lr": 1e-2})
    pipe = Pipeline([("scale", StandardScaler()), ("classify", last)]).fit(x, y)
    assert pipe.score(x, y) > 0.8
    fitted = pipe.named_steps["classify"]
    fitted.save(tmp_path / "kept")
    assert {file.suffix for file in (tmp_path / "kept").rglob("*") if file.is_file()} <= {".json", ".safetensors"}
    again = sp.ShiftproofClassifier.load(tmp_path / "kept")
    scaled = pipe.named_steps["scale"].transform(x)
    assert np.array_equal(again.predict_proba(scaled), fitted.predict_proba(scaled))
    assert again.get_params()["epochs"] == 20


def test_what_cannot_be_right_is_said() -> None:
    x, y = graphs(6)
    made = sp.ShiftproofClassifier("erm", epochs=1, settings=SMALL)
    with pytest.raises(ShiftproofError, match="one class"):
        made.fit(x, ["a"] * 6)
    with pytest.raises(ShiftproofError, match="6 samples and 5 labels"):
        made.fit(x, y[:5])
    with pytest.raises(ShiftproofError, match="'env' has 2 entries"):
        made.fit(x, y, env=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="NaN"):
            made.fit(np.array([[1.0], [np.nan]]), [0, 1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_check_of_scikit_learn_passes_for_the_regressor() -> None:
    settings = {"widths": (16,), "lr": 1e-2, "batch_size": 32}
    made = sp.ShiftproofRegressor("erm", epochs=30, device="cpu", settings=settings)
    results = check_estimator(made, on_fail=None)
    failed = {found["check_name"]: found["exception"] for found in results if found["status"] == "failed"}
    assert not failed
    assert sum(found["status"] == "passed" for found in results) > 40


def test_the_regressor_speaks_the_users_units_and_is_kept_without_pickles(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    y = 1000 + 50 * x[:, 0]
    settings = {"widths": (16,), "lr": 1e-2, "batch_size": 16}
    made = sp.ShiftproofRegressor("erm", epochs=40, device="cpu", settings=settings).fit(x, y)
    assert made.score(x, y) > 0.8
    made.save(tmp_path / "kept")
    assert np.array_equal(sp.ShiftproofRegressor.load(tmp_path / "kept").predict(x), made.predict(x))


def test_frames_keep_their_names_and_another_order_is_said() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["logp", "mass"])
    made = sp.ShiftproofClassifier("erm", epochs=1, settings={"widths": (4,)})
    made.fit(frame, pd.Series(frame["logp"] > 0))
    assert made.feature_names_in_.tolist() == ["logp", "mass"]
    with pytest.raises(ValueError, match="feature names should match"):
        made.predict(frame[["mass", "logp"]])


@pytest.mark.parametrize("column", ["list", "series", "frame", "array"])
def test_bad_smiles_are_an_error_or_left_out_with_their_reason(column: str) -> None:
    pytest.importorskip("rdkit")
    texts = ["CCO", "C1CC", "CCC", "CCN", "c1ccccc1", "CO"]
    x = {
        "list": texts,
        "series": pd.Series(texts, index=range(10, 16)),
        "frame": pd.DataFrame({"smiles": texts}),
        "array": np.array(texts, dtype=object).reshape(-1, 1),
    }[column]
    y = np.array([1, 0, 0, 1, 0, 1])
    with pytest.raises(ShiftproofError, match=r"row 1 \('C1CC'\): SMILES cannot be parsed; on_error='skip'"):
        sp.ShiftproofClassifier("erm", epochs=1, settings=SMALL).fit(x, y)
    made = sp.ShiftproofClassifier("erm", epochs=1, settings=SMALL, on_error="skip")
    with pytest.warns(UserWarning, match="1 of 6 rows are left out; row 1: SMILES cannot be parsed"):
        made.fit(x, y)
    assert made.rejected_ == {1: "SMILES cannot be parsed"}
    with pytest.warns(UserWarning, match="1 rows cannot be predicted"):
        found = made.predict(x)
    assert np.isnan(found).tolist() == [False, True, False, False, False, False]


def test_a_search_over_settings_routes_environments() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y, env = (x[:, 0] > 0).astype(int), np.arange(60) % 2
    with sklearn.config_context(enable_metadata_routing=True):
        made = sp.ShiftproofClassifier("vrex", epochs=1, device="cpu").set_fit_request(env=True)
        pipe = Pipeline([("scale", StandardScaler()), ("last", made)])
        grid = {"last__settings": [{"widths": (4,)}, {"widths": (8,)}]}
        search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(x, y, env=env)
    assert search.best_estimator_["last"].run_.config["shape"]["num_envs"] == 2
