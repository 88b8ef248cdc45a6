"""Every domain is the test domain once: digits turned by five angles, three methods.

python examples/leave_one_domain_out.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import shiftproof as sp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=15)
args = parser.parse_args()

angles = (0, 20, 40, 60, 80)
pixels, digits = load_digits(return_X_y=True)
images, y = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(digits)
env = torch.arange(len(y)) % len(angles)
turn = torch.deg2rad(torch.tensor(angles, dtype=torch.float32))[env]
rotation = torch.stack([turn.cos(), -turn.sin(), 0 * turn, turn.sin(), turn.cos(), 0 * turn], 1).view(-1, 2, 3)
x = F.grid_sample(images, F.affine_grid(rotation, list(images.shape), align_corners=False), align_corners=False)

samples = sp.DomainSet(x, y, env)  # or a name: "pacs64", "office-caltech10", "amazon-reviews"
for method in ("erm", "coral", "fish"):
    scores = sp.leave_one_domain_out(
        method,
        samples,
        names=[f"{angle} degrees" for angle in angles],
        featurizer="mlp",
        widths=(64,),
        epochs=args.epochs,
        steps_per_epoch=20,
        domains_per_batch="all",
    )
    print(f"{method:6s}", scores)
