"""The classifier keeps scikit-learn's contract, on arrays as on graphs."""

import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
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
