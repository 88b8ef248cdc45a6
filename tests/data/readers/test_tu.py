"""The text files of the TU collection, whole and damaged."""

import shutil
import zipfile

import numpy as np
import pytest
import torch

from shiftproof.data import load, read_tu
from shiftproof.errors import ShiftproofError

# two graphs, a triangle and an edge with an isolated node beside it
FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n1\n2\n2\n2\n",
    "graph_labels": "-1\n1\n",
    "node_labels": "3\n4\n3\n5\n5\n4\n",
    "edge_labels": "0\n0\n1\n1\n0\n0\n1\n1\n",
}


def write(folder, **changed):
    folder.mkdir(exist_ok=True)
    for part, text in {**FILES, **changed}.items():
        if text is not None:
            (folder / f"TOY_{part}.txt").write_text(text)
    return folder


def test_labels_become_one_hot_features_and_classes(tmp_path) -> None:
    graphs = read_tu(write(tmp_path / "toy"), "TOY")
    assert graphs.sizes.tolist() == [3, 3]
    assert graphs.edge_counts.tolist() == [6, 2]
    assert graphs.edge_index[:, -2:].tolist() == [[3, 4], [4, 3]]
    assert graphs.x.argmax(1).tolist() == [0, 1, 0, 2, 2, 1]
    assert graphs.edge_attr.argmax(1).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert graphs.y.tolist() == [0, 1]


def test_attributes_or_a_constant_stand_in_for_labels(tmp_path) -> None:
    rows = "".join(f"{i}.5, {i}\n" for i in range(6))
    graphs = read_tu(write(tmp_path / "toy", node_labels=None, node_attributes=rows), "TOY")
    assert graphs.x[1].tolist() == [1.5, 1.0]
    shutil.rmtree(tmp_path / "toy")
    graphs = read_tu(write(tmp_path / "toy", node_labels=None, edge_labels=None), "TOY")
    assert graphs.x.tolist() == [[1.0]] * 6
    assert graphs.edge_attr is None


def test_edges_may_come_in_any_order(tmp_path) -> None:
    lines, labels = FILES["A"].splitlines(), FILES["edge_labels"].splitlines()
    order = [6, 0, 3, 7, 1, 2, 5, 4]
    shuffled = {"A": "\n".join(lines[i] for i in order), "edge_labels": "\n".join(labels[i] for i in order)}
    mixed, plain = read_tu(write(tmp_path / "a", **shuffled), "TOY"), read_tu(write(tmp_path / "b"), "TOY")

    def as_set(graphs):
        return set(map(tuple, torch.cat([graphs.edge_index.T, graphs.edge_attr.long()], 1).tolist()))

    assert as_set(mixed) == as_set(plain)
    assert torch.equal(mixed.edge_ptr, plain.edge_ptr)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"graph_indicator": "1\n1\n1\n2\n"}, r"TOY_A\.txt line 7 joins the nodes 4 and 5.*nodes 1 to 4"),
        ({"graph_indicator": "1\n1\n1\n2\n2\n"}, r"TOY_node_labels\.txt has 6 rows.*lists 5 nodes"),
        ({"A": FILES["A"] + "6, 99\n"}, r"TOY_A\.txt line 9 joins the nodes 6 and 99"),
        ({"A": FILES["A"] + "0, 1\n"}, r"TOY_A\.txt line 9 joins the nodes 0 and 1"),
        ({"A": FILES["A"] + "3, 4\n"}, r"TOY_A\.txt line 9 joins a node of graph 1 to graph 2"),
        ({"A": FILES["A"] + "3,"}, r"TOY_A\.txt line 9 is '3,', expected 2 numbers"),
        ({"A": FILES["A"] + "3, x\n"}, r"TOY_A\.txt line 9 is '3, x', expected 2 numbers"),
        ({"A": FILES["A"] + "3, 1.5\n"}, r"TOY_A\.txt line 9 does not hold whole numbers"),
        ({"edge_labels": "0\n"}, r"TOY_edge_labels\.txt has 1 rows.*lists 8 edges"),
        ({"graph_labels": "1\n"}, r"names the graphs 1 to 2.*TOY_graph_labels\.txt has 1 rows"),
        ({"graph_labels": "1\n2\n1\n"}, r"TOY_graph_labels\.txt has 3 rows"),
        ({"graph_indicator": "1\n1\n2\n1\n2\n2\n"}, r"TOY_graph_indicator\.txt line 4 falls from graph 2 to 1"),
        ({"graph_indicator": "1\n1\n1\n3\n3\n3\n", "graph_labels": "1\n2\n1\n"}, "lists no node of graph 2"),
        ({"node_attributes": "nan\n" * 6, "node_labels": None}, r"TOY_node_attributes\.txt line 1 is 'nan'"),
        ({"graph_labels": ""}, r"TOY_graph_labels\.txt is empty"),
        ({"A": None}, r"holds no file TOY_A\.txt"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_line(tmp_path, changed, said: str) -> None:
    with pytest.raises(ShiftproofError, match=said) as caught:
        read_tu(write(tmp_path / "toy", **changed), "TOY")
    assert "\n" not in str(caught.value)


def test_truncated_archives_are_named(tmp_path, real_data) -> None:
    whole = (real_data / "tu" / "MUTAG.zip").read_bytes()
    cut = tmp_path / "MUTAG.zip"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ShiftproofError, match=r"MUTAG\.zip is not a whole zip file"):
        load(str(cut))
    with zipfile.ZipFile(real_data / "tu" / "MUTAG.zip") as archive, zipfile.ZipFile(cut, "w") as damaged:
        for member in archive.namelist():
            raw = archive.read(member)
            damaged.writestr(member, raw[: len(raw) // 2] if member.endswith("graph_indicator.txt") else raw)
    with pytest.raises(ShiftproofError, match="MUTAG_graph_indicator"):
        load(str(cut))


def test_the_reader_agrees_with_pyg(tmp_path, real_data) -> None:
    from torch_geometric.io import read_tu_data

    with zipfile.ZipFile(real_data / "tu" / "MUTAG.zip") as archive:
        archive.extractall(tmp_path)
    data, slices, _ = read_tu_data(str(tmp_path / "MUTAG"), "MUTAG")
    ours = read_tu(tmp_path / "MUTAG", "MUTAG")
    assert torch.equal(ours.x, data.x)
    assert torch.equal(ours.y, data.y)
    assert torch.equal(ours.edge_ptr, slices["edge_index"])
    local = ours.edge_index - torch.repeat_interleave(ours.node_ptr[:-1], ours.edge_counts)
    theirs = torch.cat([data.edge_index.T.double(), data.edge_attr.double()], 1)
    mine = torch.cat([local.T.double(), ours.edge_attr.double()], 1)
    assert set(map(tuple, theirs.tolist())) == set(map(tuple, mine.tolist()))


def test_index_files_prescribe_the_split(tmp_path) -> None:
    folder = write(tmp_path / "tu" / "TOY") if (tmp_path / "tu").mkdir() is None else None
    for part, row in (("train", 1), ("val", 0), ("test", 0)):
        (folder / f"{part}_idx.txt").write_text(f"{row}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHIFTPROOF_DATA", str(tmp_path))
        data = load("tu:name=TOY")
        assert [data[part].index.tolist() for part in ("train", "val", "test")] == [[1], [0], [0]]
        (folder / "test_idx.txt").write_text("7\n")
        with pytest.raises(ShiftproofError, match=r"test_idx\.txt line 1 names graph 7"):
            load("tu:name=TOY")


def test_the_validation_draw_follows_the_seed(real_data) -> None:
    one, same, other = load("proteins"), load("proteins:seed=0"), load("proteins:seed=1")
    assert torch.equal(one.val.index, same.val.index)
    assert not torch.equal(one.val.index, other.val.index)
    assert torch.equal(one.test.index, other.test.index)
    assert len(np.intersect1d(one.train.index, one.val.index)) == 0
    assert sorted(one.options) == ["seed"]
