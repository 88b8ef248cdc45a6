"""Milliseconds of PNA with the statistics of messages as one kernel, beside torch's own operations.

    python benchmarks/pna_statistics.py --device cuda

A layer 80x80 forwards and backwards on a batch of 128 graphs of Spurious-Motif 0.5 with one weighting of the edges and
with several, and a training step of GSAT and of GMT-sam's first stage with PNA 4x80. Ratios are of the same run. The
last line says how far both ways are from double precision, at most, in the layer's outcome and gradients, as a share of
the largest value: E[m²] - E[m]² loses digits where messages are nearly equal, and its slope there is steep.
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
    worst = [0.0, 0.0]
    for samples in given.samples:
        took, apart = layer(batch, samples, given.repeat)
        worst = [max(pair) for pair in zip(worst, apart, strict=True)]
        show(f"a layer, {samples} weighting{'s' if samples > 1 else ''}", took)
    methods = (("a step of GSAT", GSAT, {}), ("a step of GMT-sam I, 80 samples", GMTSimulated, {"memory_gib": 40}))
    for name, kind, options in methods:
        method = build(kind, data, given.device, protocol="gmt-pna", **options)
        batches = first_batches(data, 8, given.device)
        show(name, [1e3 * min(both(lambda: seconds_of_steps(method, batches, given.device), on)) for on in (0, 1)])  # noqa: B023
    print(f"largest difference from double precision: torch {worst[0]:.1e}, kernel {worst[1]:.1e}")


def layer(batch, samples: int, repeat: int) -> tuple[list[float], list[float]]:
    """Milliseconds without and with the kernel, and how far each of them is from double precision."""
    torch.manual_seed(0)
    device, one = batch.x.device, samples == 1
    conv = convs.WeightedPNAConv(WIDTH, WIDTH, 1).to(device)
    x = torch.randn((batch.num_nodes, WIDTH) if one else (batch.num_nodes, samples, WIDTH), device=device)
    weight = torch.rand((batch.num_edges,) if one else (batch.num_edges, samples), device=device)
    edge = torch.randn(batch.num_edges, 1, device=device)

    def step(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        layer = conv.to(dtype)
        rows, weights = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
        out = layer(rows, Wiring(batch.edge_index, batch.num_nodes, dtype=dtype), weights, edge.to(dtype))
        return [out.detach(), *torch.autograd.grad(out.square().sum(), [rows, weights, *layer.parameters()])]

    exact = both(lambda: step(torch.float64), 0)
    found = [both(step, on) for on in (0, 1)]
    apart = [max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, exact, strict=True)) for one in found]
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
