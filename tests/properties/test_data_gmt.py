"""Mutag and the structure of BA-2Motifs (docs/papers/gmt.md#f25, #ba-2motifs)."""

from __future__ import annotations

import zipfile

import numpy as np
import torch

from shiftproof.data import load, read_tu
from shiftproof.data.published.mutag import mutagenic_bonds


def test_gmt_25_mutag_counts(real_data):
    everything = read_tu(real_data / "tu" / "Mutagenicity.zip", "Mutagenicity")
    assert len(everything) == 4_337
    data = load("mutag")
    assert [len(split) for split in data.splits.values()] == [2_360, 591, 1_015]
    kept = set(data.train.index.tolist()) | set(data.val.index.tolist())
    assert len(kept) == 2_951
    assert set(data.test.index.tolist()) <= kept  # the test split lies inside the other two
    assert not data.test.y.any()
    sizes = torch.cat([data.train.sizes, data.val.sizes]).double()
    counts = torch.cat([data.train.edge_counts, data.val.edge_counts]).double()
    assert (round(float(sizes.mean()), 2), round(float(counts.mean()), 2)) == (30.13, 60.91)
    assert int(data.test.edge_truth.sum()) == 7_352 - _marked_in_other_class(everything)
    touched = torch.zeros(data.test.num_nodes, dtype=torch.bool)
    touched[data.test.edge_index[:, data.test.edge_truth].flatten()] = True
    assert torch.equal(touched, data.test.node_truth)


def _marked_in_other_class(everything) -> int:
    owner = torch.repeat_interleave(torch.arange(len(everything)), everything.edge_counts)
    marked = mutagenic_bonds(everything.x.argmax(1), everything.edge_index)
    return int((marked & (everything.y[owner] == 1)).sum())


def test_gmt_25_the_rule_gives_the_published_marks(real_data):
    everything = read_tu(real_data / "tu" / "Mutagenicity.zip", "Mutagenicity")
    with zipfile.ZipFile(real_data / "tu" / "Mutagenicity.zip") as archive:
        published = np.loadtxt(archive.open("Mutagenicity/Mutagenicity_edge_gt.txt"), dtype=np.int64)
        edges = np.loadtxt(archive.open("Mutagenicity/Mutagenicity_A.txt"), delimiter=",", dtype=np.int64).T - 1
    ours = mutagenic_bonds(everything.x.argmax(1), torch.from_numpy(edges))
    assert len(published) == 266_894
    assert int(ours.sum()) == 7_352
    assert np.array_equal(ours.numpy(), published.astype(bool))


def test_gmt_6_2_the_published_ba_2motifs_has_the_structure_of_the_generated(real_data):
    """Both: a tree of 20 nodes, a cycle or a house on the nodes 20 to 24, one edge between, the same features.

    In 40 of the published graphs that one edge is a loop at a node of the motif, which then hangs on nothing: these
    make its mean of directed edges 50.96 and not 51.
    """
    loops = {}
    for source in ("published", "generated"):
        data = load("ba-2motifs", source=source)
        loops[source] = 0
        assert sum(len(split) for split in data.splits.values()) == 1_000
        assert sum(int(split.y.sum()) for split in data.splits.values()) == 500
        for split in data.splits.values():
            assert split.sizes.unique().tolist() == [25]
            assert split.x.unique().tolist() == [torch.tensor(0.1).item()]
            assert split.num_features == 10
            owner = torch.repeat_interleave(torch.arange(len(split)), split.edge_counts)
            inner = split.edge_index - 25 * owner
            loop = inner[0] == inner[1]
            in_motif = (inner >= 20).sum(0)
            count = _counted((in_motif[~loop], owner[~loop]), (3, len(split)))
            assert count[0].unique().tolist() == [38]  # the 19 edges of a tree, both directions
            assert torch.equal(count[2], 10 + 2 * split.y)  # 5 edges of a cycle, 6 of a house
            looped = _counted((owner[loop],), (len(split),))
            assert torch.equal(count[1] / 2 + looped, torch.ones(len(split)))
            assert bool((in_motif[loop] == 2).all())
            loops[source] += int(loop.sum())
            motif = (in_motif == 2) & ~loop
            degrees = _counted((owner[motif], inner[0, motif] - 20), (len(split), 5)).sort(1).values
            assert (degrees[split.y == 0] == 2).all()
            assert (degrees[split.y == 1] == torch.tensor([2.0, 2, 2, 3, 3])).all()
    assert loops == {"published": 40, "generated": 0}


def _counted(places: tuple[torch.Tensor, ...], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(shape).index_put_(places, torch.tensor(1.0), accumulate=True)
