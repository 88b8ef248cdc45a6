"""Readers of GRB and OGB files, on tiny ones of the same layout."""

import gzip

import numpy as np
import pytest
import torch
from scipy import sparse

from shiftproof.data import load
from shiftproof.data.published.grb import read_grb, read_ogb
from shiftproof.errors import ShiftproofError


def write_grb(folder, adjacency, labels, nodes=20):
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    sparse.save_npz(folder / "adj.npz", adjacency)
    np.savez(folder / "features.npz", data=draw.normal(size=(nodes, 3)))
    np.savez(folder / "labels.npz", data=labels)
    parts = np.split(np.random.default_rng(1).permutation(nodes), [12, 14, 16, 18])
    names = ("index_train", "index_val", "index_test_easy", "index_test_medium", "index_test_hard")
    index = dict(zip(names, parts, strict=True))
    index["index_test"] = np.concatenate(parts[2:])
    np.savez(folder / "index.npz", **index)
    return index


@pytest.mark.parametrize("kind", ["csr", "coo", "csc"])
def test_grb_files_are_read(tmp_path, monkeypatch, kind) -> None:
    ring = np.stack([np.arange(20), (np.arange(20) + 1) % 20])
    adjacency = sparse.coo_matrix((np.ones(20), ring), shape=(20, 20)).asformat(kind)
    labels = np.eye(4)[np.arange(20) % 4] if kind == "csr" else np.arange(20) % 4
    index = write_grb(tmp_path / "grb" / "grb-cora", adjacency, labels)
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    graph = load("grb:name=cora")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes, graph.name) == (20, 20, 4, "grb-cora")
    assert graph.y.tolist() == [i % 4 for i in range(20)]
    assert set(graph.test.tolist()) == set(index["index_test"].tolist())
    hard = load("grb:name=cora,mode=hard,features=raw")
    assert set(hard.test.tolist()) == set(index["index_test_hard"].tolist())
    assert float(graph.x.abs().max()) < 1


def test_missing_and_misshapen_grb_files_are_one_sentence(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    with pytest.raises(ShiftproofError, match=r"the GRB graph aminer is missing: put 'grb/grb-aminer/adj\.npz'"):
        load("grb:name=aminer")
    with pytest.raises(ShiftproofError, match=r"ogbn-arxiv .* is missing: put 'ogbn_arxiv/raw/edge\.csv\.gz'"):
        load("ogbn-arxiv")
    folder = tmp_path / "grb-toy"
    write_grb(folder, sparse.identity(19, format="csr"), np.arange(20) % 4)
    with pytest.raises(ShiftproofError, match=r"19 nodes in adj\.npz, 20 in features\.npz and 20 in labels"):
        read_grb(folder)
    np.savez(folder / "features.npz", other=np.ones(3))
    with pytest.raises(ShiftproofError, match="has no array 'data'"):
        read_grb(folder)
    (folder / "adj.npz").unlink()
    with pytest.raises(ShiftproofError, match="is not a sparse matrix saved by SciPy"):
        read_grb(folder)


def test_ogb_files_are_read(tmp_path, monkeypatch) -> None:
    def write(path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.write("".join(",".join(str(value) for value in row) + "\n" for row in rows))

    root = tmp_path / "arxiv"
    write(root / "raw" / "edge.csv.gz", [(i, (i * 7 + 1) % 30) for i in range(30)])
    write(root / "raw" / "node-feat.csv.gz", np.random.default_rng(0).normal(size=(30, 4)))
    write(root / "raw" / "node-label.csv.gz", [(i % 5,) for i in range(30)])
    for part, nodes in (("train", range(18)), ("valid", range(18, 24)), ("test", range(24, 30))):
        write(root / "split" / "time" / f"{part}.csv.gz", [(i,) for i in nodes])
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    graph = load("ogbn-arxiv:features=raw")
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (30, 5, 4)
    assert (graph.train.tolist(), graph.test.tolist()) == ([*range(18)], [*range(24, 30)])
    assert bool(graph.has_edges(torch.tensor([[1, 0, 8], [8, 1, 1]])).all())
    assert len(load("ogbn-arxiv:split=grb").test) == 9
    (root / "split" / "time" / "test.csv.gz").unlink()
    with pytest.raises(ShiftproofError, match=r"test.csv.gz' is missing; an OGB folder has raw/ and split/time/"):
        read_ogb(root)
