"""The small data and settings that stacks of seeds are tested with."""

import torch

from shiftproof.api.fitting import Plan
from shiftproof.methods.base import Method

GRAPHS = "spmotif-struc:train_per_class=8,val_per_class=5,test_per_class=4"
SMALL = {"hidden": 6, "layers": 2, "batch_size": 9, "epochs": 3, "checkpoint_seconds": 0.0}


def members_of(method: str, graphs, **settings) -> list[Method]:
    made = []
    for seed in range(3):
        torch.manual_seed(seed)
        plan = Plan.make(method, graphs, {**SMALL, "dropout": 0.0, **settings})
        made.append(plan.build(None).double().train())
    return made
