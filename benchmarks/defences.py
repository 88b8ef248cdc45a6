"""Seconds to train GCN and EGuard for 500 epochs on Planetoid Cora, with a validation after each of the last 250.

    python benchmarks/defences.py [--threads 2]

GCN is held against PyG's layers in the same loop and the same run. The released implementation, which the last column
names, was measured once on an idle machine of two cores (GCN 19 s, EGuard 187 s): a ratio to it counts on a machine
of that kind only. Accuracies are printed to show that the same work was done.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

import shiftproof as sp
from shiftproof.robustness import OutsideModel, train_defence

RELEASED = {"gcn": 19.0, "eguard": 187.0}


class PygGCN(nn.Module):
    """The same network from PyG's layers."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(a, b) for a, b in ((inputs, 64), (64, 64), (64, classes)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = F.dropout(F.relu(conv(x, edge_index)), 0.5, self.training)
        return self.convs[-1](x, edge_index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3, help="how often to train each; medians are shown")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    graph = sp.load("cora")

    def seconds_of(name: str) -> tuple[float, float]:
        taken, scores = [], []
        for seed in range(args.rounds):
            model = name
            if name == "gcn of PyG":
                torch.manual_seed(seed)
                model = OutsideModel(PygGCN(graph.num_features, graph.num_classes))
            trained = train_defence(model, graph, epochs=args.epochs, seed=seed)
            taken.append(trained.seconds)
            scores.append(trained.accuracies["test"])
        return statistics.median(taken), statistics.mean(scores)

    train_defence("gcn", graph, epochs=5)  # warm-up
    pyg, score = seconds_of("gcn of PyG")
    scale = args.epochs / 500
    print(f"{graph}, {args.threads} threads, {args.epochs} epochs, median of {args.rounds}")
    print(f"{'model':<12}{'seconds':>9}{'accuracy':>10}{'times faster than PyG':>24}{'than the released code':>25}")
    print(f"{'gcn of PyG':<12}{pyg:>9.2f}{score:>10.3f}{1:>24.1f}{RELEASED['gcn'] * scale / pyg:>25.1f}")
    for name, released in RELEASED.items():
        taken, score = seconds_of(name)
        beside = f"{pyg / taken:.1f}" if name == "gcn" else ""
        print(f"{name:<12}{taken:>9.2f}{score:>10.3f}{beside:>24}{released * scale / taken:>25.1f}")


if __name__ == "__main__":
    main()
