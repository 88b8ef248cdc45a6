"""Pictures of homophily: how like their neighbours the nodes of a graph are, before and after an attack."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.homophily import edge_homophily, homophily_distance, node_homophily

BINS = 100  # docs/papers/hao.md#homophily-histograms


@dataclass(frozen=True)
class Histogram:
    """The density of a homophily sample over [-1, 1], with the numbers that sum it up."""

    label: str
    density: tuple[float, ...]
    mean: float
    deviation: float
    count: int
    distance: float | None = None
    injected_mean: float | None = None

    @property
    def edges(self) -> tuple[float, ...]:
        """The borders of the bins, one more than there are bins."""
        return tuple(torch.linspace(-1, 1, len(self.density) + 1, dtype=torch.float64).tolist())


def homophily_histograms(
    graph: NodeGraph, attacked: Mapping[str, NodeGraph] | None = None, *, kind: str = "node", bins: int = BINS
) -> list[Histogram]:
    """The histogram of the clean graph and of each attacked one, all nodes counted, the injected ones too.

    `kind` is "node" (each node with its neighbourhood) or "edge" (the two ends of each edge). The `distance` of an
    attacked graph is the Wasserstein distance of its sample from the clean one.
    """
    if kind not in ("node", "edge"):
        raise ShiftproofError(f"option 'kind' of homophily_histograms is node or edge, not '{kind}'")
    if bins < 1:
        raise ShiftproofError(f"option 'bins' is 1 or more, not {bins}")
    measure = node_homophily if kind == "node" else edge_homophily
    clean = measure(graph)
    found = [_histogram("clean", clean, bins)]
    for label, other in (attacked or {}).items():
        sample = measure(other)
        fresh = sample[graph.num_nodes :] if kind == "node" else sample[(other.edges >= graph.num_nodes).any(0)]
        found.append(
            _histogram(
                label,
                sample,
                bins,
                distance=homophily_distance(clean, sample),
                injected_mean=float(fresh.mean()) if len(fresh) else None,
            )
        )
    return found


def draw_histograms(histograms: list[Histogram], *, title: str = "", width: float = 6.0, height: float = 3.2) -> str:
    """The histograms over each other as an SVG picture, the clean one filled."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shiftproof"}):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for number, histogram in enumerate(histograms):
            note = "" if histogram.distance is None else f" (distance {histogram.distance:.3f})"
            axes.stairs(
                histogram.density,
                histogram.edges,
                fill=number == 0,
                alpha=0.35 if number == 0 else 1.0,
                label=f"{histogram.label}{note}",
            )
        axes.set(xlabel="homophily", ylabel="density", xlim=(-1, 1), title=title)
        axes.legend(frameon=False, fontsize="small")
        page = io.StringIO()
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()


def homophily_summary(graph: NodeGraph) -> dict[str, Any]:
    """The numbers one asks of a graph: its size, and its homophily by node, by edge and by label."""
    from shiftproof.robustness.homophily import label_homophily

    nodes, edges = node_homophily(graph), edge_homophily(graph)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "average degree": 2 * graph.num_edges / max(graph.num_nodes, 1),
        "isolated nodes": int((graph.degree == 0).sum()),
        "label homophily": label_homophily(graph),
        "node homophily": float(nodes.mean()),
        "edge homophily": float(edges.mean()),
        "edges below 0.1": float((edges < 0.1).double().mean()),
        "feature range": (float(graph.x.min()), float(graph.x.max())),
    }


def _histogram(label: str, sample: Tensor, bins: int, **others: Any) -> Histogram:
    if not len(sample):
        raise ShiftproofError(f"the {label} graph has nothing to count: no node or no edge")
    counts = torch.histc(sample.detach().float().cpu(), bins, min=-1, max=1).double()
    density = counts / counts.sum() * bins / 2
    values = sample.double()
    return Histogram(
        label,
        tuple(density.tolist()),
        float(values.mean()),
        float(values.std(correction=0)),
        len(sample),
        **others,
    )
