"""Penalties as plain functions: your own module, your own optimiser, your own loop.

python examples/04_penalties_in_your_own_loop.py
"""

import argparse

import torch
from torch import Tensor, nn

from shiftproof.objectives import env_risks, irm_penalty, sample_losses, vrex_penalty

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()


def sample(n: int, wrong: list[float], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Two noisy copies of the label: the first is wrong in 25 % everywhere, the second in another share each time."""
    env = torch.arange(n) % len(wrong)
    y = (torch.rand(n, generator=generator) < 0.5).float()
    steady = (y - (torch.rand(n, generator=generator) < 0.25).float()).abs()
    shifting = (y - (torch.rand(n, generator=generator) < torch.tensor(wrong)[env]).float()).abs()
    return torch.stack([steady, shifting], 1) * 2 - 1, y, env


generator = torch.Generator().manual_seed(0)
x, y, env = sample(4000, [0.1, 0.2], generator)
test_x, test_y, _ = sample(4000, [0.9], generator)

for name in ("erm", "irm", "vrex"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        logits = model(x).squeeze(1)
        risks, counts = env_risks(sample_losses(logits, y, "binary"), env, num_envs=2)
        strength = 1.0 if step < args.steps // 4 else 1e4  # let features form first
        loss = risks.mean()
        if name == "irm":
            loss = loss + strength * irm_penalty(logits, y, env, 2, "binary")
        elif name == "vrex":
            loss = loss + strength * vrex_penalty(risks, counts)
        optimiser.zero_grad()
        (loss / max(1.0, strength if name != "erm" else 1.0)).backward()
        optimiser.step()
    with torch.no_grad():
        right = ((model(test_x).squeeze(1) > 0) == (test_y > 0.5)).float().mean()
    print(f"{name:4}  training risks {[round(r, 3) for r in risks.tolist()]}  accuracy after the shift {right:.3f}")
