"""PyG graphs of your own: small ones to train on, large ones to test on, straight into `fit`.

python examples/03_pyg_graphs.py
"""

import argparse

import networkx as nx
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

import shiftproof as sp


def graph(label: int, size: int, env: int, seed: int) -> Data:
    """A random tree with a ring (class 1) or a chain (class 0) of five nodes hung on it."""
    tree = nx.random_labeled_tree(size, seed=seed)
    motif = nx.cycle_graph(5) if label else nx.path_graph(5)
    whole = nx.disjoint_union(tree, motif)
    whole.add_edge(0, size)
    made = from_networkx(whole)
    degree = torch.bincount(made.edge_index[0], minlength=size + 5)
    return Data(x=degree.float()[:, None], edge_index=made.edge_index, y=label, env=env)


def graphs(count: int, sizes: list[int], seed: int) -> list[Data]:
    """`env` is the size class: 'which environment' is any whole number you know about a graph."""
    return [graph(i % 2, sizes[i // 2 % len(sizes)], i // 2 % len(sizes), seed + i) for i in range(count)]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--graphs", type=int, default=600)
args = parser.parse_args()

data = sp.load(
    {
        "train": graphs(args.graphs, sizes=[8, 12], seed=0),
        "val": graphs(args.graphs // 4, sizes=[8, 12], seed=10_000),
        "test": graphs(args.graphs // 4, sizes=[30, 60], seed=20_000),
    },
    name="rings",
)
print(data, data.train, sep="\n")

for method in ("erm", "groupdro"):
    run = sp.fit(method, data, conv="gin", readout="max", epochs=args.epochs, batch_size=32)
    scores = ", ".join(f"{split} {values['accuracy']:.3f}" for split, values in run.metrics.items())
    print(f"{method:8} {scores}, epoch {run.selected_epoch} chosen by {run.selection}")
logits = run.logits(data.test[:4])
print("logits of four large graphs:", logits.tolist())
