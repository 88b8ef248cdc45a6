"""A PyG model of your own, explained and judged: which edges decided, and does the model agree?

python examples/explain_your_model.py
"""

import argparse

import torch
from torch_geometric.nn import GIN, global_add_pool

import shiftproof as sp
from shiftproof.explanations import explanation_auc, fidelity_minus, fidelity_plus

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
data = sp.load("ba-2motifs")  # a house or a ring on a tree, and which edges are theirs


class Mine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gnn, self.head = GIN(10, 64, num_layers=3, norm="batch_norm"), torch.nn.Linear(64, 1)

    def forward(self, x, edge_index, batch):
        return self.head(global_add_pool(self.gnn(x, edge_index), batch)).squeeze(-1)


model, cost = Mine(), torch.nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(parser.parse_args().epochs):
    for part in data.train.batches(128, shuffle=True):
        optimizer.zero_grad()
        cost(model(part.x, part.edge_index, part.batch), part.y).backward()
        optimizer.step()

for by in ("gnnexplainer", "gradient", "occlusion"):
    why = sp.explain(model, data.test, by=by)
    print(f"{by:12} AUC of the motif's edges {explanation_auc(why)}, the prediction falls")
    print(f"{'':12} without them by {fidelity_plus(model, why)}, with them alone by {fidelity_minus(model, why)}")
