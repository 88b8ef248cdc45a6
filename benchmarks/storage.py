"""Training on a set of graphs that stays on disk, beside the same set in memory.

    python benchmarks/storage.py                      # 100,000 graphs: 0.2 GB
    python benchmarks/storage.py --graphs 10000000 --only disk   # 20 GB, larger than the memory it may take

Each measurement is a fresh process that trains ERM on a GIN (3 layers, width 32) for one epoch of batches of 256.
Memory is the peak of anonymous memory of that process above what it had before the data were loaded; mapped pages of
the file, which the system may take back at any moment, do not count. The last column is the speed over that in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import shiftproof as sp
from shiftproof.data import DatasetWriter, GraphSet

NODES, EDGES, FEATURES, PIECE = 20, 40, 20, 50_000


def graphs(count: int, seed: int) -> GraphSet:
    """Random graphs whose label is the sign of the mean of their first feature."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count * NODES, FEATURES, generator=draw)
    ends = torch.randint(NODES, (2, count * EDGES), generator=draw)
    sizes, counts = torch.full((count,), NODES), torch.full((count,), EDGES)
    y = (x.view(count, NODES, FEATURES)[:, :, 0].mean(1) > 0).float()
    return GraphSet.from_parts(sizes, counts, ends, x=x, y=y)


def write(folder: Path, count: int) -> None:
    like = sp.Dataset({"train": graphs(2, 0)}, name="random-graphs", task="binary", metric="accuracy")
    with DatasetWriter(folder, like=like) as out:
        for number, start in enumerate(range(0, count, PIECE)):
            out.add("train", graphs(min(PIECE, count - start), number))
        out.add("test", graphs(2_000, 10**6))


class Peak:
    """The most anonymous memory of this process, looked at every 20 milliseconds."""

    def __init__(self) -> None:
        self.before = self.most = self.now()
        threading.Thread(target=self._watch, daemon=True).start()

    @staticmethod
    def now() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, self.now())
            time.sleep(0.02)


def train(folder: Path, where: str) -> None:
    peak = Peak()
    started = time.perf_counter()
    data = sp.load(folder, in_memory=where == "memory")
    loaded = time.perf_counter() - started
    run = sp.fit("erm", data, epochs=1, batch_size=256, selection="last", device="cpu", seed=0)
    seconds = run.timing["training_epoch_seconds"]
    print(
        json.dumps({"seconds": seconds, "load": loaded, "anonymous": peak.most - peak.before, "metrics": run.metrics})
    )


def measured(folder: Path, where: str) -> dict:
    words = [sys.executable, __file__, "--folder", str(folder), "--where", where]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--graphs", type=int, default=100_000)
    words.add_argument("--only", choices=["disk", "memory"], help="measure this one alone")
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    words.add_argument("--where", choices=["disk", "memory"], help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.where:
        train(given.folder, given.where)
        return
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place) / "data"
        started = time.perf_counter()
        write(folder, given.graphs)
        size = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
        print(f"{given.graphs:,} graphs, {size / 2**30:.2f} GiB, written in {time.perf_counter() - started:.1f} s")
        found: dict[str, list[dict]] = {where: [] for where in ("memory", "disk") if given.only in (None, where)}
        for _ in range(given.repeats):  # alternating, so that a change of the machine's speed meets both
            for where, runs in found.items():
                runs.append(measured(folder, where))
        if given.only is None:
            assert found["memory"][0]["metrics"] == found["disk"][0]["metrics"], "the runs differ"
            print("metrics of both are equal to the bit")
        best = {where: min(run["seconds"] for run in runs) for where, runs in found.items()}
        print(f"{'where':8}{'load s':>8}{'epoch s':>9}{'graphs/s':>10}{'anonymous MiB':>15}{'speed':>7}")
        for where, runs in found.items():
            ratio = f"{best['memory'] / best[where]:.2f}" if "memory" in best else "-"
            anonymous = max(run["anonymous"] for run in runs) / 2**20
            load = min(run["load"] for run in runs)
            rate = given.graphs / best[where]
            print(f"{where:8}{load:>8.1f}{best[where]:>9.2f}{rate:>10,.0f}{anonymous:>15,.0f}{ratio:>7}")


if __name__ == "__main__":
    main()
