"""Milliseconds of PNA with the statistics of messages as one kernel, beside torch's own operations.

    python benchmarks/pna_statistics.py --device cuda

A layer 80x80 forwards and backwards on a batch of 128 graphs of Spurious-Motif 0.5 with one weighting of the edges and
with several, and a training step of GSAT and of GMT-sam's first stage with PNA 4x80. Ratios are of the same run; the
last line is the largest difference between the two ways in the layer's outcome and gradients, as a share of the largest
value.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from gmt_sampling import build, first_batches, load, seconds_of_steps

from shiftproof.methods import GSAT, GMTSimulated
from shiftproof.nn import Wiring, convs, node_statistics

WIDTH = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda"])
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 20, 80])
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args()
    data = load()
    batch = first_batches(data, 1, given.device)[0]
    print(f"Spurious-Motif 0.5, {batch.num_graphs} graphs: {batch.num_nodes} nodes, {batch.num_edges} edges")
    print(f"{'':38}{'torch':>9}{'kernel':>9}{'ratio':>8}   ms")
    worst = 0.0
    for samples in given.samples:
        took, difference = layer(batch, samples, given.repeat)
        worst = max(worst, difference)
        show(f"a layer, {samples} weighting{'s' if samples > 1 else ''}", took)
    methods = (("a step of GSAT", GSAT, {}), ("a step of GMT-sam I, 80 samples", GMTSimulated, {"memory_gib": 40}))
    for name, kind, options in methods:
        method = build(kind, data, given.device, protocol="gmt-pna", **options)
        batches = first_batches(data, 8, given.device)
        show(name, [1e3 * min(both(lambda: seconds_of_steps(method, batches, given.device), on)) for on in (0, 1)])  # noqa: B023
    print(f"largest difference {worst:.1e}")


def layer(batch, samples: int, repeat: int) -> tuple[list[float], float]:
    """Milliseconds without and with the kernel, and how far the two are apart."""
    torch.manual_seed(0)
    conv = convs.WeightedPNAConv(WIDTH, WIDTH, 1).to(batch.x.device)
    shape = (batch.num_nodes, WIDTH) if samples == 1 else (batch.num_nodes, samples, WIDTH)
    x = torch.randn(shape, device=batch.x.device, requires_grad=True)
    weight = torch.rand(
        (batch.num_edges,) if samples == 1 else (batch.num_edges, samples), device=x.device
    ).requires_grad_()
    edge = torch.randn(batch.num_edges, 1, device=x.device)
    wiring = Wiring(batch.edge_index, batch.num_nodes)
    inputs = [x, weight, *conv.parameters()]

    def step() -> list[torch.Tensor]:
        out = conv(x, wiring, weight, edge)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), inputs)]

    found = [both(step, on) for on in (0, 1)]
    apart = max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(*found, strict=True))
    return [both(lambda: milliseconds(step, repeat), on) for on in (0, 1)], apart


def both(work: Callable, kernel: int):
    """What comes of the work with the kernel or without."""
    before = convs.kernel_serves
    convs.kernel_serves = node_statistics.kernel_serves if kernel else lambda x: False
    try:
        return work()
    finally:
        convs.kernel_serves = before


def milliseconds(step: Callable, repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def show(name: str, took: list[float]) -> None:
    print(f"{name:38}{took[0]:9.2f}{took[1]:9.2f}{took[0] / took[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
