"""Whatever somebody has in memory is data: load, fit, predict, explain and diagnose take it as it is."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import from_smiles

import shiftproof as sp
from tests.first_hour.assays import assays

SMALL = {"epochs": 1, "hidden": 8}


def molecules():
    from rdkit import Chem

    return [molecule for text in assays()["smiles"] if (molecule := Chem.MolFromSmiles(text)) is not None]


def frames():
    """The table in every form that a frame comes in here."""
    table = assays()
    found = {"pandas": table, "records": table.to_dict("records"), "columns": table.to_dict("list")}
    try:
        import polars

        found |= {"polars": polars.from_pandas(table), "lazy": polars.from_pandas(table).lazy()}
    except ImportError:
        pass
    try:
        import pyarrow

        found["pyarrow"] = pyarrow.Table.from_pandas(table)
    except ImportError:
        pass
    try:
        import datasets

        found["hugging face"] = datasets.Dataset.from_pandas(table)
    except ImportError:
        pass
    return found


@pytest.mark.parametrize("kind", frames())
def test_a_frame_is_read_like_the_file_it_would_be_written_to(kind, tmp_path):
    pytest.importorskip("rdkit")
    assays().to_csv(tmp_path / "assays.csv", index=False)
    options = {"smiles": "smiles", "label": "active", "split": "scaffold"}
    file, frame = sp.load(tmp_path / "assays.csv", **options), sp.load(frames()[kind], **options)
    assert frame.task == file.task == "binary"
    for name in file.splits:
        assert torch.equal(frame[name].index, file[name].index)
        assert torch.equal(frame[name].x, file[name].x)


def test_a_series_a_list_of_smiles_and_molecules_with_labels_beside_them():
    pytest.importorskip("rdkit")
    table = assays()
    for smiles in (table["smiles"], table["smiles"].tolist(), table[["smiles"]], table["smiles"].to_numpy()):
        data = sp.load(smiles, y=table["active"], split="random")
        assert sum(map(len, data.splits.values())) == 54  # six of the sixty are no molecules
    data = sp.load(
        table["smiles"].tolist(), y=table["active"].tolist(), env=table["site (lab)"].tolist(), split="random"
    )
    assert set(data.env_names) == {"north", "south", "west"}
    found = molecules()
    data = sp.load(found, y=np.arange(len(found)) % 2, split="random")
    assert len(data.train) + len(data.val) + len(data.test) == 54
    with pytest.raises(sp.ShiftproofError, match="there are 60 samples and 'y' has 3 entries"):
        sp.load(table["smiles"].tolist(), y=[0, 1, 0])


def test_excel_and_sdf_files_are_tables(tmp_path):
    pytest.importorskip("openpyxl")
    chem = pytest.importorskip("rdkit.Chem")
    assays().to_excel(tmp_path / "assays.xlsx", index=False)
    data = sp.load(tmp_path / "assays.xlsx", label="active", split="random")
    assert sum(map(len, data.splits.values())) == 54
    writer = chem.SDWriter(str(tmp_path / "assays.sdf"))
    for number, molecule in enumerate(molecules()):
        molecule.SetProp("active", str(number % 2))
        writer.write(molecule)
    writer.close()
    data = sp.load(tmp_path / "assays.sdf", label="active", split="random")
    assert sum(map(len, data.splits.values())) == 54
    run = sp.fit("erm", data, **SMALL)
    assert len(run.predict(str(tmp_path / "assays.sdf"))) == 54
    (tmp_path / "broken.xlsx").write_bytes(b"PK\3\4 no sheet")
    with pytest.raises(sp.ShiftproofError, match=r"broken.xlsx is not a whole Excel file"):
        sp.load(tmp_path / "broken.xlsx", label="active")
    (tmp_path / "broken.sdf").write_text("nothing of the kind\n")
    with pytest.raises(sp.ShiftproofError, match=r"broken.sdf holds no molecule"):
        sp.load(tmp_path / "broken.sdf", label="active")
    (tmp_path / "latin.sdf").write_bytes(b"s\xe4ure" + (tmp_path / "assays.sdf").read_bytes())
    with pytest.raises(sp.ShiftproofError, match=r"latin.sdf is not UTF-8 text \(there is a byte 0xe4\)"):
        sp.load(tmp_path / "latin.sdf", label="active")


def test_frames_in_splits_keep_their_splits():
    pytest.importorskip("rdkit")
    table = assays()
    data = sp.load({"train": table[:40], "val": table[40:50], "test": table[50:]}, label="active")
    assert max(data.train.index.tolist()) < 40
    assert min(data.test.index.tolist()) == 50


def rows():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int), np.arange(90) % 3


def given_rows():
    x, y, env = rows()
    return {
        "array": (x, {"y": y, "env": env}),
        "tensor": (torch.from_numpy(x), {"y": torch.from_numpy(y), "env": torch.from_numpy(env)}),
        "frame": (pd.DataFrame(x, columns=list("abcd")), {"y": pd.Series(y), "env": pd.Series(env)}),
        "tuple": ((x, y, env), {}),
        "dict": ({"x": x, "y": y, "env": env}, {}),
        "torch data set": (torch.utils.data.TensorDataset(*map(torch.from_numpy, (x, y, env))), {}),
        "list of pairs": ([(torch.from_numpy(row), int(label)) for row, label in zip(x, y, strict=True)], {"env": env}),
        "splits": ({"train": (x[:60], y[:60], env[:60]), "test": (x[60:], y[60:], env[60:])}, {}),
        "loaders": (
            {name: torch.utils.data.TensorDataset(*map(torch.from_numpy, (x, y, env))) for name in ("train", "test")},
            {},
        ),
    }


@pytest.mark.parametrize("kind", given_rows())
def test_rows_of_numbers_are_fitted_and_asked_about(kind):
    given, options = given_rows()[kind]
    run = sp.fit("vrex", given, **options, epochs=1, widths=(8,))
    assert run.method.shape.num_envs in (2, 3)
    asked = pd.DataFrame(rows()[0], columns=list("abcd")) if kind == "frame" else rows()[0]
    assert len(run.predict(asked)) == 90


def test_labels_may_be_words_and_predictions_speak_them():
    x, y, _ = rows()
    run = sp.fit("erm", x, y=np.where(y == 1, "high", "low"), epochs=30, widths=(8,), lr=1e-2)
    predictions = run.predict(x)
    assert set(predictions["prediction"]) == {"high", "low"}
    assert (np.array(predictions["prediction"]) == np.where(y == 1, "high", "low")).mean() > 0.8
    assert run.predict((x, np.where(y == 1, "high", "low")))["label"][:2] == ["high" if y[k] else "low" for k in (0, 1)]


def test_the_task_may_be_said():
    x, y, _ = rows()
    assert sp.fit("erm", x, y=y, task="regression", epochs=1, widths=(8,)).method.shape.task == "regression"
    with pytest.raises(sp.ShiftproofError, match="'task' says how data are read, and 'arrays' is read already"):
        sp.fit("erm", sp.load(x, y=y), task="regression")


def pyg_graphs(count=40):
    graphs = [from_smiles(text) for text in assays()["smiles"][:count]]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])
    return graphs


def test_whole_numbers_of_nodes_and_edges_are_categories_and_new_graphs_are_coded_alike(tmp_path):
    pytest.importorskip("rdkit")
    graphs = pyg_graphs()
    data = sp.load(graphs)
    assert data.train.x.dtype == data.train.edge_attr.dtype == torch.float32
    assert "whole numbers: 9 columns became" in " ".join(data.notes)
    run = sp.fit("erm", graphs, **SMALL, out=tmp_path / "run")
    again = sp.Run.load(tmp_path / "run")
    assert again.predict(graphs[:5])["probability_1"] == pytest.approx(
        again.predict(graphs)["probability_1"][:5], abs=1e-5
    )
    strange = graphs[0].clone()
    strange.x[:, 0] = 117  # an element that training does not show
    assert len(run.predict([strange])) == 1
    assert len(run.predict(graphs[0])) == 1
    other = sp.load([graph for graph in graphs if graph.num_nodes and int(graph.x[:, 0].max()) <= 7])
    with pytest.raises(sp.ShiftproofError, match="coded by its own values"):
        run.predict(other)


def test_a_network_of_ones_own_gets_the_numbers_as_they_are():
    pytest.importorskip("rdkit")
    kept = sp.load(pyg_graphs(), integers="keep")
    assert not kept.train.x.is_floating_point()
    assert sp.fit("erm", kept, **SMALL).metrics["test"]["samples"] == 4


@pytest.mark.parametrize("conv", ["gcn", "gin", "pna"])
def test_graphs_with_loops_lonely_nodes_and_without_edges_are_trained_on_and_explained(conv):
    torch.manual_seed(0)
    graphs = []
    for number in range(40):
        edges = {
            0: torch.tensor([[0, 1, 1], [1, 0, 1]]),  # a loop, and lonely nodes
            1: torch.zeros(2, 0, dtype=torch.long),
        }.get(number % 2)
        graphs.append(Data(x=torch.randn(4 + number % 3, 3), edge_index=edges, y=torch.tensor([number % 2])))
    run = sp.fit("erm", graphs, epochs=1, hidden=8, conv=conv)
    assert not torch.isnan(run.logits(sp.load(graphs).test)).any()
    found = sp.explain(run, graphs[:4], by="occlusion")
    assert found.edge_scores.shape == (6,)


def test_double_precision_and_bools_are_no_dtype_traceback():
    graphs = [Data(x=torch.rand(3, 2).double(), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([k % 2]))
              for k in range(30)]  # fmt: skip
    assert sp.fit("erm", graphs, **SMALL).predict(graphs[0]).usable.all()
    for graph in graphs:
        graph.x = graph.x > 0.5
    assert sp.fit("erm", graphs, **SMALL).predict(graphs[:2]).usable.all()


def heterogeneous(widths=(2, 2)):
    graph = HeteroData()
    graph["atom"].x, graph["ring"].x = torch.rand(3, widths[0]), torch.rand(2, widths[1])
    graph["atom", "in", "ring"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    graph.y = torch.tensor([1])
    return graph


def test_heterogeneous_graphs_are_made_one_graph_or_refused_with_a_sentence():
    data = sp.load([heterogeneous() for _ in range(20)])
    assert data.train.node_columns["node_type"].unique().tolist() == [0, 1]
    with pytest.raises(sp.ShiftproofError, match=r"different features \(atom \[2\], ring \[5\]\)"):
        sp.load([heterogeneous((2, 5)) for _ in range(20)])
    with pytest.raises(sp.ShiftproofError, match="give its to_homogeneous"):
        sp.load(heterogeneous())


def test_one_graph_is_a_node_graph_where_its_nodes_are_classified():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = sp.load(Data(x=torch.rand(3, 2), edge_index=edges, y=torch.tensor([0, 1, 0])))
    assert isinstance(graph, sp.NodeGraph)
    club = nx.karate_club_graph()
    for node in club:
        club.nodes[node]["label"] = club.nodes[node].pop("club")
    assert sp.load(club, features="degree").num_classes == 2
    with pytest.raises(sp.ShiftproofError, match="graphs that are samples come as a list"):
        sp.load(Data(x=torch.rand(3, 2), edge_index=edges, y=torch.tensor([1])))


def test_networkx_graphs_take_labels_beside_them_and_a_split_by_size():
    graphs = [nx.cycle_graph(4 + number % 9) for number in range(40)]
    data = sp.load(graphs, y=np.arange(40) % 2, split="size")
    assert int(data.test.sizes.min()) >= int(data.train.sizes.max())
    assert data.test.index.max() < 40


class OGBLike(list):
    """A data set with published splits, as the package ogb hands it out."""

    def get_idx_split(self):
        return {"train": torch.arange(20), "valid": torch.arange(20, 30), "test": torch.arange(30, 40)}


class WILDSLike:
    """A data set with subsets by name, as the package wilds hands it out."""

    def __init__(self):
        self.split_dict = {"train": 0, "val": 1, "test": 2}

    def get_subset(self, part):
        x, y, env = rows()
        chosen = slice(*{"train": (0, 60), "val": (60, 75), "test": (75, 90)}[part])
        metadata = torch.from_numpy(np.stack([env, y], 1))[chosen]
        return torch.utils.data.TensorDataset(torch.from_numpy(x)[chosen], torch.from_numpy(y)[chosen], metadata)


def test_data_sets_of_ogb_and_wilds_come_with_their_splits():
    pytest.importorskip("rdkit")
    data = sp.load(OGBLike(pyg_graphs()))
    assert [len(data[name]) for name in ("train", "val", "test")] == [20, 10, 10]
    data = sp.load(WILDSLike())
    assert [len(data[name]) for name in ("train", "val", "test")] == [60, 15, 15]
    assert data.train.num_envs == 3


def test_explain_and_diagnose_take_smiles_and_frames():
    pytest.importorskip("rdkit")
    run = sp.fit("erm", assays(), label="active", split="random", **SMALL)
    with pytest.warns(UserWarning, match="1 of 2 rows are not explained; row 2: SMILES"):
        found = sp.explain(run, ["CCO", "C1CC"], by="occlusion")
    assert len(found) == 1
    assert len(sp.explain(run, assays()[30:33], by="occlusion")) == 3
    found = sp.diagnose(sp.load(assays(), label="active", split="random"), assistant=False)
    assert found.samples["train"] == 43


@pytest.mark.parametrize(
    "nothing", [None, 5, 1.5, object(), len, b"bytes", {}, [], (), {1: 2}, [None], set(), {"a": 1}]
)
def test_what_is_no_data_is_one_sentence(nothing):
    with pytest.raises(sp.ShiftproofError):
        sp.load(nothing)


@pytest.mark.parametrize("mark", ["memory", "search"])
def test_the_page_about_ones_own_data_runs(mark):
    page = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()
    words = re.search(rf"<!-- tested: {mark} -->\n```python\n(.*?)```", page, flags=re.S)
    exec(words.group(1), {})


@pytest.mark.parametrize("form", ["pyg", "networkx", "rows"])
def test_what_cannot_be_used_of_a_list_keeps_its_place_with_the_reason(form: str) -> None:
    """One row for each given, in that order; the good ones as if the bad ones were not there."""
    if form == "rows":
        data = sp.load("two-bit", per_env=60, seed=0)
        given = data.test.x[:7].clone()
        bad = given.clone()
        bad[2, 0], bad[5, 1] = float("nan"), float("inf")
    else:
        data = sp.load("spmotif-mixed", train_per_class=6, val_per_class=3, test_per_class=3, seed=0)
        given = data.test.to_pyg()[:7]
        bad = [graph.clone() for graph in given]
        bad[2].x[1, 0] = float("nan")
        bad[5].edge_index[0, 0] = 10_000
    run = sp.fit("erm", data, epochs=1, seed=0, device="cpu")
    if form == "networkx":
        from torch_geometric.utils import to_networkx

        attributes = [name for name in ("x",) if given[0][name] is not None]
        bad[5] = given[5].clone()
        bad[5].x = bad[5].x * float("inf")
        given, bad = ([to_networkx(g, node_attrs=attributes) for g in graphs] for graphs in (given, bad))
    frame, whole = run.predict(bad).to_frame(), run.predict(given).to_frame()
    assert len(frame) == 7
    problems = frame["problem"].fillna("")
    assert [row for row in range(7) if problems.iloc[row]] == [2, 5]
    assert "NaN" in problems.iloc[2]
    good = [0, 1, 3, 4, 6]
    assert frame["prediction"].iloc[good].tolist() == whole["prediction"].iloc[good].tolist()
