"""Reasons: scores of edges, held against the truth, written and drawn."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest
import torch

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.pictures.drawings import _undirected
from shiftproof.methods import Explanation
from shiftproof.training.evaluation import explanation_measures
from tests.explanations.own_models import OwnGIN, random_graphs

SMALL = "spmotif-struc:train_per_class=8,val_per_class=3,test_per_class=4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("runs") / "ciga"
    sp.fit("ciga-v2", SMALL, epochs=1, out=path)
    return str(path)


def test_scores_lie_between_zero_and_one_and_do_not_depend_on_the_batch(folder) -> None:
    graphs = sp.load(SMALL).test
    together = sp.explain(folder, graphs)
    assert together.edge_scores.shape == (graphs.num_edges,)
    assert float(together.edge_scores.min()) >= 0
    assert float(together.edge_scores.max()) <= 1
    alone = torch.cat([sp.explain(folder, graphs[i]).edge_scores for i in range(len(graphs))])
    torch.testing.assert_close(alone, together.edge_scores, atol=1e-5, rtol=0)


def test_the_room_stays_callable_after_it_was_imported(folder) -> None:
    import shiftproof.explanations

    assert isinstance(sp.explain(folder, sp.load(SMALL).test[:2]), Explanation)
    assert shiftproof.explanations.draw is not None


def test_the_command_writes_scores_measures_and_a_picture(folder, tmp_path) -> None:
    command = [sys.executable, "-m", "shiftproof.cli", "explain", folder, SMALL, "--out", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    graphs = sp.load(SMALL).test
    rows = list(csv.DictReader((tmp_path / "edges.csv").open()))
    assert len(rows) == graphs.num_edges
    assert sum(int(row["truth"]) for row in rows) == int(graphs.edge_truth.sum())
    assert 0 <= said["edge_auc"] <= 1
    assert (tmp_path / "explanations.png").read_bytes().startswith(b"\x89PNG")


def test_perfect_scores_are_perfect_and_reversed_ones_are_not() -> None:
    graphs = sp.load(SMALL).test

    class Knows:
        def __init__(self, sign: float) -> None:
            self.sign = sign

        def explain(self, batch) -> Explanation:
            return Explanation(batch, edge_scores=0.5 + self.sign * (batch.edge_truth.float() - 0.5))

    known = explanation_measures(Knows(1.0), graphs)
    assert (known["edge_auc"], known["edge_precision"]) == (1.0, 1.0)
    assert known["node_auc"] > 0.9  # a node beside the motif touches one of its nodes, not its edges
    assert explanation_measures(Knows(-1.0), graphs)["edge_auc"] == 0.0


def test_both_directions_of_an_edge_are_drawn_as_one() -> None:
    ends = torch.tensor([[0, 1, 1], [1, 0, 2]]).numpy()
    pairs, values = _undirected(ends, torch.tensor([0.2, 0.6, 0.8]).numpy())
    assert pairs.tolist() == [[0, 1], [1, 2]]
    assert values.tolist() == pytest.approx([0.0, 1.0])


def test_a_method_without_reasons_is_explained_from_outside_or_says_so(tmp_path) -> None:
    run = sp.fit("erm", SMALL, epochs=1)
    graphs = sp.load(SMALL).test[:4]
    found = sp.explain(run, graphs)
    assert torch.equal(found.edge_scores, sp.explain(run, graphs, by="gnnexplainer").edge_scores)
    with pytest.raises(ShiftproofError, match="'erm' gives no reasons of its own"):
        sp.explain(run, graphs, by="own")
    with pytest.raises(ShiftproofError, match="unknown explainer 'gnnexplaner'; did you mean 'gnnexplainer'"):
        sp.explain(run, graphs, by="gnnexplaner")
    with pytest.raises(ShiftproofError, match="unknown option 'step' of explainer 'gnnexplainer'"):
        sp.explain(run, graphs, by="gnnexplainer", step=3)


def test_graphs_of_another_kind_and_wrong_files_are_one_sentence(folder, tmp_path) -> None:
    with pytest.raises(ShiftproofError, match="trained on 4 node features"):
        sp.explain(folder, sp.load("ba-2motifs", graphs=20).test)
    with pytest.raises(ShiftproofError, match="plain tensors"):
        sp.explain(folder, "two-bit:per_env=50")
    with pytest.raises(ShiftproofError, match="'cora-like:nodes=100' is one graph whose nodes are classified, and"):
        sp.explain(folder, "cora-like:nodes=100")
    with pytest.raises(ShiftproofError, match=r"must end in \.png, \.svg or \.pdf"):
        sp.explain(folder, sp.load(SMALL).test[:1]).draw(tmp_path / "why.txt")


def test_what_cannot_be_written_leaves_nothing_behind(folder, tmp_path) -> None:
    many = sp.load(SMALL.replace("test_per_class=4", "test_per_class=30")).test
    file = tmp_path / "file"
    file.write_text("")
    for out, graphs, said in (
        (tmp_path / "many", many, "from 1 to 60 graphs, not 99"),
        (tmp_path / "none", many[:0], "no graph to explain"),
        (file, many[:2], "written to a folder"),
        (file / "below", many[:2], "written to a folder"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            sp.explanations.write_explanations(folder, graphs, out, graphs=99)
    assert list(tmp_path.iterdir()) == [file]


def test_a_table_that_cannot_be_written_stops_the_picture_too(folder, tmp_path) -> None:
    (tmp_path / "nodes.csv").mkdir()
    with pytest.raises(ShiftproofError, match=r"nodes\.csv' cannot be written: it is a folder"):
        sp.explanations.write_explanations(folder, sp.load(SMALL).test, tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["nodes.csv"]


@pytest.mark.parametrize("name", ["by", "data", "model", "split", "task"])
def test_an_argument_of_its_own_is_no_option_of_an_explainer(folder, tmp_path, name, monkeypatch, capsys) -> None:
    from shiftproof.cli import main

    command = ["shiftproof", "explain", folder, SMALL, "--out", str(tmp_path / "why"), "--set", f"{name}=own"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"'{name}' is no option of an explainer" in capsys.readouterr().err
    assert not (tmp_path / "why").exists()


def test_the_command_says_which_molecules_it_left_out_and_that_one_has_no_interval(
    tmp_path, monkeypatch, capsys
) -> None:
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    from shiftproof.cli import main

    lines = [f"{'C' * n}{end},{label}" for n in range(2, 10) for end, label in (("O", 1), ("Cl", 0))]
    (tmp_path / "known.csv").write_text("\n".join(["smiles,active", *lines]))
    (tmp_path / "new.csv").write_text("smiles\nCCO\nnonsense(\n")
    sp.fit("gsat", f"{tmp_path}/known.csv:smiles=smiles,label=active,split=random", epochs=1, out=tmp_path / "run")
    out = tmp_path / "why"
    monkeypatch.setattr(
        sys, "argv", ["shiftproof", "explain", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--out", str(out)]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr()
    assert "note: 1 row cannot be used" in said.err
    assert "nonsense(" in (out / "rejected.csv").read_text()
    assert "of one graph and without an interval" in said.out


def test_the_task_of_a_model_of_ones_own_reaches_its_measures(tmp_path) -> None:
    from shiftproof.explanations import fidelity_plus

    torch.manual_seed(0)
    model, graphs = OwnGIN(), random_graphs()
    written = sp.explanations.write_explanations(model, graphs, tmp_path, by="gradient", task="regression")
    found = sp.explain(model, graphs, by="gradient", task="regression")
    expected = fidelity_plus(model, found, task="regression").value
    assert written["measures"]["fidelity_plus"]["value"] == pytest.approx(expected)
    assert expected != pytest.approx(fidelity_plus(model, found).value)


def test_samples_that_are_no_graphs_are_named_as_such(folder) -> None:
    with pytest.raises(ShiftproofError, match="reasons are given for graphs"):
        sp.explain(folder, sp.load("two-bit:per_env=50").test)
    tensors = sp.fit("erm", "two-bit:per_env=50", epochs=1)
    with pytest.raises(ShiftproofError, match="this run was trained on plain tensors"):
        sp.explain(tensors, sp.load(SMALL).test)
    assert len(sp.explain(folder, sp.load(SMALL).test.to_pyg()[0])) == 1


@pytest.mark.parametrize(
    ("by", "options", "said"),
    [
        ("pgexplainer", {"epochs": 1, "lr": -1.0}, "'lr' of explainer 'pgexplainer' is a number above 0, not -1.0"),
        (
            "graphmask",
            {"epochs": 3, "layerwise": True, "lr": 0.0},
            "'lr' of explainer 'graphmask' is a number above 0",
        ),
        ("gnnexplainer", {"lr": float("nan")}, "'lr' of explainer 'gnnexplainer' is a number above 0, not nan"),
        ("occlusion", {"most_edges": 0}, "'most_edges' of explainer 'occlusion' is a whole number from 1"),
    ],
)
def test_settings_of_explainers_that_cannot_be_right_are_one_sentence(by, options, said) -> None:
    data = sp.load(SMALL)
    with pytest.raises(ShiftproofError, match=said):
        sp.explain(sp.fit("erm", data, epochs=1), data.test[:2], by=by, **options)


def test_explaining_our_own_graphs_does_not_load_pyg(folder) -> None:
    code = (
        f"import sys, shiftproof as sp; sp.explain({folder!r}, sp.load('{SMALL}').test); "
        "print('torch_geometric' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["False"]), done.stderr
