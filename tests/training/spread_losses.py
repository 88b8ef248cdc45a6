"""Run by `torchrun`: losses and gradients of every method, its batch spread over the ranks, beside one process's.

Rank 0 prints one line of JSON a method and data set: the largest difference, or the sentence of a refusal.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as distributed

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape
from shiftproof.nn import ranks
from shiftproof.pareto.pair import Pair
from shiftproof.registry import methods
from shiftproof.training.rank_steps import require_spreadable, spread_over_ranks

DATA = {
    "graphs": ("spmotif-mixed", {"train_per_class": 8, "val_per_class": 4, "test_per_class": 4}),
    "tensors": ("two-bit", {"per_env": 20}),
}


def in_double(kind: str) -> sp.Dataset:
    """Small data in double precision, so that equal sums are equal whatever the order."""
    spec, options = DATA[kind]
    data = sp.load(spec, seed=0, **options)
    for split in data.splits.values():
        split.x = split.x.double()
        split.y = split.y.double() if split.y.is_floating_point() else split.y
    return data


def gradients(method, terms) -> dict[str, torch.Tensor]:
    method.zero_grad()
    total = sum(method.weights.get(name, 1.0) * term for name, term in terms.items())
    total.backward()
    ranks.averaged_(p.grad for p in method.parameters() if p.grad is not None)
    return {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    scale = max([float(value.abs().max()) for value in theirs.values()] + [1.0])
    return max([float((ours[name] - theirs[name]).abs().max()) for name in theirs] + [0.0]) / scale


def compare(name: str, kind: str) -> dict[str, object]:
    data = in_double(kind)
    torch.manual_seed(3)
    method = methods[name].make(DataShape.of(data))
    if not any(p.requires_grad for p in method.parameters()):
        return {"refused": "has no gradient"}
    require_spreadable(method)
    trainer = sp.Trainer(epochs=1, batch_size=16, seed=0)
    train = data.train
    torch.manual_seed(4)
    method.prepare(data, trainer)
    method.train()
    alone = copy.deepcopy(method)
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))[:15]  # uneven parts
    torch.manual_seed(hash((0,)) % 2**63)
    terms = alone.losses(train.batch(chosen))
    expected = {key: value.detach() for key, value in terms.items()}
    wanted = gradients(alone, terms)
    parts = [chosen[rank :: ranks.count()] for rank in range(ranks.count())]
    with spread_over_ranks(method, train.batch(parts[ranks.number()]), [len(part) for part in parts]) as whole:
        terms = method.losses(whole)
        found = {key: value.detach() for key, value in terms.items()}
        grads = gradients(method, terms)
    buffers = [dict(one.named_buffers()) for one in (method, alone)]
    floats = [{k: v.double() for k, v in held.items() if v.is_floating_point()} for held in buffers]
    return {"loss": difference(found, expected), "gradient": difference(grads, wanted), "buffers": difference(*floats)}


def pair() -> dict[str, object]:
    """A step of PAIR compares gradients in a Gram matrix: after one step the weights are those of one process."""
    from shiftproof.training.rank_steps import RankStepper
    from shiftproof.training.steps import EagerStepper

    data = in_double("tensors")
    torch.manual_seed(3)
    method = methods["irmx"].make(DataShape.of(data))
    alone = copy.deepcopy(method)
    for one, kind in ((method, RankStepper), (alone, EagerStepper)):
        one.prepare(data, sp.Trainer(seed=0))
        stepper = kind(one, torch.optim.SGD(one.parameters(), lr=0.1), Pair())
        for _ in stepper.epoch(data.train, 16, torch.Generator().manual_seed(5), 0):
            pass
    return {"weights": difference(method.state_dict(), alone.state_dict())}


def main() -> None:
    distributed.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for entry in methods:
        for kind in DATA:
            if kind not in entry.tags:
                continue
            try:
                found = compare(entry.name, kind)
            except ShiftproofError as problem:
                found = {"refused": str(problem)}
            if ranks.number() == 0:
                print(json.dumps({"method": entry.name, "kind": kind, **found}), flush=True)
    found = pair()
    if ranks.number() == 0:
        print(json.dumps({"method": "pair", "kind": "tensors", **found}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
