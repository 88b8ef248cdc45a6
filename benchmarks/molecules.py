"""Molecules a second from SMILES to packed graphs, and a training epoch beside a plain PyG loop.

    python benchmarks/molecules.py                     HIV's first 8,000 molecules, all cores
    python benchmarks/molecules.py --count 41127 --processes 2
    python benchmarks/molecules.py --device cuda

Reading is measured without the cache, scaffolds included; `times one` is against one process in the same run. The epoch
is of ERM with a GIN (3 layers of 32, bond features), beside a DataLoader and Adam loop over the same molecules with
PyG's GINEConv, both in batches of 128; `times PyG` says how many times faster than that loop. Needs HIV.csv in the
folder that SHIFTPROOF_DATA names.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pandas as pd
import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool

import shiftproof as sp
from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.featurising import Molecules, read_molecules
from shiftproof.data.readers.sources import find

WIDTH, DEPTH, BATCH = 32, 3, 128


class PlainGIN(nn.Module):
    def __init__(self, features: int, bond_features: int) -> None:
        super().__init__()
        self.encode = nn.Linear(features, WIDTH)
        self.layers = nn.ModuleList(
            [GINEConv(self._mlp(), train_eps=True, edge_dim=bond_features) for _ in range(DEPTH)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 1)

    @staticmethod
    def _mlp() -> nn.Module:
        return nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.BatchNorm1d(2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, size: int) -> Tensor:
        x = self.encode(x)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = norm(layer(x, edge_index, edge_attr))
            if number + 1 < DEPTH:
                x = torch.relu(x)
        return self.head(global_mean_pool(x, batch, size)).squeeze(-1)


def reading(smiles: list[str], processes: int) -> tuple[float, Molecules]:
    begun = time.perf_counter()
    found = read_molecules(smiles, strict=False, processes=processes, cached=False)
    return time.perf_counter() - begun, found


def plain_epochs(dataset: Dataset, device: str, epochs: int) -> float:
    graphs = dataset.train.to_pyg()  # type: ignore[union-attr]
    loader = DataLoader(graphs, batch_size=BATCH, shuffle=True)
    model = PlainGIN(graphs[0].x.shape[1], graphs[0].edge_attr.shape[1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seconds = []
    for _ in range(epochs):
        begun = time.perf_counter()
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)
            nn.functional.binary_cross_entropy_with_logits(out, batch.y).backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    table = pd.read_csv(find(("molecules/HIV.csv.gz", "HIV.csv.gz", "HIV.csv"), what="the HIV molecules"))
    table = table.drop_duplicates("smiles")[: chosen.count]
    smiles = list(table["smiles"])
    some = smiles[: max(len(smiles) // 4, 1)]
    one = len(some) / reading(some, 1)[0]
    seconds, found = reading(smiles, chosen.processes)
    rate = len(smiles) / seconds
    print(f"{'processes':>10} {'molecules/s':>12} {'times one':>10}")
    print(f"{1:>10} {one:>12.0f} {1.0:>10.2f}")
    print(f"{chosen.processes:>10} {rate:>12.0f} {rate / one:>10.2f}")
    graphs = found.described(found.packed())
    kept = [row for row, number in enumerate(found.number.tolist()) if number >= 0]
    graphs.y = torch.tensor(table["HIV_active"].to_numpy()[kept], dtype=torch.float32)
    dataset = Dataset({"train": graphs}, name="hiv", task="binary", metric="roc_auc")
    plain = plain_epochs(dataset, chosen.device, chosen.epochs)
    run = sp.fit(
        "erm",
        dataset,
        epochs=chosen.epochs,
        batch_size=BATCH,
        hidden=WIDTH,
        layers=DEPTH,
        conv="gin",
        device=chosen.device,
        patience=None,
    )
    ours = float(run.timing["training_epoch_seconds"])
    print(f"{'epoch':>10} {'PyG s':>12} {'ours s':>10} {'times PyG':>10}")
    print(f"{len(graphs):>10} {plain:>12.3f} {ours:>10.3f} {plain / ours:>10.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
