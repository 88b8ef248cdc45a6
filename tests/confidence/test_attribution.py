"""Where a drop comes from: worlds in which only one thing moved, and the parts that must say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shiftproof as sp
from shiftproof.confidence import attribute_drop, what_moved
from shiftproof.errors import ShiftproofError
from tests.confidence.test_calibrating import rows, trained


def parts(told) -> dict[str, float]:
    return {part.name: part.value for part in told.parts}


def hard(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Losses of a model that errs more on the right."""
    return (rng.random(len(x)) < np.clip(0.2 + 0.2 * x[:, 0], 0, 1)).astype(float)


def test_the_parts_sum_to_the_drop() -> None:
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(500, 2)), rng.normal(size=(400, 2)) + 0.5
    told = attribute_drop(hard(x, rng), hard(new, rng), x, new)
    assert sum(parts(told).values()) == pytest.approx(told.drop)
    assert told.drop == pytest.approx(told.after - told.before)


def test_hard_rows_that_are_more_frequent_are_the_inputs() -> None:
    rng = np.random.default_rng(1)
    x, new = rng.normal(size=(3000, 2)), rng.normal(size=(3000, 2)) * [0.5, 1] + [0.9, 0]
    told = parts(attribute_drop(hard(x, rng), hard(new, rng), x, new))
    assert told["inputs"] > 0.06
    assert abs(told["labels given inputs"]) < 0.04


def test_labels_that_changed_where_the_inputs_did_not_are_the_labels() -> None:
    rng = np.random.default_rng(2)
    x, new = rng.normal(size=(1500, 2)), rng.normal(size=(1500, 2))
    told = attribute_drop(hard(x, rng), np.maximum(hard(new, rng), rng.random(1500) < 0.3), x, new)
    assert parts(told)["labels given inputs"] > 0.15
    assert abs(parts(told)["inputs"]) < 0.03
    assert abs(parts(told)["selection"]) < 0.03
    assert "labels given inputs: rows that look alike" in told.sentence


def test_a_region_that_was_never_seen_is_the_selection() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 2))
    new = np.concatenate([rng.normal(size=(1000, 2)), rng.normal([8, 0], 1, size=(1000, 2))])
    losses = np.where(new[:, 0] > 4, 0.9, 0.2)
    told = parts(attribute_drop(np.full(2000, 0.2), losses, x, new))
    assert told["selection"] > 0.25
    assert abs(told["inputs"]) + abs(told["labels given inputs"]) < 0.08


def test_the_column_that_moved_is_named_first_and_the_environment_that_fell_too() -> None:
    rng = np.random.default_rng(4)
    x, new = rng.normal(size=(1500, 2)), rng.normal([0.8, 0], 1, size=(1500, 2))
    env = np.repeat(["a", "b"], 750)
    losses = np.where(env == "b", 1.0, hard(new, rng))
    names = {"right": 0, "up": 1}
    told = attribute_drop(
        hard(x, rng), losses, x, new, new_env=env,
        columns={n: x[:, k] for n, k in names.items()}, new_columns={n: new[:, k] for n, k in names.items()},
    )  # fmt: skip
    assert told.by_column[0].name == "right"
    of = {name: {part.name: part.value for part in own} for name, own in told.by_env.items()}
    assert of["b"]["labels given inputs"] > of["a"]["labels given inputs"] + 0.3


def test_a_calibrated_run_says_what_moved_and_draws_it(tmp_path: Path) -> None:
    run, data = trained()
    made = sp.calibrate(run, data)
    told = what_moved(made, rows(30, 500, shift=0.6))
    assert sum(parts(told).values()) == pytest.approx(told.drop)
    assert {"distance from training", "direction 1"} <= {share.name for share in told.by_column}
    assert told.draw(tmp_path / "fall.svg").read_text().startswith("<?xml")
    with pytest.raises(ShiftproofError, match="calibrated run"):
        what_moved(run, data.test)
    with pytest.raises(ShiftproofError, match="at least 30 rows"):
        what_moved(made, rows(30, 10))
