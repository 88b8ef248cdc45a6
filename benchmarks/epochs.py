"""Seconds per ERM training epoch on SPMotif-struc, beside a plain PyG DataLoader + Adam loop with the same network.

    python benchmarks/epochs.py                  GCN 3x32, batch 32, on the CPU
    python benchmarks/epochs.py --device cuda    GIN 3x32, batch 128, milliseconds a step

The last column is how many times faster than the PyG loop of the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("SHIFTPROOF_REUSE_MEMORY", "1")  # as the command does

import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_mean_pool

import shiftproof as sp


class PlainGCN(MessagePassing):
    """The same layer as ours, written the usual PyG way."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.linear = nn.Linear(width, width)
        self.root = nn.Embedding(1, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.linear(x)
        source, target = edge_index
        degree = torch.bincount(source, minlength=x.shape[0]).to(x.dtype) + 1
        norm = degree[source].rsqrt() * degree[target].rsqrt()
        return self.propagate(edge_index, x=x, norm=norm) + torch.relu(x + self.root.weight) / degree[:, None]

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm[:, None] * torch.relu(x_j)


class PlainGIN(MessagePassing):
    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.mlp((1 + self.eps) * x + self.propagate(edge_index, x=x))

    def message(self, x_j: Tensor) -> Tensor:
        return torch.relu(x_j)


class PlainNetwork(nn.Module):
    def __init__(self, layer: type[nn.Module], features: int, classes: int, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.encode = nn.Linear(features, width)
        self.layers = nn.ModuleList([layer(width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int) -> Tensor:
        x = self.encode(x)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = norm(layer(x, edge_index))
            if number + 1 < len(self.layers):
                x = torch.relu(x)
        return self.head(global_mean_pool(x, batch, size))


SPLITS = ("train", "val", "test")


def plain_loop(
    data: sp.Dataset, layer: type[nn.Module], batch_size: int, epochs: int, seed: int, device: str
) -> tuple[float, list[float]]:
    """Median seconds of an epoch and the accuracy on every split, of the usual loop."""
    torch.manual_seed(seed)
    model = PlainNetwork(layer, data.train.num_features, data.num_classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data.train.to_pyg(), batch_size=batch_size, shuffle=True)
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        model.train()
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
            nn.functional.cross_entropy(logits, batch.y).backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    model.eval()
    accuracies = []
    with torch.no_grad():
        for name in SPLITS:
            whole = data[name].to(device).whole()
            logits = model(whole.x, whole.edge_index, whole.batch, whole.num_graphs)
            accuracies.append(float((logits.argmax(1) == whole.y).float().mean()))
    return statistics.median(seconds), accuracies


def our_fit(
    data: sp.Dataset, conv: str, batch_size: int, epochs: int, seed: int, device: str, compile: bool
) -> tuple[float, list[float]]:
    """Median seconds of an epoch and the accuracy on every split, of the library's trainer."""
    run = sp.fit(
        "erm",
        data,
        seed=seed,
        conv=conv,
        batch_size=batch_size,
        epochs=epochs,
        patience=None,
        selection="last",
        device=device,
        compile=compile,
    )
    return run.timing["training_epoch_seconds"], [run.metrics[name]["accuracy"] for name in SPLITS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    conv, layer, batch_size = ("gcn", PlainGCN, 32) if args.device == "cpu" else ("gin", PlainGIN, 128)
    data = sp.load("spmotif-struc", bias=0.9)
    steps = -(-len(data.train) // batch_size)

    baseline = "PyG DataLoader + Adam"
    loops = {
        baseline: lambda seed: plain_loop(data, layer, batch_size, args.epochs, seed, args.device),
        "shiftproof, eager": lambda seed: our_fit(data, conv, batch_size, args.epochs, seed, args.device, False),
        "shiftproof, compile=True": lambda seed: our_fit(data, conv, batch_size, args.epochs, seed, args.device, True),
    }
    found = {name: [loop(seed) for seed in range(args.seeds)] for name, loop in loops.items()}

    where = f"{args.threads} thread(s)" if args.device == "cpu" else torch.cuda.get_device_name()
    print(f"ERM, {conv.upper()} 3x32, SPMotif-struc (9,000 training graphs), batch {batch_size}, {where}")
    print(f"accuracy after {args.epochs} epochs, mean ± deviation over {args.seeds} seeds")
    print(f"{'loop':26}{'s/epoch':>9}{'ms/step':>9}" + "".join(f"{name:>16}" for name in SPLITS) + f"{'x faster':>10}")
    medians = {name: statistics.median(seconds for seconds, _ in runs) for name, runs in found.items()}
    for name, runs in found.items():
        columns = zip(*(accuracies for _, accuracies in runs), strict=True)
        shown = "".join(f"{statistics.fmean(c):9.3f} ± {_deviation(c):.3f}" for c in columns)
        ratio = medians[baseline] / medians[name]
        print(f"{name:26}{medians[name]:9.2f}{1000 * medians[name] / steps:9.2f}{shown}{ratio:10.2f}")


def _deviation(values: tuple[float, ...]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
