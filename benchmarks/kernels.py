"""Milliseconds of message passing with this library's GPU kernels, beside torch's own operations.

    python benchmarks/kernels.py --device cuda

A layer of PNA (80x80) and of GIN (64x64, with its batch norm) forwards and backwards on a batch of 128 graphs of
Spurious-Motif 0.5 with one weighting of the edges and with several, captured and replayed, so that the host does not
count; then a training step of GSAT and of GMT-sam's first stage with both networks, and of 16 seeds of ERM as one stack
(GCN 3x32, 32 graphs), replayed as `--compile` does, the median over the epochs of a run on 3,000 graphs. Ratios are of
the same run. The last line says how far both ways are from double precision, at most, in a layer's outcome and the
gradients of rows and weights, as a share of the largest value: E[m²] - E[m]² of PNA loses digits where messages are
nearly equal, and its slope there is steep.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from gmt_sampling import epoch_seconds, first_batches, load

import shiftproof as sp
from shiftproof.nn import Wiring, convs, node_statistics, norms

LAYERS = {
    "PNA": lambda: convs.WeightedPNAConv(80, 80, 1),
    "GIN": lambda: convs.WeightedGINConv(64, 64, 1, hidden=64, learn_eps=False, message_relu=False),
}
STEPS = 24  # of an epoch of 3,000 graphs
SEEDS, STACKED_STEPS = 16, 94  # of a stack, with 32 graphs a step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda"])
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 20, 80])
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args()
    batch = first_batches(load(), 1, given.device)[0]
    print(f"Spurious-Motif 0.5, {batch.num_graphs} graphs: {batch.num_nodes} nodes, {batch.num_edges} edges")
    print(f"{'':44}{'torch':>9}{'kernels':>9}{'ratio':>8}   ms")
    worst = [0.0, 0.0]
    for name in LAYERS:
        for samples in given.samples:
            took, apart = layer(name, batch, samples, given.repeat)
            worst = [max(pair) for pair in zip(worst, apart, strict=True)]
            show(f"a layer of {name}, {samples} weighting{'s' if samples > 1 else ''}", took)
    data = sp.load("spmotif-gsat", b=0.5, edge_ones=True, train_per_class=1000, val_per_class=10, test_per_class=10)
    for name, protocol in (("GIN", "gmt"), ("PNA", "gmt-pna")):
        for method, said, options in (
            ("gsat", "GSAT", {}),
            ("gmt-simulated", "GMT-sam I, 80 samples", {"samples": 80}),
        ):
            more = {**options, "protocol": protocol, **({"memory_gib": 40} if options else {})}
            took = []
            for on in (False, True):
                with kernels(on):
                    took.append(1e3 / STEPS * epoch_seconds(method, data, given.device, True, **more))
            show(f"a step of {said}, {name}", took)
    took = []
    for on in (False, True):
        with kernels(on):
            took.append(1e3 / STACKED_STEPS * stacked_epoch_seconds(given.device))
    show(f"a step of ERM, {SEEDS} seeds as one", took)
    print(f"largest difference from double precision: torch {worst[0]:.1e}, kernels {worst[1]:.1e}")


def stacked_epoch_seconds(device: str) -> float:
    data = sp.load("spmotif-struc", bias=0.9, train_per_class=1000, val_per_class=10, test_per_class=10)
    settings = {"epochs": 3, "selection": "last", "patience": None, "device": device, "compile": True}
    runs = sp.fit_seeds("erm", data, seeds=range(SEEDS), **settings)
    return SEEDS * runs[0].timing["training_epoch_seconds"]


def layer(name: str, batch, samples: int, repeat: int) -> tuple[list[float], list[float]]:
    """Milliseconds without and with the kernels, and how far each of them is from double precision."""
    torch.manual_seed(0)
    device, one = batch.x.device, samples == 1
    conv = LAYERS[name]().to(device)
    x = torch.randn((batch.num_nodes, *([] if one else [samples]), conv.in_channels), device=device)
    weight = torch.rand((batch.num_edges, *([] if one else [samples])), device=device)
    edge = torch.randn(batch.num_edges, 1, device=device)

    def step(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        layer = conv.to(dtype)
        rows, weights = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
        out = layer(rows, Wiring(batch.edge_index, batch.num_nodes, dtype=dtype), weights, edge.to(dtype))
        slopes = torch.autograd.grad(out.square().sum(), [rows, weights, *layer.parameters()])
        return [out.detach(), *slopes[:2]]

    took, apart = [], []
    with kernels(False):
        exact = step(torch.float64)
    for on in (False, True):
        with kernels(on):
            found = step()
            pairs = zip(found, exact, strict=True)
            apart.append(max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs))
            took.append(milliseconds(step, repeat))
    return took, apart


@contextmanager
def kernels(on: bool) -> Iterator[None]:
    """With the kernels or without."""
    serves = node_statistics.kernel_serves if on else lambda x: False
    before = convs.kernel_serves, norms.kernel_serves
    convs.kernel_serves = norms.kernel_serves = serves
    try:
        yield
    finally:
        convs.kernel_serves, norms.kernel_serves = before


def milliseconds(step: Callable, repeat: int) -> float:
    """The time of a step that is captured once and replayed."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeat):
        graph.replay()
    torch.cuda.synchronize()
    took = 1e3 * (time.perf_counter() - start) / repeat
    del kept
    return took


def show(name: str, took: list[float]) -> None:
    print(f"{name:44}{took[0]:9.2f}{took[1]:9.2f}{took[0] / took[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
