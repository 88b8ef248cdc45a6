"""Histograms of homophily: densities, distances, pictures."""

import xml.etree.ElementTree as ET

import pytest
import torch

from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Perturbation, node_homophily
from shiftproof.robustness.figures import draw_histograms, homophily_histograms, homophily_summary

GRAPH = load("cora-like", nodes=400, features=16)


def injection(features: torch.Tensor) -> Perturbation:
    return Perturbation(
        features=features, edges=torch.stack([torch.arange(len(features)), GRAPH.test[: len(features)]])
    )


# unlike its one neighbour, and just like it
AGAINST, ALIKE = (injection(sign * GRAPH.x[GRAPH.test[:20]]).apply(GRAPH) for sign in (-1, 1))


def test_densities_sum_to_one_and_attacks_show() -> None:
    clean, against, alike = homophily_histograms(GRAPH, {"against": AGAINST, "alike": ALIKE})
    for histogram in (clean, against, alike):
        assert sum(histogram.density) * 2 / 100 == pytest.approx(1)
        assert len(histogram.edges) == 101
    assert (clean.count, against.count, clean.distance) == (400, 420, None)
    assert against.injected_mean == pytest.approx(-1, abs=1e-5)
    assert alike.injected_mean == pytest.approx(1, abs=1e-5)
    assert clean.mean == pytest.approx(float(node_homophily(GRAPH).mean()), abs=1e-6)
    assert against.distance is not None
    assert alike.distance is not None
    assert against.distance > alike.distance > 0


def test_edges_have_histograms_of_their_own() -> None:
    clean, against = homophily_histograms(GRAPH, {"against": AGAINST}, kind="edge", bins=10)
    assert (clean.count, against.count) == (GRAPH.num_edges, GRAPH.num_edges + 20)
    assert against.injected_mean == pytest.approx(-1, abs=1e-5)
    assert len(clean.density) == 10


def test_the_picture_is_one_and_the_same_svg() -> None:
    histograms = homophily_histograms(GRAPH, {"pgd": AGAINST})
    picture = draw_histograms(histograms, title="toy")
    assert ET.fromstring(picture).tag.endswith("svg")
    assert "pgd (distance" in picture
    assert "toy" in picture
    assert picture == draw_histograms(histograms, title="toy")


def test_the_summary_and_what_cannot_be_asked() -> None:
    found = homophily_summary(GRAPH)
    assert (found["nodes"], found["edges"], found["isolated nodes"]) == (400, 768, 0)
    assert found["label homophily"] == pytest.approx(0.81, abs=0.05)
    with pytest.raises(ShiftproofError, match="node or edge, not 'label'"):
        homophily_histograms(GRAPH, kind="label")
    with pytest.raises(ShiftproofError, match="1 or more, not 0"):
        homophily_histograms(GRAPH, bins=0)
