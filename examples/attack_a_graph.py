"""Inject nodes into a graph, plainly and in hiding, and see which defence notices.

python examples/attack_a_graph.py [--steps 300]
"""

import argparse

import shiftproof as sp
from shiftproof.robustness import Budget, accuracy, node_homophily, train_defence

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300, help="steps of an attack in each round")
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()

graph = sp.load("cora-like", nodes=800, edges=1600, features=64)
defences = {name: train_defence(name, graph, epochs=args.epochs, seed=1).model for name in ("gcn", "eguard", "mlp")}
surrogate = train_defence("gcn", graph, epochs=args.epochs, seed=0).model  # the attacker's own, not one of these


def show(label: str, some: sp.NodeGraph) -> None:
    scores = ", ".join(f"{name} {accuracy(model, some):.2f}" for name, model in defences.items())
    injected = node_homophily(some)[graph.num_nodes :]
    print(
        f"{label:<9} {scores}"
        + (f"; injected nodes are like their neighbours by {injected.mean():.2f}" if len(injected) else "")
    )


show("clean", graph)
for weight in (0.0, 1.0, 4.0):
    found = sp.attack(
        "atdgia", graph, surrogate=surrogate, budget=Budget(nodes=20, edges_per_node=15), hao=weight, steps=args.steps
    )
    show(f"HAO {weight:g}", found.apply(graph))
