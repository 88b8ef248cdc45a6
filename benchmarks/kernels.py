"""Milliseconds of message passing with this library's kernels, of a GPU or of a CPU, beside torch's own operations.

    python benchmarks/kernels.py --device cuda
    python benchmarks/kernels.py --device cpu [--threads 1]

A layer of PNA (80x80) and of GIN (64x64, with its batch norm) forwards and backwards on a batch of 128 graphs of
Spurious-Motif 0.5 with one weighting of the edges and with several, and with one on 256 graphs of the size of those of
MNIST-75sp (70 nodes, 590 edges); then a training step of GSAT and of GMT-sam's first stage with both networks, and of
ERM (GCN 3x32, 32 graphs), the median over the epochs of a run. On a GPU layers and steps are captured and replayed, so
that the host does not count, and ERM is of 16 seeds as one stack; on a CPU samples are fewer. Ratios are of the same
run. The last line says how far both ways are from double precision, at most, in a layer's outcome and the gradients of
rows and weights, as a share of the largest value: E[m²] - E[m]² of PNA loses digits where messages are nearly equal,
and its slope there is steep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

os.environ.setdefault("SHIFTPROOF_REUSE_MEMORY", "1")  # as the command does

import torch
from gmt_sampling import epoch_seconds, first_batches, load

import shiftproof as sp
from shiftproof.data.graphs import GraphBatch
from shiftproof.nn import Wiring, convs, dropout, norms
from shiftproof.nn.kernels import dispatch as sums
from shiftproof.nn.kernels.cpu import availability as on_cpu
from shiftproof.nn.kernels.gpu import node_statistics
from shiftproof.runtime.memory import reused_memory

LAYERS = {
    "PNA": lambda: convs.WeightedPNAConv(80, 80, 1),
    "GIN": lambda: convs.WeightedGINConv(64, 64, 1, hidden=64, learn_eps=False, message_relu=False),
}
GRAPHS = {"cuda": 3000, "cpu": 768}  # that steps are taken with
SAMPLES = {"cuda": [1, 20, 80], "cpu": [1, 20]}
SEEDS = 16  # of a stack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--samples", type=int, nargs="*")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    on_gpu, samples = given.device == "cuda", given.samples or SAMPLES[given.device]
    batch = first_batches(load(), 1, given.device)[0]
    where = torch.cuda.get_device_name() if on_gpu else f"CPU, {given.threads} thread(s)"
    print(f"Spurious-Motif 0.5, {batch.num_graphs} graphs: {batch.num_nodes} nodes, {batch.num_edges} edges; {where}")
    print(f"{'':44}{'torch':>9}{'kernels':>9}{'ratio':>8}   ms")
    worst = [0.0, 0.0]
    for name in LAYERS:
        for count in samples:
            took, apart = layer(name, batch, count, given.repeat)
            worst = [max(pair) for pair in zip(worst, apart, strict=True)]
            show(f"a layer of {name}, {count} weighting{'s' if count > 1 else ''}", took)
        took, _ = layer(name, dense_batch(given.device), 1, given.repeat)
        show(f"a layer of {name}, graphs of many edges", took)
    graphs = GRAPHS[given.device]
    sizes = {"train_per_class": graphs // 3, "val_per_class": 10, "test_per_class": 10}
    data = sp.load("spmotif-gsat", b=0.5, edge_ones=True, **sizes)
    for name, protocol in (("GIN", "gmt"), ("PNA", "gmt-pna")):
        for method, said, options in (
            ("gsat", "GSAT", {}),
            ("gmt-simulated", f"GMT-sam I, {samples[-1]} samples", {"samples": samples[-1]}),
        ):
            more = {**options, "protocol": protocol, **({"memory_gib": 40} if options and on_gpu else {})}
            steps = -(-graphs // 128)
            took = [1e3 / steps * epoch_seconds(method, data, given.device, on_gpu, **more) for _ in both_ways()]
            show(f"a step of {said}, {name}", took)
    data = sp.load("spmotif-struc", bias=0.9, **sizes)
    took = [1e3 / -(-graphs // 32) * erm_epoch_seconds(data, given.device) for _ in both_ways()]
    show(f"a step of ERM, GCN{f', {SEEDS} seeds as one' if on_gpu else ''}", took)
    print(f"largest difference from double precision: torch {worst[0]:.1e}, kernels {worst[1]:.1e}")


def dense_batch(device: str) -> GraphBatch:
    """Graphs of 70 nodes and 590 edges between random ones of them."""
    graphs, nodes, edges = 256, 70, 590
    draws = torch.Generator().manual_seed(0)
    ends = torch.randint(nodes, (2, graphs, edges), generator=draws) + nodes * torch.arange(graphs).view(1, -1, 1)
    owner = torch.arange(graphs).repeat_interleave(nodes)
    x, ptr = torch.zeros(graphs * nodes, 1), nodes * torch.arange(graphs + 1)
    return GraphBatch(x.to(device), ends.flatten(1).to(device), owner.to(device), ptr.to(device), graphs)


def erm_epoch_seconds(data: sp.Dataset, device: str) -> float:
    """The seconds of a training epoch, on a GPU that of all seeds of a stack."""
    settings = {"epochs": 5, "selection": "last", "patience": None, "device": device}
    if device == "cpu":
        return sp.fit("erm", data, **settings).timing["training_epoch_seconds"]
    runs = sp.fit_seeds("erm", data, seeds=range(SEEDS), compile=True, **settings)
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

    took, apart, exact = [], [], None
    with reused_memory(device):
        for _ in both_ways():
            exact = step(torch.float64) if exact is None else exact
            pairs = zip(step(), exact, strict=True)
            apart.append(max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs))
            took.append(milliseconds(step, repeat) if device.type == "cuda" else on_the_clock(step, repeat))
    return took, apart


def both_ways() -> Iterator[str]:
    """Twice: first with torch's own operations, then with what serves."""
    for serves in (False, True):
        with kernels(serves):
            yield "kernels" if serves else "torch"


@contextmanager
def kernels(on: bool) -> Iterator[None]:
    """With the kernels or without."""
    asked = {"kernel_serves": node_statistics.kernel_serves, "loops_serve": on_cpu.loops_serve}
    places = [(module, name) for module in (sums, norms, dropout) for name in asked if hasattr(module, name)]
    try:
        for module, name in places:
            setattr(module, name, asked[name] if on else lambda *_: False)
        yield
    finally:
        for module, name in places:
            setattr(module, name, asked[name])


def on_the_clock(step: Callable, repeat: int) -> float:
    """The median time of a step."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


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
