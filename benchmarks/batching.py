"""Batches of SPMotif-struc's 9,000 training graphs: ours beside PyG's DataLoader over the same list, one thread.

    python benchmarks/batching.py

Contents are compared field by field first. The last column is how many times faster than PyG in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

import shiftproof as sp

FIELDS = ("x", "edge_index", "edge_attr", "y", "batch", "ptr")


def median_seconds(work: Callable[[], None], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def require_equal(ours: sp.GraphBatch, theirs: Batch) -> None:
    for name in FIELDS:
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine is None or other is None:
            assert mine is other, name
            continue
        assert mine.dtype == other.dtype, name
        assert torch.equal(mine, other), name
    assert ours.num_graphs == theirs.num_graphs


def main() -> None:
    torch.set_num_threads(1)
    graphs = sp.load("spmotif-struc", bias=0.9, edge_ones=True).train
    listed = graphs.to_pyg()

    for ours, theirs in zip(graphs.batches(32), DataLoader(listed, batch_size=32), strict=True):
        require_equal(ours, theirs)
    for size in (32, 128):
        chosen = torch.randperm(len(graphs))[:size]
        require_equal(graphs.batch(chosen), Batch.from_data_list([listed[i] for i in chosen.tolist()]))
    print(f"contents equal PyG's in all fields ({', '.join(FIELDS)})")

    rows = []
    loader = DataLoader(listed, batch_size=32, shuffle=True)
    theirs = median_seconds(lambda: [None for _ in loader], 5)
    ours = median_seconds(lambda: [None for _ in graphs.batches(32, shuffle=True)], 15)
    rows.append(("epoch of batches(32)", 1e3 * theirs, 1e3 * ours))
    for size in (32, 128):
        picks = [torch.randperm(len(graphs))[:size] for _ in range(50)]
        lists = [pick.tolist() for pick in picks]
        theirs = (
            median_seconds(lambda lists=lists: [Batch.from_data_list([listed[i] for i in pick]) for pick in lists], 5)
            / 50
        )
        ours = median_seconds(lambda picks=picks: [graphs.batch(pick) for pick in picks], 15) / 50
        rows.append((f"batch(index) of {size}", 1e3 * theirs, 1e3 * ours))

    print(f"{'what':24}{'PyG, ms':>10}{'ours, ms':>10}{'x faster':>10}")
    for what, theirs, ours in rows:
        print(f"{what:24}{theirs:10.3f}{ours:10.3f}{theirs / ours:10.1f}")


if __name__ == "__main__":
    main()
