"""PAIR in your own loop: hand the optimiser named losses, it finds the weights.

python examples/pair_in_your_loop.py
"""

import argparse

import torch
from torch import nn

import shiftproof as sp
from shiftproof.objectives import env_risks, irm_penalty, sample_losses, vrex_penalty
from shiftproof.pareto import PAIR

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=600)
steps = parser.parse_args().steps
data = sp.load("colored-digits:copies=5")  # colour follows the label in training and is turned around at test time
x, y, env = data.train.x, data.train.y, data.train.env
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
first = torch.optim.Adam(model.parameters(), lr=1e-3)
second = PAIR(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), {"erm": 1, "irm": 1e4, "vrex": 1e6})
for step in range(steps):
    logits = model(x).squeeze(1)
    risks, counts = env_risks(sample_losses(logits, y, "binary"), env, num_envs=2)
    losses = {"erm": risks.mean(), "irm": irm_penalty(logits, y, env, 2, "binary"), "vrex": vrex_penalty(risks, counts)}
    if step < steps // 4:  # the first phase: plain risk, plain optimiser
        first.zero_grad()
        losses["erm"].backward()
        first.step()
    else:  # the swap: no backward(), no weights to tune
        found = second.step(losses)
    if (step + 1) % (steps // 4) == 0:
        right = ((model(data.test.x).squeeze(1) > 0) == (data.test.y > 0.5)).float()
        worst = min(float(right[data.test.env == e].mean()) for e in range(3))
        print(f"step {step + 1:4}  worst test accuracy {worst:.3f}  training risks {risks[0]:.3f} {risks[1]:.3f}")
print(f"last weights {found.weights}; fallbacks in {second.fallback_rate:.0%} of the steps")
