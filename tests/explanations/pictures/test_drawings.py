"""Pictures and tables: molecules are molecules, digits are digits, files hold what was scored."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest
import torch

import shiftproof as sp
from shiftproof.data import molecule_graphs
from shiftproof.data.readers.chemistry import SYMBOLS
from shiftproof.errors import ShiftproofError
from shiftproof.explanations import draw, write_explanations
from shiftproof.explanations.pictures.drawings import title_of
from shiftproof.explanations.pictures.superpixel_drawings import is_superpixels
from shiftproof.explanations.writing import chosen_graphs
from shiftproof.methods import Explanation
from tests.explanations.own_models import OwnGCN, random_graphs

SMILES = ["CCO", "c1ccc(cc1)C(=O)NC", "C[N+](C)(C)CC(=O)[O-]", "c1cc[nH]c1"]


def molecules() -> Explanation:
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    batch = molecule_graphs(SMILES).whole()
    scores = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0))
    return Explanation(batch.replace(y=torch.arange(4) % 2), edge_scores=scores, logits=torch.randn(4))


def test_a_molecule_is_rebuilt_from_what_its_graph_keeps():
    found = molecules()
    from rdkit import Chem

    from shiftproof.explanations.pictures.molecule_drawings import molecule

    for number, smiles in enumerate(SMILES):
        rebuilt = molecule(found.batch, number)
        Chem.SanitizeMol(rebuilt)
        assert Chem.MolToSmiles(rebuilt) == Chem.CanonSmiles(smiles)


def test_molecules_are_drawn_with_their_atoms_and_the_truth_beside(tmp_path):
    found = molecules()
    plain = found.draw(tmp_path / "plain.svg").read_text()
    assert plain.count("predicted") == 0  # RDKit draws captions as outlines, not as text
    assert "<svg" in plain
    marked = Explanation(
        found.batch.replace(node_truth=torch.ones(found.batch.num_nodes, dtype=torch.bool)), found.edge_scores
    )
    both = marked.draw(tmp_path / "both.svg").read_text()
    assert "height='540px'" in both  # every molecule stands twice
    assert "height='270px'" in plain
    assert found.draw(tmp_path / "plain.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ShiftproofError, match=r"must end in \.png or \.svg"):
        draw(found, tmp_path / "plain.pdf", kind="molecules")


@pytest.mark.parametrize(
    "smiles", ["c1ccc2[nH]ccc2c1", "Cc1nc2ccccc2[nH]1", "c1cc[nH]c1-c1cc[nH]n1", "c1ccccc1[N+](=O)[O-]"]
)
def test_rings_are_drawn_with_double_bonds_where_neither_hydrogens_nor_charges_are_stored(smiles):
    pytest.importorskip("rdkit", reason="needs RDKit (shiftproof[molecules])")
    from shiftproof.data.readers.chemistry import ATOM
    from shiftproof.explanations.pictures.molecule_drawings import _prepared, molecule

    batch = molecule_graphs([smiles]).whole()
    batch.node_columns[ATOM][:, 1:] = torch.tensor([0, -1])  # as in files that know elements and bonds alone
    drawn = _prepared(molecule(batch, 0))
    assert {bond.GetBondTypeAsDouble() for bond in drawn.GetBonds()} == {1.0, 2.0}


def test_the_shade_of_an_atom_follows_its_score():
    from shiftproof.explanations.pictures.molecule_drawings import SCORE_COLOUR, _shades

    values = torch.tensor([0.0, 0.05, 0.5, 1.0]).numpy()
    shades = _shades(values, SCORE_COLOUR)
    assert set(shades) == {2, 3}
    assert shades[3][0] < shades[2][0] < 1


def test_graphs_and_their_truth_stand_side_by_side(tmp_path):
    batch = random_graphs().whole()
    found = Explanation(batch, edge_scores=torch.rand(batch.num_edges))
    assert draw(found, tmp_path / "beside.png", kind="beside").stat().st_size > 10_000
    with pytest.raises(ShiftproofError, match="where the truth of edges is known"):
        draw(
            Explanation(random_graphs(marked=False).whole(), torch.rand(batch.num_edges)),
            tmp_path / "b.png",
            kind="beside",
        )
    with pytest.raises(ShiftproofError, match="unknown kind of picture"):
        draw(found, tmp_path / "c.png", kind="circles")  # type: ignore[arg-type]


def test_nodes_alone_can_be_drawn(tmp_path):
    batch = random_graphs(count=2).whole()
    Explanation(batch, node_scores=torch.rand(batch.num_nodes)).draw(tmp_path / "nodes.png")
    assert (tmp_path / "nodes.png").exists()


def test_superpixels_are_drawn_over_the_digit(tmp_path):
    pytest.importorskip("skimage", reason="needs scikit-image (shiftproof[images])")
    graphs = sp.load("colored-digits-sp", limit=4).test[:2]
    batch = graphs.whole()
    found = Explanation(batch, edge_scores=torch.rand(batch.num_edges))
    if not is_superpixels(found):
        batch = batch.replace(columns={"image": torch.arange(2)})
        found = Explanation(batch, edge_scores=found.edge_scores)
    assert found.draw(tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_written_of_molecules(tmp_path):
    found = molecules()
    graphs = molecule_graphs(SMILES)
    graphs.y = torch.tensor([0, 1, 0, 1])
    torch.manual_seed(0)
    model = OwnGCN(features=39)
    written = write_explanations(model, graphs, tmp_path, by="gradient", graphs=2)
    atoms = list(csv.DictReader((tmp_path / "atoms.csv").open()))
    assert len(atoms) == found.batch.num_nodes
    assert [row["element"] for row in atoms[:3]] == ["C", "C", "O"]
    assert {row["element"] for row in atoms} <= set(SYMBOLS)
    edges = list(csv.DictReader((tmp_path / "edges.csv").open()))
    assert len(edges) == found.batch.num_edges
    measures = json.loads((tmp_path / "explanations.json").read_text())["measures"]
    assert set(measures) == {"sparsity", "fidelity_plus", "fidelity_minus"}
    assert all(m["low"] <= m["value"] <= m["high"] for m in measures.values())
    assert Path(written["picture"]).exists()


def test_an_explanation_of_some_graphs_is_that_of_these():
    graphs = random_graphs()
    torch.manual_seed(0)
    model = OwnGCN()
    whole = sp.explain(model, graphs, by="gradient")
    few = chosen_graphs(whole, torch.tensor([4, 1]))
    alone = sp.explain(model, graphs[[4, 1]], by="gradient")
    torch.testing.assert_close(few.edge_scores, alone.edge_scores)
    torch.testing.assert_close(few.logits, alone.logits)
    assert torch.equal(few.batch.edge_truth, alone.batch.edge_truth)
    assert few.batch.index.tolist() == [4, 1]


def test_points_are_drawn_at_their_places(tmp_path):
    train = sp.load("toy-tracks", graphs=20, tracks=3).train
    batch = train[train.y > 0].batch(range(2))
    found = Explanation(batch, node_scores=torch.rand(batch.num_nodes, generator=torch.Generator().manual_seed(0)))
    drawn = found.draw(tmp_path / "clouds.svg").read_text()
    assert drawn.count("#d81b60") >= int(batch.node_truth.sum())
    assert draw(found, tmp_path / "edges.svg", kind="graphs").read_text() != drawn
    nowhere = Explanation(batch.replace(node_columns={}), node_scores=found.node_scores)
    with pytest.raises(ShiftproofError, match="no node column 'pos'"):
        draw(nowhere, tmp_path / "a.svg", kind="points")


def test_titles_say_no_more_than_is_known():
    batch = random_graphs(count=2).whole()
    scores = torch.rand(batch.num_edges)

    def title(y, logits, task=None):
        labelled = batch.replace(y=torch.tensor(y))
        return title_of(Explanation(labelled, edge_scores=scores, logits=torch.tensor(logits), task=task), 1)

    assert title([0, 1], [[0.0, 1.0], [2.0, 1.0]]) == "graph 1, class 1, predicted 0"
    assert title([0.0, 1.0], [-1.0, 2.5]) == "graph 1, class 1, predicted 1"
    assert title([2.0, 7.0], [2.2, 6.5]) == "graph 1, value 7.00, predicted 6.50"
    assert title([0.0, 1.0], [0.2, 0.9], "regression") == "graph 1, value 1.00, predicted 0.90"
    assert title([math.nan, math.nan], [0.2, 0.9], "binary") == "graph 1, predicted 1"
    assert title([1, 2], [[0.0, 1.0], [2.0, 1.0]]) == "graph 1, class 2, predicted 0"
    assert title([[0.0, 1.0], [1.0, 1.0]], [[0.1, 0.2], [0.3, 0.4]]) == "graph 1"
    assert title([0.0, math.nan], [0.1, 0.2]) == "graph 1, predicted 1"
    assert title([0.0, 1.0], [0.1, math.nan]) == "graph 1, class 1"
    unlabelled = Explanation(batch.replace(y=None), edge_scores=scores, logits=torch.tensor([0.1, 0.7]))
    run = sp.fit("gsat", "ba-2motifs:graphs=40", epochs=1, hidden=4, layers=2, decay_interval=1, final_r=0.9)
    assert sp.explain(run, "ba-2motifs:graphs=40").task == run.method.shape.task
    assert title_of(unlabelled, 1) == "graph 1, output 0.70"  # a value or a logit, who knows


@pytest.mark.parametrize(("count", "columns"), [(1, 4), (3, 4), (4, 3), (4, 5), (2, 1)])
def test_the_truth_stands_in_the_row_of_its_molecule(count, columns, tmp_path):
    whole = molecules()
    few = chosen_graphs(whole, torch.arange(count))
    marked = Explanation(
        few.batch.replace(node_truth=torch.ones(few.batch.num_nodes, dtype=torch.bool)), few.edge_scores
    )
    drawn = draw(marked, tmp_path / "both.svg", columns=columns).read_text()
    width = int(re.search(r"width='(\d+)px'", drawn)[1]) // 330
    assert width % 2 == 0
    assert width <= max(columns, 2)


def test_scores_with_gradients_are_drawn(tmp_path):
    found = molecules()
    live = Explanation(found.batch, edge_scores=found.edge_scores.clone().requires_grad_())
    assert (
        live.draw(tmp_path / "live.svg").read_text()
        == Explanation(found.batch, found.edge_scores).draw(tmp_path / "plain.svg").read_text()
    )


def test_what_cannot_be_drawn_is_one_sentence_and_no_file(tmp_path):
    batch = random_graphs(count=2, features=1).whole()
    found = Explanation(batch, edge_scores=torch.rand(batch.num_edges))
    with pytest.raises(ShiftproofError, match="no column 'image'"):
        draw(found, tmp_path / "a.png", kind="superpixels")
    for kind in ("graphs", "auto"):
        with pytest.raises(ShiftproofError, match="edge scores are NaN"):
            draw(Explanation(batch, edge_scores=found.edge_scores * math.nan), tmp_path / "a.png", kind=kind)
    none = random_graphs()[:0].whole()
    with pytest.raises(ShiftproofError, match="no graph to draw"):
        draw(Explanation(none, edge_scores=torch.zeros(0)), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
