"""Node graphs that come with a shift, and those whose reasons are known."""

import pytest

import shiftproof as sp
from shiftproof.data.readers.loading import load_samples
from shiftproof.errors import ShiftproofError


def loaded(spec: str) -> sp.Dataset:
    try:
        return load_samples(spec)
    except ShiftproofError as missing:
        pytest.skip(str(missing))


def sizes(data: sp.Dataset) -> tuple[int, ...]:
    return tuple(len(data[name]) for name in ("train", "id_val", "id_test", "val", "test"))


def test_webkb_has_the_sizes_that_good_states(real_data):
    assert sizes(loaded("good-webkb")) == (244, 61, 61, 125, 126)  # arXiv:2206.08452, table of the data sets
    assert loaded("good-webkb").env_names == ("cornell", "texas", "wisconsin")


@pytest.mark.parametrize(
    ("shift", "wanted"),
    [("covariate", (420, 70, 70, 70, 70)), ("concept", (140,) * 5), ("none", (420, 70, 70, 70, 70))],
)
def test_cbas_has_the_sizes_that_good_states(shift, wanted):
    data = loaded(f"good-cbas:shift={shift}")
    assert sizes(data) == wanted
    assert data.num_classes == 4
    colours = [set(map(tuple, data[name].x[data[name].nodes].tolist())) for name in ("train", "test")]
    if shift == "covariate":
        assert not colours[0] & colours[1]


def test_houses_of_cbas_are_marked():
    data = loaded("good-cbas")
    assert int(data.train.edge_truth.sum()) == 2 * 6 * 80


@pytest.mark.parametrize("name", ["ba-shapes", "tree-cycles", "tree-grid", "ba-community"])
def test_the_reasons_of_generated_nodes_are_known(name, real_data):
    data = loaded(name)
    assert 0 < int(data.train.edge_truth.sum()) <= data.train.edge_index.shape[1]


def test_reasons_of_nodes_are_held_against_the_truth(real_data):
    data = loaded("tree-cycles")
    run = sp.fit("gsat", data, epochs=3, hidden=8, network="gin")
    assert {"edge_auc", "edge_precision"} <= run.metrics["test"].keys()
    found = sp.explain(run, data.test[:3], by="gradient")
    assert found.batch.num_graphs == 3
    assert found.batch.edge_truth is not None
