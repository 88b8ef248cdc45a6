"""Options of the methods that explain: a wrong one is named before anything is trained."""

from __future__ import annotations

import math

import pytest

import shiftproof as sp
from shiftproof.data.readers.points import Neighbours
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.masks import gnnexplainer
from shiftproof.methods.weighted import as_weighted


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("gsat", {"scorer_dropout": 1.5}, "'scorer_dropout' of 'gsat' is a number from 0 to below 1 or none, not 1.5"),
        ("gsat", {"scorer_dropout": -0.1}, "'scorer_dropout' of 'gsat' is a number from 0"),
        ("gsat", {"smooth_min": -1, "attention": "node"}, "'smooth_min' of 'gsat' is a whole number from 0, not -1"),
        ("gmt-simulated", {"samples": 2.5}, "'samples' of 'gmt-simulated' is a whole number from 1, not 2.5"),
        (
            "gmt-simulated",
            {"eval_samples": 0.5},
            "'eval_samples' of 'gmt-simulated' is a whole number from 1 or none",
        ),
        (
            "gmt-simulated",
            {"memory_gib": math.nan},
            "'memory_gib' of 'gmt-simulated' is a number above 0 or none",
        ),
        (
            "gmt-simulated",
            {"memory_gib": math.inf},
            "'memory_gib' of 'gmt-simulated' is a number above 0 or none",
        ),
        ("gmt-sam", {"ratio": 1.5}, "'ratio' of 'gmt-sam' is a number from 0 to 1, not 1.5"),
        ("gmt-sam", {"ratio": -0.5}, "'ratio' of 'gmt-sam' is a number from 0 to 1, not -0.5"),
        ("gmt-sam", {"ratio": math.nan}, "'ratio' of 'gmt-sam' is a number from 0 to 1, not nan"),
        ("gmt-sam", {"reference_epochs": 0}, "'reference_epochs' of 'gmt-sam' is a whole number from 1 or none, not 0"),
        ("dir", {"classifier_width": -1}, "'classifier_width' of 'dir' .* from 1 to 65536 or none, not -1"),
        ("lri-gaussian", {"scale": math.nan}, "'scale' of 'lri-gaussian' is a number above 0, not nan"),
        ("lri-gaussian", {"radius": math.nan}, "'radius' of 'lri-gaussian' is a number above 0 or none, not nan"),
        ("gnnexplainer", {"steps": 0}, "'steps' of 'gnnexplainer' is a whole number from 1, not 0"),
        ("gnnexplainer", {"size": math.nan}, "'size' of 'gnnexplainer' is a number from 0, not nan"),
        ("pgexplainer", {"explainer_epochs": 0}, "'explainer_epochs' of 'pgexplainer' is a whole number from 1, not 0"),
        ("graphmask", {"layerwise": True, "explainer_epochs": 1}, "2 layers are gated .* at least 2 epochs, not 1"),
        ("bernmask", {"mask_lr": math.nan}, "'mask_lr' of 'bernmask' is a number above 0, not nan"),
        ("bernmask", {"entropy": math.inf}, "'entropy' of 'bernmask' is a number from 0, not inf"),
        ("bernmask-p", {"explainer_lr": 0.0}, "'explainer_lr' of 'bernmask-p' is a number above 0, not 0.0"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_trained(tmp_path, method, options, words):
    data = sp.load("ba-2motifs:graphs=20")
    with pytest.raises(ShiftproofError, match=words):
        sp.fit(method, data, epochs=1, hidden=4, layers=2, out=tmp_path / "run", **options)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_prices_that_are_no_numbers_do_not_become_scores():
    data = sp.load("ba-2motifs:graphs=20")
    model = as_weighted(sp.fit("erm", data, epochs=1, hidden=4, layers=1).method)
    with pytest.raises(ShiftproofError, match="'size' of gnnexplainer is a number from 0, not nan"):
        gnnexplainer(model, data.test.whole(), steps=1, size=math.nan)


def test_a_radius_that_is_no_number_joins_nobody():
    with pytest.raises(ShiftproofError, match="is positive, not nan"):
        Neighbours(k=None, radius=math.nan)
