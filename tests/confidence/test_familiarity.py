"""How far rows lie from training: nearest neighbours, molecules' likeness, scaffolds without a chemistry package."""

from __future__ import annotations

import numpy as np
import pytest

from shiftproof.confidence.familiarity import Familiarity, likeness, nearest, structure_of
from shiftproof.confidence.scaffolds import scaffold_keys
from shiftproof.confidence.trust import area_under_risk, familiar, risk_at, rule_for
from tests.confidence.worlds import within_binomial


def test_the_nearest_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(80, 3)), rng.normal(size=(9, 3))
    plain = np.sort(np.linalg.norm(new[:, None] - known[None], axis=2), 1)[:, :5].mean(1)
    assert nearest(new, known) == pytest.approx(plain)


def test_likeness_is_the_share_of_common_bits_and_a_molecule_is_like_itself() -> None:
    pytest.importorskip("rdkit")
    from shiftproof.data.readers.molecules import molecule_graphs

    graphs = molecule_graphs(["c1ccccc1O", "CCO", "c1ccccc1C(=O)O", "CCCCN"])
    found = structure_of(graphs)
    assert found is not None
    plain = np.unpackbits(found.bits, axis=1).astype(bool)
    both = (plain[0] & plain[2]).sum() / (plain[0] | plain[2]).sum()
    assert likeness(found.bits[:1], found.bits[2:3])[0] == pytest.approx(both)
    assert likeness(found.bits, found.bits) == pytest.approx(np.ones(4))


def test_molecules_of_one_framework_have_one_number_and_those_without_rings_zero() -> None:
    pytest.importorskip("rdkit")
    from shiftproof.data.readers.molecules import molecule_graphs

    same = ["c1ccccc1", "Cc1ccccc1", "OCCc1ccccc1C"]
    other = ["c1ccncc1", "c1ccc(cc1)c1ccccc1", "c1ccccc1Cc1ccccc1", "C1CCCCC1", "CCO"]
    keys = scaffold_keys(molecule_graphs([*same, *other]))
    assert len(set(keys[:3].tolist())) == 1
    assert len(set(keys.tolist())) == 1 + len(other)
    assert keys[-1] == 0


def test_familiarity_is_a_rank_among_the_rows_that_calibrate() -> None:
    assert familiar(np.array([0.0, 5.0, 99.0]), np.arange(1.0, 10.0)) == pytest.approx([1.0, 0.6, 0.1])
    rng = np.random.default_rng(0)
    kept = Familiarity.of(rng.normal(size=(500, 6)))
    known, new = kept.distances(rng.normal(size=(400, 6))), kept.distances(rng.normal(size=(3000, 6)))
    rare = (familiar(new.distance, known.distance) < 0.05).sum()
    within_binomial(int(rare), 3000, 0.02, 0.08)


def test_the_rule_keeps_its_risk_in_nine_of_ten_calibration_sets() -> None:
    rng = np.random.default_rng(1)
    kept = answered = 0
    for _ in range(300):
        confidence = rng.uniform(0.5, 1, 250)
        rule = rule_for(confidence, rng.random(250) < confidence, 0.2)
        # the chance that a row above the threshold is wrong is known here
        kept += not np.isfinite(rule.threshold) or 1 - (rule.threshold + 1) / 2 <= 0.2
        answered += rule.answered > 0.2
    within_binomial(kept, 300, 0.9)
    assert answered > 250


def test_a_risk_that_cannot_be_kept_answers_nothing_and_says_so() -> None:
    rule = rule_for(np.linspace(0.5, 1, 50), np.zeros(50, bool), 0.1)
    assert rule.answered == 0
    assert "every row is abstained from" in rule.sentence


def test_risk_falls_with_coverage_where_confidence_means_something() -> None:
    sure, losses = np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.0, 0.0, 1.0, 1.0])
    assert risk_at(sure, losses, [0.5, 1.0]) == [0.0, 0.5]
    assert area_under_risk(sure, losses) == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert area_under_risk(-sure, losses) > area_under_risk(sure, losses)
